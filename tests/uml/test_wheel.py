"""The wheel runs on the kernel that it carries: from any folder, with an empty cache, without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from testbed.backends import uml
from testbed.core.errors import EXIT_MACHINE
from tests.support.wheel import environment, mltcp, wheel

__all__ = ["environment", "wheel"]  # fixtures

RUN = ("run", "--jobs", "2", "--iterations", "3", "--quiet")


def without_compiler(folder: Path) -> dict[str, str]:
    """Of an environment: an empty cache, and a PATH that has no compiler."""
    (folder / "bin").mkdir()
    for tool in (*uml.TOOLS, "true"):
        (folder / "bin" / tool).symlink_to(shutil.which(tool) or "/bin/false")
    return {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": str(folder / "bin")}


def test_it_is_for_this_platform_and_carries_what_runs_need(wheel: Path) -> None:
    assert "-py3-none-manylinux_2_" in wheel.name and wheel.name.endswith("_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        carried = {Path(one.filename).name: one for one in archive.infolist() if "testbed/content/" in one.filename}
    assert {"linux", "kernel.json", "preload.so", "tcp_mltcp_reno.ko", "libtransport.so"} <= set(carried)
    assert carried["linux"].external_attr >> 16 & 0o111 == 0o111
    assert carried["linux"].compress_size < 3_000_000


def test_it_runs_on_the_shipped_kernel(environment: Path, tmp_path: Path) -> None:
    variables = without_compiler(tmp_path)
    done = mltcp(environment, tmp_path, *RUN, "--system", "mltcp_reno", "--system", "ltp", **variables)
    assert done.returncode == 0, done.stderr
    for system in ("mltcp_reno", "ltp"):
        (manifest,) = tmp_path.glob(f"results/*/{system}/1/manifest.json")
        assert json.loads(manifest.read_text())["uml"]["shipped"] is True
    assert list(tmp_path.glob("results/*/figures/*.png"))
    assert "linux" not in str(sorted(tmp_path.glob("cache/mltcp/uml/**/*")))  # nothing was built
    shown = mltcp(environment, tmp_path, "kernel", **variables)
    assert "shipped with this installation" in shown.stdout


def test_a_damaged_one_is_refused(environment: Path, tmp_path: Path) -> None:
    (image,) = environment.glob("lib/python*/site-packages/testbed/content/uml/*/linux")
    content = image.read_bytes()
    try:
        image.write_bytes(content[:5000] + b"garbage" + content[5007:])
        done = mltcp(environment, tmp_path, *RUN, XDG_CACHE_HOME=str(tmp_path / "cache"))
    finally:
        image.write_bytes(content)
    words = " ".join(done.stderr.split())
    assert done.returncode == EXIT_MACHINE and not os.path.exists(tmp_path / "results")
    assert "the shipped kernel is refused" in words and "SHA-256" in words and "--force-reinstall" in words


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_not_needed(environment: Path, tmp_path: Path) -> None:
    done = mltcp(environment, tmp_path, *RUN, "--system", "mltcp_reno", "--system", "ltp", XDG_CACHE_HOME="/proc/none")
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("results/*/*/1/manifest.json"))) == 2


ONE_LINE = {
    "uv": ("uvx", "--find-links", "{wheels}", "--from", "mltcp-testbed", "mltcp"),
    "pipx": ("pipx", "run", "--pip-args=--find-links {wheels}", "--spec", "mltcp-testbed", "mltcp"),
}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tool", ONE_LINE)
def test_one_line_gives_a_figure(tool: str, wheel: Path, tmp_path: Path) -> None:
    """Downloads the tool and the packages that the wheel needs."""
    venv.create(tmp_path / "tools", with_pip=True)
    subprocess.run([tmp_path / "tools/bin/pip", "install", "-q", tool], check=True)
    (tmp_path / "work").mkdir()
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never"}
    words = [word.format(wheels=wheel.parent) for word in ONE_LINE[tool]]
    done = subprocess.run(
        [str(tmp_path / "tools/bin" / words[0]), *words[1:], "demo"], cwd=tmp_path / "work", env={**os.environ, **own},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(list(tmp_path.glob("work/results/*/figures/*.png"))) >= 2
    (manifest,) = tmp_path.glob("work/results/*4xsynthetic*/mltcp_reno/1/manifest.json")
    assert json.loads(manifest.read_text())["uml"]["shipped"] is True
