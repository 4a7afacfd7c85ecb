"""Helpers for what runs on this machine's own kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mininet.topo import Topo

from testbed import bpf, network


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
