"""Metrics, statistics and the summary on cases computed by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

from testbed import spec
from testbed.campaign.summary import summarise
from testbed.cli import main
from testbed.core.runs import documents, metrics
from testbed.core.runs import rows as run_rows
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.load import TABLES, LoadError, digest, load_experiment
from testbed.core.runs.plan import System
from testbed.core.runs.summary import Summary
from testbed.report import agreement, comparison, study
from tests.support import fluid_runs, synthetic
from tests.support.manifests import VALID, manifest
from tests.support.runs import one_plan


def iterations(ends: dict[int, list[float]], starts: dict[int, float]) -> pd.DataFrame:
    rows = []
    for job, times in ends.items():
        begun = starts[job]
        for index, end in enumerate(times):
            for worker, earlier in ((0, 0.0), (1, 0.01)):  # the second worker ends first
                rows.append((job, worker, index, begun, begun, end - earlier, 100, 0.0))
            begun = end
    columns = ["job", "worker", "iteration", "start_s", "comm_start_s", "end_s", "bytes", "max_start_delay_s"]
    return pd.DataFrame(rows, columns=columns)


def test_an_iteration_ends_with_its_slowest_worker() -> None:
    times = metrics.iteration_times(iterations({0: [1.0, 2.5, 3.5], 1: [1.2, 2.2, 3.6]}, {0: 0.0, 1: 0.2}))
    assert times[0].tolist() == pytest.approx([1.0, 1.5, 1.0])
    assert times[1].tolist() == pytest.approx([1.0, 1.0, 1.4])


@pytest.mark.parametrize(
    ("first", "second", "at"),
    [
        ([1.5, 1.2, 1.04, 1.0], [1.5, 1.04, 1.0, 1.0], 2),
        ([1.0, 1.0, 1.0, 1.0], [1.05, 1.0, 1.0, 1.0], 0),
        ([1.0, 1.3, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], 2),
    ],
)
def test_interleaved_from_where_every_job_stays_within_five_percent(
    first: list[float], second: list[float], at: int | None
) -> None:
    settled = [1.0] * 3
    assert metrics.interleaved_at(pd.DataFrame({0: first + settled, 1: second + settled}), isolated_s=1.0) == at
    late = pd.DataFrame({0: first + settled + [1.2], 1: second + settled + [1.0]})
    assert metrics.interleaved_at(late, isolated_s=1.0) is None


def test_jain_index() -> None:
    assert metrics.jain_index(np.array([1.0, 1.0])) == 1
    assert metrics.jain_index(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert metrics.jain_index(np.array([1.0, 3.0])) == pytest.approx(0.8)


def test_throughput_adds_a_jobs_flows() -> None:
    t = np.arange(0, 1.01, 0.1)
    flows = pd.concat(
        pd.DataFrame({"t_s": t, "job": 0, "worker": 0, "flow": flow, "bytes_acked": rate * t})
        for flow, rate in (("0-1", 1000.0), ("1-0", 500.0))
    )
    assert metrics.throughput(flows, 0.25)[0].tolist() == pytest.approx([12000.0] * 3)


def test_learned_in_the_first_iteration_with_a_known_ratio() -> None:
    rows = iterations({0: [1.0, 2.0, 3.0]}, {0: 0.0})
    flows = pd.DataFrame({"t_s": [0.5, 1.5, 2.5], "job": 0, "mltcp_r": [np.nan, np.nan, 0.3]})
    assert metrics.mltcp_active_from(rows, flows) == 2
    assert metrics.mltcp_active_from(rows, flows.assign(mltcp_r=np.nan)) is None


def make_run(folder: Path, cc: str, seed: int, times: list[float], backend: str = "host") -> None:
    """A golden run directory of one job."""
    folder.mkdir(parents=True)
    ends = list(np.cumsum(times))
    iterations({0: ends}, {0: 0.0}).assign(cc=cc, seed=seed).to_csv(folder / "iterations.csv", index=False)
    idle = dict.fromkeys(run_rows.columns(run_rows.FlowSample), 0)
    pd.DataFrame([{**idle, "flow": "0-1", "mltcp_r": np.nan}]).to_csv(folder / "flows.csv", index=False)
    for name, kind in (("operations.csv", run_rows.Operation), ("links.csv", run_rows.LinkSample)):
        (folder / name).write_text(run_rows.text(kind, [], 6))
    plan = one_plan(cc=["reno"], jobs=1, seed=seed)
    system = System(cc, cc, "treatment" if cc == "fast" else "baseline")
    job = msgspec.structs.replace(plan.jobs[0], ideal_s=1.0, iterations=len(times))
    told = manifest(
        msgspec.structs.replace(plan, system=system, jobs=(job,)),
        backend=backend,
        clock="virtual" if backend == "uml" else "real",
        digest=digest({name: (folder / name).read_bytes() for name in TABLES}),
    )
    (folder / "manifest.json").write_bytes(documents.encode(told))
    (folder / "verdict.json").write_bytes(documents.encode(VALID))


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    for seed in (1, 2, 3):
        make_run(tmp_path / "base" / str(seed), "base", seed, [2.0] * 20)
        make_run(tmp_path / "fast" / str(seed), "fast", seed, [2.0, 2.0] + [1.0] * 18)
        for cc in ("base", "fast"):
            make_run(tmp_path / "isolated" / "job0" / cc / str(seed), cc, seed, [5.0, 1.0, 1.0])
    return tmp_path


def test_summary_of_a_golden_experiment(golden: Path) -> None:
    wanted = [(cc, seed) for seed in (1, 2, 3) for cc in ("base", "fast")]
    summary = summarise(load_experiment(golden, wanted))
    base, fast = summary.results
    assert (summary.version, summary.baseline, summary.verdict) == (VERSION, "base", "valid")
    assert (base.mean_s, fast.mean_s) == pytest.approx((2.0, 1.1))
    assert fast.speedup_mean == pytest.approx(2 / 1.1)
    assert fast.speedup_mean_ci95 == pytest.approx([2 / 1.1] * 2)
    assert (fast.p50_s, fast.p99_s, fast.last10_mean_s) == pytest.approx((1.0, 2.0, 1.0))
    assert (fast.isolated_s, fast.interleaved_at, fast.interleaved_seeds) == (1.0, None, None)  # one job
    assert documents.decode(documents.encode(summary), Summary) == summary


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("manifest.json", '{"version": 99}', "format version 99"),
        ("manifest.json", "{", "cannot be read"),
        ("verdict.json", None, "is missing"),
        ("iterations.csv", "", "cannot be read"),
    ],
)
def test_bad_run_directories_say_so(golden: Path, file: str, content: str | None, says: str) -> None:
    path = golden / "fast" / "1" / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(LoadError, match=says) as error:
        summarise(load_experiment(golden))
    assert str(path) in str(error.value)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="holds no run"):
        load_experiment(tmp_path)


def test_two_backends_side_by_side(golden: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    for seed in (1, 2, 3):
        make_run(there / "fast" / str(seed), "fast", seed, [2.0, 2.0] + [1.02] * 18, "uml")
        make_run(there / "isolated" / "job0" / "fast" / str(seed), "fast", seed, [5.0, 0.99, 0.99], "uml")
    table, written = agreement.compare([golden, there], tmp_path / "out")
    assert [path.suffix for path in written] == [".png", ".pdf", ".csv"]
    means = agreement.means(table)
    assert means.loc[("fast", "steady"), "uml ÷ host - 1"] == pytest.approx(0.02)
    assert means.loc[("fast", "alone"), "uml ÷ host - 1"] == pytest.approx(-0.01)
    assert main(["compare", str(golden), str(there), "--out", str(tmp_path / "out")]) == 0


def test_different_plans_are_compared_and_named(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path / "other" / "fast" / str(seed), "fast", seed, [1.1] * 7)
    assert main(["compare", str(golden), str(tmp_path / "other"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "other jobs" in said
    assert "has base" in said
    assert "1.000" in said  # 1.1 s ÷ the mean of 1.1 s


def two_jobs(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> pd.DataFrame:
    """Communication phases, (begin, end), of two jobs of one worker."""
    rows = [
        (job, 0, number, begin, begin, end, 1.0, 0.0)
        for job, spans in enumerate((first, second))
        for number, (begin, end) in enumerate(spans)
    ]
    return pd.DataFrame(
        rows, columns=["job", "worker", "iteration", "start_s", "comm_start_s", "end_s", "bytes", "max_start_delay_s"]
    )


def test_overlap_by_hand() -> None:
    found = metrics.overlap(two_jobs([(0, 2), (4, 6), (8, 9)], [(1, 3), (6, 7), (7.5, 10)]))
    assert found[0].tolist() == pytest.approx([0.5, 0, 1])
    assert found[1].tolist() == pytest.approx([0.5, 0, 0.4])


def test_what_two_jobs_cover_is_not_counted_twice() -> None:
    three = pd.concat([two_jobs([(0, 10)], [(1, 5)]), two_jobs([], [(3, 6)]).assign(job=2)])
    assert metrics.overlap(three)[0].tolist() == pytest.approx([0.5])


def test_start_difference_around_the_circle() -> None:
    rows = two_jobs([(0, 0.1), (1, 1.1), (2, 2.1)], [(0.2, 0.3), (1.9, 2.0), (4.25, 4.5)])
    assert metrics.start_difference(rows, 1.0).tolist() == pytest.approx([0.2, 0.1, 0.25])


def test_utilisation_by_hand() -> None:
    links = pd.DataFrame({"t_s": [0, 1, 2, 3], "link": "a-b", "bytes": [0, 100, 300, 300]})
    assert metrics.utilisation(links, "a-b", 1600, 0.5, 2) == pytest.approx(250 * 8 / (1600 * 1.5))


def test_job_schedulers_that_were_crossed_are_experiments(tmp_path: Path) -> None:
    """Each is one, for figures and comparisons alike, and the report says that there are several."""
    flags = {
        "topo": "leafspine,2,2,4",
        "jobs": 2,
        "workers": 2,
        "name": "favoritism",
        "system": ["reno", "mltcp_reno"],
        "on": "uml",
    }
    asked = spec.read(None, {**flags, "scheduler": ["spread", "random"], "iterations": 12})
    synthetic.write([asked], tmp_path / "results", lambda plan, _: 1.4 if plan.scheduler == "spread" else 1.0)
    assert study.ids(tmp_path / "results") == ["favoritism"]
    found = study.load_study(tmp_path / "results", "favoritism")
    assert [experiment.path.name for experiment in found.experiments] == ["random", "spread"]
    assert [experiment.systems for experiment in found.experiments] == [["reno", "mltcp_reno"]] * 2
    assert any("several job schedulers (random, spread)" in problem for problem in found.problems)
    rows = comparison.compare(tmp_path / "results", tmp_path / "results").rows
    assert {row.experiment for row in rows} == {"favoritism/random", "favoritism/spread"}


def test_they_are_drawn(tmp_path: Path) -> None:
    flags = {
        "jobs": 2,
        "name": "mine",
        "system": ["reno", "mltcp_reno"],
        "on": "uml",
        "scheduler": ["spread", "random"],
    }
    fluid_runs.write(spec.read(None, {**flags, "iterations": 12}), tmp_path / "results")
    for given in (tmp_path / "results", tmp_path / "results/mine"):
        out = tmp_path / "out" / given.name
        assert main(["figures", str(given), "--out", str(out)]) == 0
        assert {path.parent.name for path in out.rglob("interleaving.png")} == {"random", "spread"}
