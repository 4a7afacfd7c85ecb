"""Jobs whose ranks differ, or have several groups: what they send, their ideal, the flow simulator, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.backends.flow import FlowLevel
from testbed.backends.progress import patience
from testbed.core.errors import RequestError
from testbed.core.runs import rundir
from testbed.core.runs.plan import Plan
from testbed.models import validated_range
from testbed.models.frames import payload_share
from testbed.planning.plan import planned
from tests.support import runs
from tests.support.group_traces import (
    ACTIVATION,
    EXPERTS,
    GRADIENT,
    MICRO_BATCHES,
    PARTS,
    experts,
    overlapping,
    pipeline,
    rails,
    unequal,
)

WIRE_S = 8 / payload_share(1500) / 500e6  # of a byte


def made(folder: Path, content: dict[str, Any], **fields: Any) -> Plan:
    (folder / "trace.json").write_text(json.dumps(content))
    asked = {
        "trace": str(folder / "trace.json"),
        "jobs": 1,
        "topo": "star",
        "system": ["reno"],
        "isolated_runs": "none",
    }
    return planned(spec.read(None, asked | {"rate": "500mbit", "on": "flow"} | fields))[1][0]


def computed(one: Plan) -> runs.Result:
    return runs.Result(rundir.unpack(FlowLevel().run(one, lambda event: None, patience(one))))


def test_only_what_crosses_the_network_is_sent(tmp_path: Path) -> None:
    (job,) = made(tmp_path, pipeline()).jobs
    assert job.bytes_per_worker == (MICRO_BATCHES * ACTIVATION + GRADIENT,) * 8
    assert {one.name: len(one.flows) for one in job.groups} == {"dp": 8, "messages": 8}
    assert len(set(job.hosts)) == 4 and job.compute_ns == 12_000_000
    inside = [op for op in job.operations if op.inside_ns is not None]
    assert {op.id for op in inside} == {"tp0", "tp1"} and {op.inside_ns for op in inside} == {0}
    (slow,) = made(tmp_path, pipeline(), intra_rate="1gbit").jobs
    assert {op.inside_ns for op in slow.operations if op.id == "tp0"} == {1_600_000}


def test_ranks_without_a_placement_have_hosts_of_their_own(tmp_path: Path) -> None:
    content = pipeline()
    del content["placement"]
    (job,) = made(tmp_path, content).jobs
    assert len(set(job.hosts)) == 8
    assert job.bytes_per_worker == (MICRO_BATCHES * (ACTIVATION + 200_000) + GRADIENT,) * 8


def test_uneven_parts_go_to_whom_they_are_for(tmp_path: Path) -> None:
    (job,) = made(tmp_path, experts()).jobs
    for rank in range(4):
        ring = 2 * sum(PARTS) - PARTS[rank] - PARTS[(rank + 1) % 4] + 2 * 3 * 100_000
        assert job.bytes_per_worker[rank] == sum(EXPERTS[rank]) - EXPERTS[rank][rank] + ring


@pytest.mark.parametrize("channels", [1, 3])
def test_a_pipeline_as_flows_takes_what_it_must(tmp_path: Path, channels: int) -> None:
    """Forward, activation, both, gradient, backward, twice; then gradients. Two ranks share each server's link."""
    one = made(tmp_path, pipeline(), iterations=3, channels=channels)
    message = 2 * ACTIVATION * WIRE_S
    expected = 2 * (2e-3 + 6e-3 + 4e-3) + 4 * message + 2 * GRADIENT * WIRE_S
    assert one.jobs[0].ideal_s is not None and one.jobs[0].ideal_s <= expected * (1 + 1e-6)
    result = computed(one)
    iterations = result.table("iterations.csv")
    assert set(iterations["bytes"]) == {MICRO_BATCHES * ACTIVATION + GRADIENT}
    lasted = iterations["end_s"] - iterations["start_s"]
    assert lasted.to_numpy() == pytest.approx(one.jobs[0].ideal_s, rel=0.06)
    last = result.table("flows.csv").sort_values("t_s").groupby(["worker", "flow"]).last()
    assert len(last) == 16 * channels


def test_a_group_whose_lists_have_unequal_lengths(tmp_path: Path) -> None:
    one = made(tmp_path, unequal(), iterations=3)
    (job,) = one.jobs
    assert job.bytes_per_worker == pytest.approx([1_000_000] * 2 + [4 / 3 * 1_000_000] * 3, abs=1)
    assert job.ideal_s == pytest.approx(1e-3 + 4 / 3 * 1_000_000 * WIRE_S, rel=1e-4)
    iterations = computed(one).table("iterations.csv")
    lasted = (iterations["end_s"] - iterations["start_s"]).groupby(iterations["worker"]).max()
    assert lasted.max() == pytest.approx(job.ideal_s, rel=1e-4)


def test_the_ideal_of_ranks_that_go_on_by_themselves(tmp_path: Path) -> None:
    """A rank that only sends begins its next iteration while the other one computes with what it was sent."""
    compute = {"kind": "compute", "duration": "20ms"}
    message = {"group": "pp", "bytes": "500kB"}
    first = [compute | {"id": "a"}, message | {"id": "b", "kind": "send", "peer": "+1", "after": ["a"]}]
    last = [message | {"id": "a", "kind": "recv", "peer": "-1"}, compute | {"id": "b", "after": ["a"]}]
    roles = [{"name": "first", "ranks": [0], "operations": first}, {"name": "last", "ranks": [1], "operations": last}]
    content = {"version": 2, "name": "line", "groups": {"pp": [[0, 1]]}, "roles": roles}
    (job,) = made(tmp_path, content, on="uml", iterations=3).jobs
    assert job.ideal_s == pytest.approx(20e-3 + 500_000 * WIRE_S, rel=0.1)


def test_the_ideal_of_iterations_that_overlap(tmp_path: Path) -> None:
    """The last exchange, of 3.3 ms, hides behind a computing of 5 ms, unless the next iteration begins with what waits for it."""
    (hidden,) = made(tmp_path, overlapping(), on="uml").jobs
    assert hidden.ideal_s == pytest.approx(20e-3, rel=1e-6) and hidden.overlaps
    (waits,) = made(tmp_path, overlapping("g0@-1", "g1@-1"), on="uml").jobs
    assert waits.ideal_s == pytest.approx(20e-3 + 200_000 * WIRE_S, rel=0.05)
    for wrong in ({"first": "g2@-1"}, {"first": "@-1"}):
        with pytest.raises(RequestError):
            made(tmp_path, overlapping(**wrong), on="uml")
    with pytest.raises(RequestError):
        FlowLevel().check(made(tmp_path, overlapping(), on="uml"))


def test_groups_with_the_same_ranks_have_connections_of_their_own(tmp_path: Path) -> None:
    result = computed(made(tmp_path, experts(), iterations=2))
    flows = set(result.table("flows.csv")["flow"])
    assert {"0-1", "0-1#1"} <= flows and "3-0" in flows and "3-1" not in flows  # rank 3 only receives in `ep`
    assert set(result.table("operations.csv")["operation"]) == {"dispatch", "gather", "scatter", "gradients"}


def test_jobs_with_groups_share_links_with_others(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(pipeline()))
    fields = {"topo": "dumbbell", "rate": "500mbit", "on": "flow", "iterations": 3, "isolated_runs": "none"}
    jobs = [f"{tmp_path}/trace.json", "synthetic,compute=20ms,bytes=1MB"]
    for system in ("reno", "mltcp_reno", "cassini", "priority", "lretf"):
        *_, one = planned(spec.read(None, {**fields, "job": jobs, "system": [system]}))[1]
        assert {len(job.hosts) for job in one.jobs} == {8, 2}
        assert len(computed(one).table("iterations.csv")) == 3 * 10
        assert bool(one.jobs[0].bands) == (system in ("priority", "lretf"))


@pytest.mark.parametrize(
    "fields",
    [
        {"workers": 4}, {"window": "100kB"}, {"system": ["lretf:preempt=no"]}, {"collective": "all_to_all"},
        {"jobs": 2, "topo": "dumbbell,2"},
    ],
)  # fmt: skip
def test_refuses_what_goes_by_one_exchange_after_the_other(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        made(tmp_path, pipeline(), **fields)
    assert error.value.exit_code == 2


def of_gpus(folder: Path, content: dict[str, Any], topo: str, **fields: Any) -> Plan:
    job = [f"{folder}/trace.json,gpus={len({rank for role in content['roles'] for rank in role['ranks']})}"]
    return made(
        folder, content, trace=None, jobs=1, topo=topo, on="uml", **{"scheduler": "first_fit", "job": job, **fields}
    )


def test_which_group_crosses_the_network_follows_from_the_gpus(tmp_path: Path) -> None:
    for topo, servers, sent in (
        ("star,2,4", 2, {MICRO_BATCHES * ACTIVATION}), ("cluster,4,4", 2, {MICRO_BATCHES * ACTIVATION}), ("star,1,8", 1, {0}),
        ("star,8,1", 8, {MICRO_BATCHES * (ACTIVATION + 200_000) + GRADIENT}),
    ):  # fmt: skip
        (job,) = of_gpus(tmp_path, pipeline(), topo).jobs
        assert job.life is not None and len({gpu.split(":")[0] for gpu in job.life.gpus}) == servers, topo
        assert len(job.hosts) == 8 and set(job.bytes_per_worker) == sent
        assert job.ideal_s is not None and job.fewest_s is not None and job.fewest_s <= job.ideal_s * (1 + 1e-9)
    (fast,) = of_gpus(tmp_path, pipeline(), "star,1,8").jobs
    (slow,) = of_gpus(tmp_path, pipeline(), "star,1,8", intra_rate="1gbit").jobs
    assert fast.ideal_s is not None and slow.ideal_s is not None and slow.ideal_s > 1.5 * fast.ideal_s
    assert fast.groups and fast.compute_ns == 12_000_000


def test_a_group_may_share_servers_in_part(tmp_path: Path) -> None:
    """A ring of four ranks on two servers sends between them twice; all else stays inside."""
    one = of_gpus(tmp_path, experts(), "star,2,2", rate="100mbit")
    (job,) = one.jobs
    assert job.hosts == ("h1", "h1", "h2", "h2")
    on_link = sum(EXPERTS[a][b] for a in (0, 1) for b in (2, 3)) + 2 * sum(PARTS) - PARTS[1] - PARTS[2] + 600_000
    assert job.ideal_s is not None and job.ideal_s >= on_link * 8 / 100e6 / 1.2


def test_refuses_gpus_that_are_no_rank_each(tmp_path: Path) -> None:
    for topo, fields in (
        ("star,2,4", {"job": [f"{tmp_path}/trace.json,gpus=4"]}), ("star,3,2", {}), ("star,2,4", {"nics": 2}),
    ):  # fmt: skip
        with pytest.raises(RequestError) as error:
            of_gpus(tmp_path, pipeline(), topo, **fields)
        assert error.value.exit_code == 2


def test_refuses_groups_that_lie_partly_inside(tmp_path: Path) -> None:
    content = pipeline()
    content["groups"]["dp"] = [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(RequestError):
        made(tmp_path, content)
    content["placement"]["inside"] = ["tp", "dp", "pp"]
    with pytest.raises(RequestError):
        made(tmp_path, content)


def test_the_number_of_ranks_is_kept(tmp_path: Path) -> None:
    content = {
        "version": 2, "name": "dp", "groups": {"dp": [[0, 1, 2, 3]]},
        "operations": [{"id": "a", "kind": "compute", "duration": "1ms"}, {"id": "b", "kind": "all_reduce", "bytes": 7, "after": ["a"]}],
    }  # fmt: skip
    assert len(made(tmp_path, content).jobs[0].hosts) == 4 and made(tmp_path, content).notes == ()
    other = made(tmp_path, content, workers=3)
    assert len(other.jobs[0].hosts) == 3 and "4 ranks" in other.notes[0]


def test_each_rank_of_a_server_has_an_interface_of_its_own(tmp_path: Path) -> None:
    """Rank r uses interface r mod N; with as many interfaces as ranks, each has a whole link."""
    exchanged_s = {}
    for nics in (1, 2, 4):
        one = made(tmp_path, rails(), nics=nics, iterations=3)
        (job,) = one.jobs
        assert len(set(job.hosts)) == 2 * nics
        if nics > 1:
            assert job.hosts == tuple(f"h{server}n{rank % nics + 1}" for server in (1, 2) for rank in range(4))
        assert {name.split("-")[0] for name in one.bottlenecks} >= set(job.hosts)
        found = computed(one).table("iterations.csv")
        exchanged_s[nics] = (found["end_s"] - found["comm_start_s"]).mean()
        assert job.ideal_s == pytest.approx(0.006 + exchanged_s[nics], rel=1e-3)
    assert exchanged_s[1] / exchanged_s[2] == pytest.approx(2, rel=1e-3)
    assert exchanged_s[1] / exchanged_s[4] == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize("topo", ["dumbbell", "leafspine", "fattree,4", "ring", "parking_lot,2,4"])
def test_interfaces_on_every_topology(tmp_path: Path, topo: str) -> None:
    one = made(tmp_path, rails(2), nics=2, topo=topo)
    (job,) = one.jobs
    assert len(set(job.hosts)) == 4
    assert "workers" in {reason.bound for reason in validated_range.check(one)}


def test_interfaces_need_a_server_with_several_ranks(tmp_path: Path) -> None:
    content = rails()
    del content["placement"]
    with pytest.raises(RequestError, match="nics"):
        made(tmp_path, content, nics=4)
