"""Which transport is the kernel's own; what there is besides is a file each in `testbed/transports/`."""

from __future__ import annotations

from testbed.core import system_text

TCP = "tcp"


def by_kernel(transport: str) -> bool:
    """Whether the kernel carries its bytes, and counts them: TCP, plain or with options."""
    return system_text.name_of(transport) == TCP


def plain(transport: str) -> bool:
    """Whether nothing of ours is between a job and its sockets: TCP without options."""
    return transport == TCP


def routers_spray(transport: str) -> bool:
    """Whether routers send its packets over all equal paths in turn, as ``tcp:spray=on`` asks."""
    return by_kernel(transport) and dict(system_text.part(transport).options).get("spray") in ("on", "yes")
