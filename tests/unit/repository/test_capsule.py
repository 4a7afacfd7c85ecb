"""The capsule's index and its script; `tests/vagrant/test_capsule.py` builds and restores one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import testbed
from testbed.backends.usermode import shipped
from testbed.core.errors import MachineError
from tools import capsule, image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A capsule of small files, indexed."""
    for name in (
        "wheels/a-1-py3-none-any.whl",
        "wheels/mltcp_testbed-1.whl",
        "kernel/x.deb",
        "source/x.tar",
        "image/x.tar",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    shutil.copy(capsule.RESTORE, tmp_path / "restore")
    capsule.index(tmp_path, "c0ffee")
    return tmp_path


def test_the_index_has_every_file(folder: Path) -> None:
    index = json.loads((folder / "INDEX.json").read_text())
    assert (index["version"], index["commit"]) == (testbed.__version__, "c0ffee")
    assert index["kernel_sha256"] == shipped.release().image_sha256
    listed = {file["path"]: file for file in index["files"]}
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert set(listed) == present - {"INDEX.json", "SHA256SUMS"}
    assert listed["kernel/x.deb"]["from"] == shipped.release().source and listed["kernel/x.deb"]["bytes"] == 12
    assert listed["wheels/mltcp_testbed-1.whl"]["from"] == "this commit"
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count(": OK") == len(present) - 1  # each but itself
    for file in listed.values():
        assert f"{file['sha256']}  {file['path']}\n" in (folder / "SHA256SUMS").read_text()


@pytest.mark.parametrize("way", ["--wheels", ""])
def test_a_damaged_capsule_is_not_restored(folder: Path, way: str, tmp_path: Path) -> None:
    (folder / "image/x.tar").write_text("garbage")
    done = subprocess.run(["sh", "restore", *way.split()], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "image/x.tar" in done.stdout + done.stderr and "damaged" in done.stderr
    assert not (folder / "restored").exists()


def test_wheels_need_their_python(folder: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("dirname", "sha256sum", "mkdir"):
        (tools / tool).symlink_to(shutil.which(tool) or "/bin/false")
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3").chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "restore", "--wheels"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": str(tools)},
    )
    assert done.returncode == 3 and "Python 3.11" in done.stderr and "without --wheels" in done.stderr


def test_without_an_image_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "CONTEXT", tmp_path)
    with pytest.raises(MachineError, match="make image"):
        capsule.build(tmp_path / "dist")
