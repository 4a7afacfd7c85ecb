"""Whether a run repeats itself, so that the rest of it is known.

Under virtual time and without randomness, a network in the same state repeats its behaviour. Two parts of that state are
recorded. Every worker's last iterations are equal to the nanosecond, with one period for all workers. So is the state that
TCP keeps of each flow at the ends of these iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from testbed.core.runs.manifest import Period
from testbed.linux.participants.workers import Record

Worker = tuple[int, int]  # job, rank


@dataclass
class Repeating:
    """The period of one job, updated with each record. ``alike``: required number of equal iterations in a row."""

    wanted: dict[Worker, int]  # iterations
    alike: int
    last: dict[Worker, Record] = field(default_factory=dict)
    period_ns: dict[Worker, int] = field(default_factory=dict)
    count: dict[Worker, int] = field(default_factory=dict)  # equal iterations in a row, the last one included

    def hear(self, record: Record) -> None:
        who = (record.job, record.rank)
        before, period_ns = self.last.get(who), self.period_ns.get(who)
        self.last[who] = record
        self.count[who] = self.count.get(who, 0) + 1
        if before is None:
            return
        self.period_ns[who] = record.start - before.start
        if _after(before, self.period_ns[who]) != record:
            self.count[who] = 1
        elif period_ns != self.period_ns[who]:
            self.count[who] = 2

    @property
    def common_period(self) -> Period | None:
        """If all repeat: how."""
        if set(self.count) != set(self.wanted) or min(self.count.values()) < self.alike:
            return None
        if len(periods := set(self.period_ns.values())) != 1:
            return None
        carried = {job: min(self.last[one].iteration + 1 for one in self.last if one[0] == job) for job, _ in self.last}
        return Period(periods.pop() / 1e9, self.alike, tuple(carried[job] for job in sorted(carried)))

    def rest(self) -> list[Record]:
        """The iterations that each worker would still have gone through."""
        return [
            _after(last, self.period_ns[who] * number, number)
            for who, last in self.last.items()
            for number in range(1, self.wanted[who] - last.iteration)
        ]


def _after(record: Record, later_ns: int, number: int = 1) -> Record:
    """The same, so many iterations and nanoseconds later."""
    return replace(
        record,
        iteration=record.iteration + number,
        start=record.start + later_ns,
        comm_start=record.comm_start + later_ns,
        end=record.end + later_ns,
        operations=[[name, begun + later_ns, ended + later_ns] for name, begun, ended in record.operations],
    )
