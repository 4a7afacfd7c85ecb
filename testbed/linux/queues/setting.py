"""A tree of queues at an interface, as a setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

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
    """What packets wait in that leave ``node`` by ``device``, in the direction ``link`` (``s1-s2``)."""

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
        """The same at another rate."""
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
        waits = "fq" if isinstance(below, Fq) else f"a queue of {below.buffer_bytes} B"
        return f"NIC of {self.root.rate_bps} bit/s behind {waits}"


def described(link: str, root: Tbf | Netem) -> str:
    """In words."""
    if isinstance(root, Netem):
        bursts = f" within bursts ({root.burst.begins:.4%} begins, {root.burst.ends:.4%} ends)" if root.burst else ""
        return (
            f"{link}: delay {root.delay_ns / 1e6:g} ms ± {root.jitter_ns / 1e6:g} ms, loss {root.loss:.4%}{bursts}, "
            f"corrupt {root.corrupt:.4%}"
        )
    return ", ".join(
        [f"shape {link}: {root.rate_bps} bit/s", f"buffer {root.below.buffer_bytes} B", *_parts(root.below)]
    )


def _parts(queue: Queue) -> Iterator[str]:
    if isinstance(queue, Discipline):
        yield queue.chosen.typed
    if isinstance(queue, Red):
        marks = f"mark from {queue.min_bytes} B, from {queue.max_bytes} B with {queue.probability:.4%}"
        yield marks + (" and drop what cannot be marked" if queue.otherwise == "drop" else "")
    if isinstance(queue, Prio | Htb):
        for each in queue.classify:
            if isinstance(each, PureAcks):
                yield "pure ACKs first"
            elif isinstance(each, Dscp):
                yield f"{each.levels} bands of priority"
        if isinstance(queue, Htb):
            yield "by HTB"
        for band in queue.bands:
            yield from _parts(band)
