"""Helpers for what runs on this machine's own kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mininet.topo import Topo

from testbed.linux import network
from testbed.linux.loading import bpf
from tests.support import processes


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


def traces() -> dict[str, list[str]]:
    """Whatever a run could leave on the machine; of others' runs, nothing that can be told from ours."""
    return {
        "processes": [f"{pid} {' '.join(words)}" for pid, words in processes.below().items()],
        "links": [path.name for path in Path("/sys/class/net").iterdir()],
        "mounts": [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()],
        "congestion controls": congestion_controls(),
        "shared memory": [path.name for path in Path("/dev/shm").glob("mltcp-*") if not _of_another(path)],
    }


def left_since(before: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is there now and was not; what has gone since was others'."""
    now = traces()
    return {what: new for what in now if (new := sorted(set(now[what]) - set(before[what])))}


def congestion_controls() -> list[str]:
    """Runs' own, by names that belong to the whole kernel: beside others' runs nobody can tell whose they are."""
    return [] if _others_run() else [name for name in bpf.available() if name.startswith("mlt")]


def _others_run() -> bool:
    ours = processes.below()
    return any("testbed.linux.run_in_kernel" in words for pid, words in processes.below(1).items() if pid not in ours)


def _of_another(path: Path) -> bool:
    """Whether a process that is not ours is just writing it: mltcp-PID-…"""
    pid = int(path.name.split("-")[1])
    return os.path.exists(f"/proc/{pid}") and pid not in processes.below()
