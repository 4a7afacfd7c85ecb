"""Iterations of one worker with concurrent exchanges, or with a next iteration that begins before the last has ended.

``after: ["pull3@-1"]`` waits for an operation of the previous iteration: layer 3 of the next forward pass waits only
for its own parameters. Computes run one after the other, across iterations too. With credit, every exchange begins as
soon as possible, and its messages go by iteration, then layer. Without credit, exchanges follow each other in order. An
iteration lasts from the start of its first compute to that of the next iteration. Its row is reported once its
exchanges have ended, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.core.clock import sleep_until

EARLIER = "@-1"  # behind an operation's name: that of the iteration before
Done = tuple[int, str]  # iteration and operation


class Operation(Protocol):
    """The fields of an operation that are used here."""

    @property
    def id(self) -> str: ...
    @property
    def after(self) -> tuple[str, ...]: ...
    @property
    def duration_ns(self) -> int: ...


@dataclass
class Iteration:
    """One iteration to report; times of the monotonic clock in ns."""

    number: int
    begun: int
    late: int = 0
    end: int = 0
    timeline: list[tuple[str, int, int]] = field(default_factory=list)


class _Board:
    """Which operations of which iterations are done."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.done: dict[Done, int] = {}
        self.failure: BaseException | None = None

    def wait(self, wanted: Collection[Done]) -> int:
        """Block until all are done; the time of the last one, or 0 for none."""
        with self.changed:
            while not all(one in self.done for one in wanted):
                if self.failure:
                    raise SystemExit(f"communication failed: {self.failure}")
                self.changed.wait()
            return max((self.done[one] for one in wanted), default=0)

    def finish(self, operation: Done, when: int) -> None:
        with self.changed:
            self.done[operation] = when
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failure = error
            self.changed.notify_all()

    def forget(self, before: int) -> None:
        """Drop the operations of iterations that no operation waits for any more."""
        with self.changed:
            self.done = {one: when for one, when in self.done.items() if one[0] >= before}


class Overlapping:
    """One worker's iterations, until it is killed."""

    def __init__(
        self, computes: Sequence[Operation], exchanges: Sequence[Operation], carry_out: Callable[[int, str], None],
        tell: Callable[[Iteration], None], factor: Callable[[], float], *, at_once: bool,
        streams: Sequence[Sequence[Operation]] | None = None,
    ) -> None:  # fmt: skip
        """Prepare iterations of ``computes`` and ``exchanges``.

        ``carry_out``: executes an exchange of an iteration, blocking. ``at_once``: exchanges begin as soon as possible,
        not in order. ``streams``: sequences of exchanges that follow each other; None: one sequence of all.
        """
        self.computes, self.exchanges, self.carry_out, self.tell, self.factor = (
            computes, exchanges, carry_out, tell, factor,
        )  # fmt: skip
        self.streams = [exchanges][: len(exchanges)] if streams is None else streams
        self.at_once = at_once
        self.board = _Board()
        self.names = [op.id for op in (*computes, *exchanges)]
        # Without references to the previous iteration, the next one waits for all of it.
        self.overlaps = any(name.endswith(EARLIER) for op in (*computes, *exchanges) for name in op.after)
        # The first compute may wait for an exchange without dependencies in its iteration, so exchanges start before it.
        own = set(self.names)
        self.early = bool(computes) and any(not own & set(op.after) for op in exchanges)
        self.timelines: dict[int, list[tuple[str, int, int]]] = {}
        self.begun: dict[int, Iteration] = {}
        self.order = threading.Condition()

    def run(self, start_ns: int) -> None:
        free = start_ns
        threading.Thread(target=self._guarded, args=(self._report,), daemon=True).start()
        number = 0
        while True:
            free = self._iterate(number, free)
            number += 1

    def _iterate(self, number: int, free: int) -> int:
        if not self.overlaps and number:
            free = max(free, self.board.wait([(number - 1, name) for name in self.names]))
        if not self.computes:
            sleep_until(free)
            self._begin(number, free)
        elif self.early:
            sleep_until(free)
            self._start_exchanges(number)
        factor = self.factor()
        for place, op in enumerate(self.computes):
            begins = max(free, self.board.wait(self._waits(number, op)))
            if place == 0:
                sleep_until(begins)
                self._begin(number, begins)
            free = begins + int(op.duration_ns * factor)
            sleep_until(free)
            now = time.monotonic_ns()
            self.begun[number].late = max(self.begun[number].late, now - free)
            self.board.finish((number, op.id), now)
        if not self.computes:
            free = self.board.wait([(number, name) for name in self.names])
        return free

    def _waits(self, number: int, op: Operation) -> list[Done]:
        names = set(self.names)
        earlier = [(number - 1, name.removesuffix(EARLIER)) for name in op.after if name.endswith(EARLIER)]
        own = [(number, name) for name in op.after if name in names]
        return own + ([one for one in earlier if one[1] in names] if number else [])

    def _begin(self, number: int, at: int) -> None:
        with self.order:
            timeline = self.timelines.setdefault(number, [])
            self.begun[number] = Iteration(number, at, timeline=timeline)
            self.order.notify_all()
        if not self.early:
            self._start_exchanges(number)

    def _start_exchanges(self, number: int) -> None:
        if self.at_once:
            for op in self.exchanges:
                threading.Thread(target=self._guarded, args=(self._exchange, number, op), daemon=True).start()
        else:
            for stream in self.streams:
                threading.Thread(target=self._guarded, args=(self._one_by_one, number, stream), daemon=True).start()

    def _one_by_one(self, number: int, stream: Sequence[Operation]) -> None:
        if number:
            self.board.wait([(number - 1, op.id) for op in stream])
        for op in stream:
            self._exchange(number, op)

    def _exchange(self, number: int, op: Operation) -> None:
        self.board.wait(self._waits(number, op))
        begun = time.monotonic_ns()
        self.carry_out(number, op.id)
        ended = time.monotonic_ns()
        self.timelines.setdefault(number, []).append((op.id, begun, ended))
        self.board.finish((number, op.id), ended)

    def _report(self) -> None:
        """Report each iteration when the next iteration has begun and all of it has ended, in order."""
        number = 0
        while True:
            with self.order:
                while number + 1 not in self.begun:
                    self.order.wait()
                iteration = self.begun[number]
                iteration.end = self.begun[number + 1].begun
            self.board.wait([(number, name) for name in self.names])
            self.tell(iteration)
            self.board.forget(number)
            with self.order:
                del self.begun[number], self.timelines[number]
            number += 1

    def _guarded(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            what(*arguments)
        except BaseException as error:
            self.board.fail(error)
