"""Many runs on their way: who carries them out, in which order, and what is told and stored of them."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from testbed import backends
from testbed.campaign import driver
from testbed.campaign.driver import Wanted
from testbed.campaign.executors import Here
from testbed.campaign.executors.local import Lane
from testbed.campaign.tasks import Completed, Failed, Outcome, Task, carry_out
from testbed.core.errors import LostError, MachineError, RequestError, TestbedError
from testbed.core.runs import events
from testbed.core.runs.load import load_summary
from testbed.core.runs.plan import Plan
from testbed.planning import plan
from testbed.planning.profiles import Profile
from testbed.spec import read
from tests.support import synthetic

SMALL = {"jobs": 2, "cc": ["reno", "cubic"], "iterations": 3, "name": "x", "on": "uml"}


class Fake:
    """An executor that only writes down what it was asked for; ``outcomes`` says what comes of some, by folder."""

    def __init__(self, outcomes: dict[Path, Outcome | BaseException] | None = None, at: str = "uml") -> None:
        self.tasks: list[Task] = []
        self.outcomes, self.at = outcomes or {}, at

    def backend_for(self, on: str) -> str | None:
        return self.at if self.at in on else None

    def submit(self, task: Task) -> Future[Outcome]:
        self.tasks.append(task)
        done: Future[Outcome] = Future()
        came = self.outcomes.get(task.plan.folder, Completed({"manifest.json": b"{}"}, "valid", 1e9))
        if isinstance(came, BaseException):
            done.set_exception(came)
        else:
            done.set_result(came)
        return done


def drive(
    runs: list[Wanted], *executors: Any, **how: Any
) -> tuple[list[driver.Failure], list[tuple[Path, type[events.Said]]]]:
    told: list[tuple[Path, type[events.Said]]] = []

    def tell(plan: Plan, event: events.Said) -> None:
        told.append((plan.folder, type(event)))

    return driver.drive(runs, executors, tell, **how), told


def test_runs_go_in_their_order_and_are_stored(tmp_path: Path) -> None:
    runs = driver.wanted([plan.planned(read(None, SMALL))], tmp_path)
    fake = Fake()
    failures, told = drive(runs, fake, retries=3)
    assert failures == [] and [task.plan for task in fake.tasks] == [run.plan for run in runs]
    assert told == [(run.plan.folder, event) for run in runs for event in (events.Started, events.Stored)]
    assert all((run.folder / "manifest.json").read_text() == "{}" for run in runs)
    assert {(task.backend, task.retries, task.wall_limit_s) for task in fake.tasks} == {("uml", 3, None)}


def test_the_unshaped_path_is_measured_once(tmp_path: Path) -> None:
    runs = driver.wanted([plan.planned(read(None, {**SMALL, "wall_limit": "3s"}))], tmp_path)
    fake = Fake()
    drive(runs, fake)
    assert [task.plan.measure_capacity for task in fake.tasks] == [True] + [False] * (len(runs) - 1)
    assert [task.capacity_bps for task in fake.tasks] == [None] + [1e9] * (len(runs) - 1)
    assert {task.wall_limit_s for task in fake.tasks} == {3.0}


def test_the_first_failure_ends_it_unless_it_is_to_keep_going(tmp_path: Path) -> None:
    runs = driver.wanted([plan.planned(read(None, SMALL))], tmp_path)
    fake = Fake({runs[1].plan.folder: Failed(MachineError("no memory"))})
    with pytest.raises(MachineError, match="no memory"):
        drive(runs, fake)
    assert len(fake.tasks) == 2
    fake.tasks.clear()
    ((failure,), told) = drive(runs, fake, keep_going=True)
    assert failure.run == runs[1] and len(fake.tasks) == len(runs)
    assert (runs[1].plan.folder, events.Failed) in told and not runs[1].folder.exists()


@pytest.mark.parametrize(
    ("came", "says"),
    [(BrokenProcessPool(), "its process was killed (out of memory?)"), (ZeroDivisionError("ours"), "ZeroDivisionError: ours")],
)  # fmt: skip
def test_what_nobody_foresaw_stops_no_other_run(tmp_path: Path, came: Exception, says: str) -> None:
    runs = driver.wanted([plan.planned(read(None, SMALL))], tmp_path)
    (failure,), _ = drive(runs, Fake({runs[0].plan.folder: came}), keep_going=True)
    assert failure.run == runs[0] and says in str(failure.error)


def test_the_runs_of_a_machine_that_is_lost_go_to_the_others(tmp_path: Path) -> None:
    runs = driver.wanted([plan.planned(read(None, {**SMALL, "on": "ssh:a,ssh:b"}))], tmp_path)
    lost = Fake({runs[0].plan.folder: Failed(LostError("a is gone"))}, at="ssh:a")
    other = Fake(at="ssh:b")
    failures, told = drive(runs, lost, other, keep_going=True)
    assert failures == [] and [task.plan for task in lost.tasks] == [runs[0].plan]
    assert (runs[0].plan.folder, events.GivenUp) in told
    assert sorted(task.plan.folder for task in other.tasks) == sorted(run.plan.folder for run in runs)
    failures, _ = drive(runs, lost, keep_going=True)
    assert len(failures) == len(runs) and {str(one.error) for one in failures} == {"a is gone"}
    with pytest.raises(LostError, match="a is gone"):
        drive(runs, lost)


def test_a_scheduled_run_comes_after_those_of_its_jobs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = driver.wanted([plan.planned(read(None, {**SMALL, "cc": ["cassini", "reno"], "seeds": 2}))], tmp_path)
    late = [run for run in runs if run.waits]
    assert len(late) == 2 and all(
        run.needs == {run.experiment / "isolated/job0/cassini" / str(run.plan.seed)} for run in late
    )
    monkeypatch.setattr(driver, "_profile", lambda _folder: Profile(1.0, 0.0))
    fake = Fake()
    drive([*late, *(run for run in runs if not run.waits)], fake)
    went = [task.plan.folder for task in fake.tasks]
    assert all(
        went.index(run.plan.folder) > went.index(next(iter(run.needs)).relative_to(run.experiment)) for run in late
    )
    fake = Fake()
    _, told = drive(runs, fake, is_there=lambda run: True)
    assert [folder for folder, event in told if event is events.There] == [run.plan.folder for run in late]
    needed = next(iter(late[0].needs)).relative_to(late[0].experiment)
    failures, _ = drive(runs, Fake({needed: Failed(TestbedError("no"))}), keep_going=True)
    assert [str(failure.error) for failure in failures] == [
        "no",
        "it needs isolated runs of its jobs, and those failed. Run the command again.",
    ]


def test_a_run_whose_jobs_alone_cannot_be_read_is_one_message(tmp_path: Path) -> None:
    (late,) = [
        run for run in driver.wanted([plan.planned(read(None, {**SMALL, "cc": ["cassini"]}))], tmp_path) if run.waits
    ]
    with pytest.raises(TestbedError, match=r"no folder .*isolated/job0/cassini/1"):
        drive([late], Fake())


def test_a_task_ends_with_a_classified_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find(*_: object, **__: object) -> None:
        raise MachineError("no such kernel")

    monkeypatch.setattr(backends, "find", find)
    (run, *_) = driver.wanted([plan.planned(read(None, SMALL))], tmp_path)
    outcome = carry_out(Task(run.plan, "uml"))
    assert isinstance(outcome, Failed) and isinstance(outcome.error, MachineError)
    assert list(tmp_path.iterdir()) == []


def test_lanes_take_what_is_theirs() -> None:
    here, there = Lane(None), Lane("ssh:a")
    assert here.backend_for("uml") == "uml" and there.backend_for("uml") is None
    assert (
        here.backend_for("ssh:a,ssh:b") is None
        and there.backend_for("ssh:b,ssh:a") == "ssh:a"
        and there.backend_for("ssh:b") is None
    )
    for lane in (here, there):
        lane.close()


def test_here_the_run_is_observed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Backend:
        name, clock = "uml", "virtual"

        def run(self, plan: Plan, on_event: Any, patience: object) -> bytes:
            on_event(events.Phase("jobs"))
            raise RequestError("and no more")

    heard: list[Any] = []
    backend: Any = Backend()
    (run, *_) = driver.wanted([plan.planned(read(None, SMALL))], tmp_path)
    outcome = Here(backend, lambda *said: heard.append(said)).submit(Task(run.plan, "uml")).result()
    assert isinstance(outcome, Failed) and str(outcome.error) == "and no more"
    assert heard == [(run.plan, events.Phase("jobs"))]


def test_a_task_can_be_handed_to_another_process(tmp_path: Path) -> None:
    (run, *_) = driver.wanted([plan.planned(read(None, SMALL))], tmp_path)
    task = Task(run.plan, "uml", 3.0, 1, None, ("run.py",))
    assert pickle.loads(pickle.dumps(task)) == task
    failed = pickle.loads(pickle.dumps(Failed(LostError("a is gone"))))
    assert isinstance(failed.error, LostError) and str(failed.error) == "a is gone"


def test_job_schedulers_are_crossed_with_systems(tmp_path: Path) -> None:
    """Each has a folder of its own, jobs alone included; the summary tells all of them, the first system under the first one the baseline."""
    fields = {"topo": "star", "jobs": 2, "cc": ["reno", "mltcp_reno"], "iterations": 30, "name": "x"}
    spec = read(None, {**fields, "scheduler": ["spread", "packed"]})
    synthetic.write([spec], tmp_path, lambda plan, i: 1.2 if plan.scheduler == "spread" else 1.0)
    runs = driver.wanted([plan.planned(spec)], tmp_path)
    assert {str(run.plan.folder) for run in runs if run.plan.alone is None} == {
        f"{scheduler}/{system}/1" for scheduler in ("spread", "packed") for system in ("reno", "mltcp_reno")
    }
    assert all((run.folder / "manifest.json").is_file() for run in runs)
    summary = driver.sum_up(runs)
    assert [(row.scheduler, row.system) for row in summary.results] == [
        ("spread", "reno"), ("spread", "mltcp_reno"), ("packed", "reno"), ("packed", "mltcp_reno"),
    ]  # fmt: skip
    assert [row.speedup_mean for row in summary.results] == pytest.approx([1, 1, 1.2, 1.2])
    assert load_summary(tmp_path / "x") == summary
    assert summary.results[0].conclusion is None and "packed is 1.20×" in str(summary.results[2].conclusion)
    (one, *_) = driver.wanted([plan.planned(read(None, {**fields, "scheduler": "packed"}))], tmp_path)
    assert str(one.plan.folder) == "reno/1" and one.plan.scheduler == "packed"
