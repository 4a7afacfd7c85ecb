"""Stored run directories say what they said when they were made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.campaign.summary import summarise
from testbed.campaign.verdict import Case, judge
from testbed.core.runs import documents
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.load import load_experiment, load_run, load_summary
from testbed.core.runs.manifest import Manifest
from testbed.models import bottleneck
from testbed.report.views import interleaving

RUNS = Path(__file__).parents[2] / "data" / "runs"
TIMES = ("mean_s", "p99_s", "last10_mean_s", "ideal_s")
COUNTS = ("mltcp_active_from",)
RUN, ALONE = "plain/mltcp_reno/1", "plain/isolated/job0/mltcp_reno/1"
Changes = dict[str, Any]  # by path


@pytest.mark.parametrize("folder", sorted(RUNS.glob("v*/*/")), ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_they_are_summed_up_as_they_were(folder: Path) -> None:
    stored = json.loads((folder / "summary.json").read_text())
    summary = summarise(load_experiment(folder))
    assert summary.verdict == stored["verdict"] == "valid"
    for now, before in zip(summary.results, stored["results"], strict=True):
        assert {key: getattr(now, key) for key in TIMES} == pytest.approx(
            {key: before[key] for key in TIMES}, rel=1e-12
        )
        assert {key: getattr(now, key) for key in COUNTS} == {key: before[key] for key in COUNTS}
        assert now.interleaved_at in (before["interleaved_at"], None)  # it takes more iterations today


@pytest.mark.parametrize("folder", sorted(RUNS.glob("v*/*/")), ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_their_summaries_are_read_as_what_they_were(folder: Path) -> None:
    stored, today = load_summary(folder), summarise(load_experiment(folder))
    assert (stored.version, stored.clock) == (VERSION, "virtual")
    for before, now in zip(stored.results, today.results, strict=True):
        assert (before.system, before.role) == (now.system, now.role)
        assert [(job.job, job.learns) for job in before.per_job] == [(job.job, job.learns) for job in now.per_job]
        for job, again in zip(before.per_job, now.per_job, strict=True):
            assert job.speedup_mean == pytest.approx(again.speedup_mean)


@pytest.mark.parametrize("folder", sorted(RUNS.glob("v*/*/")), ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_their_figures_are_drawn_as_they_were(folder: Path, tmp_path: Path) -> None:
    """Number for number, where all jobs meet; a figure shows today what crosses the busiest link, and no other jobs."""
    before = pd.read_csv(folder / "figures/interleaving.csv").rename(columns={"goodput_bps": "bps"})
    experiment = load_experiment(folder)
    drawn = interleaving.draw(experiment, tmp_path)
    assert {path.suffix for path in drawn} == {".png", ".pdf", ".csv"}
    now = pd.read_csv(tmp_path / "interleaving.csv")
    if len(now) == len(before):
        pd.testing.assert_frame_equal(now, before)
    else:
        keys = ["cc", "t_s", "job"]
        assert bottleneck.busiest(experiment.runs) is not None and set(now["job"]) < set(before["job"])
        assert 0 < len(now) == len(now.merge(before, on=keys))


def judged(
    run: str, manifest: Changes, tables: Changes | None = None, lives: pd.DataFrame | None = None
) -> dict[str, set[str]]:
    """The statuses of the verdict's rows of a stored run of today's format, by id, with its manifest (by path) or tables changed."""
    stored = load_run(RUNS / f"v{VERSION}" / run)
    told = json.loads((stored.path / "manifest.json").read_text())
    for path, value in manifest.items():
        *way, last = path.split(".")
        part = told
        for step in way:
            part = part[int(step)] if step.isdecimal() else part[step]
        part[last] = value
    changed = {name: getattr(stored, name).copy() for name in ("iterations", "links")}
    for path, value in (tables or {}).items():
        name, row, column = path.split(".")
        changed[name].iloc[int(row), changed[name].columns.get_loc(column)] += value
    case = Case(
        documents.decode(json.dumps(told).encode(), Manifest), changed["iterations"], changed["links"], stored.flows, stored.disturbances,
        stored.messages, stored.lives if lives is None else lives, stored.nics,
    )  # fmt: skip
    found = judge(case)
    statuses: dict[str, set[str]] = {"verdict": {found.verdict}}
    for one in found.invariants:
        statuses.setdefault(one.id, set()).add(one.status)
    return statuses


REAL = {"clock": "real"}  # what a virtual clock makes true by construction is judged as of a real one
ONE_NUMBER: list[tuple[str, str, Changes, Changes, str]] = [
    ("I2", RUN, {**REAL, "measured.capacity_bps": 400_000_000}, {}, "suspect"),
    ("I2", RUN, {**REAL, "measured.capacity_bps": 1_000_000}, {}, "invalid"),
    ("I3", RUN, {}, {"links.-1.bytes": 1_000_000}, "invalid"),
    ("I5", RUN, {"measured.counters.interface_dropped": 1}, {}, "suspect"),
    ("I5", RUN, {"measured.counters.softnet_dropped": 100}, {}, "invalid"),
    ("I6", RUN, {}, {"iterations.0.max_start_delay_s": 0.05}, "invalid"),
    ("I7", RUN, {**REAL, "measured.sampler.busiest_core": [0.9]}, {}, "suspect"),
    ("I7", RUN, {**REAL, "measured.sampler.busiest_core": [1.0]}, {}, "invalid"),
    ("I7", RUN, {**REAL, "measured.sampler.steal": [0.02]}, {}, "suspect"),
    ("I8", RUN, {"measured.rtt_us_before": 1e6}, {}, "invalid"),
    ("I9", RUN, {}, {"iterations.0.bytes": 1}, "invalid"),
    ("I11", ALONE, {"plan.jobs.0.ideal_s": 0.1400}, {}, "suspect"),
    ("I11", ALONE, {"plan.jobs.0.ideal_s": 0.1}, {}, "invalid"),
    ("I12", RUN, {**REAL, "measured.clock_drift_s": 0.01}, {}, "suspect"),
    ("I12", RUN, {**REAL, "measured.clock_drift_s": -2.0}, {}, "invalid"),
    ("I13", RUN, {"measured.congestion_control_repairs": 1}, {}, "suspect"),
    ("I13", RUN, {"measured.congestion_control_repairs": 100}, {}, "invalid"),
    ("I17", RUN, {"measured.senders.0.send_buffer_s": 0.1}, {}, "suspect"),
    ("I19", RUN, {"measured.tcp.TCPRcvQDrop": 1}, {}, "suspect"),
    ("I19", RUN, {"measured.tcp.TCPRcvQDrop": 400}, {}, "invalid"),
]


@pytest.mark.parametrize(("id", "run", "manifest", "tables", "becomes"), ONE_NUMBER)
def test_a_stored_run_with_one_number_changed(
    id: str, run: str, manifest: Changes, tables: Changes, becomes: str
) -> None:
    assert not {"suspect", "invalid"} & judged(run, {})[id] and judged(run, {})["verdict"] == {"valid"}
    found = judged(run, manifest, tables)
    assert becomes in found[id] and found["verdict"] != {"valid"}


def test_a_stored_run_one_of_whose_jobs_failed() -> None:
    run = "queueing/reno/1"
    lives = load_run(RUNS / f"v{VERSION}" / run).lives
    assert lives is not None and judged(run, {})["I22"] == {"ok"}
    failed = lives.assign(
        outcome=["failed", *lives["outcome"][1:]], failure_reason=["killed", *lives["failure_reason"][1:]]
    )
    assert (found := judged(run, {}, lives=failed))["I22"] == {"suspect"} and found["verdict"] != {"valid"}
