"""The kernel's transport, TCP. Each other transport is a file in `testbed/transports/`."""

from __future__ import annotations

from testbed.core import system_text

TCP = "tcp"


def by_kernel(transport: str) -> bool:
    """Return True if the kernel carries and counts its bytes: TCP, plain or with options."""
    return system_text.name_of(transport) == TCP


def plain(transport: str) -> bool:
    """Return True for TCP without options: the job uses its sockets directly."""
    return transport == TCP


def routers_spray(transport: str) -> bool:
    """Return True if routers spray its packets over all equal paths, as ``tcp:spray=on`` requests."""
    return by_kernel(transport) and dict(system_text.part(transport).options).get("spray") in ("on", "yes")
