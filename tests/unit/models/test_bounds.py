"""What a network can do at best, where that can be worked out by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import spec
from testbed.core.runs.plan import Link
from testbed.models import bounds
from testbed.models.frames import payload_share
from testbed.planning import plan
from topologies.leafspine import LeafSpine

TOPO = LeafSpine(leaves=2, spines=2, hosts=4)
LINKS = {
    f"{a}-{b}": Link(100_000_000, 10**5, 1500, False)
    for one, other in TOPO.links() if "h" not in one + other for a, b in ((one, other), (other, one))
}  # fmt: skip
HOSTS = [f"h{i}" for i in range(1, 9)]
SECOND = round(100e6 / 8 * payload_share(1500))  # payload bytes that a link carries in a second


def seconds(*sizes: int, channels: int = 1) -> float:
    """Flows of these sizes from the first leaf to the second, at the same time."""
    return bounds.exchange_s([{(i, i + 4): size for i, size in enumerate(sizes)}], channels, HOSTS, TOPO, LINKS)


@pytest.mark.parametrize(
    ("sizes", "channels", "expected"),
    [
        ([SECOND], 1, 1.0),  # one connection has one path, however many there are
        ([SECOND], 2, 0.5),  # two connections may have two
        ([SECOND, SECOND], 1, 1.0),
        ([SECOND] * 3, 1, 2.0),  # two of three meet
        ([SECOND] * 3, 2, 1.5),
        ([3 * SECOND, SECOND, SECOND], 1, 3.0),
        ([SECOND] * 4, 1, 2.0),
    ],
)
def test_connections_that_outnumber_the_paths_share_them(sizes: list[int], channels: int, expected: float) -> None:
    assert seconds(*sizes, channels=channels) == pytest.approx(expected, rel=1e-6)


@given(sizes=st.lists(st.integers(1, 10**8), min_size=1, max_size=4))
def test_no_choice_of_paths_is_faster(sizes: list[int]) -> None:
    """Against every assignment of flows to spines."""
    best = min(
        max(sum(size for size, spine in zip(sizes, choice, strict=True) if spine == one) for one in (0, 1))
        for choice in itertools.product((0, 1), repeat=len(sizes))
    )
    assert seconds(*sizes) <= best / SECOND * (1 + 1e-6)


def behind_nics(nic_bps: int) -> dict[str, Link]:
    """The network's links, and what its hosts send through NICs of this rate."""
    return LINKS | {
        f"{host}-l{1 + number // 4}": Link(nic_bps, 10**5, 1500, False) for number, host in enumerate(HOSTS)
    }


@pytest.mark.parametrize(
    ("nic_bps", "expected"),
    [(200_000_000, 0.5), (160_000_000, 0.625), (100_000_000, 1.0), (50_000_000, 2.0)],
)
def test_a_host_sends_no_faster_than_its_nic(nic_bps: int, expected: float) -> None:
    """Over two paths, and over one."""
    found = bounds.exchange_s([{(0, 4): SECOND}], 2, HOSTS, TOPO, behind_nics(nic_bps))
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("targets", "expected"), [([1], 1.0), ([1, 2], 2.0), ([1, 2, 4], 3.0)])
def test_all_that_a_host_sends_shares_its_nic(targets: list[int], expected: float) -> None:
    """What stays below its router, too."""
    found = bounds.exchange_s([{(0, to): SECOND for to in targets}], 1, HOSTS, TOPO, behind_nics(100_000_000))
    assert found == pytest.approx(expected, rel=1e-6)


def test_rounds_follow_one_another() -> None:
    rounds = [{(0, 4): SECOND}, {(4, 0): SECOND, (0, 4): SECOND}]
    assert bounds.exchange_s(rounds, 1, HOSTS, TOPO, LINKS) == pytest.approx(2.0, rel=1e-6)


def needed_bps(*flows: tuple[str, str]) -> int:
    return bounds.needed_bps([(bounds.crossed(TOPO, LINKS, *flow), 1) for flow in flows], LINKS)


def test_what_stays_below_a_leaf_crosses_no_bottleneck() -> None:
    assert bounds.exchange_s([{(0, 1): SECOND}], 1, HOSTS, TOPO, LINKS) == 0
    assert needed_bps(("h1", "h2")) == 0


def test_no_more_links_are_busy_than_there_are_connections() -> None:
    assert needed_bps(("h1", "h5")) == 200_000_000
    assert needed_bps(("h1", "h5"), ("h2", "h6"), ("h3", "h7")) == 400_000_000


@pytest.mark.parametrize(
    ("topo", "in_a_row", "multipath", "kinds"),
    [
        ("dumbbell", 1, False, 1),
        ("star", 2, False, 1),
        ("ring", 2, False, 1),
        ("leafspine", 2, True, 1),
        ("fattree", 4, True, 1),
    ],
)
def test_a_plan_knows_its_network(topo: str, in_a_row: int, multipath: bool, kinds: int) -> None:
    one = plan.plans(plan.resolve(spec.read(None, {"topo": topo, "jobs": 3})))[0]
    assert (one.in_a_row, one.multipath, len({job.like for job in one.jobs})) == (in_a_row, multipath, kinds)
    assert [job.ideal_s for job in one.jobs] == pytest.approx([1.0] * 3, abs=1e-6)


def test_where_the_hash_decides_whether_its_flows_meet_every_job_is_measured_alone() -> None:
    fields = {"topo": "leafspine", "jobs": 3, "workers": 4, "trace": "resnet50"}
    assert [job.like for job in plan.plans(plan.resolve(spec.read(None, fields)))[0].jobs] == [0, 1, 2]


def test_a_share_of_the_rate() -> None:
    one = plan.plans(plan.resolve(spec.read(None, {"topo": "leafspine,2,2,6,4", "rate": "1gbit", "buffer": "1ms"})))[0]
    assert {link.rate_bps for link in one.bottlenecks.values()} == {750_000_000}
    assert {link.buffer_bytes for link in one.bottlenecks.values()} == {93_750}
