"""``--on flow``: the same plan, the same files, computed; what it refuses."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import flow_validation
from testbed import spec
from testbed.backends import flow
from testbed.backends.flow import model
from testbed.backends.progress import Patience
from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.core.runs.events import Iteration
from testbed.core.runs.load import Run, check, load_run
from testbed.models import flow_error, flow_weights, validated_range
from testbed.planning import plan as planning
from testbed.planning.plan import planned
from testbed.report.study import load_study


def run(out: Path, *flags: str) -> int:
    return main(["run", "--on", "flow", "--out", str(out), "--quiet", *flags])


def runs(out: Path) -> dict[str, Run]:
    """By folder below the experiment's."""
    found = {}
    for path in sorted(out.rglob("manifest.json")):
        loaded = load_run(path.parent)
        check(loaded)
        found[str(path.parent.relative_to(next(out.iterdir())))] = loaded
    return found


def test_a_run_has_the_files_of_any_other_and_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--jobs", "2", "--iterations", "12") == EXIT_OK
    found = runs(tmp_path)
    assert set(found) == {"reno/1", "mltcp_reno/1", "isolated/job0/reno/1"}
    for name, one in found.items():
        assert (one.manifest.clock, one.manifest.backend) == ("model", "flow")
        assert one.verdict.verdict == "valid", name
        status = {row.id: row.status for row in one.verdict.invariants}
        assert status["I9"] == "ok" and status["I4"] == status["I12"] == "not applicable"
        links = one.links[one.links["link"] == "s1-s2"]
        assert (np.diff(links["bytes"]) <= one.rate_bps / 8 * np.diff(links["t_s"]) + 1).all()
        assert one.flows.groupby("flow")["bytes_acked"].max().sum() > 0
    summary = json.loads((next(tmp_path.iterdir()) / "summary.json").read_text())
    assert [row["system"] for row in summary["results"]] == ["reno", "mltcp_reno"] and summary["clock"] == "model"
    assert "Simulated" in capsys.readouterr().out
    folder = next(tmp_path.iterdir()) / "mltcp_reno" / "1"
    assert main(["run", "--verify", str(folder)]) == EXIT_OK


def test_a_lone_job_takes_its_ideal_time(tmp_path: Path) -> None:
    for number, flags in enumerate((
        ["--jobs", "1", "--workers", "4", "--collective", "ring", "--topo", "star"],
        ["--jobs", "1", "--workers", "3", "--collective", "parameter_server", "--topo", "star", "--nic", "inf"],
        ["--jobs", "1", "--trace", "resnet50", "--rate", "300mbit", "--nic", "inf", "--noise", "0%"],
    )):  # fmt: skip
        out = tmp_path / str(number)
        assert run(out, "--iterations", "3", "--system", "reno", *flags) == EXIT_OK
        for one in runs(out).values():
            times = (one.iterations["end_s"] - one.iterations["start_s"]).to_numpy()
            assert times == pytest.approx(one.jobs[0].ideal_s, rel=1e-4), flags


@pytest.mark.parametrize(
    "system", ["cassini", "priority", "unfair:weights=4/1", "lretf", "dcqcn", "mltcp_dctcp", "mltcp_cubic"]
)
def test_systems_that_it_computes(tmp_path: Path, system: str) -> None:
    assert run(tmp_path, "--jobs", "2", "--iterations", "10", "--system", "reno", system, "--alone", "first") == EXIT_OK
    summary = json.loads((next(tmp_path.iterdir()) / "summary.json").read_text())
    reno, other = (row["mean_s"] for row in summary["results"])
    assert other < reno * 1.1


def test_what_happens_to_links_and_who_leaves(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nsystem = ["reno"]\niterations = 8\n'
        '[[event]]\nat = "4s"\nlink = "s1-s2"\nrate = "50%"\n'
        '[[job]]\ncompute = "100ms"\nbytes = "20MB"\n[[job]]\ncompute = "100ms"\nbytes = "20MB"\nleave = "2s"\n'
    )
    assert run(tmp_path / "out", str(file)) == EXIT_OK
    one = load_run(tmp_path / "out" / "mine" / "reno" / "1")
    rows = one.iterations[(one.iterations["job"] == 0) & (one.iterations["worker"] == 0)]
    times = (rows["end_s"] - rows["start_s"]).to_numpy()
    alone = one.jobs[0].ideal_s
    assert alone is not None
    assert times[-1] == pytest.approx(0.1 + 2 * (alone - 0.1), rel=1e-4)  # half as fast a link
    assert one.iterations[one.iterations["job"] == 1]["end_s"].max() <= 2.0


def test_several_paths_are_drawn_from_the_seed(tmp_path: Path) -> None:
    flags = [
        "--topo",
        "leafspine,2,2,4",
        "--jobs",
        "3",
        "--iterations",
        "4",
        "--system",
        "reno",
        "--seeds",
        "4",
        "--alone",
        "first",
    ]
    assert run(tmp_path, *flags) == EXIT_OK
    ways = {
        tuple(way.links for way in one.manifest.measured.paths)
        for name, one in runs(tmp_path).items() if name.startswith("reno")
    }  # fmt: skip
    assert len(ways) > 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--system", "ltp", "--topo", "star", "--jobs", "1", "--workers", "3", "--collective", "parameter_server"], "losses and timeouts"),
        (["--delay", "5ms"], "round trips"),
        (["--loss", "1%"], "loses"),
        (["--system", "bbr"], "were not measured"),
        (["--priority-queues", "4"], "--priority-queues"),
        (["--system", "pias"], "loses priority"),
        (["--trace", "vgg16-layers"], "overlaps exchanges or iterations"),
    ],
)  # fmt: skip
def test_what_it_cannot_model_it_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert run(tmp_path, "--jobs", "2", *flags) == EXIT_REQUEST
    said = " ".join(capsys.readouterr().err.split())
    assert words in said and "--on uml" in said


def test_beyond_what_was_compared_a_run_is_suspect(tmp_path: Path) -> None:
    assert run(tmp_path, "--jobs", "4", "--iterations", "6", "--channels", "8") == EXIT_OK
    verdicts = {name: one.verdict for name, one in runs(tmp_path).items() if not name.startswith("isolated")}
    for verdict in verdicts.values():
        assert verdict.verdict == "suspect"
        assert [row.id for row in verdict.invariants if row.status == "suspect"] == ["I23"]


@pytest.mark.parametrize(
    ("flags", "bounds"),
    [
        ({}, []),
        ({"channels": 4}, []),
        ({"jobs": 4, "channels": 4}, ["frames_per_flow"]),
        ({"jobs": 33, "ecn": "170p", "buffer": "850p"}, ["jobs"]),
        ({"channels": 5, "ecn": "60p", "buffer": "300p"}, ["flows_per_job"]),
        ({"topo": "leafspine", "jobs": 16, "workers": 3}, ["workers"]),
        ({"bytes": "100kB", "compute": "500ms"}, ["cycles_per_phase"]),
        ({"bytes": "100MB", "compute": "100ms"}, ["offered_load"]),
        ({"noise": "20%"}, ["noise"]),
        ({"topo": "leafspine,2,2,4", "jobs": 4, "ecn": "20p", "buffer": "100p"}, ["flows_per_path"]),
        ({"topo": "star"}, ["setting"]),
        ({"nic": "inf"}, ["setting"]),
        ({"ecn": "off"}, ["setting"]),
        ({"system": ["priority"]}, ["setting"]),
        ({"system": ["unfair"]}, ["setting"]),
        ({"system": ["mltcp_reno:preset=paper"]}, ["setting"]),
        ({"system": ["mltcp_cubic"]}, ["setting"]),
        ({"event": [{"at": "1s", "link": "s1-s2", "rate": "50%"}]}, ["setting"]),
    ],
)
def test_what_of_a_plan_is_outside_the_validated_range(flags: dict[str, Any], bounds: list[str]) -> None:
    plan = plan_of(**{"jobs": 2, "system": ["mltcp_reno"], **flags})
    assert sorted({reason.bound for reason in validated_range.check(plan)}) == bounds


def test_frames_for_each_flow_are_those_of_the_link_that_jobs_share() -> None:
    plan = plan_of(jobs=4, channels=2, system=["reno"], ecn="40p")
    assert validated_range.measures(plan)["frames_per_flow"] == pytest.approx(5)
    [link] = [one for one in validated_range.shared_links(plan) if one.name == "s1-s2"]
    assert (link.flows, link.frames) == (8, pytest.approx(40))
    spread = plan_of(jobs=4, topo="leafspine,2,2,4", system=["reno"], ecn="40p")
    assert validated_range.measures(spread)["frames_per_flow"] == pytest.approx(
        20
    )  # two of the four flows on each uplink
    assert "frames_per_flow" not in validated_range.measures(plan_of(jobs=2, ecn="off", system=["reno"]))


@pytest.mark.parametrize(("threshold", "separates"), [("16p", False), ("64p", True)])
def test_mltcp_needs_frames_of_threshold_for_each_flow(threshold: str, separates: bool) -> None:
    """Two jobs of eight flows: with one frame each MLTCP shares as Reno does, with four it interleaves."""
    last_s = {}
    for system in ("reno", "mltcp_reno"):
        plan = plan_of(jobs=2, channels=8, system=[system], ecn=threshold, buffer="400p", iterations=24)
        loop = model.build(plan).loop
        ended = [one for some, _ in loop.run(60.0) for one in some if 16 <= one.iteration < 24]
        last_s[system] = float(np.mean([one.end_s - one.start_s for one in ended]))
    gain = last_s["reno"] / last_s["mltcp_reno"]
    assert gain > 1.2 if separates else gain == pytest.approx(1, abs=0.05)


def test_no_claim_goes_by_what_was_never_compared(tmp_path: Path) -> None:
    assert run(tmp_path, "--jobs", "4", "--iterations", "6", "--channels", "8", "--name", "map.x") == EXIT_OK
    study = load_study(tmp_path, "map")
    assert not study.runs and any("I23" in problem for problem in study.problems)
    assert load_study(tmp_path, "map", several_backends=True).runs


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0, 11).map(lambda power: int(10**power)),
    st.sampled_from(["100mbit", "50gbit", "400gbit"]),
    st.sampled_from(["ring", "all_gather", "broadcast", "parameter_server"]),
    st.sampled_from([1, 2]),
    st.sampled_from(["reno", "mltcp_reno"]),
)
def test_collectives_of_any_size(size: int, rate: str, collective: str, jobs: int, system: str) -> None:
    """From 1 byte to 100 GB: no iteration is faster than the ideal, and all are finite."""
    flags = {
        "jobs": jobs,
        "bytes": f"{size}B",
        "compute": "50ms",
        "collective": collective,
        "rate": rate,
        "iterations": 4,
    }
    plan = plan_of(system=[system], alone="none", **flags)
    plan = msgspec.structs.replace(plan, sample_ns=round(plan.expected_s / 20 * 1e9))
    times = list[float]()
    flow.FlowLevel().run(
        plan,
        lambda event: times.extend([event.end_s - event.start_s] if isinstance(event, Iteration) else []),
        Patience(),
    )
    assert len(times) == 4 * jobs
    ideal_s = plan.jobs[0].ideal_s
    assert ideal_s is not None
    assert all(0.999 * ideal_s <= time_s < math.inf for time_s in times)


FIRST = """
import sys
from testbed.cli import main
code = main(["run", "--on", "flow", "--jobs", "2", "--iterations", "4", "--quiet", "--out", sys.argv[1]])
assert "numba" not in sys.modules
sys.exit(code)
"""


def test_a_first_small_run_compiles_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
    env |= {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "MPLCONFIGDIR": str(tmp_path / "fonts")}
    done = subprocess.run(
        [sys.executable, "-c", FIRST, str(tmp_path / "out")], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == EXIT_OK, done.stderr
    assert not (tmp_path / "numba").exists() and not list(tmp_path.glob("cache/mltcp/numba-*"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_iterations_that_are_tiny_against_a_sample_end_soon(jobs: int) -> None:
    """An iteration of 64 ns, of which 156,000 fit between two samples."""
    plan = plan_of(jobs=jobs, bytes="400B", compute="0ms", rate="50gbit", iterations=10, system=["reno"], alone="none")
    times = list[float]()
    flow.FlowLevel().run(
        plan,
        lambda event: times.extend([event.end_s - event.start_s] if isinstance(event, Iteration) else []),
        Patience(),
    )
    assert len(times) == 10 * jobs


def test_a_run_with_a_tiny_collective_has_a_result(tmp_path: Path) -> None:
    trace = tmp_path / "tiny.json"
    trace.write_text(json.dumps({
        "version": 1, "name": "tiny", "model": "own", "native_rate": "50gbit",
        "source": {"kind": "derived from published numbers", "measured_by": "-", "when": "2026", "on": "made up", "notes": ""},
        "operations": [
            {"id": "load", "kind": "compute", "duration": "2ms"},
            {"id": "stats", "kind": "broadcast", "bytes": "400B", "after": ["load"]},
            {"id": "backward", "kind": "compute", "duration": "60ms"},
            {"id": "bucket", "kind": "all_reduce", "bytes": "90MB", "after": ["backward"]},
        ],
    }))  # fmt: skip
    flags = [
        "--jobs",
        "2",
        "--trace",
        str(trace),
        "--rate",
        "50gbit",
        "--mtu",
        "9000",
        "--system",
        "reno",
        "--iterations",
        "60",
    ]
    assert run(tmp_path / "out", *flags) == EXIT_OK


def test_a_dry_run_names_no_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--dry-run") == EXIT_OK
    said = capsys.readouterr().out
    assert "as flows" in said and "read back" not in said and not list(tmp_path.iterdir())


def plan_of(**flags: Any) -> Any:
    return next(plan for plan in planned(spec.read(None, {"on": "flow", **flags}))[1] if plan.alone is None)


def test_weights_go_as_f_to_the_power_of_its_base() -> None:
    job = plan_of(system=["mltcp_reno"]).jobs[0]
    force = flow_weights.force(job.cc, exponent=0.5, steps=4)
    assert force.bounds == (0.25, 0.5, 0.75, 1.0)
    assert force.weights[0] == pytest.approx((1.75 * 0.125 + 0.25) ** 0.5)
    assert flow_weights.mltcp_active_from(job.cc) == 2
    assert flow_weights.force(plan_of(system=["reno"]).jobs[0].cc).weights == (1.0,)
    held = plan_of(system=["unfair:weights=4/1"], jobs=2).jobs
    assert flow_weights.force(held[0].cc).weights[0] / flow_weights.force(held[1].cc).weights[0] == pytest.approx(
        4 ** flow_weights.BASES["reno"].exponent
    )
    assert flow_weights.mltcp_active_from(held[0].cc) == 0


def test_what_it_takes_is_said_before_anything_is_computed() -> None:
    assert flow.lacks(plan_of()) is None
    lacking = flow.lacks(plan_of(delay="1ms"))
    assert lacking is not None and "uml" in lacking.instead


def test_links_that_a_job_holds_are_none_of_it() -> None:
    lacking = flow.lacks(plan_of(system=["lretf:preempt=no"]))
    assert lacking is not None and "reserves its links" in lacking.what


def test_the_errors_inside_the_range_are_those_that_were_measured() -> None:
    with flow_validation.ERRORS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for inside in (True, False):
        off = [abs(float(row["error"])) for row in rows if (not row["outside"]) == inside]
        stated = flow_error.gain_error("mltcp_reno", inside=inside)
        assert stated.mixes == len(off)
        assert (stated.mean, stated.worst) == pytest.approx((np.mean(off), max(off)), abs=6e-4)
        assert not inside or max(off) <= 0.10
    assert flow_validation.markdown() in (Path(__file__).parents[3] / "docs/explanation/flow-simulator.md").read_text()


def test_options_that_share_resolved_jobs_have_the_plans_of_their_own() -> None:
    """`Scenario.under`, by which `advise` resolves network and jobs once: every plan is as if it were planned alone."""
    fields = {"job": ["gpt2", "gpt2"], "on": "flow", "rate": "100gbit", "iterations": 12}
    first, *others = (spec.make(fields, {"system": [system]}, "test") for system in ("reno", "mltcp_reno", "priority"))
    scenario = planning.resolve(first)
    for other in others:
        assert planning.plans(scenario.under(other)) == planning.planned(other)[1]


def test_operations_are_those_of_every_rank(tmp_path: Path) -> None:
    """Of a job with several groups each rank has its own, each iteration."""
    experts = str(Path(flow_validation.HERE) / "experts.json")
    assert (
        run(tmp_path, "--job", experts, "--job", experts, "--iterations", "3", "--system", "reno", "--alone", "none")
        == EXIT_OK
    )
    (one,) = runs(tmp_path).values()
    found = one.operations.groupby(["job", "worker", "iteration"])["operation"].apply(set)
    for job in one.jobs:
        for rank in range(len(job.hosts)):
            own = {
                op.id
                for op in job.collectives
                if op.members is None or (rank in (op.ranks or ()) and op.inside_ns is None)
            }
            assert own and all(own <= found[job.job, rank, number] for number in range(3))
