"""A sweep in virtual time: in parallel, without ``[real-clock]``, and only what is not there yet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from testbed.core.errors import EXIT_OK
from tests.support.runs import ROOT, cli

FILE = """\
compute = "10ms"
bytes = "100kB"
rate = "200mbit"
iterations = 3
cc = ["reno"]
seeds = 2
alone = "none"

[real-clock]
seeds = 1
"""


def sweep(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed", "sweep", *arguments],
        cwd=cwd, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home())},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_sweep_runs_what_is_missing_several_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(FILE)
    done = sweep("a.toml", "--on", "uml", "-j", "2", cwd=tmp_path)
    assert done.returncode == EXIT_OK, done.stderr
    manifests = {path.parent: json.loads(path.read_text()) for path in (tmp_path / "results").rglob("manifest.json")}
    assert len(manifests) == 2
    assert {(one["backend"], one["remote"]) for one in manifests.values()} == {("uml", None)}
    assert "2 already stored" in sweep("a.toml", "--on", "uml", "-j", "2", cwd=tmp_path).stderr
    # As if run by itself.
    alone = cli("a.toml", "--on", "uml", "--out", "alone", cwd=tmp_path)
    assert alone.returncode == EXIT_OK, alone.stderr
    again = json.loads((tmp_path / "alone/a/reno/2/manifest.json").read_text())
    assert again["digest"] == manifests[tmp_path / "results/a/reno/2"]["digest"]
