"""The wheel of this checkout, and an environment outside it that has the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel, and of this one's packages all but the editable testbed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "bin/mltcp").write_text(
        f"#!{folder}/bin/python\nimport sys\nfrom testbed.__main__ import main\nsys.exit(main())\n"
    )
    (folder / "bin/mltcp").chmod(0o755)
    return folder


def mltcp(environment: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(environment, cwd, "mltcp", *words)


def run(environment: Path, cwd: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program of the environment, as a user types it in the folder ``cwd``."""
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "COLUMNS")}
    return subprocess.run(
        [str(environment / "bin" / program), *words],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
