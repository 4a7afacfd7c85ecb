"""The built wheel, installed into an empty environment outside the checkout."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.support.wheel import environment, mltcp, wheel

__all__ = ["environment", "wheel"]  # fixtures

pytestmark = pytest.mark.xdist_group("wheel")


def test_one_top_level_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = [archive.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"testbed"}
    assert "mltcp = testbed.__main__:main" in points
    assert {"testbed/py.typed", "testbed/content/kernel/mltcp.h", "testbed/content/kernel/uml/config"} <= set(names)
    assert "testbed/transports/datagram/native/endpoint.c" in names


def test_it_runs_without_a_kernel(environment: Path, tmp_path: Path) -> None:
    done = mltcp(environment, tmp_path, "run", "--on", "flow", "--jobs", "2", "--iterations", "5", "--quiet")
    assert done.returncode == 0, done.stderr
    (manifest,) = tmp_path.glob("results/*/reno/1/manifest.json")
    assert json.loads(manifest.read_text())["plan"]["topology"] == "dumbbell"


def test_what_it_plans_and_lists_is_content(environment: Path, tmp_path: Path) -> None:
    planned = mltcp(
        environment, tmp_path, "run", "--topo", "leafspine", "--trace", "resnet50", "--on", "uml", "--dry-run"
    )
    assert planned.returncode in (0, 3), planned.stderr
    report = mltcp(environment, tmp_path, "schema")
    assert report.returncode == 0 and json.loads(report.stdout)
