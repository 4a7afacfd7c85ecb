"""What is imported of each record can be run: `mltcp import`, then `mltcp run --on flow`."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli import main
from testbed.traces.trace import load
from tests.support.mutations import RECORDS
from tests.support.profiles import cli

FLAGS = {"deepspeed_table": ("--steps", "20", "--iteration", "50ms"), "nccl_log": ("--iteration", "50ms")}
RUN = ("--on", "flow", "--topo", "star", "--jobs", "1", "--iterations", "2", "--system", "reno", "--alone", "none", "--rate", "10gbit", "--quiet")  # fmt: skip


@pytest.mark.parametrize("kind", RECORDS)
def test_an_imported_record_runs(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "record", tmp_path / "mine.json"
    source.write_bytes(RECORDS[kind]())
    assert cli(source, "-o", out, *FLAGS.get(kind, ())) == 0
    trace = load(str(out))
    assert trace.bytes_per_iteration > 0
    words = ["run", *RUN, "--trace", str(out), "--workers", str(trace.ranks or 2), "--out", str(tmp_path / "run")]
    assert main(words) in (0, 4), capfd.readouterr().err
