"""Packets marked by how much of the iteration, or of a tensor, is left: the sender's side of strict priority.

A band is a class selector in the IP header (RFC 2474): CS0, the lowest, where most is left, up to CS7.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.transports import Buffer, Close, Counters, Endpoint, Message, Tagger, Transfer

MOST = 8  # class selectors


def tos(band: int) -> int:
    """The IP header's second byte of a packet in ``band`` (0: lowest)."""
    return band << 5


def mark(link: socket.socket, band: int) -> None:
    """Send what follows on ``link`` in ``band``."""
    link.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos(band))


def band(thresholds: Sequence[int], sent: int, left: int, *, falls: bool) -> int:
    """Return the priority queue of a transfer with ``sent`` bytes sent and ``left`` bytes remaining; thresholds as in
    `Bands`."""
    return (
        sum(sent < threshold for threshold in thresholds)
        if falls
        else sum(left <= threshold for threshold in thresholds)
    )


@dataclass(frozen=True)
class ByBand:
    """One endpoint for each priority queue, lowest first; with concurrent messages, each uses the endpoint of its queue.

    A flow is the transfer of a tensor between two workers. A part of it keeps the queue that it had at its start
    (`collectives.Link.partition`), so a connection stays in order.
    """

    levels: Sequence[Endpoint]
    thresholds: Sequence[int]
    falls: bool

    def band(self, m: Message) -> int:
        return band(self.thresholds, m.before, m.bytes + m.behind, falls=self.falls)

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        return self.levels[self.band(m)].post_send(to, m, data, tag)

    def post_receive(self, source: int, m: Message, into: Buffer | None, close: Close) -> Transfer:
        return self.levels[self.band(m)].post_receive(source, m, into, close)

    def counters(self, peer: int) -> Counters:
        """The counters of the lowest band's connection."""
        return self.levels[0].counters(peer)

    def end(self, reason: str, gone: int | None = None) -> None:
        for level in self.levels:
            level.end(reason, gone)


class Bands:
    """The remaining bytes of one worker, and the band of its packets that follows.

    ``thresholds``: remaining bytes at which the band rises, falling; with ``falls`` bytes sent at which it falls, rising. ``total``: of
    one iteration.
    """

    def __init__(self, thresholds: Sequence[int], total: int, *, falls: bool = False) -> None:
        self.thresholds, self.total, self.falls = thresholds, total, falls
        self.left = total
        self.marked: dict[socket.socket, int] = {}
        self.lock = threading.Lock()  # several connections may send at once

    def begin(self) -> None:
        """Begin an iteration: reset the sent bytes."""
        self.left = self.total

    @property
    def band(self) -> int:
        return band(self.thresholds, self.total - self.left, self.left, falls=self.falls)

    @property
    def _in_band(self) -> int:
        """Bytes until it changes."""
        if self.falls:
            sent = self.total - self.left
            return next((threshold - sent for threshold in self.thresholds if threshold > sent), self.left)
        band = self.band
        return self.left - (self.thresholds[band] if band < len(self.thresholds) else 0)

    def claim(self, link: socket.socket, size: int) -> int:
        """Mark ``link`` and return how many of ``size`` bytes may be sent before the priority queue changes."""
        with self.lock:
            band = self.band
            if self.marked.get(link, 0) != band:
                mark(link, band)
                self.marked[link] = band
            claimed = min(size, max(1, self._in_band))
            self.left -= claimed
            return claimed

    def raise_to_top(self, link: socket.socket) -> None:
        """Give a connection the highest priority, for data that must not wait."""
        mark(link, len(self.thresholds))

    def give_back(self, size: int) -> None:
        """Claimed, but not sent."""
        with self.lock:
            self.left += size
