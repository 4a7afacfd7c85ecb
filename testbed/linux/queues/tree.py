"""Queues as a tree of values: the request that makes one, the state that the kernel then holds, and their comparison.

A queue (`tbf`, `prio`, `htb`, `red`, `fifo`, `netem`: one file each) has its options as bytes. It also computes the
values that the kernel derives from them (``asked``, with the kernel's rounding), and parses the kernel's answer
(``held``). The code that all kinds share is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from testbed.linux.rtnetlink import TC_H_ROOT, Kind, Tc, handle

UNKNOWN = "unknown"  # a value that this kernel cannot report


class Queue(Protocol):
    """One queueing discipline, with those below it."""

    @property
    def kind(self) -> str:
        """Return the kernel's name of the queue."""
        ...

    @property
    def children(self) -> Mapping[int, Queue]:
        """Return the queues below, by their minor numbers."""
        ...

    @property
    def own(self) -> bool:
        """Return True if the queue must be created; else its parent creates it."""
        ...

    def options(self) -> bytes: ...
    def classes(self, major: int) -> Iterable[Tc]: ...
    def filters(self, major: int) -> Iterable[Tc]: ...
    def asked(self, major: int) -> dict[str, Any]:
        """Return the parameters that the kernel should hold, without queues below."""
        ...

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        """Return the parameters that the kernel shows, in the form of `asked`."""
        ...


def _walk(queue: Queue, major: int, parent: int) -> Iterator[tuple[Queue, int, int]]:
    """Every queue with its handle's major number and its parent, from above; below ``10:2`` it is ``22:``."""
    yield queue, major, parent
    for minor, below in queue.children.items():
        yield from _walk(below, _major(major, minor), handle(major, minor))


def _major(above: int, minor: int) -> int:
    return 0x10 if above == 1 else (above & ~0xF) + 0x10 + minor


def messages(root: Queue) -> tuple[Tc, ...]:
    """Return all netlink messages that create the tree, in order."""
    return tuple(
        message for queue, major, parent in _walk(root, 1, TC_H_ROOT) for message in _made(queue, major, parent)
    )


def _made(queue: Queue, major: int, parent: int) -> Iterator[Tc]:
    if queue.own:
        yield Tc("qdisc", queue.kind, handle(major), parent, queue.options())
    yield from queue.classes(major)
    yield from queue.filters(major)


def expected(queue: Queue, major: int = 1) -> dict[str, Any]:
    """Return the parameters that the kernel should hold for the complete tree."""
    below = {f"below_{minor}": expected(child, _major(major, minor)) for minor, child in queue.children.items()}
    return {"queue": queue.kind, **queue.asked(major), **below}


def read(queue: Queue, shown: Mapping[Kind, Sequence[Tc]], major: int = 1, parent: int = TC_H_ROOT) -> dict[str, Any]:
    """Return the parameters that the kernel holds for the tree; ``shown``: its qdiscs, classes and filters."""
    found = next((one for one in shown["qdisc"] if one.parent == parent), None)
    if found is None:
        return {"queue": None}
    if found.kind != queue.kind:
        return {"queue": found.kind}
    classes = [one for one in shown["class"] if one.handle >> 16 == major]
    filters = [one for one in shown["filter"] if one.parent >> 16 == major]
    below = {
        f"below_{minor}": read(child, shown, _major(major, minor), handle(major, minor))
        for minor, child in queue.children.items()
    }
    return {"queue": found.kind, **queue.held(found.options, classes, filters), **below}


def matches(asked: Any, found: Any) -> bool:
    """Return True if ``found`` equals ``asked`` or is unknown."""
    if found == UNKNOWN:
        return True
    if isinstance(asked, dict) and isinstance(found, dict):
        return asked.keys() == found.keys() and all(matches(asked[key], found[key]) for key in asked)
    return bool(asked == found)


class Leaf:
    """A queue without classes, filters, and queues below, which must be created."""

    @property
    def children(self) -> Mapping[int, Queue]:
        return {}

    @property
    def own(self) -> bool:
        return True

    def classes(self, major: int) -> Iterable[Tc]:
        return ()

    def filters(self, major: int) -> Iterable[Tc]:
        return ()
