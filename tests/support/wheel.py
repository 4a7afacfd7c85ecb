"""The wheel of this checkout, and an environment outside it that has the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(folder: Path, **variables: str) -> Path:
    """The wheel, built into ``folder`` with these environment variables."""
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
    subprocess.run(pip, check=True, capture_output=True, env={**os.environ, **variables})
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As this machine builds it: with the kernel inside if there is one."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel, and of this one's packages all but the editable testbed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = archive.extract(member, packages)
            if member.external_attr >> 16 & 0o100:  # as pip and uv do
                os.chmod(path, 0o755)
    (packages / "libraries.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    (folder / "bin/mltcp").write_text(
        f"#!{folder}/bin/python\nimport sys\nfrom testbed.__main__ import main\nsys.exit(main())\n"
    )
    (folder / "bin/mltcp").chmod(0o755)
    return folder


def mltcp(environment: Path, cwd: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(environment, cwd, "mltcp", *words, **variables)


def run(environment: Path, cwd: Path, program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program of the environment, as a user types it in the folder ``cwd`` with these environment variables."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "COLUMNS")}
    return subprocess.run(
        [str(environment / "bin" / program), *words],
        cwd=cwd,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
