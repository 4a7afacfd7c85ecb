"""Which worker runs where, and what of the network its job then uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import networks, spec
from testbed.cli import main
from testbed.core.errors import EXIT_REQUEST
from testbed.core.runs.plan import Plan
from testbed.models import bounds
from testbed.networks.routed import path
from testbed.planning import plan
from testbed.schedulers.job import place
from topologies.dumbbell import Dumbbell
from topologies.fattree import FatTree
from topologies.leafspine import LeafSpine
from topologies.ring import Ring

BOTH_WAYS = [("l1", "r1"), ("r2", "l2")]


def made(**fields: object) -> Plan:
    return plan.plans(plan.resolve(spec.read(None, dict(fields))))[0]


def uses(one: Plan, job: int) -> set[str]:
    """The bottlenecks between the first and the last worker of a job."""
    topo = networks.find(one.topology)(*one.topology_args)
    hosts = one.jobs[job].hosts
    return {name for stage in bounds.crossed(topo, one.bottlenecks, hosts[0], hosts[-1]) for name in stage}


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("jobs", [3, 4, 6])
def test_a_ring_makes_the_circular_dependency(jobs: int, workers: int) -> None:
    """MLTCP, figure 2: each job shares one link with the job before, another with the one after, and no third."""
    fields: dict[str, object] = {"topo": "ring", "jobs": jobs, "workers": workers}
    one = made(**fields, **({} if workers == 2 else {"trace": "resnet50"}))
    used = [uses(one, job) for job in range(jobs)]
    for job in range(jobs):
        after = (job + 1) % jobs
        assert used[job] == {f"a{i + 1}-b{i + 1}" for i in (job, after)}
        assert used[job] & used[after] == {f"a{after + 1}-b{after + 1}"}


def test_on_a_parking_lot_one_job_meets_all_others() -> None:
    one = made(topo="parking_lot", jobs=4)
    used = [uses(one, job) for job in range(4)]
    assert used == [{"s0-s1", "s1-s2", "s2-s3"}, {"s0-s1"}, {"s1-s2"}, {"s2-s3"}]
    # Alone the long one is a kind of its own, the short ones are all alike.
    assert [job.like for job in one.jobs] == [0, 1, 1, 1]


def test_on_a_dumbbell_jobs_cross_the_bottleneck() -> None:
    assert place(Dumbbell(n=4), [3, 3]) == [("l1", "l2", "r1"), ("l3", "l4", "r2")]


def test_on_a_fat_tree_jobs_meet_before_they_move_on() -> None:
    placed = place(FatTree(k=4, hosts=2), [2] * 8)
    assert placed[:3] == [("h1", "h9"), ("h2", "h10"), ("h3", "h11")]
    assert placed[7] == ("h8", "h16")


def test_packed_fills_one_edge_after_the_other() -> None:
    assert place(LeafSpine(2, 2, 4), [2, 3, 2], "packed") == [("h1", "h2"), ("h3", "h4", "h5"), ("h6", "h7")]


def test_random_follows_the_seed() -> None:
    drawn = [place(FatTree(), [4, 4], "random", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    runs = plan.plans(plan.resolve(spec.read(None, {"topo": "fattree", "place": "random", "seeds": 2, "cc": ["reno"]})))
    hosts = {one.seed: one.jobs[0].hosts for one in runs if one.alone is None}
    assert hosts[1] != hosts[2]


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_file_says_it(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"place{suffix}"
    jobs = {str(job): list(hosts) for job, hosts in enumerate(BOTH_WAYS)}
    file.write_text(
        json.dumps(jobs) if suffix == ".json" else "".join(f"{job} = {hosts}\n" for job, hosts in jobs.items())
    )
    assert [job.hosts for job in made(place=str(file)).jobs] == BOTH_WAYS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('0 = ["l1", "r1"]\n1 = ["l2", "x9"]', "mine.toml: 1: the topology has no host 'x9'. It has l1, l2, r1, r2"),
        ('0 = ["l1", "r1"]\n1 = ["l2", "r1"]', "mine.toml: 1: host r1 already has a worker of job 0"),
        ('0 = ["l1", "l1"]\n1 = ["l2", "r1"]', "mine.toml: 0: host l1 already has a worker of job 0"),
        ('0 = ["l1", "r1"]\n1 = ["l2"]', "mine.toml: 1: 1 hosts for job 1, which has 2 workers"),
        ('0 = ["l1", "r1"]', "mine.toml: 1: job 1 needs a list of 2 hosts"),
        ('0 = ["l1", "r1"]\n1 = "l2 r2"', "mine.toml: 1: job 1 needs a list of 2 hosts"),
        ('0 = ["l1", "r1"]\n1 = ["l2", "r2"]\n2 = []', "mine.toml: 2: there is no such job. Jobs are numbered 0 to 1"),
        ("0 = [", "mine.toml is not TOML"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert main(["run", "--place", str(file), "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr().err
    assert says in shown and shown.startswith("error: ") and "Traceback" not in shown


@pytest.mark.parametrize("name", networks.names())
@pytest.mark.parametrize("how", ["spread", "packed", "random"])
@given(jobs=st.integers(1, 12), workers=st.integers(2, 12))
def test_what_is_made_large_enough_has_room(name: str, how: str, jobs: int, workers: int) -> None:
    topo = networks.find(name).sized(jobs, workers)  # type: ignore[attr-defined]
    placed = place(topo, [workers] * jobs, how, seed=3)
    used = [host for hosts in placed for host in hosts]
    assert len(set(used)) == len(used) == jobs * workers
    assert all(path(topo, hosts[0], hosts[-1]) for hosts in placed)


def test_a_ring_over_only_one_of_the_hosts_is_full() -> None:
    with pytest.raises(Exception, match="4 jobs of 2 workers need 8 hosts, but the topology has 6"):
        place(Ring(n=3), [2] * 4)
