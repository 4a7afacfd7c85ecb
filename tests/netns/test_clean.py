"""Killed at any point a run leaves nothing behind, and it never touches what it did not make."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from testbed import spec
from testbed.backends.host import Host
from testbed.backends.progress import Patience
from testbed.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_MACHINE, EXIT_OK, TestbedError
from testbed.core.runs import rundir
from testbed.core.runs.events import Event, Iteration
from testbed.core.runs.format_version import VERSION
from testbed.linux import features
from testbed.planning import plan
from testbed.traces import collectives
from tests.support import processes, traces
from tests.support.processes import HANG_S
from tests.support.runs import INTERRUPTIBLE, ROOT, Result, cli, rounds, some

from . import conftest

Before = dict[str, list[str]]
ONCE = "--on host --retries 0 --compute 100ms --bytes 1MB --rate 200mbit"
QUICK, LONG = f"{ONCE} --iterations 3".split(), f"{ONCE} --iterations 2000".split()
BY_DATAGRAMS = ["--topo", "star", "--jobs", "1", "--workers", "4", "--collective", "parameter_server"]
OF_OURS = ["ltp", "mlt:bands=1,spray=off"]


@pytest.fixture
def before() -> Before:
    return conftest.traces()


def nothing_left(before: Before, folder: Path) -> None:
    """Soon: what a killed process leaves goes with the last that watched it."""

    def left() -> list[object]:
        return [*conftest.left_since(before).items(), *folder.rglob(".*.partial-*")]

    processes.until(lambda: not left(), left)
    # Run directories are complete or absent.
    for manifest in folder.rglob("manifest.json"):
        assert (manifest.parent / "verdict.json").exists()


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, str(ROOT / "testbed/run.py"), *arguments], cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def workers(of: int | None = None) -> list[int]:
    """Of the run that ``of`` started, or we."""
    return sorted(pid for pid, words in processes.below(of).items() if "testbed.replay.worker" in words)


def test_a_run_leaves_its_directory_and_nothing_else(tmp_path: Path, before: Before) -> None:
    done = cli(*QUICK, "--name", "quick", "--json", cwd=tmp_path)
    assert done.returncode in (EXIT_OK, 4), done.stderr
    summary = json.loads(done.stdout)
    assert summary["version"] == VERSION
    assert [row["system"] for row in summary["results"]] == ["reno", "mltcp_reno"]
    assert summary["results"][0]["speedup_mean_ci95"] is None  # one seed
    folder = tmp_path / "results" / "quick"
    run = folder / "mltcp_reno" / "1"
    assert sorted(path.name for path in run.iterdir()) == [
        "disturbances.csv", "disturbed_iterations.csv", "flows.csv", "iterations.csv", "links.csv", "manifest.json", "nics.csv", "operations.csv",
        "verdict.json",
    ]  # fmt: skip
    heads = {
        "iterations.csv": "system,seed,job,worker,iteration,start_s,comm_start_s,end_s,bytes,max_start_delay_s",
        "operations.csv": "job,worker,iteration,operation,start_s,end_s",
        "links.csv": "t_s,link,bytes,packets,drops,ecn_marks,backlog_bytes",
        "nics.csv": "t_s,link,bytes,packets,drops,ecn_marks,backlog_bytes",
        "disturbances.csv": "start_s,end_s,core,kind,waited_s",
        "disturbed_iterations.csv": "job,iteration",
        "flows.csv": "t_s,job,worker,flow,cwnd_segments,rtt_us,bytes_acked,retrans_segments,mltcp_r,mltcp_iterations,mltcp_f",
    }
    for name, head in heads.items():
        assert (run / name).read_text().splitlines()[0] == head
    assert len((run / "iterations.csv").read_text().splitlines()) == 1 + 2 * 2 * 3
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["plan"]["link"]["rate_bps"] == 200_000_000
    assert manifest["measured"]["capacity_bps"] > 0
    assert manifest["attempts"][-1]["verdict"] == json.loads((run / "verdict.json").read_text())["verdict"]
    assert manifest["disturbances"]["cores"]
    assert {"settings", "kernel", "packages", "git_commit", "command", "backend"} <= manifest.keys()
    assert (folder / "isolated" / "job0" / "reno" / "1" / "verdict.json").exists()
    assert (folder / "figures" / "interleaving.png").stat().st_size > 10_000
    nothing_left(before, tmp_path)


@pytest.mark.parametrize("round_", rounds(usual=5))
def test_kill_minus_nine_at_a_random_moment(tmp_path: Path, before: Before, round_: int) -> None:
    kill_at_random(tmp_path, f"kill {round_}", *QUICK)
    nothing_left(before, tmp_path)


@pytest.mark.parametrize("system", OF_OURS)
@pytest.mark.parametrize("round_", rounds(usual=2))
def test_kill_minus_nine_of_a_run_by_datagrams(tmp_path: Path, before: Before, round_: int, system: str) -> None:
    """Whose workers have threads of their own in C, that read no pipe which ends."""
    kill_at_random(tmp_path, f"kill {system} {round_}", *QUICK, *BY_DATAGRAMS, "--system", system)
    nothing_left(before, tmp_path)


def kill_at_random(folder: Path, seed: str, *arguments: str) -> None:
    process = start(folder, *arguments, "--name", "killed", "--seeds", "3")
    time.sleep(random.Random(seed).uniform(0.3, 9))
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_so_and_leaves_nothing(tmp_path: Path, before: Before, number: int) -> None:
    process = start(tmp_path, *LONG)
    processes.until(lambda: workers(process.pid), process.poll)
    process.send_signal(number)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == EXIT_INTERRUPTED
    assert b"left nothing" in errors
    assert b"Traceback" not in errors
    nothing_left(before, tmp_path)


@pytest.mark.parametrize("collective", some(collectives.names(), "ring", "parameter_server", "send_recv"))
def test_a_killed_worker_ends_the_run_and_is_named(before: Before, tmp_path: Path, collective: str) -> None:
    """Mid-collective: it takes nearly all of an iteration."""
    trace = traces.one_exchange(tmp_path, collective, "10MB", "1ms")
    count = 2 if collective == "send_recv" else 4
    fields = {"trace": trace, "workers": count, "jobs": 1, "channels": 2, "iterations": 500, "cc": ["reno"]}
    one = plan.plans(plan.resolve(spec.read(None, fields)))[0]
    killed: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, Iteration) and event.iteration == 2 and not killed:
            killed.append(workers()[len(collective) % count])  # another rank each time
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(TestbedError, match=r"worker \d of job \d .*signal 9"):
        Host().run(one, observe, Patience())
    nothing_left(before, tmp_path)


@pytest.mark.parametrize("round_", rounds(usual=4))
def test_a_killed_worker_by_datagrams_ends_the_run_and_is_named(before: Before, tmp_path: Path, round_: int) -> None:
    """The server, or one of three that push to it, anywhere in a round of some 0.4 s."""
    draw = random.Random(f"worker {round_}")
    system, rank = OF_OURS[round_ % len(OF_OURS)], draw.randrange(4)
    fields = {
        "topo": "star", "jobs": 1, "workers": 4, "collective": "parameter_server", "compute": "20ms", "bytes": "500kB",
        "rate": "100mbit", "iterations": 500, "system": [system],
    }  # fmt: skip
    one = plan.plans(plan.resolve(spec.read(None, fields)))[0]
    killed: list[threading.Timer] = []

    def observe(event: Event) -> None:
        if isinstance(event, Iteration) and event.iteration == 2 and not killed:
            killed.append(threading.Timer(draw.uniform(0, 0.4), os.kill, (workers()[rank], signal.SIGKILL)))
            killed[0].start()

    with pytest.raises(TestbedError, match=r"worker \d of job 0 .*signal 9"):
        Host().run(one, observe, Patience())
    assert killed
    nothing_left(before, tmp_path)


def test_a_killed_worker_of_a_job_that_holds_gpus_frees_them_and_the_others_go_on(
    before: Before, tmp_path: Path
) -> None:
    fields = {
        "topo": "cluster,4,4", "scheduler": "first_fit", "job": [{"gpus": 8, "iterations": 5000}, {"gpus": 8, "iterations": 3}],
        "compute": "10ms", "bytes": "100kB", "rate": "200mbit", "cc": ["reno"],
    }  # fmt: skip
    one = plan.plans(plan.resolve(spec.read(None, fields)))[0]
    killed: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, Iteration) and event.iteration == 2 and not killed:
            killed.append(workers()[0])  # of the first job: the second waits
            os.kill(killed[0], signal.SIGKILL)

    result = Result(rundir.unpack(Host().run(one, observe, Patience())))
    found = result.table("jobs.csv").set_index("job")
    assert list(found["outcome"]) == ["failed", "done"]
    assert found["start_s"][1] >= found["end_s"][0]
    assert "killed by signal 9" in found["failure_reason"][0]
    nothing_left(before, tmp_path)


def test_a_run_that_takes_too_long_is_ended(before: Before, tmp_path: Path) -> None:
    one = plan.plans(
        plan.resolve(spec.read(None, {"compute": "100ms", "bytes": "5MB", "iterations": 500, "cc": ["reno"]}))
    )[0]
    with pytest.raises(TestbedError, match=r"wall limit of 3 s .--wall-limit. ended the run"):
        Host().run(one, lambda event: None, Patience(wall_s=3))
    nothing_left(before, tmp_path)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, before: Before) -> None:
    """In a mount namespace of its own, so that the small disk ends with the test."""
    small = tmp_path / "small"
    small.mkdir()
    script = f'mount -t tmpfs -o size=64k small "{small}" && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, str(ROOT / "testbed/run.py"),
         *QUICK, "--out", str(small)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == EXIT_FAILED
    assert "could not be written" in done.stderr and "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    nothing_left(before, tmp_path)


def test_two_runs_at_once_do_not_collide(tmp_path: Path, before: Before) -> None:
    runs = [start(tmp_path, *QUICK, "--name", f"run{i}", "--quiet", "--cc", "mltcp_reno") for i in (1, 2)]
    for run in runs:
        _, errors = run.communicate(timeout=HANG_S)
        assert run.returncode in (EXIT_OK, 4), errors
    assert all((tmp_path / "results" / f"run{i}" / "summary.json").exists() for i in (1, 2))
    nothing_left(before, tmp_path)


def test_without_root_it_says_what_to_do() -> None:
    with tempfile.TemporaryDirectory() as folder:  # which `nobody` reaches, unlike pytest's
        Path(folder).chmod(0o777)
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3",
             str(ROOT / "testbed/run.py"), *QUICK, "--out", folder],
            cwd="/", capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "HOME": folder},
        )  # fmt: skip
    if "can't open file" in done.stderr:
        pytest.skip("the checkout lies where other users cannot read")
    assert done.returncode == EXIT_MACHINE, done.stderr
    assert "sudo" in done.stderr and "Traceback" not in done.stderr


def test_typed_literally(tmp_path: Path, before: Before) -> None:
    """``sudo python testbed/run.py``: an empty environment, the system's `python`."""
    for tool in ("sudo", "python"):
        if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            pytest.skip(f"{tool} is not installed: run `make setup`")
    done = subprocess.run(
        ["sudo", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "python", "testbed/run.py", *QUICK,
         "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (EXIT_OK, 4), done.stderr
    assert "Verdict:" in done.stdout
    nothing_left(before, tmp_path)


@pytest.mark.slow
def test_doctor_tries_everything(tmp_path: Path, before: Before) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "doctor", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    findings = json.loads(done.stdout)
    assert findings["host"] is True
    assert all(finding["works"] or finding["fix"] for finding in findings["findings"])
    nothing_left(before, tmp_path)


def test_what_this_kernel_lacks_is_told(tmp_path: Path) -> None:
    if features.supported("netem"):
        pytest.skip("this kernel has netem")
    done = cli(*QUICK, "--delay", "1ms", "--on", "host", cwd=tmp_path)
    assert done.returncode == EXIT_MACHINE
    assert "--delay, --jitter, --loss and --corrupt need --on uml" in done.stderr
    assert not list(tmp_path.iterdir())
