"""A cluster's jobs as flows: networks as arrays, and ``schedule --on flow``."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.cli import main
from testbed.congestion import catalogue
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.core.placing import Gpu, Request
from testbed.models import cluster_flow_simulator, flow_weights, maxmin
from testbed.models.cluster import Servers, follow
from testbed.models.contention import Model
from testbed.networks.flow_network import FlowNetwork
from testbed.networks.routed import RoutedTopo, stages
from testbed.schedulers import job as job_schedulers
from testbed.schedulers import online
from testbed.schedulers.job import Cluster
from topologies.cluster import Cluster as ClusterTopo
from topologies.dumbbell import Dumbbell
from topologies.fattree import FatTree
from topologies.leafspine import LeafSpine
from topologies.ring import Ring
from topologies.star import Star


def test_paths_in_a_fat_tree_of_36() -> None:
    tree = FlowNetwork(FatTree(36), 1e11)
    assert len(tree.servers) == 11_664 and len(tree.capacity) == 2 * (11_664 + 2 * 36 * 18 * 18)
    draw = np.random.default_rng(1)
    paths = [
        tree.path(int(a), int(b), int(choice)) for a, b, choice in draw.integers(len(tree.servers), size=(2000, 3))
    ]
    assert {len(path) for path in paths} <= {2, 4, 6} and max(map(max, paths)) < len(tree.capacity)
    assert tree.longest >= 6


@pytest.mark.parametrize("topo", [FatTree(4), LeafSpine(3, 2, 4), Ring(4), ClusterTopo(2, 2, 1), Star(5), Dumbbell(3)])
def test_paths_are_the_shortest_and_every_one_is_found(topo: RoutedTopo) -> None:
    network = FlowNetwork(topo, 1e9)
    for source, target in itertools.permutations(range(len(network.servers)), 2):
        found = {tuple(network.path(source, target, choice)) for choice in range(64)}
        searched = stages(topo, network.servers[source], network.servers[target])
        assert {len(path) for path in found} == {len(searched)} and len(searched) <= network.longest
        assert all(len(set(path)) == len(path) for path in found)
        here = [network.servers[source]]
        for stage in searched:
            here = [b for node in here for a, b in stage if a == node]
        assert len(found) == len(here)


def test_a_link_of_its_own_rate() -> None:
    network = FlowNetwork(LeafSpine(2, 2, 8, 2), 1e9)
    assert sorted(set(network.capacity)) == [1e9, 2e9]
    assert len(FlowNetwork(ClusterTopo(8, 8), 1e9).capacity) == 4  # inside a server nothing is a link of the network


@pytest.mark.parametrize("topo", ["ring,9", "star,20", "cluster,8,8,8,8", "examples/two_sites.py,8"])
def test_every_topology_carries_schedules_as_flows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topo: str
) -> None:
    document = schedule(
        tmp_path,
        capsys,
        ["0,6,20,100000000,0.1,0", "1,8,20,100000000,0.1,0"],
        "--servers",
        "4",
        "--gpus",
        "4",
        "--topo",
        topo,
    )
    assert document["results"][0]["ended"] == 2


def test_more_links_than_places_are_refused() -> None:
    net = maxmin.network([1.0, 1.0, 1.0], [2, 1])
    with pytest.raises(ValueError, match="3 links"):
        maxmin.put(net, 0, [0, 1, 2])


def schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[str], *flags: str) -> Any:
    file = tmp_path / "jobs.csv"
    file.write_text("\n".join(["job,gpus,iterations,gradient_bytes,compute_s,arrival_s", *rows]) + "\n")
    code = main(
        ["schedule", str(file), "--rate", "10gbit", "--scheduler", "first_fit", "--on", "flow", "--json", *flags]
    )
    assert code == EXIT_OK
    return json.loads(capsys.readouterr().out)


def test_a_job_alone_takes_what_equation_8_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 m (w - 1) / w over the uplink, and computing; inside a server nothing is exchanged."""
    found = schedule(
        tmp_path, capsys, ["0,4,10,125000000,0.5,0", "1,2,8,125000000,0.25,0"], "--servers", "3", "--gpus", "2"
    )
    (row,) = found["results"]
    first, second = row["jobs"]
    assert first["mean_s"] == pytest.approx(0.5 + 2 * 125e6 * 8 * 0.75 / 1e10, rel=1e-9)
    assert second["mean_s"] == pytest.approx(0.25, rel=1e-9)
    assert first["end_s"] == pytest.approx(10 * first["mean_s"]) and row["ended"] == 2


def test_who_waits_starts_when_gpus_are_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["0,4,4,1000000,0.5,0", "1,4,2,1000000,0.5,0.3", "2,2,2,0,0.5,5"]
    found = schedule(tmp_path, capsys, rows, "--servers", "2", "--gpus", "2")
    (row,) = found["results"]
    first, second, third = row["jobs"]
    assert second["start_s"] == pytest.approx(first["end_s"]) and third["start_s"] == 5


def test_two_jobs_share_and_mltcp_separates_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has one of the second server's GPUs, and sends for half a second of 1.05 s: together they need 95 % of its uplink."""
    rows = ["0,3,60,468750000,0.55,0", "1,3,60,468750000,0.55,0.03"]
    flags = ["--servers", "3", "--gpus", "2", "--topo", "leafspine,3,1,1", "--system", "reno", "mltcp_reno"]
    found = schedule(tmp_path, capsys, rows, *flags)
    reno, mltcp = found["results"]
    assert reno["iterations"] == mltcp["iterations"] == 120
    assert 1 < mltcp["mean_iteration_slowdown"] < reno["mean_iteration_slowdown"]
    assert 1 < mltcp["mean_slowdown"] < reno["mean_slowdown"]
    assert reno["max_contention"] == 2 and 1 < reno["mean_contention"] < 2, (
        "on the leaf's link; job 1 comes and ends later"
    )
    lost = (reno["idle_gpu_h"]["contention"], mltcp["idle_gpu_h"]["contention"])
    assert 0 < lost[1] < lost[0]
    until = schedule(tmp_path, capsys, rows, *flags, "--until", "10s")["results"][0]
    assert 0 < until["iterations"] < 60 and until["ended"] == 0


def test_where_nobody_shares_a_link_flows_have_the_numbers_of_equation_8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One job over two servers, one inside a third, then one over all, and another after a while."""
    rows = ["0,4,10,125000000,0.5,0", "1,2,8,125000000,0.25,0", "2,6,8,125000000,0.25,1", "3,1,8,0,0.25,50"]
    (flowed,) = schedule(tmp_path, capsys, rows, "--servers", "3", "--gpus", "2")["results"]
    flags = ["--servers", "3", "--gpus", "2", "--rate", "10gbit", "--scheduler", "first_fit", "--json"]
    assert main(["schedule", str(tmp_path / "jobs.csv"), *flags]) == EXIT_OK
    (computed,) = json.loads(capsys.readouterr().out)["results"]
    assert computed.keys() <= flowed.keys() and computed["jobs"][0].keys() <= flowed["jobs"][0].keys()
    lost, foretold = flowed.pop("idle_gpu_h"), computed.pop("idle_gpu_h")
    assert lost == pytest.approx(foretold, abs=1e-9)
    for name in computed.keys() - {"scheduler", "plan_s", "jobs"}:
        assert flowed[name] == pytest.approx(computed[name]), name
    assert [job["gpus"] for job in flowed["jobs"]] == [job["gpus"] for job in computed["jobs"]]
    assert flowed["lasted_s"] == flowed["makespan_s"] == pytest.approx(52)


def test_what_counts_where_it_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 8 s job 0 (6.5 s) and job 1 (2 s) have ended, job 2 has six GPUs since 6.5 s, and job 3 has not come; job 4 waits for one."""
    rows = [
        "0,4,10,125000000,0.5,0",
        "1,2,8,125000000,0.25,0",
        "2,6,8,125000000,0.25,1",
        "3,1,8,0,0.25,50",
        "4,1,1,0,0.25,7",
    ]
    flags = ["--servers", "3", "--gpus", "2", "--until"]
    (row,) = schedule(tmp_path, capsys, rows, *flags, "8s")["results"]
    assert row["makespan_s"] is None and row["ended"] == 2 and row["lasted_s"] == 8
    assert row["mean_completion_s"] == pytest.approx((6.5 + 2) / 2) and row["mean_queueing_s"] == 0
    assert row["mean_slowdown"] == pytest.approx(1) and row["jain"] == pytest.approx(1)
    held = 4 * 6.5 + 2 * 2 + 6 * 1.5
    assert row["utilisation"] == pytest.approx(held / (6 * 8))
    idle = row["idle_gpu_h"]
    assert idle["fragment"] * 3600 == pytest.approx(2 * 4.5) and idle["no_job"] == idle["waiting"] == 0
    assert idle["contention"] == pytest.approx(0, abs=1e-9), "the iteration that it was cut off in is not lost"
    waits, comes = row["jobs"][4], row["jobs"][3]
    assert waits["start_s"] is comes["start_s"] is waits["end_s"] is None and waits["gpus"] == []
    (none,) = schedule(tmp_path, capsys, rows, *flags, "100ms")["results"]
    assert none["ended"] == 0 and none["mean_completion_s"] is none["max_rho"] is none["p95_queueing_s"] is None
    assert none["utilisation"] == pytest.approx(1)


def test_what_was_not_compared_with_the_kernel_is_suspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["0,4,10,1000000,0.5,0", "1,6,10,1000000,0.5,0"]
    flags = ["--servers", "5", "--gpus", "2", "--system", "reno", "mltcp_cubic"]
    reno, over_cubic = schedule(tmp_path, capsys, rows, *flags)["results"]
    wide = "rings of more than two workers were not compared, and 1 of 2 jobs are on more servers"
    chance = "shares are not varied by chance, as they were there"
    assert reno["verdict"] == over_cubic["verdict"] == "suspect" and reno["outside_validation"] == [wide, chance]
    assert over_cubic["outside_validation"] == ["mltcp_cubic was not compared", wide, chance]
    (alone,) = schedule(tmp_path, capsys, rows[:1], "--servers", "2", "--gpus", "2")["results"]
    assert alone["verdict"] == "valid" and alone["outside_validation"] == []


def test_neither_finer_steps_nor_shorter_batches_change_a_cluster() -> None:
    """Sixteen steps of F and rates every 20 ms, against four times as many and a quarter: the mean iteration."""
    draw = random.Random(5)
    requests = [
        Request(
            number,
            draw.choice((4, 8, 12)),
            10**6,
            draw.choice((200_000_000, 500_000_000)),
            draw.uniform(0.3, 0.9),
            draw.uniform(0, 2),
        )
        for number in range(8)
    ]
    servers = Servers(tuple(Gpu(f"h{host}", slot) for host in range(24) for slot in range(4)))
    network = FlowNetwork(LeafSpine(6, 2, 4), 1e10)
    control = catalogue.parse("mltcp_reno", "recommended")
    module = job_schedulers.find("random")
    cluster = Cluster({"s1": servers.gpus}, lambda _job: ["s1"])
    assigned = online.schedule(module, requests, cluster, Model(rate_bps=1e10), module.Options(), seed=3)

    def mean_s(steps: int, batch_s: float) -> float:
        given, policy = follow(assigned, requests, servers)
        found = cluster_flow_simulator.simulate(
            given, servers, policy, network, flow_weights.force(control, steps=steps), until_s=25.0, mltcp_active_from=flow_weights.mltcp_active_from(control),
            batch_s=batch_s,
        )  # fmt: skip
        return float(found.times_s.mean())

    usual = mean_s(flow_weights.STEPS, cluster_flow_simulator.BATCH_S)
    assert mean_s(64, cluster_flow_simulator.BATCH_S) == pytest.approx(usual, rel=0.01)
    assert mean_s(flow_weights.STEPS, 0.005) == pytest.approx(usual, rel=0.01)


@pytest.mark.parametrize(
    "flags",
    [
        ["--topo", "ring"],
        ["--topo", "leafspine,1,1,1"],
        ["--system", "bbr"],
        ["--emulate"],
        ["--until", "soon"],
        ["--scheduler", "las"],
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    file = tmp_path / "jobs.csv"
    rows = "".join(f"{job},6,2000,1000,0.5,{job}\n" for job in range(4))
    file.write_text("job,gpus,iterations,gradient_bytes,compute_s,arrival_s\n" + rows)
    given = [] if "--scheduler" in flags else ["--scheduler", "first_fit"]
    assert (
        main(["schedule", str(file), "--servers", "4", "--gpus", "2", "--on", "flow", *given, *flags]) == EXIT_REQUEST
    )
    assert capsys.readouterr().err
