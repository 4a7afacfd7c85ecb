"""Habits of the house that are easily broken."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Imports run one way: testbed → (topologies, schedulers → workloads, analysis); the others import none of each other.
ALLOWED = {
    "testbed": {"testbed", "topologies", "workloads", "schedulers", "analysis"},
    "topologies": {"topologies"},
    "workloads": {"workloads"},
    "schedulers": {"schedulers", "workloads"},
    "analysis": {"analysis"},
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_run_one_way(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        assert (imported(path) & set(ALLOWED)) <= ALLOWED[package], path


def test_what_runs_in_a_host_needs_the_standard_library_alone() -> None:
    files = [ROOT / "workloads" / f"{name}.py" for name in ("worker", "clock", "grid", "bands", "noise")]
    files += (ROOT / "workloads/collectives").glob("*.py")
    files += [ROOT / "testbed" / name for name in ("sampler.py", "netns.py", "bpfsys.py", "environment.py", "run.py")]
    files += [ROOT / "workloads" / name for name in ("recording.py", "hook/__init__.py", "hook/sitecustomize.py")]
    for path in files:
        outside = imported(path) - set(sys.stdlib_module_names) - {"workloads", "testbed"}
        assert not outside or path.name == "environment.py", (path, outside)


def test_every_c_file_names_its_licence() -> None:
    for path in (ROOT / "kernel").rglob("*.[ch]"):
        assert "SPDX-License-Identifier: GPL-2.0-only" in path.read_text().splitlines()[0], path


def test_no_shell_strings() -> None:
    for package in ALLOWED:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            assert "shell=True" not in text and "os.system" not in text, path


def test_before_set_up_it_says_what_to_do(tmp_path: Path) -> None:
    """A checkout without an environment, started by a Python without the packages."""
    (tmp_path / "testbed").mkdir()
    for name in ("run.py", "environment.py", "__init__.py"):
        (tmp_path / "testbed" / name).write_text((ROOT / "testbed" / name).read_text())
    done = subprocess.run(
        ["/usr/bin/python3", "-S", str(tmp_path / "testbed" / "run.py"), "--jobs", "4"],
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "make" in done.stderr and "setup" in done.stderr
    assert "Traceback" not in done.stderr


def test_any_python_finds_the_environment() -> None:
    """As `sudo` would start it: an empty environment, the system's own Python, another directory."""
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("no .venv here: run `make setup`")
    for start in ([str(ROOT / "testbed/run.py")], ["-m", "testbed", "run"]):
        done = subprocess.run(
            ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "/usr/bin/python3", *start,
             "--topo", "dumbbell", "--jobs", "4", "--dry-run"],
            cwd=ROOT if start[0] == "-m" else "/", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "job 3: synthetic over reno on l4 r4" in done.stdout


@pytest.mark.parametrize(
    ("said", "out", "prepares"),
    [
        ("ON=uml", "results", "setup"), ("ON=uml QUICK=1", "results/quick", "setup"), ("ON=host", "results/host", "setup"),
        ("ON=vagrant QUICK=1", "results/vagrant/quick", "python"), ("ON=ssh:root@a,ssh:b", "results/ssh", "python"),
        ("ON=host RESULTS=mine", "mine", "setup"),
    ],
)  # fmt: skip
def test_make_reproduce_keeps_places_apart(said: str, out: str, prepares: str) -> None:
    """What runs in a VM must not replace what ran under virtual time; and in front of a VM only Python is needed."""
    shown = subprocess.run(
        ["make", "-n", "reproduce", *said.split()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"--out {out} ||" in shown.stdout and f"analysis report {out} --out" in shown.stdout
    assert ("tools/setup.sh --python" in shown.stdout) == (prepares == "python")
