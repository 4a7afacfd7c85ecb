"""Every command, ended again and again at random moments, leaves nothing; what it makes at last is what it makes undisturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_INTERRUPTED
from tests.support import processes
from tests.support.processes import HANG_S, loopback
from tests.support.runs import INTERRUPTIBLE, KILLS, ROOT, some

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FIRST_S, ESTABLISHED_S, LATEST_S = 0.3, 4.0, 12.0  # a moment; by the second of these a command listens to signals
SMALL = ["--compute", "20ms", "--bytes", "200kB", "--rate", "100mbit", "--iterations", "6", "--jobs", "2"]
CAMPAIGN = """
compute = "20ms"
bytes = "200kB"
rate = "100mbit"
iterations = 6
jobs = 2
system = ["reno", "mltcp_reno"]
seeds = 2
on = "uml"
"""
JOBS = "gpu_num,submit_time,duration\n" + "".join(
    f"{1 + n % 8},2020-04-01 {n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d},{60 + n * 13 % 900}\n" for n in range(6000)
)
TRAINING = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a traceback would be the script's own
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(60, 60), torch.nn.Linear(60, 60))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.ones(4, 60)).square().mean().backward()
    optimizer.step()
    time.sleep(0.05)
"""
HERE, THERE = loopback(2)


def command(*words: str) -> list[str]:
    return [*INTERRUPTIBLE, sys.executable, "-m", *words]


def tables(folder: Path) -> dict[str, object]:
    """Every table below; without what tells of the machine or the moment."""
    aside = {"repeated.json", "disturbances.csv"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*.csv"))
        if path.name not in aside and "tmp" not in path.relative_to(folder).parts
    }


def sizes_of_trace(folder: Path) -> dict[str, object]:
    """Of what was recorded; times differ from run to run."""
    return {"bytes": [one.get("bytes") for one in json.loads((folder / "mine.json").read_text())["operations"]]}


@dataclass(frozen=True)
class Case:
    """A command, in a folder that has ``files``, after ``first``; what it ``makes`` there is compared."""

    words: Sequence[str]
    first: Sequence[Sequence[str]] = ()
    makes: Callable[[Path], dict[str, object]] = tables


def ran(*flags: str) -> list[str]:
    return command("testbed", "run", *SMALL, "--quiet", *flags)


FLOW = ran("--on", "flow", "--name", "small")
SEND = command(
    "transports",
    "ltp:fraction=1",
    "send",
    "--bind",
    HERE,
    "--peer",
    THERE,
    "--port",
    "7481",
    "--wait",
    "5s",
    "--cc",
    "reno",
)
CASES = {
    "run": Case(ran("--on", "uml", "--name", "small", "--seeds", "2")),
    "flow": Case(ran("--on", "flow", "--name", "small", "--seeds", "3")),
    "sweep": Case(command("testbed", "sweep", "small.toml", "-j", "2", "--quiet")),
    "dask": Case(command("testbed", "sweep", "small.toml", "-j", "2", "--quiet", "--executor", "dask")),
    "slurm": Case(command("testbed", "sweep", "small.toml", "-j", "2", "--quiet", "--executor", "slurm:local")),
    "studies": Case(command("testbed", "sweep", str(ROOT / "experiments/sjf-servers.toml"), "--quick", "-j", "2", "--seeds", "1")),
    "schedule": Case(command("testbed", "schedule", "jobs.csv", "--servers", "20", "--gpus", "8", "--scheduler", "fifo", "srsf", "--json"), makes=lambda _folder: {}),
    "calibrate": Case(command("testbed", "calibrate", "--quick", "-j", "2", "--seeds", "1", "--system", "reno"), makes=lambda _folder: {}),
    "verify": Case(command("testbed", "run", "--verify", "results/small/reno/1"), [ran("--on", "uml", "--name", "small", "--system", "reno")]),
    "figures": Case(command("analysis", "figures", "results"), [FLOW]),
    "report": Case(command("analysis", "report", "results"), [FLOW]),
    "record": Case(command("workloads", "record", "-o", "mine.json", "--", sys.executable, "train.py"), makes=sizes_of_trace),
    "transports": Case(SEND, makes=lambda _folder: {}),
}  # fmt: skip
EACH = max(1, KILLS // 6)  # of a command: 16, and 208 of all, where MLTCP_KILLS is 100


def cases() -> list[object]:
    return some([(name, EACH) for name in CASES], *[]) + [(name, 2) for name in ("sweep", "report", "record")]


def environment(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    of_torch = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}  # which it makes in any case
    return os.environ | {"TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT), **of_torch}


def prepared(folder: Path, case: Case) -> Path:
    folder.mkdir()
    (folder / "small.toml").write_text(CAMPAIGN)
    (folder / "jobs.csv").write_text(JOBS)
    (folder / "train.py").write_text(TRAINING)
    for words in case.first:
        subprocess.run(words, cwd=folder, env=environment(folder), check=True, capture_output=True)
    return folder


def ends(name: str) -> tuple[int, ...]:
    """The exit codes of a command that is not disturbed."""
    return {"transports": (1,), "report": (0, 1)}.get(name, (0,))


def finished(folder: Path, case: Case, name: str) -> float:
    """Run it to its end; how long that took, s."""
    begun = time.monotonic()
    done = subprocess.run(case.words, cwd=folder, env=environment(folder), check=False, capture_output=True, text=True)
    assert done.returncode in ends(name), done.stderr
    return time.monotonic() - begun


def left(folder: Path, before: set[int]) -> list[object]:
    """Processes that are ours, files aside, and half of a run directory."""
    ours = {pid: words for pid, words in processes.below().items() if pid not in before}
    return [*ours.items(), *(folder / "tmp").iterdir(), *folder.rglob(".*partial-*"), *folder.rglob(".slurm")]


def networks() -> dict[str, str]:
    """Of this machine: interfaces and namespaces by name."""
    listed = (["ip", "-brief", "link"], ["ip", "netns", "list"])
    return {
        " ".join(words): subprocess.run(words, capture_output=True, text=True, check=False).stdout for words in listed
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kills"), cases())
def test_ended_at_random_moments_it_leaves_nothing(tmp_path: Path, name: str, kills: int) -> None:
    if name == "record" and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install 'mltcp-testbed[torch]'")
    case, draw, before = CASES[name], random.Random(f"ended {name}"), set(processes.below())
    undisturbed = prepared(tmp_path / "undisturbed", case)
    long_s = min(finished(undisturbed, case, name), LATEST_S)
    folder = prepared(tmp_path / "ended", case)
    for kill in range(kills):
        number, group, after_s = draw.choice(SIGNALS), draw.random() < 0.5, draw.uniform(FIRST_S, long_s)
        with subprocess.Popen(
            case.words, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            time.sleep(after_s)
            (os.killpg if group else os.kill)(process.pid, number)
            _, errors = process.communicate(timeout=HANG_S)
        what = f"{name}, end {kill}: {number.name} to the {'group' if group else 'command'} after {after_s:.2f} of {long_s:.2f} s"
        if number != signal.SIGKILL and after_s > ESTABLISHED_S:
            assert process.returncode in (EXIT_INTERRUPTED, *ends(name)), (what, errors)
            assert "Traceback" not in errors, (what, errors)
        else:
            assert process.returncode in (0, 1, -number, EXIT_INTERRUPTED), (what, errors)
        processes.until(lambda: not left(folder, before), lambda: (what, left(folder, before)))  # noqa: B023
    finished(folder, case, name)
    assert case.makes(folder) == case.makes(undisturbed)
    assert not left(folder, before)
