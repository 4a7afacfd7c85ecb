"""What a run is expected to take, the record of this machine's runs, and lines about progress without a terminal."""

from __future__ import annotations

import io
import json
import math
import multiprocessing
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from testbed import spec
from testbed.backends import pace
from testbed.backends.pace import Record
from testbed.cli import main
from testbed.cli.console import Progress
from testbed.core import heartbeat
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.core.heartbeat import Counter, Heartbeat, duration
from testbed.core.runs import events
from testbed.core.runs.plan import Plan
from testbed.planning import cost
from testbed.planning.plan import planned

ROOT = Path(__file__).parents[3]
BACKENDS = ("uml", "flow", "host")


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the record lies; nothing is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pace, "FILE", "pace.json")
    monkeypatch.delenv("SUDO_UID", raising=False)
    return tmp_path / "cache" / "mltcp" / "pace.json"


def plan_of(**fields: Any) -> Plan:
    return next(one for one in planned(spec.read(None, fields))[1] if one.alone is None)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(1, 9).map(lambda power: int(10**power)), st.sampled_from(["10mbit", "500mbit", "50gbit"]), st.integers(1, 4), st.integers(2, 5),
    st.sampled_from(["ring", "parameter_server", "all_gather"]), st.sampled_from(BACKENDS),
)  # fmt: skip
def test_more_iterations_take_longer_and_every_run_takes_some_time(
    size: int, rate: str, jobs: int, workers: int, collective: str, place: str
) -> None:
    fields = {
        "topo": "star",
        "compute": "100ms",
        "bytes": f"{size}B",
        "rate": rate,
        "jobs": jobs,
        "workers": workers,
        "collective": collective,
    }
    few, many = (cost.usual_s(plan_of(iterations=count, **fields), place) for count in (3, 300))
    assert 0 < few < many < math.inf


def test_packets_count_whatever_the_rate_and_datagrams_count_more() -> None:
    """At 100 times the rate with 10 times the bytes a run is shorter by its own clock, and takes longer here."""
    slow, fast = (
        plan_of(compute="100ms", bytes=size, rate=rate) for size, rate in (("20MB", "500mbit"), ("200MB", "50gbit"))
    )
    assert fast.expected_s < slow.expected_s
    assert cost.usual_s(fast, "uml") > 3 * cost.usual_s(slow, "uml")
    star = {
        "topo": "star",
        "jobs": 1,
        "workers": 5,
        "collective": "parameter_server",
        "compute": "100ms",
        "bytes": "20MB",
    }
    tcp, datagrams = plan_of(system=["reno"], **star), plan_of(system=["ltp"], **star)
    assert cost.usual_s(datagrams, "uml") > 1.5 * cost.usual_s(tcp, "uml")
    assert cost.usual_s(tcp, "flow") < cost.usual_s(tcp, "uml") < cost.usual_s(tcp, "host")


def test_the_last_runs_count(record: Path) -> None:
    plan = plan_of(iterations=10)
    usual_s = cost.usual_s(plan, "uml")
    assert pace.expected_s(plan, "uml", pace.read()) == usual_s
    for _ in range(pace.LAST):
        pace.note(plan, "uml", 3 * usual_s)
    assert pace.expected_s(plan, "uml", pace.read()) == pytest.approx(3 * usual_s, rel=1e-3)
    pace.note(plan, "uml", 0.1 * usual_s)  # one that is unlike the others changes little
    assert pace.expected_s(plan, "uml", pace.read()) == pytest.approx(3 * usual_s, rel=1e-3)
    assert pace.expected_s(plan, "flow", pace.read()) == cost.usual_s(plan, "flow")  # another kind
    before = record.read_bytes()
    pace.note(plan, "uml", 1e9 * usual_s)
    assert record.read_bytes() == before


@settings(max_examples=60, deadline=None)
@given(st.one_of(
    st.binary(max_size=300), st.recursive(st.none() | st.floats() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["version", "ratios", "uml tcp"]), inner, max_size=3)).map(lambda value: json.dumps(value).encode()),
    st.lists(st.floats(), max_size=20).map(lambda found: json.dumps({"version": 1, "ratios": {"uml tcp": found}}).encode()),
))  # fmt: skip
def test_a_damaged_record_is_as_none(content: bytes) -> None:
    plan = plan_of(iterations=10)
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"pace-{os.getpid()}"
        folder.mkdir(exist_ok=True, mode=0o700)
        patch.setattr(pace, "FILE", str(folder / "pace.json"))
        patch.delenv("SUDO_UID", raising=False)
        try:
            (folder / "pace.json").write_bytes(content)
            usual_s = cost.usual_s(plan, "uml")
            assert usual_s / pace.FARTHEST <= pace.expected_s(plan, "uml", pace.read()) <= usual_s * pace.FARTHEST
            pace.note(plan, "uml", usual_s)
            assert pace.read().ratios["uml tcp"][-1] == pytest.approx(1, rel=1e-3)
        finally:
            (folder / "pace.json").unlink()
            folder.rmdir()


def test_a_record_that_cannot_be_read_or_kept_is_as_none(record: Path) -> None:
    record.mkdir(parents=True)
    assert pace.read() == Record()
    pace.note(plan_of(iterations=10), "uml", 1.0)  # nothing happens


def _note_many(number: int) -> None:
    plan = plan_of(iterations=10)
    for _ in range(30):
        pace.note(plan, "uml", (1 + number) * cost.usual_s(plan, "uml"))


def test_several_processes_leave_a_record_that_can_be_read(record: Path) -> None:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.map(_note_many, range(3))
    found = pace.read().ratios["uml tcp"]
    assert 1 <= len(found) <= pace.LAST and set(map(round, found)) <= {1, 2, 3}
    assert [path.name for path in record.parent.iterdir()] == [record.name]


def test_lines_come_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    with Heartbeat(lambda: "line", said.append):
        while len(said) < 3:
            time.sleep(0.01)
    count = len(said)
    time.sleep(0.05)
    assert len(said) == count
    with Heartbeat(lambda: "line", said.append, active=False):
        time.sleep(0.02)
    assert len(said) == count


def test_a_count_knows_the_time_left_once_something_is_done() -> None:
    now = [0.0]
    counter = Counter(5, "parts", lambda: now[0])
    assert counter.left_s is None and counter.line()
    now[0] = 20.0
    counter.advance()
    counter.advance()
    assert counter.left_s == pytest.approx(30.0)
    assert re.findall(r"\d+", counter.line()) == ["2", "5", "30"]


@pytest.mark.parametrize(("seconds", "said"), [(-1.0, "0 s"), (37.4, "37 s"), (240.0, "4 min"), (9000.0, "2.5 h")])
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_without_a_terminal_count_and_time_left_are_lines(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "FARTHEST", 1e9)  # this run takes no time
    plans = planned(spec.read(None, {"jobs": 1, "iterations": 4}))[1]
    written = io.StringIO()
    with Progress(plans, Console(file=written, force_terminal=False), "uml", quiet=False) as progress:
        progress.heartbeat.say(progress.heartbeat.line())
        progress(plans[0], events.Started())
        progress(plans[0], events.Iteration(0, 0, 0, 0.0, 0.5))
        lines = written.getvalue().count("\n")
        progress(plans[0], events.Phase("measuring"))
        assert written.getvalue().count("\n") == lines
        progress(plans[0], events.Phase("compiling", long=True))
        assert written.getvalue().count("\n") == lines + 1
        progress(plans[0], events.Stored("uml", "valid"))
        progress.heartbeat.say(progress.heartbeat.line())
    first, before, *_, after = written.getvalue().splitlines()
    total = str(len(plans))
    assert re.findall(r"\d+", first)[0] == total
    assert re.findall(r"\d+", before)[:2] == ["0", total] and re.findall(r"\d+", after)[:2] == ["1", total]
    assert pace.read().ratios  # what it took is kept


JOB_LIST = "job,gpus,iterations,gradient_bytes,compute_s\n" + "".join(f"{job},4,6,6250000,0.01\n" for job in range(40))
SCHEDULE = ["schedule", "jobs.csv", "--servers", "4", "--gpus", "8"]
RUN = ["run", "--on", "flow", "--jobs", "2", "--iterations", "4", "--name", "small"]
COMMANDS: dict[str, tuple[list[str], int]] = {  # what is typed, and the total that a line has
    "run": (RUN, 3),
    "sweep": (["sweep", "small.toml"], 3),
    "schedule": (SCHEDULE, 4),
    "schedule --json": ([*SCHEDULE, "--json"], 4),
    "schedule --on flow": ([*SCHEDULE, "--on", "flow", "--scheduler", "first_fit", "random", "--json"], 2),
    "study": (["sweep", str(ROOT / "experiments/sjf-servers.toml"), "--quick", "--seeds", "1"], 0),
    "figures": (["figures", "results"], 1),
    "report": (["report", "results"], 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_prints_lines_without_a_terminal(
    name: str, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To standard error, as often as `EVERY_S` says when the command runs; with --json, too. Those that need a kernel: tests/uml/test_calibrate.py."""
    words, total = COMMANDS[name]
    lines = dict[float, list[str]]()
    for every_s in (1e6, 0.001):
        (folder := tmp_path / str(every_s)).mkdir()
        monkeypatch.chdir(folder)
        Path("small.toml").write_text('iterations = 4\njobs = 2\non = "flow"\n')
        Path("jobs.csv").write_text(JOB_LIST)
        monkeypatch.setattr(heartbeat, "EVERY_S", 1e6)
        if words[0] in ("figures", "report"):
            assert main([*RUN, "--quiet"]) == EXIT_OK
        capsys.readouterr()
        monkeypatch.setattr(heartbeat, "EVERY_S", every_s)
        assert main(words) in (EXIT_OK, 1)
        written = capsys.readouterr()
        lines[every_s] = written.err.splitlines()
        if "--json" in words:
            json.loads(written.out)
    assert len(lines[0.001]) > len(lines[1e6])
    beats = [line for line in lines[0.001] if line not in lines[1e6]]
    assert any(re.match(rf"\d+ \S+ {total or '[0-9]+'}\b", line) for line in beats), beats[:9]


def test_quiet_means_no_line(record: Path) -> None:
    plans = planned(spec.read(None, {"jobs": 1, "iterations": 4}))[1]
    written = io.StringIO()
    with Progress(plans, Console(file=written, force_terminal=False), "uml", quiet=True) as progress:
        assert progress.heartbeat.thread is None
        progress(plans[0], events.Phase("compiling", long=True))
    assert written.getvalue() == ""


@pytest.mark.parametrize(("backend", "reports"), [("uml", 2), ("flow", 1)])
def test_an_iteration_ends_with_its_slowest_worker(record: Path, backend: str, reports: int) -> None:
    plans = planned(spec.read(None, {"jobs": 1, "iterations": 4}))[1]
    progress = Progress(plans, Console(file=io.StringIO(), force_terminal=False), backend, quiet=True)
    progress(plans[0], events.Started())
    for rank in reversed(range(reports)):
        assert progress.times == {0: []}
        progress(plans[0], events.Iteration(0, rank, 0, 0.125, 0.625 + rank))
    assert progress.times == {0: [0.5 + reports - 1]}
    for rank in range(reports):  # a worker may wait for the others before its next iteration starts
        progress(plans[0], events.Iteration(0, rank, 1, 5.0, 6.625))
    assert progress.times == {0: [0.5 + reports - 1, 6.0 - (reports - 1)]}


def test_a_dry_run_names_folder_runs_and_time(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = ["run", "--on", "flow", "--jobs", "2", "--iterations", "4", "--out", str(tmp_path)]
    assert main([*request, "--dry-run", "--json"]) == EXIT_OK
    said = json.loads(capsys.readouterr().out)
    assert main([*request, "--dry-run"]) == EXIT_OK
    assert said["folder"] in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert main([*request, "--quiet"]) == EXIT_OK
    made = {str(path.parent) for path in tmp_path.rglob("manifest.json")}
    assert {run["folder"] for run in said["plans"]} == made and said["runs"] == len(made)
    assert Path(said["folder"]) in {path.parent for path in tmp_path.rglob("summary.json")}
    assert said["expected_s"] >= sum(run["expected_s"] for run in said["plans"]) - 0.1 * said["runs"]


def test_a_sweeps_dry_run_has_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text('iterations = 4\non = "flow"\n')
    request = ["sweep", str(tmp_path / "a.toml"), str(tmp_path / "b.toml"), "--out", str(tmp_path / "out")]
    assert main([*request, "--dry-run", "--json"]) == EXIT_OK
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] == sum(found["runs"] for found in said["experiments"]) and len(said["experiments"]) == 2
    assert said["expected_s"] == pytest.approx(sum(found["expected_s"] for found in said["experiments"]), abs=0.2)
    assert main([*request, "-j", "2", "--dry-run", "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["expected_s"] == pytest.approx(said["expected_s"] / 2, abs=0.1)
    assert main([*request, "--json"]) == EXIT_REQUEST
    assert main(["calibrate", "--quick", "--dry-run", "--json", "--out", str(tmp_path)]) == EXIT_OK
    calibrating = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (
        calibrating["runs"] == 108 and calibrating["expected_s"] > 0 and calibrating["folder"].startswith(str(tmp_path))
    )
