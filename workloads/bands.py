"""Packets marked by how much of the iteration is left: the sender's side of strict priority.

A band is a class selector in the IP header (RFC 2474): CS0, the lowest, where most is left, up to CS7.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

MOST = 8  # class selectors


def tos(band: int) -> int:
    """The IP header's second byte of a packet in ``band`` (0: lowest)."""
    return band << 5


def mark(link: socket.socket, band: int) -> None:
    """Send what follows on ``link`` in ``band``."""
    link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos(band))


class Bands:
    """What one worker has left to send, and the band this puts its packets in.

    ``thresholds``: remaining bytes at which the band rises, falling; with ``falls`` bytes sent at which it falls, rising. ``total``: of
    one iteration.
    """

    def __init__(self, thresholds: Sequence[int], total: int, *, falls: bool = False) -> None:
        self.thresholds, self.total, self.falls = thresholds, total, falls
        self.left = total
        self.marked: dict[socket.socket, int] = {}
        self.lock = threading.Lock()  # several connections may send at once

    def begin(self) -> None:
        """An iteration begins."""
        self.left = self.total

    @property
    def band(self) -> int:
        if self.falls:
            return sum(self.total - self.left < threshold for threshold in self.thresholds)
        return sum(self.left <= threshold for threshold in self.thresholds)

    @property
    def _in_band(self) -> int:
        """Bytes until it changes."""
        if self.falls:
            sent = self.total - self.left
            return next((threshold - sent for threshold in self.thresholds if threshold > sent), self.left)
        band = self.band
        return self.left - (self.thresholds[band] if band < len(self.thresholds) else 0)

    def claim(self, link: socket.socket, size: int) -> int:
        """Mark ``link`` and say how many of ``size`` bytes may be sent before the band changes."""
        with self.lock:
            band = self.band
            if self.marked.get(link, 0) != band:
                mark(link, band)
                self.marked[link] = band
            claimed = min(size, max(1, self._in_band))
            self.left -= claimed
            return claimed

    def raise_to_top(self, link: socket.socket) -> None:
        """For what nothing may hold up."""
        mark(link, len(self.thresholds))

    def give_back(self, size: int) -> None:
        """Claimed, but not sent."""
        with self.lock:
            self.left += size
