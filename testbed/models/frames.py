"""The payload share of a frame: headers, defined once."""

from __future__ import annotations

ETHERNET, IPV4, TCP = 14, 20, 32  # bytes; TCP with timestamps (RFC 7323)
HEADERS = ETHERNET + IPV4 + TCP


def frame(mtu: int) -> int:
    """Bytes of a full frame at the queue."""
    return mtu + ETHERNET


def payload_share(mtu: int) -> float:
    """Payload ÷ bytes of a full frame."""
    return (mtu - IPV4 - TCP) / frame(mtu)
