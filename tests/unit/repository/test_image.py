"""The container image, as far as it can be judged without building one: what it runs, how large it may be, who uses it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.core.errors import EXIT_MACHINE, MachineError
from tools import image

ROOT = Path(__file__).parents[3]
CONTAINERFILE = (ROOT / "Containerfile").read_text()


def archive(path: Path, *sizes: int) -> Path:
    """As docker and podman save an image whose layers have these sizes."""
    names = [f"{number}/layer.tar" for number in range(len(sizes))]
    files = {
        "manifest.json": json.dumps([{"Layers": names}]).encode(),
        **dict(zip(names, map(bytes, sizes), strict=True)),
    }
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_its_size_is_that_of_its_layers(tmp_path: Path) -> None:
    saved = archive(tmp_path / "x.tar", 300, 20)
    assert image.layers(saved) == ["0/layer.tar", "1/layer.tar"] and image.unpacked_bytes(saved) == 320


def test_one_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "CONTEXT", tmp_path)
    monkeypatch.setattr(image, "MOST_BYTES", 250_000)

    def run(command: list[str], what: str) -> str:
        if command[1] == "push":
            archive(tmp_path / image.ARCHIVE, 200_000, 100_000)
        return ""

    monkeypatch.setattr(image, "run", run)
    with pytest.raises(MachineError, match=r"has 0 MB; at most 0 MB"):
        image.build("base")


def test_a_pure_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mltcp_testbed-0-py3-none-manylinux_2_34_x86_64.whl").touch()  # of another version
    monkeypatch.setattr(image, "run", lambda command, what: (tmp_path / "mltcp_testbed-1-py3-none-any.whl").touch())
    with pytest.raises(MachineError, match=r"no kernel inside. Run `make setup`"):
        image.own_wheel(tmp_path)


def test_a_program_that_fails_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image, "CONTEXT", tmp_path)
    monkeypatch.setattr(image, "TOOLS", {"sh": "sh"})
    done = SimpleNamespace(returncode=1, stdout="", stderr="no room\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **named: done)
    assert image.main([]) == EXIT_MACHINE
    assert "no room" in capsys.readouterr().err


def test_it_runs_mltcp_and_the_demo_writes_to_results() -> None:
    assert CONTAINERFILE.rstrip().endswith('WORKDIR /\nENTRYPOINT ["mltcp"]')
    assert "USER" not in CONTAINERFILE  # the container's root is the caller, where podman runs without root
    assert f"ARG BASE={image.REGISTRY_BASE}\n" in CONTAINERFILE


def test_the_base_has_what_the_containerfile_installs() -> None:
    installed = re.search(r"--no-install-recommends ([\w+ -]+) &&", CONTAINERFILE)
    assert installed and set(installed[1].split()) <= set(image.PACKAGES.split(","))


def test_the_devcontainer_uses_it() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["image"] == image.NAME and container["initializeCommand"] == "make image"
    assert "--cap-add=SYS_PTRACE" in container["runArgs"]
