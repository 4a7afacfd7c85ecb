"""Job logs row by row: what is read, what is left out and why, and times that do not depend on this machine's time zone."""

from __future__ import annotations

import json
import os
import time
import zoneinfo
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, RequestError
from testbed.traces import job_lists, rows
from testbed.traces.job_lists import JobList
from tests.support.paths import ROOT
from tests.unit.schedulers.test_schedule import HELIOS, PAI, PHILLY, TABLE
from workloads.joblists import acme, helios, philly, slurm

DATA = ROOT / "tests" / "data" / "joblists"
ZONES = ("UTC", "America/Los_Angeles", "Asia/Kolkata", "Pacific/Kiritimati")


@pytest.fixture
def zone() -> Iterator[None]:
    before = os.environ.get("TZ")
    yield
    os.environ.pop("TZ", None)
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def read(text: str, folder: Path, name: str = "jobs.csv") -> JobList:
    path = folder / name
    path.write_bytes(text.encode())
    return job_lists.read(path, 10**10, 1)


def left_out(found: JobList) -> int:
    return sum(one.rows for one in found.omitted)


def test_times_are_the_same_in_every_time_zone(zone: None, tmp_path: Path) -> None:
    """Four hours pass from 00:30 to 03:30 in the night in which the clock is set back, and arrivals are two days apart, and an hour."""
    found = []
    for name in ZONES:
        os.environ["TZ"] = name
        time.tzset()
        lists = [job_lists.read(DATA / file, 10**10, 1) for file in ("philly_dst2.json", "philly.json")]
        found.append([*lists, read(HELIOS, tmp_path), read(PAI, tmp_path)])
    assert all(one == found[0] for one in found)
    jobs = found[0][0].requests
    assert [one.arrival_s for one in jobs] == [0, 49 * 3600]
    assert [one.iterations * one.compute_s for one in jobs] == pytest.approx([4 * 3600, 3 * 3600], rel=0.01)


def test_an_attempt_over_the_repeated_hour_ends_after_it_starts() -> None:
    """From 01:50 to 01:10, in the second pass of that hour: 20 minutes. Two jobs of that log never ran to an end."""
    found = job_lists.read(DATA / "philly.json", 10**10, 1)
    lasts = [one.iterations * one.compute_s for one in found.requests]
    assert lasts == pytest.approx([1800, 1200, 9000], rel=0.05)
    assert left_out(found) == 2 and len(found.omitted) == 2


def test_pacific_time_is_that_of_the_time_zone_database() -> None:
    try:
        pacific = zoneinfo.ZoneInfo("America/Los_Angeles")
    except zoneinfo.ZoneInfoNotFoundError:
        pytest.skip("this machine has no time zone database")
    for year in (2017, 2020, 2026):
        for hours in range(365 * 24):
            local = datetime(year, 1, 1, 0, 30) + timedelta(hours=hours)
            for second_pass in (False, True):
                expected = local.replace(tzinfo=pacific, fold=int(second_pass)).timestamp()
                missing = datetime.fromtimestamp(expected, pacific).replace(tzinfo=None) != local
                assert missing or philly.pacific_s(local, second_pass=second_pass) == expected


@pytest.mark.parametrize(
    ("text", "jobs", "left"),
    [
        (HELIOS, 2, 1),
        (HELIOS.replace("1,u,v,8,", "1,u,v,8.0,"), 2, 1),
        (HELIOS.replace("1,u,v,8,", "1,u,v, 8 ,"), 2, 1),
        (HELIOS.replace("1,u,v,8,", "1,u,v,8.5,"), 1, 2),
        (HELIOS.replace("1,u,v,8,", "1,u,v,inf,"), 1, 2),
        (HELIOS.replace("1,u,v,8,", "1,u,v,,"), 1, 2),
        (HELIOS.replace("1,u,v,8,", "1,u,v,-8,"), 1, 2),
        (HELIOS.replace(",1200,", ",,"), 1, 2),
        (HELIOS.replace(",1200,", ",nan,"), 1, 2),
        (HELIOS.replace(",1200,", ",1e400,"), 1, 2),
        (HELIOS.replace("2020-04-02 10:00:00", "yesterday"), 1, 2),
        (HELIOS.replace("2020-04-02 10:00:00", ""), 1, 2),
        (HELIOS.replace("1,u,v,8,", '1,"u,v,8,'), 1, 2),
        (HELIOS.replace("1,u,v,8,", "1,u\r,v,8,"), 1, 3),
        (HELIOS.replace("\n", "\r"), 2, 1),
        (HELIOS.replace("\n", "\r\n"), 2, 1),
        ("\ufeff" + HELIOS.replace("\n", "\n\n"), 2, 1),
        (HELIOS.replace("1,u,v,8,", "1,u,v,999999,"), 1, 2),
        (PAI, 2, 2),
        (PAI.replace("600,29,100,V100", "600,29,inf,V100"), 1, 3),
        (PAI.replace("x,worker,2,", "x,worker,,"), 1, 3),
        (PAI.replace("1100,1200", "1200,1100"), 1, 3),
        (PAI.replace("1100,1200", "1100,inf"), 1, 3),
        (PHILLY, 2, 2),
        (PHILLY.replace('"jobid": "a", ', ""), 2, 2),
        (PHILLY.replace("2017-10-09 07:13:00", "noon"), 1, 3),
        (PHILLY.replace("2017-10-09 07:13:00", "2017-10-09 07:02:00"), 1, 3),
        (PHILLY.replace('"attempts": []', '"attempts": 7'), 2, 2),
        (PHILLY.replace("[\n  {", '[3, null, "x", {}, {', 1), 2, 6),
    ],
)  # fmt: skip
def test_a_bad_row_is_left_out_and_counted(text: str, jobs: int, left: int, tmp_path: Path) -> None:
    found = read(text, tmp_path).fitting(1000)
    assert (len(found.requests), left_out(found)) == (jobs, left)
    assert all(one.rows > 0 and one.reason and one.first for one in found.omitted)


@pytest.mark.parametrize("text", [HELIOS.splitlines()[0] + "\n", HELIOS.replace("2020", "then"), PAI.replace("100,V", ",V").replace("50,T", ",T"), "[]", '[{"attempts": []}]'])  # fmt: skip
def test_a_log_without_a_job_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        read(text, tmp_path)


def test_what_is_left_out_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HELIOS)
    flags = ["--servers", "1", "--gpus", "8", "--scheduler", "fifo"]
    assert main(["schedule", str(path), *flags, "--json"]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert [one["rows"] for one in found["left_out"]] == [1, 1], "one has no GPU, one more than the cluster"
    assert main(["schedule", str(path), *flags]) == EXIT_OK
    printed = capsys.readouterr().out
    assert all(one["reason"] in " ".join(printed.split()) for one in found["left_out"])
    assert main(["schedule", str(path), "--on", "flow", *flags, "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["left_out"] == found["left_out"]
    assert main(["schedule", str(path), "--servers", "1", "--gpus", "4"]) == EXIT_REQUEST, "no job fits"


@pytest.mark.parametrize(
    "text", [TABLE.replace("0,4,100", "0,4.0,1e2"), TABLE.replace("\n", "\r"), TABLE.replace(",", " , ")]
)
def test_a_table_says_the_same_in_other_words(text: str, tmp_path: Path) -> None:
    assert read(text, tmp_path) == read(TABLE, tmp_path)


ACME, KALOS, SACCT, SACCT_JSON = (
    (DATA / name).read_text() for name in ("acme_seren.csv", "acme_kalos.csv", "sacct.txt", "sacct.json")
)


@pytest.mark.parametrize(
    ("text", "jobs", "left"),
    [
        (ACME, [(0, 8, 1800), (600, 32, 600)], 3),
        (ACME.replace("+08:00", ""), [(0, 8, 1800), (600, 32, 600)], 3),
        (ACME.replace("09:31:00", "08:31:00"), [(0, 32, 600)], 4),
        # A Kalos job's time has no queue in it, and zones differ from row to row.
        (KALOS, [(0, 64, 1200), (3600, 8, 100)], 1),
        (SACCT, [(0, 16, 90_000), (3600, 4, 600), (3600, 4, 1200), (7200, 12, 1800)], 6),
        (SACCT.replace("2024-03-09T12:00:00|2024", "1709985600|2024"), [(0, 16, 90_000), (3600, 4, 600), (3600, 4, 1200), (7200, 12, 1800)], 6),
        (SACCT.replace("T10:00:00|", "T10:00:00+0100|"), [(0, 16, 90_000), (7200, 4, 600), (7200, 4, 1200), (10_800, 12, 1800)], 6),
        (SACCT.replace("JobID|", "JobIDRaw|").replace("\n", "|\n"), [(0, 16, 90_000), (3600, 4, 600), (3600, 4, 1200), (7200, 12, 1800)], 6),
        (SACCT.replace("gres/gpu:h100=4,", "gres/gpu:h100=many,"), [(0, 16, 90_000), (3600, 4, 1200), (7200, 12, 1800)], 7),
        (SACCT_JSON, [(0, 16, 90_000), (3600, 4, 600), (7200, 12, 1800)], 4),
        (SACCT_JSON.replace('["COMPLETED"]', '"COMPLETED"').replace('"elapsed": 600', '"elapsed": {"set": true, "number": 600}'),
         [(0, 16, 90_000), (3600, 4, 600), (7200, 12, 1800)], 4),
        (SACCT_JSON.replace('"submission": 1709978400', '"submission": 0'), [(0, 4, 600), (3600, 12, 1800)], 5),
        (SACCT_JSON.replace('"jobs": [', '"jobs": [3, null, {}, {"time": 7}, '), [(0, 16, 90_000), (3600, 4, 600), (7200, 12, 1800)], 8),
    ],
)  # fmt: skip
def test_clusters_of_today(text: str, jobs: list[tuple[float, int, float]], left: int, tmp_path: Path) -> None:
    """Arrival, GPUs and time of each job: cancelled ones that ran, tasks of arrays, parts of one job; steps and jobs under way are left out."""
    found = read(text, tmp_path)
    assert [(one.arrival_s, one.gpus) for one in found.requests] == [job[:2] for job in jobs]
    assert left_out(found) == left
    omitted = rows.Omissions()
    logged = (acme if "gpu_num" in text else slurm).read(text, Path("log"), omitted)
    assert [one.took_s for one in logged] == [job[2] for job in jobs]
    zoned = "gpu_num" in text or text.startswith("{")
    assert bool(found.assumed) == (not zoned)


@pytest.mark.parametrize("name", ["acme_seren.csv", "acme_kalos.csv", "sacct.txt", "sacct.json"])
def test_logs_of_today_are_scheduled(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--servers", "8", "--gpus", "8", "--scheduler", "fifo", "--json"]
    assert main(["schedule", str(DATA / name), *flags]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert found["synthetic"] and bool(found["assumed"]) == (name == "sacct.txt")
    assert len(found["results"][0]["jobs"]) + sum(one["rows"] for one in found["left_out"]) >= 3


@pytest.mark.parametrize(
    "text",
    [
        SACCT.replace("|Elapsed|", "|Took|"),
        "JobID        JobName\n------- ----------\n12       train\n",
        '{"jobs": 7}',
        '{"jobs": []}',
        '{"jobs": [',
        ACME.replace("end_time", "end"),
    ],
)
def test_no_list_of_today(text: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        read(text, tmp_path)


CELLS = st.one_of(
    st.sampled_from(["", " ", "8", "8.0", "1e3", "inf", "-inf", "nan", "-1", "0", "None", "1_0", '"', "\r", "\0", "9" * 400, "2020-04-02 10:00:00"]),
    st.floats().map(str), st.integers().map(str), st.text(max_size=5),
)  # fmt: skip


@given(st.lists(st.lists(CELLS, max_size=8), max_size=8))
def test_rows_are_read_or_counted_whatever_they_hold(cells: list[list[str]]) -> None:
    """One good row is read among any others, and every other line is a job or is counted."""
    good = ["1", "u", "v", "8", "64", "1", "COMPLETED", "2020-04-02 10:00:00", "x", "x", "1200", "5"]
    spoiled = [[*row, *good[len(row) :]] for row in cells]
    text = "\n".join(",".join(row) for row in [HELIOS.splitlines()[0].split(","), good, *spoiled])
    omitted = rows.Omissions()
    found = helios.read(text, Path("x.csv"), omitted)
    lines = sum(bool(line.strip()) for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1
    assert found and len(found) + omitted.rows == lines
