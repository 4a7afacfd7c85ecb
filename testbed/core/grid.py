"""The instants at which a job's iterations may begin: a grid of slots, as CASSINI's time-shifts require.

A job that keeps its pace is never delayed. An iteration that would begin more than 5 % of the period away from a slot waits
for the next slot (CASSINI's rule; the 5 % are recalled, not confirmed). The communication phase begins a constant span of
computing after its iteration. A slot for the one is therefore a slot for the other.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERATED = 0.05  # drift ÷ period


@dataclass(frozen=True)
class Grid:
    """Slots at ``phase_ns + k * period_ns`` after the common start."""

    period_ns: int
    phase_ns: int

    def drift_ns(self, now_ns: int) -> int:
        """Distance of ``now_ns`` from the nearest slot, in ns; negative: early."""
        past = (now_ns - self.phase_ns) % self.period_ns
        return past if 2 * past <= self.period_ns else past - self.period_ns

    def next_ns(self, now_ns: int) -> int:
        """The next slot, which may be now."""
        return now_ns + (self.phase_ns - now_ns) % self.period_ns

    def begin_ns(self, now_ns: int) -> int:
        """Return the start, in ns, of an iteration that is ready at ``now_ns``: that time, or the next slot after too
        much drift."""
        return self.next_ns(now_ns) if abs(self.drift_ns(now_ns)) > TOLERATED * self.period_ns else now_ns
