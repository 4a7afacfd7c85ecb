"""Plan, run, store, and summarise many runs. Used by ``run`` and ``sweep``.

A run with a scheduler that needs profiles waits for the isolated runs of its jobs. The runs of a lost machine go to the
others.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path

from testbed.campaign import executors
from testbed.campaign.executors import Executor, Observer
from testbed.campaign.provenance import command_line
from testbed.campaign.tasks import Failed, Outcome, Task
from testbed.core import folders, interruption
from testbed.core.errors import LostError, RequestError, TestbedError, UnreachableError
from testbed.core.runs import documents, events, rundir
from testbed.core.runs.load import Experiment, load_experiment, load_run
from testbed.core.runs.plan import Plan, alone_folder
from testbed.core.runs.summary import Summary
from testbed.planning.plan import Planned, Scenario, replan
from testbed.planning.profiles import Profile
from testbed.spec import Spec

KEPT = "the run in progress was ended and left nothing; finished runs are kept"  # of an interruption


@dataclass(frozen=True)
class Wanted:
    """One requested run of one experiment, and its results folder."""

    scenario: Scenario
    plan: Plan
    out: Path

    @property
    def spec(self) -> Spec:
        return self.scenario.spec

    @property
    def experiment(self) -> Path:
        """Return the path of the experiment folder."""
        return self.out / self.plan.experiment

    @property
    def folder(self) -> Path:
        return self.experiment / self.plan.folder

    @property
    def waits(self) -> bool:
        """Return True if it depends on isolated runs of its jobs that are not measured yet."""
        return self.plan.alone is None and any(job.grid for job in self.plan.jobs)

    @property
    def needs(self) -> set[Path]:
        """The run directories of the runs that come before it."""
        return {self.experiment / alone_folder(self.plan, job.like) for job in self.plan.jobs} if self.waits else set()

    def scheduled(self) -> Wanted:
        """Return the run with the clock that its scheduler sets from isolated runs.

        Raises `LoadError` if these are missing.
        """
        if not self.waits:
            return self
        profiles = {job.job: _profile(self.experiment / alone_folder(self.plan, job.like)) for job in self.plan.jobs}
        return replace(self, plan=replan(self.scenario, self.plan, profiles))


def _profile(folder: Path) -> Profile:
    from testbed.core.runs.metrics import alone  # noqa: PLC0415 (pandas takes a while)

    times = load_run(folder).times
    return Profile(alone(times), float(times.iloc[1:].std(ddof=0).fillna(0).iloc[0]))


@dataclass(frozen=True)
class Failure:
    """A run that there is none of, and why."""

    run: Wanted
    error: TestbedError


def drive(
    runs: Sequence[Wanted],
    free: Sequence[Executor],
    tell: Observer,
    *,
    retries: int | None = None,
    is_there: Callable[[Wanted], bool] = lambda _run: False,
    kept: Sequence[Wanted] = (),
    keep_going: bool = False,
) -> list[Failure]:
    """Run ``runs`` in order on ``free`` executors, store them, and return those that failed.

    ``tell`` is called for each run that is ``started``, ``stored``, ``failed``, or ``given up`` because its machine was
    lost; such a run continues elsewhere. A run that had to wait is not repeated if it `is_there` once its schedule is
    known (``there``). ``kept``: existing runs of the same experiments. Raises the first failure's error unless
    ``keep_going``.
    """
    for run in runs:
        folders.check(run.folder, run.out)
    for folder in {run.experiment: None for run in runs}:
        rundir.sweep(folder)
    queue = _Queue(list(runs), list(free), tell, is_there, retries, capacity_bps=_capacities(runs, kept))
    failures = []
    with interruption.keeping(KEPT):
        for run, outcome in queue.outcomes():
            if isinstance(outcome, Failed):
                if not keep_going:
                    raise outcome.error
                failures.append(Failure(run, outcome.error))
    return failures


def _capacities(runs: Sequence[Wanted], kept: Sequence[Wanted]) -> dict[Path, float | None]:
    """Of the unshaped path of each experiment of ``runs``, as far as a run that is ``kept`` has it."""
    found: dict[Path, float | None] = {}
    wanted = {run.experiment for run in runs if not run.plan.measure_capacity}
    for run in kept:
        if run.experiment in wanted - found.keys():
            found[run.experiment] = load_run(run.folder).manifest.measured.capacity_bps
    return found


@dataclass
class _Queue:
    """The queue of waiting, running, and failed runs."""

    waiting: list[Wanted]
    idle: list[Executor]
    tell: Observer
    is_there: Callable[[Wanted], bool]
    retries: int | None
    running: dict[Future[Outcome], tuple[Executor, str, Wanted]] = field(default_factory=dict)
    failed: set[Path] = field(default_factory=set)
    # The unshaped path is measured once per experiment and kept with every run of it.
    capacity_bps: dict[Path, float | None] = field(default_factory=dict)
    lost: TestbedError = field(
        default_factory=lambda: TestbedError("no machine is left to run it on: every machine was lost or refused")
    )

    def outcomes(self) -> Iterator[tuple[Wanted, Outcome]]:
        """Every run with what came of it, stored."""
        while self.waiting or self.running:
            while (found := self._next()) is not None:
                yield from self._begin(*found)
            if not self.running:
                for run in self.waiting:
                    yield self._ended(run, run.spec.on, Failed(self.lost))
                return
            interruption.check()
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                executor, backend, run = self.running.pop(future)
                outcome = _read_outcome(future)
                if isinstance(outcome, Failed) and isinstance(outcome.error, LostError | UnreachableError):
                    self.lost = outcome.error
                    self.waiting.insert(0, run)
                    self.tell(run.plan, events.GivenUp(str(outcome.error)))
                    continue
                self.idle.append(executor)
                yield self._ended(run, backend, outcome)

    def _next(self) -> tuple[Wanted, Executor, str] | None:
        """Remove and return the first waiting run whose inputs exist and that an idle executor can take, with executor
        and backend."""
        for run in self.waiting:
            for executor in self.idle:
                if (backend := executor.backend_for(run.spec.on)) is not None and not run.needs & self._coming(run):
                    self.waiting.remove(run)
                    return run, executor, backend
        return None

    def _coming(self, run: Wanted) -> set[Path]:
        """Run directories that are not there yet, as far as ``run`` may have to wait for them."""
        if not run.waits:
            return set()
        return {other.folder for other in [*self.waiting, *(run for _, _, run in self.running.values())]}

    def _begin(self, run: Wanted, executor: Executor, backend: str) -> Iterator[tuple[Wanted, Outcome]]:
        """Start ``run``; yields its outcome if that is known without running it."""
        try:
            if self.failed & run.needs:
                raise TestbedError("it needs isolated runs of its jobs, and those failed. Run the command again.")
            run = run.scheduled()
        except TestbedError as error:
            yield self._ended(run, backend, Failed(error))
            return
        if run.waits:
            try:
                there = self.is_there(run)
            except TestbedError as error:
                yield self._ended(run, backend, Failed(error))
                return
            if there:
                self.tell(run.plan, events.There())
                return
        self.idle.remove(executor)
        self.tell(run.plan, events.Started())
        self.running[executor.submit(self._task(run, backend))] = executor, backend, run

    def _task(self, run: Wanted, backend: str) -> Task:
        return Task(
            run.plan,
            backend,
            None if run.spec.wall_limit is None else run.spec.wall_limit / 1e9,
            self.retries,
            None if run.plan.measure_capacity else self.capacity_bps.get(run.experiment),
            tuple(command_line()),
            run.scenario.asked,
        )

    def _ended(self, run: Wanted, backend: str, outcome: Outcome) -> tuple[Wanted, Outcome]:
        """Stored, if there is something to store."""
        if not isinstance(outcome, Failed):
            try:
                if run.folder.exists():
                    rundir.forget(run.experiment, run.out)  # the records of the run that is replaced
                rundir.store(outcome.files, run.folder, run.out)
            except TestbedError as error:
                outcome = Failed(error)
        if isinstance(outcome, Failed):
            self.failed.add(run.folder)
            self.tell(run.plan, events.Failed(backend))
        else:
            self.capacity_bps[run.experiment] = outcome.capacity_bps
            self.tell(run.plan, events.Stored(backend, outcome.verdict))
        return run, outcome


def _read_outcome(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return executors.killed()
    except Exception as error:  # an error of the testbed does not stop other runs
        return Failed(TestbedError("".join(traceback.format_exception(error))))


def sum_up(runs: Sequence[Wanted]) -> Summary:
    """The summary of an experiment whose ``runs`` are there, which is also written to the experiment folder."""
    from testbed.campaign.summary import summarise  # noqa: PLC0415 (SciPy, which takes a while)

    folder = runs[0].experiment
    summary = summarise(*experiments(runs))
    rundir.write_text(folder / "summary.json", documents.encode(summary).decode(), runs[0].out)
    return summary


def experiments(runs: Sequence[Wanted]) -> list[Experiment]:
    """The stored ones of an experiment's ``runs``. Several job schedulers follow each other, each in a separate folder."""
    folders = dict.fromkeys(run.experiment / run.plan.scheduler_folder for run in runs)
    return [
        load_experiment(folder, compared([run for run in runs if run.experiment / run.plan.scheduler_folder == folder]))
        for folder in folders
    ]


def compared(runs: Sequence[Wanted]) -> list[tuple[str, int]]:
    """Return system folder and seed of the runs with all jobs, which are compared; isolated runs are their reference."""
    return [(run.plan.system.folder, run.plan.seed) for run in runs if run.plan.alone is None]


def wanted(planned: Sequence[Planned], out: Path) -> list[Wanted]:
    """Return every run of every experiment. Raises `RequestError` if two would share a run directory."""
    found: dict[Path, Wanted] = {}
    for scenario, plans in planned:
        for plan in plans:
            run = Wanted(scenario, plan, out)
            if run.folder in found:
                raise RequestError(
                    f"{run.folder}: two experiments would be stored there; give them different names (name)."
                )
            found[run.folder] = run
    return list(found.values())
