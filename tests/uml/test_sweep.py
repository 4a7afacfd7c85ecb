"""Many runs at once: killed and resumed, one that fails, those that wait for others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.core.errors import EXIT_FAILED, EXIT_OK
from tests.support import processes
from tests.support.runs import INTERRUPTIBLE

SMALL = """
compute = "20ms"
bytes = "200kB"
rate = "100mbit"
iterations = 2
on = "uml"
"""
MANY = (
    SMALL
    + """
cc = ["reno", "mltcp_reno"]
alone = "none"
[sweep]
jobs = [1, 2, 3]
"""
)
RUNS = 6


def complete(folder: Path) -> list[Path]:
    return sorted(path.parent.relative_to(folder) for path in folder.rglob("manifest.json"))


def tables(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*.csv"))
        if path.parent.name != "figures"
    }


@pytest.mark.slow
def test_killed_twice_it_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    file = tmp_path / "many.toml"
    file.write_text(MANY)
    command = [sys.executable, "-m", "testbed", "sweep", str(file), "-j", "2", "--quiet", "--out"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    counts = []
    for number, how in ((1, signal.SIGKILL), (4, signal.SIGINT)):
        process = subprocess.Popen(
            [*INTERRUPTIBLE, *command, str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        processes.until(lambda: len(complete(killed)) >= number or process.poll() is not None, process.poll)  # noqa: B023
        process.send_signal(how)
        process.wait()
        counts.append(len(complete(killed)))
    assert 1 <= counts[0] < 4 <= counts[1] < RUNS
    written = {path: (killed / path / "manifest.json").stat().st_mtime_ns for path in complete(killed)}
    assert subprocess.run([*command, str(killed)], check=False, stdout=subprocess.DEVNULL).returncode == EXIT_OK
    assert len(complete(killed)) == RUNS
    for path, when in written.items():  # what was there was not run again
        assert (killed / path / "manifest.json").stat().st_mtime_ns == when
    assert not list(killed.rglob(".*partial*"))
    assert subprocess.run([*command, str(whole)], check=False, stdout=subprocess.DEVNULL).returncode == EXIT_OK
    assert tables(killed) == tables(whole) and len(tables(whole)) == RUNS * 5
    for summary in killed.rglob("summary.json"):
        assert json.loads(summary.read_text()) == json.loads((whole / summary.relative_to(killed)).read_text())


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a limit of wall time that nothing can keep, in one of two files."""
    for name, limit in (("good", ""), ("bad", 'wall_limit = "1ms"\n')):
        (tmp_path / f"{name}.toml").write_text(SMALL + 'cc = ["reno"]\njobs = 1\n' + limit)
    files = [str(tmp_path / f"{name}.toml") for name in ("bad", "good")]
    out = tmp_path / "out"
    assert main(["sweep", *files, "--out", str(out), "--quiet"]) == EXIT_FAILED
    shown = capsys.readouterr()
    assert [str(path) for path in complete(out)] == ["good/reno/1"]
    assert (out / "good/summary.json").exists() and not (out / "bad/summary.json").exists()
    assert "1 of 2 runs failed" in shown.err
    assert shown.err.count("failed: ") == 1 and f"failed: {out / 'bad/reno/1'}" in shown.err


@pytest.mark.slow
def test_a_scheduler_waits_for_its_jobs_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same runs as `run.py` makes one after the other; the second time there is nothing to do."""
    (tmp_path / "waits.toml").write_text(SMALL + 'cc = ["cassini", "reno"]\n')
    for out in ("swept", "again"):
        assert main(["sweep", str(tmp_path / "waits.toml"), "--out", str(tmp_path / "swept"), "--quiet"]) == EXIT_OK, (
            out
        )
    shown = " ".join(capsys.readouterr().err.split())
    assert "3 runs of 1 experiment, 0 " in shown
    assert "3 runs of 1 experiment, 2 " in shown
    assert main(["run", str(tmp_path / "waits.toml"), "--out", str(tmp_path / "run"), "--quiet"]) == EXIT_OK
    assert tables(tmp_path / "swept/waits") == tables(tmp_path / "run/waits")
