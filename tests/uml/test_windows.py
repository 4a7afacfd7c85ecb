"""Front layers first, over TCP: the gain of order alone, with the same bytes over the same links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.core.runs import metrics, rundir
from tests.support import runs
from tests.support.runs import DEFAULT, one_plan, run_plan
from tests.unit.replay.test_overlapping import layered

pytestmark = pytest.mark.uml


@pytest.mark.slow
def test_front_layers_first_is_faster_than_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "layered.json").write_bytes(msgspec.json.encode(layered()))
    asked: dict[str, Any] = {
        **DEFAULT,
        "topo": "star", "jobs": 1, "workers": 3, "trace": str(tmp_path / "layered.json"), "collective": "sharded_parameter_server",
        "rate": "100mbit", "iterations": 5, "system": ["reno"],
    }  # fmt: skip
    window = {"credit_bytes": "64kB", "partition_bytes": "16kB"}
    ways: dict[str, dict[str, Any]] = {"in turn": {}, "window": window, "bands": {**window, "priority_queues": "3"}}
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
            bands = result.table("priority_queues.csv")
            assert (bands[bands["link"] == "h1-s1"]["packets"] > 0).all()
    assert took["window"] < 0.9 * took["in turn"]
    assert took["bands"] < 0.9 * took["in turn"]


@pytest.mark.parametrize("system", ["priority:bands=4", "pias:bands=4"])
def test_small_tensors_pass_large_ones(tmp_path: Path, system: str) -> None:
    """Bands go by tensors where several are in flight: a front layer of 50 kB hardly waits for one of 400 kB that came before it."""
    (tmp_path / "layered.json").write_bytes(msgspec.json.encode(layered()))
    asked: dict[str, Any] = {
        **DEFAULT,
        "topo": "star", "jobs": 1, "workers": 3, "trace": str(tmp_path / "layered.json"), "collective": "sharded_parameter_server",
        "rate": "100mbit", "iterations": 5, "credit_bytes": "1MB", "partition_bytes": "16kB",
    }  # fmt: skip
    took = {}
    for name in ("reno", system):
        plan = one_plan(**asked, system=[name])
        result = runs.Result(rundir.unpack(uml.find().run(plan, lambda event: None, patience(plan))))
        exchanges = result.table("operations.csv")
        mine = exchanges[(exchanges["operation"] == "g1") & (exchanges["iteration"] > 0)]
        took[name] = float((mine["end_s"] - mine["start_s"]).mean())
        counted = result.table("iterations.csv")
        for rank, expected in enumerate(plan.jobs[0].bytes_per_worker):
            assert (counted[counted["worker"] == rank]["bytes"] == expected).all()
        if name != "reno":
            bands = result.table("priority_queues.csv")
            assert (bands[bands["link"] == "h1-s1"]["packets"] > 0).all() and len(bands[bands["link"] == "s1-h1"]) >= 4
    assert took[system] < 0.6 * took["reno"], took
