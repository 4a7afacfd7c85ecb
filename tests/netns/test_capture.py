"""`--capture` on this machine's kernel: what a queue drops, and what a host sends, as the tables have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.backends.host import Host
from tests.support.captures import needs_tshark, packets
from tests.support.runs import run_plan

RUN: dict[str, Any] = {
    "jobs": 2, "rate": "50mbit", "compute": "200ms", "bytes": "500kB", "iterations": 3, "system": ["reno"], "ecn": "off", "buffer": "2ms",
    "capture": ["l1", "s1-s2"], "on": "host",
}  # fmt: skip


@needs_tshark
def test_packets_are_those_of_the_tables(tmp_path: Path) -> None:
    """However busy the machine: no drop of the kernel's own, and the same counts where nothing is under way."""
    for name, content in run_plan(Host(), **RUN).files.items():
        (tmp_path / name).write_bytes(content)
    seen = packets(tmp_path / "capture-s1-s2.pcapng").query("out")
    links = pd.read_csv(tmp_path / "links.csv").query("link == 's1-s2'")
    idle = links[(links["bytes"].diff() == 0) & (links["bytes"].diff(-1) == 0) & (links["backlog_bytes"] == 0)].iloc[-1]
    until = seen[seen["ns"] <= idle["t_s"] * 1e9]
    left = until[~until["before"]]
    assert until["before"].sum() - len(left) == idle["drops"] > 0
    own = packets(tmp_path / "capture-l1.pcapng").query("out and before and payload > 0")
    assert own["length"].max() == 1514
    sent = own.drop_duplicates("seq")["payload"].sum()
    iterations = pd.read_csv(tmp_path / "iterations.csv").query("job == 0 and worker == 0")
    assert sent >= iterations["bytes"].sum() == pytest.approx(1_500_000)
