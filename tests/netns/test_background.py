"""Background traffic on this machine's kernel: every flow arrives, and iperf3 says how many bytes did."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.backends.host import Host
from testbed.core.errors import TestbedError
from tests.support.runs import run_plan

RUN: dict[str, Any] = {
    "jobs": 2, "rate": "50mbit", "compute": "500ms", "bytes": "500kB", "iterations": 4, "system": ["reno"], "on": "host",
}  # fmt: skip


def flows(tmp_path: Path, *texts: str) -> pd.DataFrame:
    files = run_plan(Host(), **RUN, background=list(texts)).files
    (tmp_path / "background.csv").write_bytes(files["background.csv"])
    return pd.read_csv(tmp_path / "background.csv")


def test_flows_and_programs(tmp_path: Path) -> None:
    found = flows(tmp_path, "long:stop=1s", "poisson:load=0.1,sizes=rpc", "inference:rate=20", "cmd:command=echo hello")
    assert set(found["label"]) == {"long", "poisson", "inference", "cmd"} and found["failure"].isna().all()
    ended = found[found["end_s"].notna() & found["bytes"].notna()]
    assert (
        len(ended) > 10
        and (ended["received_bytes"] == ended["bytes"]).all()
        and (ended["end_s"] > ended["start_s"]).all()
    )
    assert found.query("label == 'long'")["received_bytes"].min() > 0


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3 here")
def test_iperf3(tmp_path: Path) -> None:
    found = flows(tmp_path, "iperf3:seconds=1")
    assert len(found) == 1 and found["received_bytes"].min() > 0 and found["end_s"].notna().all()


def test_a_program_ends_with_what_it_started_at_its_stop(tmp_path: Path) -> None:
    mark = f"{4000 + os.getpid()}"
    found = flows(tmp_path, f"cmd:command=sh -c 'sleep {mark} & wait',stop=500ms")
    assert found["end_s"].min() >= 0.5
    assert not subprocess.run(["pgrep", "-f", f"sleep {mark}"], check=False, capture_output=True).stdout


def test_a_program_that_fails_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"(?s)cat /nowhere ended with code 1.*No such file"):
        flows(tmp_path, "cmd:command=cat /nowhere")
