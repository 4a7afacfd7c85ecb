"""Helpers for what runs on this machine's own kernel."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mininet.topo import Topo

from testbed import bpf, network, plan, spec
from testbed.substrates import host

ROOT = Path(__file__).parents[2]


@pytest.fixture
def build() -> Iterator[Callable[[Topo], network.Network]]:
    """Build a network that ends with the test."""
    built: list[network.Network] = []

    def build(topo: Topo) -> network.Network:
        built.append(network.build(topo))
        return built[-1]

    yield build
    for net in built:
        net.stop()


@dataclass(frozen=True)
class Result:
    """One run's files."""

    archive: bytes

    def table(self, name: str) -> pd.DataFrame:
        with tarfile.open(fileobj=io.BytesIO(self.archive)) as tar:
            file = tar.extractfile(name)
            assert file is not None
            return pd.read_csv(file)

    @property
    def manifest(self) -> dict[str, Any]:
        with tarfile.open(fileobj=io.BytesIO(self.archive)) as tar:
            file = tar.extractfile("manifest.json")
            assert file is not None
            return dict(json.load(file))


def run_plan(alone: bool = False, **fields: Any) -> Result:
    """Run the (only) plan of a spec, or its job alone, and nothing else."""
    made = plan.plans(spec.read(None, fields))
    assert len(made) == 2
    one = made[1] if alone else made[0]
    host.check(one)
    return Result(host.run(one, lambda event: None, 240))


def cli(*arguments: str, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "testbed" / "run.py"), *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def traces_left() -> dict[str, Any]:
    """Whatever a run could leave on the machine."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word in (b"testbed.inside", b"testbed.sampler", b"workloads.worker") for word in words):
            processes.append(b" ".join(words).decode())
    links = sorted(path.name for path in Path("/sys/class/net").iterdir())
    mounts = sorted(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    return {
        "processes": processes, "links": links, "mounts": mounts,
        "congestion controls": sorted(name for name in bpf.available() if name.startswith("mlt")),
        "shared memory": sorted(path.name for path in Path("/dev/shm").iterdir()),
    }  # fmt: skip
