"""What lone jobs take in user-mode Linux is never less than the ideal, and close to it where it can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.backends import uml
from testbed.core.runs import metrics
from testbed.planning import plan
from tests.support.runs import run_plan

SMALL = {"rate": "100mbit", "compute": "20ms"}
# Of the ideal, at most: as the tables of docs/reference/file-formats.md have it ("The ideal iteration").
CLOSE, BOTH_WAYS, UNEVEN, FILLING = 1.05, 1.1, 1.2, 1.4


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"scheduler": "packed", "iterations": 3}, CLOSE),  # behind one router, by the NIC
        ({"bytes": "145kB", "rate": "100mbit", "compute": "5ms"}, CLOSE),  # 100 frames
        ({"bytes": "600kB", "workers": 4, "collective": "parameter_server", "topo": "star", **SMALL}, FILLING),
        # Six GPUs of two servers: four exchange inside the first one, at a rate that decides.
        ({"job": [{"gpus": 6}], "topo": "cluster,4,4", "scheduler": "first_fit", "intra_server_rate": "40mbit", "bytes": "1MB", **SMALL}, CLOSE),
        pytest.param({"scheduler": "packed", "nic": "50%", "iterations": 3}, CLOSE, marks=pytest.mark.long),
        pytest.param({"link": {"s1-s2": {"rate": "40%"}}, "bytes": "3MB", **SMALL}, CLOSE, marks=pytest.mark.long),
        pytest.param({"topo": "leafspine", "scheduler": "packed", "bytes": "1MB", **SMALL}, CLOSE, marks=pytest.mark.long),
        pytest.param({"topo": "cluster", "scheduler": "packed", "bytes": "1MB", **SMALL}, CLOSE, marks=pytest.mark.long),
        pytest.param({"topo": "star", "bytes": "1MB", **SMALL}, CLOSE, marks=pytest.mark.long),
        pytest.param({"bytes": "2MB", "collective": "ring", **SMALL}, CLOSE, marks=pytest.mark.long),
        pytest.param({"bytes": "1448B", "rate": "100mbit", "compute": "0ms"}, CLOSE, marks=pytest.mark.long),
        pytest.param({"bytes": "60kB", "workers": 3, "collective": "parameter_server", "topo": "star", **SMALL}, FILLING, marks=pytest.mark.long),
        pytest.param({"bytes": "1MB", "workers": 4, "collective": "sharded_parameter_server", "topo": "star", **SMALL}, UNEVEN, marks=pytest.mark.long),
        pytest.param({"bytes": "1MB", "workers": 4, "collective": "tree", **SMALL}, FILLING, marks=pytest.mark.long),
        pytest.param({"bytes": "1MB", "workers": 3, "collective": "transpose", "topo": "cluster", **SMALL}, UNEVEN, marks=pytest.mark.long),
    ],
    ids=str,
)  # fmt: skip
def test_no_lone_job_is_faster_than_its_ideal(fields: dict[str, Any], most: float) -> None:
    asked = {
        "jobs": 1,
        "iterations": 6,
        "cc": ["reno"],
        "nic": "100%",
        "ecn": "on",
        "buffer": "200p",
        "on": "uml",
        **fields,
    }
    if "job" in fields:
        del asked["jobs"]
    (one,) = plan.plans(plan.resolve(spec.make(dict(asked), {}, "the test")))
    times = metrics.iteration_times(run_plan(uml.find(), **asked).table("iterations.csv"))
    assert one.jobs[0].ideal_s is not None
    assert 0.999 <= metrics.alone(times) / one.jobs[0].ideal_s <= most


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "most"), [("broadcast", FILLING), ("all_to_all", BOTH_WAYS), ("all_gather", BOTH_WAYS)]
)
def test_nor_in_other_collectives(kind: str, most: float, tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(
        '{"version": 1, "name": "one", "model": "one", "source": {"kind": "synthetic"}, "operations": ['
        '{"id": "compute", "kind": "compute", "duration": "20ms"},'
        f'{{"id": "exchange", "kind": "{kind}", "bytes": "300kB", "after": ["compute"]}}]}}'
    )
    test_no_lone_job_is_faster_than_its_ideal(
        {"trace": str(path), "workers": 4, "topo": "star", "rate": "100mbit"}, most
    )
