"""Equal-cost paths under virtual time: what crosses which link, and the same for every congestion control."""

from __future__ import annotations

from typing import Any

import pytest

from testbed import spec
from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.core.runs import rundir
from testbed.planning import plan
from tests.support import runs

FIELDS: dict[str, Any] = {
    "topo": "leafspine,2,3,4", "jobs": 4, "compute": "50ms", "bytes": "2MB", "iterations": 2, "cc": ["reno", "mltcp_reno"],
}  # fmt: skip


pytestmark = pytest.mark.xdist_group("paths")  # who share what follows


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, int | None], runs.Result]:
    """By congestion control, and by the job that is alone."""
    return {
        (one.system.label, one.alone): runs.Result(
            rundir.unpack(uml.find().run(one, lambda event: None, patience(one)))
        )
        for one in plan.plans(plan.resolve(spec.read(None, FIELDS)))
    }


def paths(result: runs.Result) -> dict[int, dict[str, Any]]:
    return {one["job"]: one for one in result.manifest["measured"]["paths"]}


def test_bytes_are_on_the_links_that_the_kernel_names(results: dict[tuple[str, int | None], runs.Result]) -> None:
    for result in results.values():
        links = result.table("links.csv").groupby("link")["bytes"].max()
        sent = result.table("iterations.csv").groupby("job")["bytes"].sum()
        for name in links.index:
            crossing = sum(int(sent.get(job, 0)) for job, one in paths(result).items() if name in one["links"])
            if crossing:
                assert links[name] > 0.8 * crossing, name  # the last sample comes before the end
            else:  # ACKs at most
                assert links[name] < 0.1 * sent.min(), name


def test_paths_are_those_of_the_seed(results: dict[tuple[str, int | None], runs.Result]) -> None:
    together = paths(results["reno", None])
    assert len({tuple(one["links"][1:-1]) for one in together.values()}) > 1
    for result in results.values():
        for job, one in paths(result).items():
            assert one == together[job]
