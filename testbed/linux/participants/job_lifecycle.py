"""Jobs that hold GPUs: which wait, which run, and which start when others have ended. Needs no kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.core.runs import rows
from testbed.core.runs.plan import JobPlan, Life

Outcome = Literal["done", "left", "failed"]


@dataclass(frozen=True)
class _Ended:
    at_ns: int
    outcome: Outcome
    failure_reason: str


class Lives:
    """Where jobs stand; times in ns after the start of the run."""

    def __init__(self, jobs: Sequence[JobPlan]) -> None:
        self.lives: dict[int, Life] = {job.job: job.life for job in jobs if job.life is not None}
        self.free_ns = dict.fromkeys((gpu for life in self.lives.values() for gpu in life.gpus), 0)  # since when
        self.started_ns: dict[int, int] = {}
        self.ended: dict[int, _Ended] = {}

    @property
    def waiting(self) -> list[int]:
        """The jobs that have not started, and still may."""
        return sorted(self.lives.keys() - self.started_ns.keys() - self.ended.keys())

    def start(self, now_ns: int) -> list[tuple[int, int]]:
        """Start every job that may start by now, in the order of their numbers; each with the instant from which it could.

        That instant is the latest of three: its arrival, the end of the jobs that it waits for, and the release of its GPUs.
        """
        found = []
        for number in self.waiting:
            at_ns = self._could_start(self.lives[number])
            if at_ns is not None and at_ns <= now_ns:
                self.started_ns[number] = at_ns
                for gpu in self.lives[number].gpus:
                    del self.free_ns[gpu]
                found.append((number, at_ns))
        return found

    def _could_start(self, life: Life) -> int | None:
        if not all(job in self.ended for job in life.after) or not all(gpu in self.free_ns for gpu in life.gpus):
            return None
        ends = (self.ended[job].at_ns for job in life.after)
        return max([life.at_ns, *ends, *(self.free_ns[gpu] for gpu in life.gpus)])

    @property
    def next_ns(self) -> int | None:
        """When a job starts if until then none ends; None: none does."""
        return min((at for number in self.waiting if (at := self._could_start(self.lives[number])) is not None), default=None)  # fmt: skip

    def end(self, number: int, at_ns: int, outcome: Outcome = "done", failure_reason: str = "") -> None:
        """It is over; its GPUs are free from then on."""
        self.ended[number] = _Ended(at_ns, outcome, failure_reason)
        if number in self.started_ns:
            self.free_ns |= dict.fromkeys(self.lives[number].gpus, at_ns)

    def rows(self) -> Iterable[rows.Job]:
        """``jobs.csv``, once all have ended."""
        for number, life in sorted(self.lives.items()):
            ended, began = self.ended[number], self.started_ns.get(number)
            yield rows.Job(
                number, life.arrival_ns / 1e9, None if began is None else began / 1e9, ended.at_ns / 1e9, ended.outcome,
                " ".join(life.gpus), ended.failure_reason,
            )  # fmt: skip
