"""Front layers first, over TCP: the gain of order alone, with the same bytes over the same links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.runs import metrics
from testbed.substrates import uml
from tests.runs import DEFAULT, one_plan, run_plan
from tests.unit.test_overlapping import layered

pytestmark = pytest.mark.uml


def test_front_layers_first_is_faster_than_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "layered.json").write_bytes(msgspec.json.encode(layered()))
    asked: dict[str, Any] = {
        **DEFAULT,
        "topo": "star", "jobs": 1, "workers": 3, "trace": str(tmp_path / "layered.json"), "collective": "sharded_parameter_server",
        "rate": "100mbit", "iterations": 5, "system": ["reno"],
    }  # fmt: skip
    window = {"window": "64kB", "partition": "16kB"}
    ways: dict[str, dict[str, Any]] = {"in turn": {}, "window": window, "bands": {**window, "bands": "3"}}
    took = {}
    for name, more in ways.items():
        result = run_plan(uml.find(), **asked, **more)
        iterations = result.table("iterations.csv")
        (job,) = one_plan(**asked, **more).jobs
        for rank, expected in enumerate(job.bytes_per_worker):
            assert (iterations[iterations["worker"] == rank]["bytes"] == expected).all()
        took[name] = float(metrics.iteration_times(iterations)[0].iloc[1:].mean())
        assert took[name] > (job.ideal_s or 0)
        if name == "bands":  # each layer in a band of its own, and all of it on the way out of a worker
            bands = result.table("bands.csv")
            assert (bands[bands["link"] == "h1-s1"]["packets"] > 0).all()
    print(took)
    assert took["window"] < 0.9 * took["in turn"]
    assert took["bands"] < 0.9 * took["in turn"]
