"""Speed-up of a campaign by a second worker: ``python -m benchmarks.executors`` (a quarter of an hour, on a quiet
machine).

Runs of about eight seconds in user-mode Linux. It measures the speed-up of two workers of an executor over one. The
reference is the machine's speed-up for two concurrent runs, each a separate command. No executor can exceed it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from testbed.core.environment import ROOT

RUNS = 20
ROUNDS = 1
CAMPAIGN = """
name = "speed"
jobs = 2
iterations = 40
rate = "5gbit"
mtu = 9000
compute = "500ms"
bytes = "250MB"
alone = "none"
system = ["reno"]
seeds = {seeds}
on = "uml"
"""


def main() -> None:
    found: dict[str, list[tuple[float, float]]] = {"independent": [], "local": [], "dask": []}
    for _ in range(ROUNDS):
        found["independent"].append((_commands_s(1), _commands_s(2)))
        for executor in ("local", "dask"):
            found[executor].append((_sweep_s(executor, 1), _sweep_s(executor, 2)))
    speed_up = {name: sum(one for one, _ in both) / sum(two for _, two in both) for name, both in found.items()}
    for name, both in found.items():
        seconds = ", ".join(f"{one:.1f} → {two:.1f} s" for one, two in both)
        print(
            f"{name:12} {speed_up[name]:.2f}× ({seconds}), {speed_up[name] / speed_up['independent']:.3f} of independent runs"
        )


def _commands_s(at_once: int) -> float:
    """All runs as commands, so many at once."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "speed.toml").write_text(CAMPAIGN.format(seeds=1))
        begun = time.perf_counter()
        for first in range(0, RUNS, at_once):
            started = [
                _start("run", f"{folder}/speed.toml", "--seed", str(seed), "--out", f"{folder}/{seed}", "--quiet")
                for seed in range(first + 1, first + at_once + 1)
            ]
            for one in started:
                assert one.wait() == 0
        return time.perf_counter() - begun


def _sweep_s(executor: str, workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "speed.toml").write_text(CAMPAIGN.format(seeds=RUNS))
        begun = time.perf_counter()
        swept = _start(
            "sweep", f"{folder}/speed.toml", "--executor", executor, "-j", str(workers), "--out", f"{folder}/results", "--quiet"
        )  # fmt: skip
        assert swept.wait() == 0
        return time.perf_counter() - begun


def _start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "testbed", *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


if __name__ == "__main__":
    main()
