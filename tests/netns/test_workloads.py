"""What jobs send against a real clock: replays keep to their trace; real training runs as a job."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.backends import uml
from testbed.backends.host import Host
from testbed.core.runs import metrics
from testbed.linux.participants import program as programs
from testbed.traces import trace as library
from tests.support import replay, runs
from tests.support.runs import ROOT

pytestmark = pytest.mark.alone

PARAMETERS = 1_079_242  # of smallcnn (`testbed.replay.ddp.models`)

needs_torch = pytest.mark.skipif(not programs.has_torch(), reason="needs PyTorch: `make torch`")


FIELDS: dict[str, Any] = {
    "jobs": 1, "cc": ["reno"], "noise": "0%", "rto_min": "5ms", "sample_interval": "50ms", "rate": "200mbit", "keep_duty": True,
}  # fmt: skip


def test_a_replay_keeps_to_its_trace() -> None:
    """Nine collectives of ten begin within 1 ms and 1 % of when the trace says. (All traces, to 10 µs: tests/uml.)"""

    def check(result: runs.Result) -> None:
        found = replay.starts(result, library.load("resnet50").scaled(200 * 10**6))
        off = abs(found["measured_s"] - found["expected_s"])
        assert (off <= 1e-3 + 0.01 * found["expected_s"]).mean() >= 0.9

    runs.shown_in_real_time(check, trace="resnet50", iterations=4, **FIELDS)


@pytest.mark.parametrize("name", runs.some(library.names(), "resnet50", "gpt2-xl", "s3"))
def test_every_operation_of_a_trace_is_carried_out_and_every_byte_carried(name: str) -> None:
    result = runs.run_plan(Host(), trace=name, iterations=1, **FIELDS)
    assert len(replay.starts(result, library.load(name).scaled(200 * 10**6))) > 0  # which looks at the bytes


@needs_torch
def test_what_was_recorded_is_what_a_replay_takes(tmp_path: Path) -> None:
    """Real data-parallel training of a small network on two ranks: recorded, then replayed on a link that is as good
    as this machine's loopback, with nobody else on it. A step waits for the slower rank, a replay computes the median:
    they differ by up to the recorded scatter."""
    undisturbed: list[str] = []
    for number in range(runs.ATTEMPTS):
        recorded_s, replayed_s, others = _recorded_and_replayed(out := tmp_path / f"small{number}.json")
        scatter = float(library.load(str(out)).noise.removesuffix("%")) / 100
        if replayed_s == pytest.approx(recorded_s, rel=0.05 + scatter):
            return
        seen = f"{recorded_s:.4f} s (± {scatter:.1%}) recorded and {replayed_s:.4f} s replayed"
        undisturbed += [seen] if others <= 0.05 else []
    assert not undisturbed, f"undisturbed, {undisturbed}"
    pytest.skip(f"others kept {others:.0%} of a core busy while this machine trained, {runs.ATTEMPTS} times: {seen}")


def _used_s() -> tuple[float, float]:
    """CPU time of this machine (with what its hypervisor takes), and of what we started and waited for, in seconds."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    whole = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return whole, ours.ru_utime + ours.ru_stime


def _recorded_and_replayed(out: Path) -> tuple[float, float, float]:
    """Median step of a recorded run, and the iteration of its replay, in seconds; others' cores while it was recorded."""
    (whole, ours), begun = _used_s(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "workloads", "record", "-o", str(out), "--native-rate", "10gbit", "--",
         sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "testbed.replay.ddp.train", "smallcnn", "--batch", "64", "--image", "96", "--iterations", "25"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (whole_after, ours_after), took = _used_s(), time.monotonic() - begun
    others = ((whole_after - whole) - (ours_after - ours)) / took
    said = re.search(r"rank\(s\), ([\d.]+) ms each", done.stdout)
    assert said
    result = runs.run_plan(
        uml.find(), jobs=1, iterations=10, cc=["reno"], noise="0%", trace=str(out), rate="10gbit", mtu=9000
    )
    replayed_s = metrics.alone(metrics.iteration_times(result.table("iterations.csv")))
    return float(said[1]) / 1e3, replayed_s, others


@needs_torch
def test_real_training_is_a_job(tmp_path: Path) -> None:
    """Its connections use the job's congestion control, which is read back; its iterations are counted as others'."""
    done = runs.cli(
        "--on", "host", "--out", str(tmp_path), "--name", "real", "--iterations", "4", "--cc", "mltcp_reno",
        "--job", "ddp:smallcnn", "--job", f"cmd:{sys.executable} -m testbed.replay.ddp.train smallcnn", cwd=tmp_path,
    )  # fmt: skip
    # 4: on a busy machine so short a run may be judged invalid, which is not the question here.
    assert done.returncode in (0, 4), done.stderr
    run = tmp_path / "real" / "mltcp_reno" / "1"
    assert len((run / "iterations.csv").read_text().splitlines()) == 1 + 2 * 2 * 4
    flows = (run / "flows.csv").read_text().splitlines()[1:]
    assert {line.split(",")[1] for line in flows} == {"0", "1"}
    settings = json.loads((run / "manifest.json").read_text())["settings"]
    defaults = [one for one in settings if one["what"] == "net.ipv4.tcp_congestion_control"]
    assert len(defaults) == 4 and all(one["value"].startswith("mlt") for one in defaults)


@needs_torch
@pytest.mark.parametrize("mtu", ["1000", "1500"])
def test_real_training_says_what_it_lost(tmp_path: Path, mtu: str) -> None:
    """A deadline of 30 ms is too short for two workers' gradients; the first step loses nothing, as it was asked for."""
    done = runs.cli(
        "--on", "host", "--out", str(tmp_path), "--name", "real", "--iterations", "3", "--cc", "reno", "--topo", "star", "--mtu", mtu,
        "--alone", "none", "--retries", "0", "--message-log", "per-message",
        "--job", "ddp:smallcnn --batch 2 --image 32 --fill feedback --disperse --warmup-steps 1,transport=ltp:lt=0us,workers=3", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 4), done.stderr  # 4: as above
    run = tmp_path / "real" / "reno" / "1"
    messages = pd.read_csv(run / "messages.csv")
    assert (messages["delivered"] + messages["missing"] == messages["bytes"]).all()
    assert set(messages["worker"]) == {0, 1, 2} and (messages["operation"] >= 0).all()
    gradients, means = (messages[messages["stage"] == stage] for stage in ("gradient", "parameter"))
    each = gradients.groupby(["iteration", "worker", "peer"])["bytes"].sum()
    assert len(each) == 3 * 2 * 2 and each.eq(4 * PARAMETERS).all()
    missing = gradients.groupby("iteration")["missing"].sum()
    assert missing[0] == 0 and (missing[1:] > 0).all() and means["missing"].sum() == 0
    assert (gradients["closed_deadline"] == 1).any()
    assert gradients["last_s"].between(0, 60).all()
    verdict = {row["id"]: row["status"] for row in json.loads((run / "verdict.json").read_text())["invariants"]}
    assert verdict["I9"] == "ok" and verdict["I24"] in ("ok", "suspect")
    told = json.loads((run / "manifest.json").read_text())["measured"]["datagrams"]
    assert [one["worker"] for one in told] == [0, 1, 2]


@needs_torch
@pytest.mark.parametrize(
    ("job", "says"),
    [
        ("ddp:smallcnn --fill zero", "Name a transport"),
        ("ddp:nosuch", r"worker [01] of job 0 \(ddp:nosuch\) on host [lr]1 ended with code 2"),
        ("cmd:/does/not/exist", "cannot be started"),
        ("cmd:sleep 0.1", "ended"),
    ],
)
def test_a_program_that_cannot_train_is_named(tmp_path: Path, job: str, says: str) -> None:
    done = runs.cli(
        "--on", "host", "--out", str(tmp_path), "--iterations", "1", "--cc", "reno", "--job", job, cwd=tmp_path
    )
    assert done.returncode == 1
    assert re.search(says, done.stderr) and "Traceback" not in done.stderr
