"""The workflow of continuous integration: its schema, and that its steps are those of a checkout."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("check_jsonschema")
yaml = pytest.importorskip("ruamel.yaml")

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github/workflows/ci.yml"


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    return dict(yaml.YAML(typ="safe").load(WORKFLOW.read_text())["jobs"])


def test_it_follows_its_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_checkout_is_checked_by_one_command(jobs: dict[str, Any]) -> None:
    assert [step["run"] for step in jobs["checkout"]["steps"] if "run" in step] == [".ci/run"]


def test_every_supported_python_is_tested(jobs: dict[str, Any]) -> None:
    least = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    pythons = jobs["python"]["strategy"]["matrix"]["python"]
    assert least and pythons[0] == least[1]
    assert pythons == [f"3.{minor}" for minor in range(11, 11 + len(pythons))]
    assert "testbed demo --on flow" in str(jobs["python"]["steps"])


def test_a_release_needs_all_tests(jobs: dict[str, Any]) -> None:
    assert set(jobs["release"]["needs"]) == set(jobs) - {"release"}


def test_a_release_is_that_of_the_checkout(jobs: dict[str, Any]) -> None:
    """What a person types builds it; the workflow only publishes."""
    scripts = [step["run"] for step in jobs["release"]["steps"] if "run" in step]
    assert "make release" in scripts
    assert not any(word in script for script in scripts for word in ("pip ", "podman", "sha256sum", "git tag"))
    assert "dist/* --verify-tag" in scripts[-1] and "--notes-file dist/NOTES.md" in scripts[-1]


def test_steps_are_those_of_the_checkout(jobs: dict[str, Any]) -> None:
    """A shell reads them; targets of make and scripts are there."""
    scripts = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for script in scripts:
        assert subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=False).returncode == 0
        assert set(re.findall(r"^make (\w+)", script, re.MULTILINE)) <= targets
        assert all((ROOT / path).exists() for path in re.findall(r"(?:tools|\.ci)/[\w.]+", script))
