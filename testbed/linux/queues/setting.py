"""A tree of queues at an interface, as a setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from testbed.core.units import rate_text, size_text
from testbed.linux.kernel import Kernel
from testbed.linux.queues import tree
from testbed.linux.queues.classify import Dscp, PureAcks
from testbed.linux.queues.discipline import Discipline
from testbed.linux.queues.fq import Fq
from testbed.linux.queues.netem import Netem
from testbed.linux.queues.prio import Htb, Prio
from testbed.linux.queues.red import Red
from testbed.linux.queues.tbf import Tbf
from testbed.linux.queues.tree import Queue


@dataclass(frozen=True)
class Queues:
    """The queues of packets that leave ``node`` by ``device``, in the direction ``link`` (``s1-s2``)."""

    node: str
    device: str
    link: str
    root: Tbf | Netem

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "shaper" if isinstance(self.root, Tbf) else "netem"

    @property
    def asked(self) -> dict[str, Any]:
        return tree.expected(self.root)

    @property
    def line(self) -> str:
        return described(self.link, self.root)

    def apply(self, kernel: Kernel) -> None:
        kernel.queue(self.node, self.device, tree.messages(self.root))

    def read(self, kernel: Kernel) -> dict[str, Any]:
        sent = tree.messages(self.root)
        parents = dict.fromkeys(message.handle for message in sent if message.what == "qdisc")
        return tree.read(self.root, kernel.queues(self.node, self.device, parents))

    def with_rate(self, rate_bps: int) -> Queues:
        """Return these queues with another rate in bit/s."""
        assert isinstance(self.root, Tbf)
        return replace(self, root=replace(self.root, rate_bps=rate_bps))

    def change(self, kernel: Kernel) -> None:
        """Make the rate of the running shaper this one's; what waits in it stays."""
        kernel.queue(self.node, self.device, tree.messages(self.root)[:1], change=True)


@dataclass(frozen=True)
class Nic(Queues):
    """A host's own interface: its rate, and the queue before it."""

    root: Tbf

    @property
    def what(self) -> str:
        return "nic"

    @property
    def line(self) -> str:
        below = self.root.below
        queue = "fq" if isinstance(below, Fq) else size_text(below.buffer_bytes)
        return f"NIC {rate_text(self.root.rate_bps)}, queue {queue}"


def described(link: str, root: Tbf | Netem) -> str:
    """Return a description of the queues in words."""
    if isinstance(root, Netem):
        bursts = f" within bursts ({root.burst.begins:.4%} begins, {root.burst.ends:.4%} ends)" if root.burst else ""
        return (
            f"{link}: delay {root.delay_ns / 1e6:g} ms ± {root.jitter_ns / 1e6:g} ms, loss {root.loss:.4%}{bursts}, "
            f"corrupt {root.corrupt:.4%}"
        )
    return ", ".join(
        [f"{link}: {rate_text(root.rate_bps)}", f"buffer {size_text(root.below.buffer_bytes)}", *_parts(root.below)]
    )


def marking(min_bytes: int, max_bytes: int, probability: float) -> str:
    """RED's marking in words."""
    if min_bytes == max_bytes and probability == 1:
        return f"ECN marking above {size_text(min_bytes)}"
    return f"ECN marking from {size_text(min_bytes)}, at {size_text(max_bytes)} with {probability * 100:.4g} %"


def _parts(queue: Queue) -> Iterator[str]:
    if isinstance(queue, Discipline):
        yield queue.chosen.typed
    if isinstance(queue, Red):
        yield marking(queue.min_bytes, queue.max_bytes, queue.probability)
        if queue.otherwise == "drop":
            yield "packets without ECN dropped instead"
    if isinstance(queue, Prio | Htb):
        for each in queue.classify:
            if isinstance(each, PureAcks):
                yield "pure ACKs first"
            elif isinstance(each, Dscp):
                yield f"{each.levels} priority queues"
        if isinstance(queue, Htb):
            yield "HTB"
        for band in queue.bands:
            yield from _parts(band)
