"""The built wheel, installed into an empty environment outside the checkout."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.support.wheel import build, environment, mltcp, run, wheel

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
    assert {f"testbed/report/explorer/{name}" for name in ("page.html.j2", "page.js", "uplot/LICENSE")} <= set(names)


@pytest.mark.slow
def test_without_a_kernel_it_is_for_every_platform(tmp_path: Path) -> None:
    wheel = build(tmp_path, XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.startswith(("testbed/content/uml/", "testbed/content/build/"))]
    assert [name for name in names if name.endswith("licenses/LICENSES/GPL-2.0-only.txt")]


@pytest.mark.slow
def test_it_runs_without_a_kernel(environment: Path, tmp_path: Path) -> None:
    done = mltcp(environment, tmp_path, "run", "--on", "flow", "--jobs", "2", "--iterations", "5", "--quiet")
    assert done.returncode == 0, done.stderr
    (manifest,) = tmp_path.glob("results/*/reno/1/manifest.json")
    assert json.loads(manifest.read_text())["plan"]["topology"] == "dumbbell"


PROGRAM = """\
import json, sys
import pandas as pd
import testbed
from matplotlib.figure import Figure

results = testbed.run(topo="dumbbell", jobs=2, iterations=3, system=["reno", "mltcp_reno"], on="flow")
assert isinstance(results.summary, pd.DataFrame) and isinstance(results.plot("interleaving"), Figure)
again = testbed.load(results.path)
print(json.dumps([testbed.__file__, results.verdict, list(results.summary["system"]), len(again.table("iterations"))]))
"""


@pytest.mark.slow
def test_python_code_of_a_user_imports_it(environment: Path, tmp_path: Path) -> None:
    done = run(environment, tmp_path, "python", "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    file, verdict, systems, rows = json.loads(done.stdout)
    assert Path(file).is_relative_to(environment)
    assert (verdict, systems, rows) == (
        "valid",
        ["reno", "mltcp_reno"],
        2 * 2 * 2 * 3,
    )  # systems, jobs, workers, iterations


@pytest.mark.slow
def test_what_it_plans_and_lists_is_content(environment: Path, tmp_path: Path) -> None:
    planned = mltcp(
        environment, tmp_path, "run", "--topo", "leafspine", "--trace", "resnet50", "--on", "uml", "--dry-run"
    )
    assert planned.returncode in (0, 3), planned.stderr
    report = mltcp(environment, tmp_path, "schema")
    assert report.returncode == 0 and json.loads(report.stdout)
    for kind, name in (("experiments", "interleaving.toml"), ("examples", "mixes.toml")):
        assert f"{kind}/{name}\n" in mltcp(environment, tmp_path, "list", kind).stdout
        shipped = mltcp(environment, tmp_path, "sweep", f"{kind}/{name}", "--on", "flow", "--dry-run")
        assert shipped.returncode == 0 and "Total: " in shipped.stdout, shipped.stderr
