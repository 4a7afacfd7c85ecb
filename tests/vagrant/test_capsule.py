"""A capsule, built and restored both ways without network, gives the README's numbers; by the wheels in 2036.

Needs root, buildah, faketime, and a base for the image from a registry or by mmdebstrap: ten minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import capsule, tables

ROOT = Path(__file__).parents[2]
TOOLS = ("buildah", "faketime", "mmdebstrap", "unshare")
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capsule, unpacked."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}: `apt-get install {' '.join(TOOLS[:3])}`")
    out = tmp_path_factory.mktemp("capsule")
    command = [sys.executable, "-m", "tools.capsule", "--out", str(out)]
    subprocess.run([*command, *os.environ.get("CAPSULE", "").split()], cwd=ROOT, check=True)
    (made,) = out.glob("*.tar")
    subprocess.run(["tar", "-C", str(out), "-xf", str(made)], check=True)
    made.unlink()
    return out / capsule.NAME


@pytest.mark.parametrize(("way", "clock"), [("--wheels", ["faketime", "2036-02-03 04:05:06"]), ("", [])])
def test_it_is_restored_without_network(folder: Path, way: str, clock: list[str], tmp_path: Path) -> None:
    command = ["unshare", "--net", *clock, "./restore", *way.split(), str(tmp_path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summaries = sorted(tmp_path.glob("results/*/summary.json"))
    assert len(summaries) == 2
    for summary in summaries:
        for row in tables.of_demo(json.loads(summary.read_text())):
            assert f"\n{row}\n" in README
    manifests = [json.loads(path.read_text()) for path in tmp_path.glob("results/*/*/1/manifest.json")]
    assert all(manifest["uml"]["shipped"] for manifest in manifests)
    if clock:
        assert re.search(r'"2036-02-03T', json.dumps(manifests))
