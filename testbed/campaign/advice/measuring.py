"""The runs behind an answer: one experiment for each option, computed by the flow simulator or emulated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from testbed import spec
from testbed.backends.flow import FlowLevel
from testbed.campaign import driver
from testbed.campaign.executors import Here, Observer
from testbed.campaign.request import Request
from testbed.campaign.stored.folders import Work
from testbed.core.errors import RequestError
from testbed.core.runs.load import Experiment
from testbed.core.runs.plan import Plan
from testbed.core.units import Duration, Rate
from testbed.planning import plan
from testbed.planning.jobs import Asked

Isolated = Literal["auto", "none"]

SAMPLES = 8  # of links and flows, in one iteration of the longest job
LEAST_SAMPLE_NS = 10_000_000
ITERATIONS, FEWEST_ITERATIONS = 40, 16  # MLTCP is compared from the twelfth on
SEEDS = 3
MOST_WORK = 100_000  # of a run with all seeds (`_work`); a run of so much takes about a quarter of a second
MOST_WORK_OF_ONE = 250_000  # of a run with one seed


@dataclass(frozen=True)
class Setting:
    """What an option is: a system, a placement of the jobs, and a rate."""

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
    _there: dict[Setting, Experiment] = field(default_factory=dict)

    def carry_out(self, setting: Setting, isolated: Isolated = "auto") -> Experiment:
        """The runs of a setting; raises what the first failed run raised."""
        if setting not in self._there:
            name = f"option-{len(self._there)}"
            scenario, plans = plan.planned(self._read(setting, isolated_runs=isolated, name=name))
            runs = driver.wanted([(scenario, plans)], self.out)
            driver.drive(runs, [Here(FlowLevel(), _ignore)], _ignore)
            (self._there[setting],) = driver.experiments(runs)
        return self._there[setting]

    def size(self, setting: Setting) -> None:
        """Iterations, seeds and samples for an answer within seconds, where they are not given; raises `RequestError`."""
        scenario, plans = plan.planned(self._read(setting, seeds=1))
        ideals_s = [job.ideal_s for job in plans[0].jobs]
        if None in ideals_s:
            raise RequestError(
                "TRACE: a job runs a real program, whose iteration is unknown. Record it: `mltcp record`."
            )
        longest_ns = max(round((ideal_s or 0.0) * 1e9) for ideal_s in ideals_s)
        sample = Duration(max(LEAST_SAMPLE_NS, longest_ns // SAMPLES)).exact
        work = _work(scenario.placed[0].asked)
        seeds = SEEDS if work * ITERATIONS <= MOST_WORK else 1
        most = MOST_WORK if seeds > 1 else MOST_WORK_OF_ONE
        iterations = max(FEWEST_ITERATIONS, min(ITERATIONS, round(most / max(1, work))))
        self.fields = {"sample_interval": sample, "seeds": seeds, "iterations": iterations, **self.fields}

    def _read(self, setting: Setting, **more: Any) -> spec.Spec:
        return spec.make({**self.fields, **setting.fields, "on": "flow"}, more, "the command line")


def _work(jobs: list[Asked]) -> int:
    """What an iteration of each job costs the simulator: each transfer shares links with all that are concurrent."""
    concurrent = sum(
        max((len({flow for one in job.rounds(op) for flow in one}) for op in job.exchanges), default=0) for job in jobs
    )
    return concurrent * sum(job.transfers for job in jobs)


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
