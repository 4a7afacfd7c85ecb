"""When what happens in a run: the first iteration, links that change, jobs that leave, or start when others end, the last record."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.clock import sleep_until
from testbed.core.errors import TestbedError
from testbed.core.runs.events import Event, Iteration, Shares
from testbed.core.runs.manifest import Period
from testbed.core.runs.plan import LinkEvent, Plan, RateTrace
from testbed.linux import settings
from testbed.linux.network import Network, link_name, switch
from testbed.linux.participants.background import Sources
from testbed.linux.participants.child import Child, readable
from testbed.linux.participants.job_lifecycle import Lives, Outcome
from testbed.linux.participants.participant import Participant
from testbed.linux.participants.period_detection import Repeating
from testbed.linux.participants.turns import Turns
from testbed.linux.participants.workers import GoneError, Record, Workers
from testbed.linux.queues.setting import Queues
from testbed.transports import Connection

CONNECT_NS, START_NS = 4 * 10**9, 10 * 10**9  # of virtual time: connections, first iteration
LEAD_S = 0.3  # from the instant at which all workers are ready to the start of the first iteration
LOOK_S = 0.5
RNDRESEEDCRNG = 0x5207

Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Machine:
    """What differs between the Linuxes a run may be in."""

    virtual_time: bool = False  # computing takes no time, and the caller cannot disconnect
    modules: Path | None = None  # folder of our congestion controls as modules; None: they are eBPF
    captures: Path | None = None  # folder for packets, which the caller fetches; None: they are among the results
    later_ns: int = 0  # of virtual time: delay of all instants, for the time that a shell took

    def connect_ns(self) -> int:
        """When connections are made, under virtual time."""
        return CONNECT_NS + self.later_ns

    def start_ns(self) -> int:
        """When the first iteration begins, on the monotonic clock; under virtual time always the same."""
        return START_NS + self.later_ns if self.virtual_time else time.monotonic_ns() + int(LEAD_S * 1e9)

    def settle(self, at_ns: int) -> None:
        """Under virtual time: sleep until ``at_ns`` after boot, then draw new random numbers.

        What came before leaves no trace: how long it took depends, by microseconds, on this
        machine's files, and so does how many random numbers were drawn.
        """
        if not self.virtual_time:
            return
        late = time.monotonic_ns() - at_ns
        if late > 0:
            raise TestbedError(
                f"setting up took {late / 1e9:.3f} s of virtual time too long. With this delay or loss, "
                "connections take too long. Lower --delay or --loss."
            )
        sleep_until(at_ns)
        with open("/dev/urandom", "rb", buffering=0) as device:
            fcntl.ioctl(device, RNDRESEEDCRNG)


class Timeline:
    """What is still to come of a plan that began at ``start_ns``."""

    def __init__(
        self, plan: Plan, start_ns: int, network: Network, queues: list[Queues], machine: Machine,
        background: Sources | None = None,
    ) -> None:  # fmt: skip
        self.background = background or Sources(plan, network, virtual_time=machine.virtual_time)
        self.start_ns, self.network = start_ns, network
        self.queues = {queue.link: queue for queue in queues}
        self.events = list(plan.events)
        self.traces = {name: link.trace for name, link in plan.bottlenecks.items() if link.trace}
        self.steps = dict.fromkeys(self.traces, 0)  # of each trace, the next
        self.leaving = {job.job: start_ns + job.leave_ns for job in plan.jobs if job.leave_ns is not None}
        self.wanted = {job.job: job.iterations for job in plan.jobs}
        self.lives = Lives(plan.jobs)
        self.unfinished = {job.job: len(job.hosts) for job in plan.jobs if job.life is not None}  # workers
        self.turns = Turns(plan.jobs)
        self.last_ns: dict[int, int] = {}  # when a job last ended an iteration
        self.repeating: Repeating | None = None
        if machine.virtual_time and plan.stop_when_periodic:
            every = {(job.job, rank): job.iterations for job in plan.jobs for rank in range(len(job.hosts))}
            self.repeating = Repeating(every, plan.stop_when_periodic)
        self.period: Period | None = None  # that it was found to repeat in, whereupon it ended
        self.missing: set[tuple[int, int]] = set()  # workers that have not ended all of theirs

    def begin(self, workers: Workers) -> None:
        """Start the jobs that hold GPUs from the beginning, before it comes."""
        self._let_start(workers, 0)

    def run(
        self, workers: Workers, sampler: Child, emit: Emit, look: Callable[[], None], hear: Callable[[Record], None]
    ) -> list[Record]:  # fmt: skip
        """Until every job has its iterations or has left; ``look`` is called regularly, ``hear`` with every record."""
        records: list[Record] = []
        self.missing = {(each.job, each.rank) for each in workers.participants if each.job not in self.leaving}
        while self.missing or self.leaving:
            look()
            self.background.check()
            self._catch_up(workers)
            if readable([sampler], 0):
                for line in sampler.lines():
                    emit(Shares(line["shares_bps"]))
            for worker, line in self._receive(workers):
                if isinstance(line, dict):
                    self._take_turns(worker, line["asks"], workers)
                    continue
                record = Record.parse(worker.job, worker.rank, line)
                if record.iteration < self.wanted[worker.job]:
                    records.append(record)
                    emit(Iteration(record.job, record.rank, record.iteration, record.start / 1e9, record.end / 1e9))
                hear(record)
                self._count(record, workers)
                if self.repeating:
                    self.repeating.hear(record)
            if self.missing and self.repeating and (period := self.repeating.common_period):
                self.period, self.missing = period, set()
                records += self.repeating.rest()
        return records

    def _receive(self, workers: Workers) -> Iterator[tuple[Participant, Any]]:
        """The next records of workers. A job that holds GPUs may fail without ending the others."""
        try:
            yield from workers.read(self._next())
        except GoneError as gone:
            if gone.job not in self.lives.lives:
                raise
            if gone.job in self.lives.ended:
                return
            self._over(gone.job, time.monotonic_ns() - self.start_ns, workers, "failed", str(gone))

    def _take_turns(self, worker: Participant, asks: bool, workers: Workers) -> None:
        """A worker asks to communicate, or has finished."""
        if asks:
            self.turns.ask(worker.job, worker.rank)
        else:
            self.turns.done(worker.job, worker.rank)
        self._grant(workers)

    def _grant(self, workers: Workers) -> None:
        for job in self.turns.grant():
            for worker in workers.participants:
                if worker.job == job:
                    worker.grant()

    def _count(self, record: Record, workers: Workers) -> None:
        """Whether this was a worker's last iteration, and with it its job's."""
        job = record.job
        self.turns.ended(job, record.iteration)
        self.last_ns[job] = max(record.end, self.last_ns.get(job, 0))
        if record.iteration + 1 < self.wanted[job]:
            return
        self.missing.discard((job, record.rank))
        if job in self.unfinished:
            self.unfinished[job] -= 1
            if not self.unfinished[job]:
                self._over(job, self.last_ns[job], workers)

    def _over(
        self, job: int, at_ns: int, workers: Workers, outcome: Outcome = "done", failure_reason: str = ""
    ) -> None:
        """A job that holds GPUs ends."""
        self.lives.end(job, at_ns, outcome, failure_reason)
        self.leaving.pop(job, None)
        self.missing = {(other, rank) for other, rank in self.missing if other != job}
        self._leave(job, workers)

    def _leave(self, job: int, workers: Workers) -> None:
        """Its workers are killed; what it held is free."""
        workers.leave(job)
        self.turns.over(job)
        self._grant(workers)

    def _let_start(self, workers: Workers, now_ns: int) -> None:
        for job, at_ns in self.lives.start(now_ns):
            workers.begin(job, self.start_ns, at_ns)

    def missed(self) -> list[str]:
        """What would have come after the end."""
        return [f"{event.link} at {event.at_ns / 1e9:g} s" for event in self.events]

    def _catch_up(self, workers: Workers) -> None:
        while self.events and time.monotonic_ns() >= self.start_ns + self.events[0].at_ns:
            self._happen(self.events.pop(0))
        for link, trace in self.traces.items():
            self._follow(link, trace)
        for job in [job for job, at in self.leaving.items() if time.monotonic_ns() >= at]:
            if job in self.lives.lives:
                self._over(job, self.leaving[job] - self.start_ns, workers, "left")
            else:
                del self.leaving[job]
                self._leave(job, workers)
        if self.lives.waiting:  # under virtual time it costs some to ask what time it is
            self._let_start(workers, time.monotonic_ns() - self.start_ns)

    def _next(self) -> float:
        coming = [*self.leaving.values(), *(self.start_ns + event.at_ns for event in self.events[:1])]
        coming += [self.start_ns + self.steps[link] * trace.every_ns for link, trace in self.traces.items()]
        coming += self.background.next_ns
        if self.lives.next_ns is not None:
            coming.append(self.start_ns + self.lives.next_ns)
        return min([time.monotonic() + LOOK_S, *(at / 1e9 for at in coming)])

    def _happen(self, event: LinkEvent) -> None:
        """Change a link as the plan has it; what was set is read back, as ever."""
        if event.up is not None:
            end = next(end for end in self.network.ends(bottleneck=True) if link_name(end) == event.link)
            switch(self.network, end, up=event.up)
            return
        assert event.rate_bps is not None
        self._set_rate(event.link, event.rate_bps)

    def _follow(self, link: str, trace: RateTrace) -> None:
        """Give a link the rate that its trace has now."""
        due = (time.monotonic_ns() - self.start_ns) // trace.every_ns
        if due >= self.steps[link]:
            self.steps[link] = due + 1
            self._set_rate(link, trace.at(due))

    def _set_rate(self, link: str, rate_bps: int) -> None:
        changed = self.queues[link] = self.queues[link].with_rate(rate_bps)
        changed.change(self.network)
        settings.check(changed, changed.read(self.network))


def flow_name(flow: Connection) -> str:
    """``0-1``; of several channels the others are ``0-1#1``, ``0-1#2``, ..."""
    return f"{flow.source}-{flow.target}" + (f"#{flow.channel}" if flow.channel else "")


@contextlib.contextmanager
def explained(plan: Plan) -> Iterator[None]:
    """Add a note to the error of a run that fails, if links fail in that run."""
    try:
        yield
    except TestbedError as error:
        down = [f"{event.link} goes down at {event.at_ns / 1e9:g} s" for event in plan.events if event.up is False]
        if down:
            error.what += (
                f"\nIn this experiment {', '.join(down)}: without another way, and if it does not come up again soon, "
                "connections break."
            )
        raise
