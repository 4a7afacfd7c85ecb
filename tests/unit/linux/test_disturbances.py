"""What the recorder makes of /proc, and what is made of its table: which iterations count as touched, and what that does to a verdict."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed.campaign import summary, tasks
from testbed.core.runs import disturbed, events, load, rundir
from testbed.core.runs import rows as rows_
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.verdict import Row, Verdict
from testbed.linux.sampling import disturbances, ticker
from testbed.linux.sampling.ticker import Account, Disturbance, Jiffies, Ticker
from tests.support.manifests import VALID, manifest
from tests.unit.campaign import test_verdict as judged

STAT = """\
cpu  116561 14120 31602 28756 1115 0 652 3674 0 0
cpu0 42181 2767 8625 17044 84 3 21 1412 0 0
cpu1 46853 2536 10078 10192 626 0 364 1530 0 0
intr 11245 0 9 0
softirq 337408 0 55973 5 19568 63303 0 3 50126 0 148430
"""


def noted(*spans: tuple[float, float], kind: str = "program") -> pd.DataFrame:
    """Disturbances from when to when, all of it waiting."""
    rows = [(begin, end, 0, kind, end - begin) for begin, end in spans]
    return pd.DataFrame(rows, columns=rows_.columns(rows_.Disturbance))


# What /proc says


def test_of_proc_stat_the_right_row_and_columns() -> None:
    assert ticker.jiffies(STAT, 0) == Jiffies(42181 + 2767 + 8625, 3 + 21, 1412)
    assert ticker.jiffies(STAT, 1) == Jiffies(46853 + 2536 + 10078, 364, 1530)


def test_of_schedstat_the_waiting() -> None:
    assert ticker.waited_ns("110490554 434044295 2811\n") == 434_044_295


@pytest.mark.parametrize(
    ("waited_ms", "now", "kind"),
    [
        (58, Jiffies(6, 0, 0), "program"),
        (58, Jiffies(1, 5, 0), "interrupts"),
        (1, Jiffies(0, 0, 6), "stolen"),
        (1, Jiffies(0, 0, 0), "unknown"),
    ],
)
def test_the_cause_of_60_ms(waited_ms: int, now: Jiffies, kind: str) -> None:
    assert ticker.cause(60_000_000, waited_ms * 1_000_000, Jiffies(0, 0, 0), now) == kind


def test_a_waiting_that_goes_on_is_one(tmp_path: Path) -> None:
    one = Ticker(0, None)
    schedstat = tmp_path / "schedstat"
    schedstat.write_text("0 0 0")
    one.kernel, one.kernel_waited, one.asked_ns = os.open(schedstat, os.O_RDONLY), 0, 0
    try:
        # In 20 ms each: 8 ms of waiting, 8, hardly any, 8.
        for at_ms, waited_ms in ((20, 8), (40, 16), (60, 17), (80, 25)):
            schedstat.write_text(f"0 {waited_ms * 1_000_000} 0")
            one._ask_ksoftirqd(at_ms * 1_000_000)
    finally:
        os.close(one.kernel)
    found = [(each.start_ns // 10**6, each.end_ns // 10**6, each.waited_ns // 10**6) for each in one.account.noted]
    assert found == [(0, 40, 16), (60, 80, 8)]


def test_what_a_machine_refuses_is_told() -> None:
    one = Ticker(0, None)  # no ksoftirqd is visible, as in a container
    assert "ksoftirqd/0 is not visible here" in one.account.refused


def test_accounts_are_merged_in_time_and_a_lost_one_is_told() -> None:
    first = Account([0], [Disturbance(5, 6, 0, "program", 1)], [], 10, 0.5)
    second = Account([1], [Disturbance(2, 3, 1, "stolen", 1)], ["SCHED_FIFO: Operation not permitted"], 10, 0.5)
    both = ticker.merged([first, second])
    assert [each.core for each in both.noted] == [1, 0]
    assert (both.cores, both.ticks, both.cpu_s) == ([0, 1], 20, 1.0)
    assert both.refused == ["SCHED_FIFO: Operation not permitted"]
    reading, writing = os.pipe()
    os.close(writing)  # killed before it said anything
    assert ticker._read_account(3, reading).refused == ["the ticker of core 3 was killed"]


# The table, and what it comes to


def test_the_table_is_on_the_runs_axis_of_time() -> None:
    table = disturbances.table([Disturbance(5_250_000_000, 5_310_000_000, 1, "program", 58_000_000)], 5_000_000_000)
    assert table.decode().splitlines() == [
        "start_s,end_s,core,kind,waited_s",
        "0.250000,0.310000,1,program,0.058000",
    ]


def test_a_recorder_that_cannot_be_started_fails_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **more: Any) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr("subprocess.Popen", refuse)
    with disturbances.recorded() as recording:
        recording.observe(lambda event: None)(events.Start(7))
        files = rundir.unpack(recording.added_to(_archive()))
    assert files[disturbances.TABLE].decode() == "start_s,end_s,core,kind,waited_s\n"
    assert b"could not be started" in files[disturbances.ACCOUNT]


def _archive() -> bytes:
    return rundir.pack({"manifest.json": b"{}"})


def test_an_iteration_is_touched_while_it_communicates() -> None:
    iterations = pd.DataFrame(
        {"job": 0, "worker": [0, 1, 0, 1, 0, 1], "iteration": [0, 0, 1, 1, 2, 2], "start_s": [0.0, 0, 1, 1, 2, 2],
         "comm_start_s": [0.5, 0.5, 1.52, 1.52, 2.5, 2.5], "end_s": [1.0, 1, 2, 2, 3, 3], "bytes": [9, 0] * 3,
         "max_start_delay_s": [0, 0, 0.02, 0.02, 0, 0]}
    )  # fmt: skip

    def which(*spans: tuple[float, float]) -> list[int]:
        return disturbed.listed(iterations, noted(*spans))["iteration"].tolist()

    assert which() == []
    assert which((0.1, 0.4)) == []  # computing is a sleep
    assert which((0.4, 0.6)) == [0]
    assert which((0.9, 0.92)) == [0]
    assert which((1.45, 1.51)) == [1]  # its phase began late
    assert which((0.7, 2.6)) == [0, 1, 2]
    assert which((0.7, 0.709)) == []  # too short to be told from the network's own work
    assert which((0.6, 0.8), (0.61, 0.62), (2.9, 2.95)) == [0, 2]  # the longer one reaches further


def test_numbers_without_what_was_touched() -> None:
    iterations = judged.table()
    ends = iterations["end_s"].to_numpy().copy()
    late = (iterations["job"] == 0) & (iterations["iteration"] >= 25)
    ends[late] += 0.2  # job 0's 25th takes 0.2 s more, and those behind it begin later
    slow = iterations.assign(end_s=ends)
    found = disturbed.undisturbed(slow, noted((25 * 0.9684 + 0.1, 25 * 0.9684 + 0.16)))
    assert (found.disturbed_iterations, found.iterations) == (2, 60)  # of both jobs
    assert found.undisturbed_mean_s == pytest.approx(0.9684)
    assert found.undisturbed_last10_mean_s == pytest.approx(0.9684)
    assert found.last10_mean_s == pytest.approx(0.9684 + 0.2 / 20)
    assert found.difference == pytest.approx(0.2 / 20 / 0.9684)


# Verdicts


def row(identity: str, which: int = 0, *, refused: tuple[str, ...] = (), **case: Any) -> dict[str, Any]:
    return judged.rows(identity, judged.made(), account={"refused": list(refused)}, **case)[which]


@pytest.mark.parametrize(("count", "status"), [(0, "ok"), (6, "ok"), (7, "invalid")])
def test_more_than_a_fifth_touched_is_invalid(count: int, status: str) -> None:
    spans = [(index * 0.9684 + 0.3, index * 0.9684 + 0.36) for index in range(count)]
    found = row("I21", disturbances=noted(*spans))
    assert found["value"] == pytest.approx(count / 30)
    assert found["status"] == status


@pytest.mark.parametrize(("extra_s", "status"), [(0.1, "ok"), (0.9, "suspect")])
def test_a_mean_moved_by_more_than_two_per_cent_is_suspect(extra_s: float, status: str) -> None:
    iterations = judged.table()
    longer = iterations.assign(end_s=iterations["end_s"] + extra_s * (iterations["iteration"] >= 10))
    span = (10 * 0.9684 + 0.1, 10 * 0.9684 + 0.16)
    assert row("I21", 1, disturbances=noted(span), iterations=longer)["status"] == status


def test_all_touched_leaves_nothing_to_compare() -> None:
    every = noted((0, 40))
    assert row("I21", disturbances=every)["status"] == "invalid"
    assert row("I21", 1, disturbances=every)["status"] == "not evaluated"


def test_what_is_refused_is_not_taken_for_calm() -> None:
    assert row("I21", disturbances=None)["status"] == "not evaluated"
    found = row("I21", disturbances=noted(), refused=("SCHED_FIFO: Operation not permitted",))
    assert found["status"] == "not evaluated"
    assert "SCHED_FIFO" in found["note"]


def test_under_virtual_time_nothing_disturbs() -> None:
    found = row("I21", backend="uml")
    assert found["status"] == "ok" and "by construction" in found["note"]


def test_a_link_that_stood_still_with_the_machine_is_left_out() -> None:
    """Half a second without a packet: the network's own is suspect, the machine's one touched window."""
    t = np.arange(0, 20, 0.01)
    sent = np.cumsum(np.where((t > 5) & (t <= 5.5), 0, judged.RATE / 8 * 0.01))
    link = judged.of_bytes(sent, t)
    alone = {which: row("I3", which, link=link, disturbances=noted())["status"] for which in (0, 1)}
    assert alone == {0: "ok", 1: "suspect"}
    assert row("I4", link=link, disturbances=noted())["status"] == "suspect"
    stood = noted((4.99, 5.51))
    for identity, which in (("I3", 0), ("I3", 1), ("I4", 0)):
        found = row(identity, which, link=link, disturbances=stood)
        assert found["status"] == "ok"
        assert "disturbed" in found["note"]
    # Elsewhere the network broke them by itself.
    assert row("I3", 1, link=link, disturbances=noted((9, 9.5)))["status"] == "suspect"


def test_lateness_of_what_was_touched_is_left_out() -> None:
    iterations = judged.table()
    late = iterations.assign(max_start_delay_s=np.where(iterations["iteration"] == 3, 0.06, 0.0))
    assert row("I6", iterations=late, disturbances=noted())["status"] == "invalid"
    assert row("I6", iterations=late, disturbances=noted((3.2, 3.26)))["status"] == "ok"


@pytest.mark.parametrize(("refused", "status"), [((), "suspect"), (("SCHED_FIFO: no",), "invalid")])
def test_a_busy_core_is_judged_by_what_it_did(refused: tuple[str, ...], status: str) -> None:
    sampler = {"busiest_core": [1.0] * 30, "steal": [0.06] * 30, "events_missed": []}
    for which in (0, 1):
        assert row("I7", which, disturbances=noted(), refused=refused, sampler=sampler)["status"] == status


def test_seconds_that_were_disturbed_are_left_out() -> None:
    sampler = {"busiest_core": [1.0] * 3 + [0.3] * 27, "steal": [0.0] * 30, "events_missed": []}
    assert row("I7", disturbances=noted(), sampler=sampler)["status"] == "suspect"
    assert row("I7", disturbances=noted((0, 3)), sampler=sampler)["status"] == "ok"


# Attempts


class Elsewhere:
    """A backend whose runs have these verdicts, one after the other."""

    def __init__(self, name: str, *verdicts: str) -> None:
        self.name, self.left = name, list(verdicts)
        self.clock = "virtual" if name == "uml" else "real"

    def run(self, *_: Any) -> bytes:
        return self.left.pop(0).encode()

    def identity(self) -> None:
        return None


@pytest.mark.parametrize(
    ("place", "retries", "verdicts", "attempts"),
    [
        ("host", None, ["valid"], 1),
        ("host", None, ["suspect"], 1),
        ("host", None, ["invalid", "valid"], 2),
        ("host", None, ["invalid", "invalid"], 2),
        ("host", 0, ["invalid"], 1),
        ("host", 3, ["invalid", "invalid", "suspect"], 3),
        ("uml", None, ["invalid"], 1),
        ("uml", 1, ["invalid", "valid"], 2),
    ],
)
def test_an_invalid_run_is_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, retries: int | None, verdicts: list[str], attempts: int
) -> None:
    def judged_(_plan: Any, archive: Any, *_: Any) -> tasks._Judged:
        verdict = archive.decode()
        row = Row("I4", "share", 0.9, None, "ok" if verdict == "valid" else verdict)
        return tasks._Judged({}, manifest(judged.made()), Verdict(VERSION, verdict, (row,)))

    monkeypatch.setattr(tasks, "_judged", judged_)
    monkeypatch.setattr(rundir, "unpack", lambda archive: archive)
    heard: list[events.Said] = []
    backend: Any = Elsewhere(place, *verdicts)
    outcome = tasks.carry_out(tasks.Task(judged.made(), place, retries=retries), backend, heard.append)
    assert isinstance(outcome, tasks.Completed) and outcome.verdict == verdicts[-1]
    told = json.loads(outcome.files["manifest.json"])
    assert [one["verdict"] for one in told["attempts"]] == verdicts[:attempts]
    assert told["attempts"][0]["because"] == (["I4 share: 0.9"] if verdicts[0] == "invalid" else [])
    assert len([one for one in heard if isinstance(one, events.Repeated)]) == attempts - 1
    assert backend.left == []


def test_touched_iterations_are_listed_in_the_run_directory() -> None:
    text = disturbed.listed(judged.table(), noted((0.1, 0.2))).to_csv(index=False)
    assert pd.read_csv(io.StringIO(text)).to_numpy().tolist() == [[0, 0], [1, 0]]


def test_a_summary_tells_both_numbers_where_disturbances_are_known() -> None:
    def run(noted_: pd.DataFrame | None) -> Any:
        return SimpleNamespace(iterations=judged.table(), disturbances=noted_)

    assert summary._undisturbed([run(None), run(noted())]) == {}
    spans = [noted((0.1, 0.2)), noted()]
    found = summary._undisturbed([run(one) for one in spans])
    assert found["disturbed_iterations"] == 2 and found["undisturbed_mean_s"] == pytest.approx(0.9684)
    assert [*summary._undisturbed([run(noted((0, 40)))]).values()] == [60, None, None]


def test_a_table_as_it_is_written_is_read_and_a_spoiled_one_refused(tmp_path: Path) -> None:
    run = load.Run(tmp_path, manifest(judged.made()), VALID)
    for told in ([], [Disturbance(0, 60_000_000, 1, kind, 58_000_000) for kind in ticker.KINDS]):
        (tmp_path / disturbances.TABLE).write_bytes(disturbances.table(told, 0))
        found = load.Run(tmp_path, manifest(judged.made()), VALID).disturbances
        assert found is not None and len(found) == len(told)
    (tmp_path / disturbances.TABLE).write_text("start_s,end_s,core,kind,waited_s\nnan,0.1,1,program,0.1\n")
    with pytest.raises(load.LoadError, match="line 2"):
        _ = run.disturbances
