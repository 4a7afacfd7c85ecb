"""Stop a run that spins, makes no progress, or exceeds its time limit.

Progress is bytes acknowledged, iterations, and phases. Virtual time alone is no progress: it advances as long as the state
of queues is sampled. The progress of other jobs does not count for a job. The duration of a run is no criterion, as a busy
machine takes longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from testbed.core import interruption
from testbed.core.errors import TestbedError
from testbed.core.runs.events import Computing, Event, Iteration, Phase, Results, Shares
from testbed.core.runs.plan import Plan
from testbed.linux.sampling.sampler import SHARES_EVERY_NS
from testbed.replay import ring

COMPUTING_TIMES, IDLE_S = 100, 300.0  # without progress: so many times the longest computing, at least so long
# Wall time on a busy machine: to start a worker, and to send packets through a user-mode Linux, by TCP or by a transport over UDP.
PER_WORKER_S, PACKETS_PER_S, DATAGRAMS_PER_S = 3.0, 20_000, 2_000
MESSAGES_PER_S = 250  # concurrent messages, which threads pass to each other
LOOK_S = 1.0  # limit of the time counted between two clock readings: this process, and others with it, may not have run


@dataclass(frozen=True)
class Patience:
    """Time limits of a run, in s."""

    idle_s: float = IDLE_S  # seconds of the run's clock without progress
    wall_s: float | None = None  # maximum wall time (--wall-limit)
    tick_s: float = SHARES_EVERY_NS / 1e9  # seconds of the run's clock between its reports of acknowledged bytes
    still_s: float = 60.0  # seconds of wall time without an advance of virtual time, on a core of its own
    set_up_s: float = 60.0  # the same before the first iteration begins
    computing_s: float = 1800.0  # the same while a participant has announced that it computes (`testbed.replay.computing`), or without a core
    wanted: tuple[
        tuple[int, int], ...
    ] = ()  # by job that runs from the beginning to its end: iterations of all its workers


def patience(plan: Plan, wall_s: float | None = None) -> Patience:
    """Time limits of ``plan``, in s; ``wall_s`` if given."""
    usual = Patience()
    computing_ns = max(job.compute_ns for job in plan.jobs)
    waiting_ns = max(*(job.offset_ns for job in plan.jobs), *(event.at_ns for event in plan.events), 0)
    programs = any(job.program is not None for job in plan.jobs)  # their computing time is unknown
    idle_s = max(usual.computing_s if programs else IDLE_S, COMPUTING_TIMES * computing_ns / 1e9) + waiting_ns / 1e9
    workers = sum(len(job.hosts) for job in plan.jobs)
    tick_s = plan.sample_ns * ceil(SHARES_EVERY_NS / plan.sample_ns) / 1e9
    by_tcp = all(job.by_tcp for job in plan.jobs)
    share = _between_signs(plan, tick_s)
    packets = share * _bytes(plan) / plan.link.mtu
    messages = share * _messages(plan)
    still_s = usual.still_s + packets / (PACKETS_PER_S if by_tcp else DATAGRAMS_PER_S) + messages / MESSAGES_PER_S
    return Patience(
        idle_s=idle_s,
        wall_s=wall_s,
        tick_s=tick_s,
        still_s=still_s,
        set_up_s=still_s + PER_WORKER_S * workers,
        wanted=tuple(
            (job.job, job.iterations * len(job.hosts))
            for job in plan.jobs
            if job.life is None and job.leave_ns is None and job.program is None
        ),
    )


def _between_signs(plan: Plan, tick_s: float) -> float:
    """The share of an iteration that a network carries at most from one sign of life to the next: until a job has ended one, or its clock ticks."""
    iteration = _bytes(plan)
    return min(1.0, tick_s * plan.needed_bps / 8 / iteration) if plan.needed_bps and iteration else 1.0


def _bytes(plan: Plan) -> int:
    """That an iteration of all jobs sends."""
    return sum(sum(job.bytes_per_worker) for job in plan.jobs)


def _messages(plan: Plan) -> int:
    """How many an iteration has at most where several are in flight: those of a ring, which has more than any other collective."""
    return sum(
        len(job.collectives) * len(job.hosts) * 2 * (len(job.hosts) - 1) * ring.SLICES
        for job in plan.jobs
        if job.window is not None
    )


class StoodStillError(TestbedError):
    """Virtual time stood still for too long."""


class Watch:
    """Handles a run's events, passes other events on, and gives the run up when it is time."""

    def __init__(
        self, patience: Patience, on_event: Callable[[Event], None], *, virtual: bool,
        clock: Callable[[], float] = time.monotonic, used_s: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        """``used_s`` returns the processor time of the run so far. On a busy machine it limits the run instead of wall time."""
        self.patience, self.on_event, self.virtual, self.clock = patience, on_event, virtual, clock
        self.used_s = used_s or clock
        self.used_before_s: float | None = None  # a second after virtual time last moved
        self.begun = self.looked = clock()
        self.still_s = 0.0  # wall time since virtual time last moved
        self.own_s = self.moved_s = 0.0  # the run's own clock: now, and when there last was progress
        self.left = dict(patience.wanted)  # iterations of jobs that have not ended all of theirs
        self.jobs_moved_s = dict.fromkeys(self.left, 0.0)
        self.running = self.delivering = False
        self.computing: set[str] = set()
        self.last = "nothing had happened yet"

    def __call__(self, event: Event) -> None:
        if isinstance(event, Shares):
            moving = [job for job, links in event.bps.items() if sum(links.values()) > 0]
            self._tick(bool(moving))
            self.jobs_moved_s |= dict.fromkeys(moving, self.own_s)
        elif isinstance(event, Computing):
            (self.computing.add if event.begins else self.computing.discard)(str(event.who))
            self._alive()
        else:
            self._alive()
            self.moved_s = self.own_s
        if isinstance(event, Phase):
            self.last = f"it was at: {event.text}"
        elif isinstance(event, Iteration):
            self.last = f"the last to end was iteration {event.iteration} of job {event.job}"
            self._note_iteration(event.job)
        self.delivering = isinstance(event, Results)
        if not isinstance(event, Computing | Results):
            self.on_event(event)

    def _tick(self, acknowledged: bool) -> None:
        """Note an advance of the run's clock; ``acknowledged``: bytes were acknowledged since the last one."""
        self.running = True
        self._alive()
        if self.virtual:
            self.own_s += self.patience.tick_s
        if acknowledged:
            self.moved_s = self.own_s

    def _note_iteration(self, job: int) -> None:
        self.jobs_moved_s[job] = self.own_s
        self.left[job] = self.left.get(job, 0) - 1
        if self.left[job] <= 0:
            del self.left[job]

    def data(self) -> None:
        """Something has come; while results arrive, that is progress."""
        if self.delivering:
            self._alive()
            self.moved_s = self.own_s

    def _alive(self) -> None:
        self.still_s, self.used_before_s = 0.0, None

    def check_progress(self) -> None:
        """Raise `TestbedError` if the run must be stopped. Must be called at least every second."""
        interruption.check()
        now = self.clock()
        passed, self.looked = min(now - self.looked, LOOK_S), now
        if self.virtual:
            self.still_s += passed
        else:
            self.own_s += passed
        if self.patience.wall_s is not None and now - self.begun > self.patience.wall_s:
            raise TestbedError(
                f"the wall limit of {self.patience.wall_s:g} s (--wall-limit) ended the run ({self.last}). Raise it, or leave it out: "
                "without it, a run continues as long as bytes are acknowledged or iterations end."
            )
        if int(self.still_s) > int(self.still_s - passed) and self._spins():  # asked once a second
            self._stood_still()
        if self.own_s - self.moved_s > self.patience.idle_s:
            self._raise_stalled_run()
        for job in self.left:
            if self.own_s - self.jobs_moved_s[job] > self.patience.idle_s:
                self._raise_stalled_job(job)

    def _spins(self) -> bool:
        """Whether the run has used its processor time while its clock stood still. A run that waits for a core does not spin."""
        if self.still_s < LOOK_S:
            return False
        if self.used_before_s is None:
            self.used_before_s = self.used_s() - LOOK_S
        limit_s = self._still_limit_s()
        if self.still_s <= limit_s:
            return False
        return self.used_s() - self.used_before_s > limit_s or self.still_s > self.patience.computing_s

    def _still_limit_s(self) -> float:
        if self.computing:
            return self.patience.computing_s
        return self.patience.still_s if self.running else self.patience.set_up_s

    def _stood_still(self) -> None:
        who = f"; {', '.join(sorted(self.computing))} had announced a computation" if self.computing else ""
        raise StoodStillError(
            f"Run stopped: the virtual clock did not advance for {self._still_limit_s():g} s of wall time ({self.last}){who}. "
            "A process of the run computes without an end. Check custom topologies and congestion controls for endless loops. "
            "A process that computes for real must announce it "
            "(docs/explanation/virtual-time.md)."
        )

    def _raise_stalled_job(self, job: int) -> None:
        raise TestbedError(
            f"Run stopped: job {job} delivered no byte and ended no iteration for {self.patience.idle_s:g} s of {self._clock}, while other jobs continued "
            f"({self.last}). Check whether priority queues, a scheduler, or an [[event]] blocks its links."
        )

    @property
    def _clock(self) -> str:
        return "virtual time" if self.virtual else "time"

    def _raise_stalled_run(self) -> None:
        raise TestbedError(
            f"Run stopped: no byte was acknowledged and no iteration ended for {self.patience.idle_s:g} s of {self._clock} "
            f"({self.last}). Has a link failed for good ([[event]]), or is nearly everything lost (--loss)?"
            + ("" if self.virtual else " Does a custom program hang, or do other processes use every core?")
        )
