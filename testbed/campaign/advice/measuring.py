"""The runs behind an answer: one experiment for each option, computed by the flow simulator or emulated."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from testbed import spec
from testbed.backends.flow import FlowLevel
from testbed.campaign import driver
from testbed.campaign.driver import Wanted
from testbed.campaign.executors import Executor, Here, Observer, local
from testbed.campaign.request import Request
from testbed.campaign.stored.folders import Work
from testbed.core import interruption
from testbed.core.errors import RequestError, TestbedError
from testbed.core.runs.load import Experiment
from testbed.core.runs.plan import Plan
from testbed.core.units import Duration, Rate
from testbed.planning import plan
from testbed.planning.jobs import Asked

Isolated = Literal["auto", "none"]

SAMPLES = 8  # of links and flows, in one iteration of the longest job
LEAST_SAMPLE_NS = 10_000_000
ITERATIONS, FEWEST_ITERATIONS = 40, 12  # MLTCP is compared from the twelfth on
SEEDS = 3
MOST_WORK = 100_000  # of a run with all seeds (`_work`); such a run takes about a second
MOST_TOTAL = 10 * MOST_WORK  # of all settings
RECORDED = 2  # work for a rank's exchange
NOTHING = ""  # is kept of an interruption
WORTH_PROCESSES, MOST_PROCESSES = 700_000, 4  # work of all runs, above which several processes share it


@dataclass(frozen=True)
class Setting:
    """Settings of an option: a system, a placement of the jobs, and a rate."""

    system: str
    scheduler: str
    rate: Rate

    @property
    def fields(self) -> dict[str, Any]:
        return {"system": [self.system], "scheduler": [self.scheduler], "rate": self.rate.exact}


@dataclass
class Simulated:
    """Settings of the same jobs by the flow simulator, each once; ``fields`` are what they have in common."""

    fields: dict[str, Any]
    out: Path
    settings: int = 1  # how many will be asked for in all
    expected_s: float = 0.0  # processor time of all, estimated by `size`
    ranks: int = 0  # of all jobs
    _there: dict[Setting, Experiment | TestbedError] = field(default_factory=dict)
    _isolated: list[plan.Isolated] = field(default_factory=list)
    _resolved: dict[tuple[str, Rate], plan.Scenario] = field(default_factory=dict)
    _work: int = 0  # of a run

    def carry_out(self, settings: Mapping[Setting, Isolated]) -> dict[Setting, Experiment | TestbedError]:
        """The runs of each setting, or why there are none. Settings that differ in the system share their runs in isolation."""
        wanted: dict[Setting, list[Wanted]] = {}
        for setting, isolated in settings.items():
            if setting not in self._there:
                try:
                    wanted[setting] = self._wanted(setting, isolated)
                except RequestError as error:
                    self._there[setting] = error
        runs = [run for own in wanted.values() for run in own]
        with interruption.keeping(NOTHING), self._lanes(len(runs)) as lanes:
            failures = driver.drive(runs, lanes, _ignore, keep_going=True)
        failed = {failure.run.folder: failure.error for failure in failures}
        for setting, own in wanted.items():
            errors = [failed[run.folder] for run in own if run.folder in failed]
            self._there[setting] = errors[0] if errors else driver.experiments(own)[0]
        return {setting: self._there[setting] for setting in settings}

    def _wanted(self, setting: Setting, isolated: Isolated) -> list[Wanted]:
        name = f"{setting.scheduler}-{setting.rate.exact}"
        scenario = self._resolve(setting, isolated_runs=isolated, name=name)
        kept = [one for one in self._isolated if one.plan.experiment == name]
        plans = plan.plans(scenario, kept)
        self._isolated += plan.isolated_runs(scenario, plans)
        return driver.wanted([(scenario, plans)], self.out)

    def _resolve(self, setting: Setting, **more: Any) -> plan.Scenario:
        """Network and jobs of a large mix take seconds: settings that differ in the system share them."""
        read = self._read(setting, **more)
        key = setting.scheduler, setting.rate
        if key not in self._resolved:
            self._resolved[key] = plan.resolve(read)
        return self._resolved[key].under(read)

    def _lanes(self, runs: int) -> AbstractContextManager[Sequence[Executor]]:
        """This process; or several where that is faster."""
        if runs * self._work < WORTH_PROCESSES:
            return contextlib.nullcontext([Here(FlowLevel(), _ignore)])
        return local.lanes({"flow": FlowLevel()}, min(os.cpu_count() or 1, MOST_PROCESSES))

    def size(self, setting: Setting) -> None:
        """Iterations, seeds and samples for an answer within seconds, where they are not given; raises `RequestError`."""
        begun_s = time.process_time()
        scenario = plan.resolve(self._read(setting, seeds=1))
        ideals_s = [job.ideal_s for job in scenario.placed[0].jobs]
        if None in ideals_s:
            raise RequestError(
                "TRACE: a job runs a real program, whose iteration is unknown. Record it: `mltcp record`."
            )
        longest_ns = max(round((ideal_s or 0.0) * 1e9) for ideal_s in ideals_s)
        sample = Duration(max(LEAST_SAMPLE_NS, longest_ns // SAMPLES)).exact
        work = _work(scenario.placed[0].asked)
        most = min(MOST_WORK, MOST_TOTAL / self.settings)
        seeds = SEEDS if work * ITERATIONS <= most else 1
        iterations = max(FEWEST_ITERATIONS, min(ITERATIONS, round(most / max(1, work))))
        self._work = work * int(self.fields.get("iterations", iterations))
        self.fields = {"sample_interval": sample, "seeds": seeds, "iterations": iterations, **self.fields}
        self.ranks = sum(job.workers for job in scenario.placed[0].asked)
        planned_s = time.process_time() - begun_s
        self.expected_s = self.settings * (planned_s + int(self.fields["seeds"]) * _run_s(self._work))

    def _read(self, setting: Setting, **more: Any) -> spec.Spec:
        return spec.make({**self.fields, **setting.fields, "on": "flow"}, more, "the command line")


def _work(jobs: list[Asked]) -> int:
    """What an iteration of each job costs the simulator: each flow shares links with all that are concurrent, and each rank's exchanges are recorded."""
    concurrent = sum(
        job.channels * max((len({flow for one in job.rounds(op) for flow in one}) for op in job.exchanges), default=0)
        for job in jobs
    )
    recorded = sum(job.workers * len(job.exchanges) for job in jobs)
    return concurrent * sum(job.channels * job.transfers for job in jobs) + RECORDED * recorded


def _run_s(work: float) -> float:
    """Processor time of a run, in s: a fit to runs of 2 to 64 workers for each job, within a factor of about 2."""
    return float(0.05 * (work / 4000) ** 0.62)


@dataclass
class Emulations:
    """The same in virtual time; its results are kept below ``out``, and used again."""

    fields: dict[str, Any]
    out: Path

    def carry_out(self, setting: Setting) -> Experiment:
        """The runs of a setting; raises what the first failed run raised."""
        asked = {**self.fields, **setting.fields, "on": "uml", "isolated_runs": "none"}
        request = Request(None, asked, self.out)
        chosen, backend = request.resolve_backend(request.choice())
        _, runs = request.carry_out(chosen, backend, _no_progress, lambda _summary, _runs: None, again="changed")
        (found,) = driver.experiments(runs)
        return found


def _ignore(_plan: Plan, _event: object) -> None:
    pass


@contextlib.contextmanager
def _no_progress(_work: Work) -> Iterator[Observer]:
    yield _ignore


Tell = Callable[[str], None]
