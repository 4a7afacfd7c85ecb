"""``mltcp schedule``: what a person types, the lists of jobs it takes, what it says of bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, RequestError
from testbed.core.placing import Gpu, Request
from testbed.models.cluster import Ran
from testbed.report import gantt
from testbed.traces import job_lists

TABLE = """job,gpus,iterations,gradient_bytes,compute_s,arrival_s
0,4,100,10000000,0.1,0
1,2,100,10000000,0.1,0
2,1,50,0,0.2,1.5
"""
PHILLY = """[
  {"status": "Pass", "vc": "v", "jobid": "a", "user": "u", "submitted_time": "2017-10-09 07:00:00", "attempts": [
    {"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
    {"start_time": "2017-10-09 07:03:00", "end_time": "2017-10-09 07:13:00", "detail": [
      {"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]}]},
  {"status": "Killed", "vc": "v", "jobid": "b", "user": "u", "submitted_time": "2017-10-09 07:00:30", "attempts": []},
  {"status": "Pass", "vc": "v", "jobid": "c", "user": "u", "submitted_time": "2017-10-09 07:01:30", "attempts": [
    {"start_time": "2017-10-09 07:02:00", "end_time": "None", "detail": [{"ip": "m1", "gpus": ["gpu7"]}]}]},
  {"status": "Pass", "vc": "v", "jobid": "d", "user": "u", "submitted_time": "2017-10-09 07:02:00", "attempts": [
    {"start_time": "2017-10-09 07:02:00", "end_time": "2017-10-09 07:03:40", "detail": [{"ip": "m1", "gpus": ["gpu7"]}]}]}
]
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u,v,8,64,1,COMPLETED,2020-04-02 10:00:00,2020-04-02 10:00:05,2020-04-02 10:20:05,1200,5
2,u,v,0,4,1,COMPLETED,2020-04-02 10:01:00,2020-04-02 10:01:00,2020-04-02 10:02:00,60,0
3,u,v,16,64,2,FAILED,2020-04-02 10:02:00,2020-04-02 10:02:00,2020-04-02 10:07:00,300,0
"""
PAI = """job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
x,worker,2,Terminated,1000,1600,600,29,100,V100
x,ps,1,Terminated,990,1610,600,29,,
y,tensorflow,3,Terminated,1100,1200,600,29,50,T4
z,tensorflow,1,Running,1100,,600,29,100,T4
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TABLE)
    return path


def test_schedulers_side_by_side(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--servers", "3", "--gpus", "2,4", "--rate", "1gbit", "--scheduler", "sjf_bco", "first_fit", "--json"]
    assert main(["schedule", str(table), *flags]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert found["cluster"] == {"servers": [2, 4, 2]}
    assert found["model"]["rate_bps"] == 1e9 and found["model"]["intra_bps"] is None and found["model"]["alpha"] == 0.3
    assert [one["scheduler"] for one in found["results"]] == ["sjf_bco", "first_fit"]
    best, first = found["results"]
    # First fit cuts job 0: 2 + 2 GPUs, 2 · 80 Mbit · 3/4 at 1 Gbit/s = 120 ms beside 100 ms.
    assert first["makespan_s"] == pytest.approx(100 * 0.22) and first["max_contention"] == 1
    assert best["makespan_s"] == pytest.approx(11.5) and best["max_contention"] == 0
    assert set(best) == {
        "scheduler", "makespan_s", "mean_completion_s", "min_completion_s", "p95_completion_s", "max_completion_s",
        "mean_queueing_s", "p95_queueing_s", "mean_slowdown", "max_rho", "jain", "utilisation", "max_contention", "mean_contention",
        "idle_gpu_h", "trials", "plan_s", "jobs",
    }  # fmt: skip
    assert set(best["idle_gpu_h"]) == {"fragment", "waiting", "contention", "no_job"}
    assert best["jobs"][2]["job"] == 2 and best["jobs"][2]["start_s"] == 1.5 and best["jobs"][2]["end_s"] == 11.5
    assert sorted(len(one["gpus"]) for one in best["jobs"]) == [1, 2, 4]


def test_a_table_and_drawings(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", str(table), "--scheduler", "tightest_fit", "--figures", str(tmp_path / "out")]) == EXIT_OK
    printed = capsys.readouterr().out
    assert "tightest_fit" in printed and "3 jobs, 10 servers, 132 GPUs" in printed
    assert (tmp_path / "out" / "schedule-tightest_fit.png").stat().st_size > 5000


def test_eighty_columns_are_enough(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names stand whole, or fold, and no number is cut."""
    monkeypatch.setenv("COLUMNS", "80")
    schedulers = ["sjf_bco", "first_fit", "list_scheduling"]
    assert main(["schedule", str(table), "--servers", "3", "--gpus", "4", "--scheduler", *schedulers]) == 0
    printed = capsys.readouterr().out
    assert all(printed.count(f"\n{name} ") == 2 for name in schedulers) and "…" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_contention_over_time() -> None:
    """Two jobs over h1 from 1 s to 2 s; what is inside a server crosses no uplink."""
    jobs = [(("h1", "h2"), 0, 2), (("h1", "h3"), 1, 3), (("h1", "h1"), 0, 9)]
    ran = [
        Ran(Request(number, 2), tuple(Gpu(host, slot) for slot, host in enumerate(hosts)), start, end, 1, ())
        for number, (hosts, start, end) in enumerate(jobs)
    ]
    assert dict(zip(*gantt.contention(ran), strict=True)) == {0: 1, 1: 2, 2: 1, 3: 0}


def test_toml_says_the_same(table: Path, tmp_path: Path) -> None:
    lines = [line.split(",") for line in TABLE.splitlines()]
    text = "".join(
        "[[job]]\n" + "".join(f"{key} = {value}\n" for key, value in zip(lines[0], row, strict=True))
        for row in lines[1:]
    )
    (tmp_path / "jobs.toml").write_text(text)
    assert job_lists.read(tmp_path / "jobs.toml", 10**9, 1) == job_lists.read(table, 10**9, 1)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (PHILLY, "cluster_job_log", [(4, 0.0, 660), (1, 120.0, 100)]),
        (HELIOS, "cluster_log.csv", [(8, 0.0, 1200), (16, 120.0, 300)]),
        (PAI, "pai_task_table.csv", [(2, 0.0, 600), (2, 100.0, 100)]),
    ],
    ids=["philly", "helios", "pai"],
)
def test_logs_of_clusters(text: str, name: str, expected: list[tuple[int, float, float]], tmp_path: Path) -> None:
    """GPUs and arrivals as logged; iterations that take about as long as the job took; the same for a seed."""
    (tmp_path / name).write_text(text)
    found = job_lists.read(tmp_path / name, 10**10, 1)
    assert "drawn from resnet50" in found.synthetic
    assert [(one.gpus, one.arrival_s) for one in found.requests] == [(gpus, at) for gpus, at, _ in expected]
    for one, (_, _, took) in zip(found.requests, expected, strict=True):
        assert one.iterations * one.compute_s == pytest.approx(took, rel=0.01) and one.gradient_bytes > 0
    assert job_lists.read(tmp_path / name, 10**10, 1) == found
    assert any(job_lists.read(tmp_path / name, 10**10, seed) != found for seed in range(2, 5))


def test_the_old_name_of_a_column_is_an_alias(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(TABLE)
    (tmp_path / "old.csv").write_text(TABLE.replace("arrival_s", "arrives_s"))
    new, old = (job_lists.read(tmp_path / name, 10**10, 1).requests for name in ("new.csv", "old.csv"))
    assert new == old and new[-1].arrival_s == 1.5
    with pytest.raises(RequestError, match="arrives_s"):
        job_lists.read(_both(tmp_path), 10**10, 1)


def _both(folder: Path) -> Path:
    path = folder / "both.csv"
    header, *rows = TABLE.splitlines()
    path.write_text("\n".join([f"{header},arrives_s", *(f"{row},0" for row in rows)]) + "\n")
    return path


def test_poisson_arrivals_make_the_load() -> None:
    jobs = [Request(number, 2, 10, 0, 1.0) for number in range(4000)]
    found = job_lists.poisson(jobs, 10, 0.8, seed=3)
    assert sum(one.gpus * 10 for one in found) / (10 * found[-1].arrival_s) == pytest.approx(0.8, rel=0.06)
    assert found[0].arrival_s == 0 and [one.job for one in found] == list(range(4000))


@pytest.mark.parametrize(
    ("text", "flags", "quoted"),
    [
        (TABLE, ["--servers", "1", "--gpus", "2"], "job 0"),
        (TABLE, ["--gpus", "4,0"], "--gpus"),
        (TABLE, ["--gpus", "many"], "'many'"),
        (TABLE, ["--seed", "-1"], "--seed: -1"),
        (TABLE, ["--servers", "0"], "--servers: 0"),
        (TABLE, ["--scheduler", "nobody"], "'nobody'"),
        (TABLE, ["--scheduler", "sjf_bco:kapa=3"], "'kapa=3'"),
        (TABLE, ["--scheduler", "sjf_bco:faffp=both"], "both"),
        (TABLE, ["--rate", "fast"], "--rate: 'fast'"),
        (TABLE, ["--rate", "0mbit"], "--rate"),
        (TABLE, ["--alpha", "nan"], "--alpha: nan"),
        (TABLE, ["--slot", "1ms"], "0.001 s"),
        (TABLE, ["--slot=--"], "--slot"),
        (TABLE, ["--load", "0"], "--load: 0"),
        (TABLE.replace("0,4,100", "0,-4,100"), [], "line 2: gpus"),
        (TABLE.replace("0,4,100", "0,0,100"), [], "line 2: gpus"),
        (TABLE.replace("0,4,100", "0,4.5,100"), [], "'4.5'"),
        (TABLE.replace("0.2,1.5", "0.2,-1.5"), [], "line 4: arrival_s"),
        (TABLE.replace("0.2,1.5", "nan,1.5"), [], "line 4: compute_s"),
        (TABLE.replace("0.2,1.5", "inf,1.5"), [], "line 4: compute_s"),
        (TABLE.replace("0.2,1.5", ",1.5"), [], "line 4: no compute_s"),
        (TABLE.replace("1,2,100", "0,2,100"), [], "line 3"),
        (TABLE.replace("0.2,1.5", "0.2,1.5,7"), [], "line 4"),
        (TABLE.replace("compute_s", "seconds"), [], "compute_s"),
        (TABLE.replace("arrival_s", "arrives"), [], "'arrives'"),
        (TABLE.partition("\n")[0] + "\n", [], "jobs.csv"),
        ("a,b\n1,2\n", [], "jobs.csv"),
        (HELIOS.replace("duration", "length"), [], "duration"),
        (PAI.replace("inst_num", "instances"), [], "inst_num"),
        (PHILLY[:-4], [], "jobs.csv"),
    ],
)
def test_bad_input_is_one_paragraph(
    text: str, flags: list[str], quoted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    assert main(["schedule", str(path), *flags]) == EXIT_REQUEST
    error = " ".join(capsys.readouterr().err.split())
    assert error.startswith("error: ") and quoted in error


def test_all_schedulers_tell_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "--scheduler", "list"]) == EXIT_OK
    (said,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("sjf_bco: "))
    assert "faffp (" in said and "leastload" in said and "horizon (T ÷ first fit's makespan" in said
