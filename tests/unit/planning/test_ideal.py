"""The ideal is a lower bound of an iteration in isolation, and the flow-level simulator reaches it."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pandas as pd
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from testbed import spec
from testbed.backends.flow import FlowLevel
from testbed.backends.progress import patience
from testbed.core.errors import RequestError
from testbed.core.runs import metrics, rundir
from testbed.core.runs.plan import Plan
from testbed.planning import plan

COLLECTIVES = ("ring", "tree", "parameter_server", "sharded_parameter_server", "halving_doubling", "transpose")
TOPOLOGIES = (
    "dumbbell",
    "star",
    "cluster",
    "ring",
    "parking_lot",
    "leafspine",
    "fattree",
    "cluster,3,2,4",
    "leafspine,2,1,6",
)
# One link of each whose rate is its own.
SLOW = {"dumbbell": "s1-s2", "star": "h1-s1", "cluster": "s1-c1", "parking_lot": "s0-s1", "leafspine": "l1-s1"}


def made(**fields: Any) -> Plan:
    """The plan of a lone job."""
    asked = {"jobs": 1, "iterations": 2, "system": ["reno"], "sample_interval": "1s", "on": "flow", **fields}
    (one,) = plan.plans(plan.resolve(spec.make(asked, {}, "the test")))
    return one


def ratio(one: Plan) -> float:
    """Its iteration, as the flow-level simulator has it, ÷ its ideal."""
    files = rundir.unpack(FlowLevel().run(one, lambda _event: None, patience(one)))
    times = metrics.iteration_times(pd.read_csv(BytesIO(files["iterations.csv"])))
    assert one.jobs[0].ideal_s is not None
    return metrics.alone(times) / one.jobs[0].ideal_s


@st.composite
def lone_jobs(draw: st.DrawFn) -> dict[str, Any]:
    topology = draw(st.sampled_from(TOPOLOGIES))
    workers = draw(st.integers(2, 6))
    found: dict[str, Any] = {
        "topo": topology,
        "workers": workers,
        "scheduler": draw(st.sampled_from(["spread", "packed", "random"])),
        "seed": draw(st.integers(1, 10**6)),
        "nic": draw(st.sampled_from(["100%", "100%", "inf", "50%", "30%", "250%"])),
        "compute": draw(st.sampled_from(["0ms", "1ms", "500ms"])),
        "bytes": f"{draw(st.integers(10**5, 10**7))}B",
        "channels": draw(st.sampled_from([1, 1, 2])),
    }
    if workers > 2 or draw(st.booleans()):
        found["collective"] = draw(st.sampled_from(COLLECTIVES))
    if draw(st.booleans()):
        found["buckets"] = 3
    name = topology.partition(",")[0]
    if name in SLOW and draw(st.booleans()):
        found["link"] = {SLOW[name]: {"rate": draw(st.sampled_from(["40%", "150%"]))}}
    return found


@given(lone_jobs())
def test_nothing_is_faster_and_a_lone_job_takes_no_longer(fields: dict[str, Any]) -> None:
    try:
        one = made(**fields)
    except RequestError:  # too few hosts
        assume(False)
    assume(one.jobs[0].ideal_s)  # what takes no time is refused
    found = ratio(one)
    assert found >= 0.999
    event(f"a choice of paths: {one.multipath}")
    if not one.multipath:  # else a hash may put two flows on one of several links
        assert found <= 1.01


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "broadcast", "all_to_all"])
@pytest.mark.parametrize("scheduler", ["spread", "packed"])
def test_every_kind_of_collective(kind: str, scheduler: str, tmp_path: Any) -> None:
    path = tmp_path / "one.json"
    path.write_text(
        '{"version": 1, "name": "one", "model": "one", "source": {"kind": "synthetic"}, "operations": ['
        '{"id": "compute", "kind": "compute", "duration": "5ms"},'
        f'{{"id": "exchange", "kind": "{kind}", "bytes": "3MB", "after": ["compute"]}}]}}'
    )
    assert 0.999 <= ratio(made(trace=str(path), workers=4, topo="star", scheduler=scheduler)) <= 1.01


def test_workers_behind_one_router_share_their_nics() -> None:
    """The default job computes 0.52 s and sends for 0.48 s at the rate of a NIC."""
    fields = {"jobs": 2, "scheduler": "packed", "iterations": 2}
    one = plan.plans(plan.resolve(spec.make(fields, {}, "the test")))[0]
    assert [job.ideal_s for job in one.jobs] == pytest.approx([1.0, 1.0], rel=1e-6)
    one = plan.plans(plan.resolve(spec.make({**fields, "nic": "inf"}, {}, "the test")))[0]
    assert [job.ideal_s for job in one.jobs] == pytest.approx([0.52, 0.52], rel=1e-6)


def test_computes_of_different_ranks_run_side_by_side(tmp_path: Any) -> None:
    path = tmp_path / "one.json"
    path.write_text(
        '{"version": 1, "name": "one", "model": "one", "source": {"kind": "synthetic"}, "operations": ['
        '{"id": "a", "kind": "compute", "duration": "30ms", "ranks": [0]},'
        '{"id": "b", "kind": "compute", "duration": "20ms", "ranks": [1]},'
        '{"id": "exchange", "kind": "all_reduce", "bytes": "1MB", "after": ["a", "b"]}]}'
    )
    one = made(trace=str(path))
    assert ratio(one) == pytest.approx(1.0, rel=1e-3)
    assert one.jobs[0].ideal_s is not None and 0.03 < one.jobs[0].ideal_s < 0.05


def test_an_iteration_that_takes_no_time_is_refused() -> None:
    with pytest.raises(RequestError):
        ratio(made(topo="dumbbell,2", scheduler="packed", nic="inf", compute="0ms", bytes="1MB"))
