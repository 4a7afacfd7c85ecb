"""Jobs that communicate in turns: a job may communicate while no other does on the links that they share. Needs no kernel."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.core.runs.plan import JobPlan


class Turns:
    """The jobs that ask for links, that hold them, and that are next: the one that runs longest. A holder keeps its links."""

    def __init__(self, jobs: Sequence[JobPlan]) -> None:
        self.jobs = {job.job: job for job in jobs if job.exclusive}
        self.left = {number: job.iterations for number, job in self.jobs.items()}  # iterations that it has not ended
        self.asking: dict[int, set[int]] = {number: set() for number in self.jobs}  # its ranks
        self.sending: dict[int, set[int]] = {}  # of those that hold their links, the ranks that have not ended

    def ask(self, job: int, rank: int) -> None:
        """A rank is ready to communicate."""
        self.asking[job].add(rank)

    def done(self, job: int, rank: int) -> None:
        """It has ended what it was granted."""
        self.sending[job].discard(rank)
        if not self.sending[job]:
            del self.sending[job]

    def ended(self, job: int, iteration: int) -> None:
        """It has ended this iteration."""
        if job in self.left:
            self.left[job] = self.jobs[job].iterations - iteration - 1

    def over(self, job: int) -> None:
        """It is gone, and holds nothing."""
        self.sending.pop(job, None)
        if job in self.asking:
            self.asking[job].clear()

    def grant(self) -> list[int]:
        """The jobs that may communicate from now on, and whose ranks are all ready."""
        found = []
        busy = {link for job in self.sending for link in self.jobs[job].exclusive}
        for number in sorted(self.jobs, key=lambda number: (-self._remaining_s(number), number)):
            job = self.jobs[number]
            if (
                number not in self.sending
                and len(self.asking[number]) == len(job.hosts)
                and not busy & set(job.exclusive)
            ):
                self.sending[number], self.asking[number] = self.asking[number], set()
                busy |= set(job.exclusive)
                found.append(number)
        return found

    def _remaining_s(self, number: int) -> float:
        return self.left[number] * (self.jobs[number].ideal_s or 0.0)
