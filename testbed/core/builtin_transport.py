"""Which transport is the kernel's own; what there is besides is a file each in `testbed/transports/`."""

from __future__ import annotations

TCP = "tcp"


def by_kernel(transport: str) -> bool:
    """Whether the kernel carries its bytes, and counts them: TCP, plain or with options."""
    return transport.partition(":")[0] == TCP


def plain(transport: str) -> bool:
    """Whether nothing of ours is between a job and its sockets: TCP without options."""
    return transport == TCP


def routers_spray(transport: str) -> bool:
    """Whether routers send its packets over all equal paths in turn, as ``tcp:spray=on`` asks."""
    options = transport.partition(":")[2].split(",")
    return by_kernel(transport) and ("spray=on" in options or "spray=yes" in options)
