"""Hosts, links, bottlenecks, addresses, routes and paths of every topology."""

from __future__ import annotations

import itertools
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mininet.topo import Topo

from testbed import networks, spec
from testbed.core.errors import RequestError
from testbed.networks import spraying
from testbed.networks.routed import RoutedTopo, has_choice, path, stages
from testbed.planning import plan
from testbed.schedulers import job as job_schedulers
from testbed.schedulers.job import place
from tests.support.properties import examples
from topologies.cluster import Cluster
from topologies.dumbbell import Dumbbell
from topologies.fattree import FatTree
from topologies.leafspine import LeafSpine
from topologies.parking_lot import ParkingLot
from topologies.ring import Ring
from topologies.star import Star

ROOT = Path(__file__).parents[3]
MINE = """
from mininet.topo import Topo

class Line(Topo):
    def build(self, n=2):
        self.addSwitch("s1")
        for i in range(n):
            self.addLink(self.addHost(f"h{i}"), "s1", bw=10)

topos = {"line": Line}
"""


def hosts(topo: RoutedTopo) -> list[str]:
    return [node for node in topo.nodes() if not topo.isRouter(node)]


def shaped(topo: Topo) -> set[tuple[str, str]]:
    return {(a, b) for a, b, info in topo.links(withInfo=True) if info["bottleneck"]}


def walk(topo: RoutedTopo, source: str, target: str) -> set[tuple[str, ...]]:
    """Every way that the routes themselves allow, from routing tables alone."""
    owner = {info[f"params{end}"]["ip"].split("/")[0]: (a, b)[end - 1]
             for a, b, info in topo.links(withInfo=True) for end in (1, 2)}  # fmt: skip
    address = topo.nodeInfo(target)["ip"].split("/")[0]
    ways: list[tuple[str, ...]] = [(source,)]
    ended: set[tuple[str, ...]] = set()
    while ways:
        way = ways.pop()
        assert len(set(way)) == len(way) < 32, f"a loop: {way}"
        if (here := way[-1]) == target:
            ended.add(way)
            continue
        if not topo.isRouter(here):
            vias = [topo.nodeInfo(here)["defaultRoute"].removeprefix("via ")]
        elif address in {a for a, node in owner.items() if node == target and (here, target) in topo._addresses}:
            vias = [address]
        else:
            routes = [
                via for prefix, via in topo.nodeInfo(here)["routes"] if IPv4Address(address) in IPv4Network(prefix)
            ]
            assert len(routes) == 1, (here, target)
            vias = list(routes[0])
        ways += [(*way, str(owner[via])) for via in vias]
    return ended


def test_every_file_lists_itself_in_topos() -> None:
    assert networks.names() == ["cluster", "dumbbell", "fattree", "leafspine", "parking_lot", "ring", "star"]
    for name in networks.names():
        assert networks.find(name)().hosts()


@pytest.mark.parametrize("name", networks.names())
def test_every_file_draws_itself_and_is_documented(name: str) -> None:
    text = (ROOT / "topologies" / f"{name}.py").read_text()
    assert "::\n" in text.split('"""')[1] and f"--topo {name}," in text
    assert f"`{name}`" in (ROOT / "docs/reference/topologies.md").read_text()


@pytest.mark.parametrize("name", networks.names())
@examples(20)
@given(jobs=st.integers(1, 9), workers=st.integers(2, 9))
def test_all_pairs_have_exact_routes(name: str, jobs: int, workers: int) -> None:
    """However large it is made: the routing tables allow the shortest paths, all of them, and nothing else."""
    topo = networks.find(name).sized(jobs, workers)  # type: ignore[attr-defined]
    some = hosts(topo)[:: max(1, len(hosts(topo)) // 6)]
    assert len(hosts(topo)) >= jobs * workers
    for source, target in itertools.permutations(some, 2):
        ways = walk(topo, source, target)
        assert {len(way) for way in ways} == {len(path(topo, source, target))}
        crossed = [set(hop) for hop in zip(*(itertools.pairwise(way) for way in ways), strict=True)]
        assert [set(stage) for stage in stages(topo, source, target)] == crossed
    addresses = [info[end]["ip"] for _, _, info in topo.links(withInfo=True) for end in ("params1", "params2")]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize(
    ("name", "args", "counts", "bottlenecks", "choice"),
    [
        ("dumbbell", (4,), (8, 2), 1, False),
        ("star", (5,), (5, 1), 5, False),
        ("ring", (3, 2), (12, 9), 3, False),
        ("parking_lot", (3, 2), (8, 4), 3, False),
        ("leafspine", (4, 3, 5), (20, 7), 12, True),
        ("leafspine", (4, 1, 5), (20, 5), 4, False),
        ("cluster", (3, 2, 2), (7, 4), 3, False),
        ("fattree", (4,), (16, 20), 32, True),
        ("fattree", (4, 8), (64, 20), 32, True),
        ("fattree", (6,), (54, 45), 108, True),
    ],
)
def test_hosts_routers_bottlenecks(
    name: str, args: tuple[int, ...], counts: tuple[int, int], bottlenecks: int, choice: bool
) -> None:
    topo = networks.find(name)(*args)
    assert (len(hosts(topo)), len(topo.nodes()) - len(hosts(topo))) == counts
    assert len(shaped(topo)) == bottlenecks
    assert has_choice(topo) == choice


def test_dumbbell_has_its_hosts_one_bottleneck_and_exact_routes() -> None:
    topo = Dumbbell(n=4)
    assert topo.hosts() == [*(f"l{i}" for i in range(1, 5)), *(f"r{i}" for i in range(1, 5)), "s1", "s2"]
    assert shaped(topo) == {("s1", "s2")}
    assert path(topo, "l1", "r3") == ["l1", "s1", "s2", "r3"]
    assert path(topo, "l1", "l2") == ["l1", "s1", "l2"]
    # s1 reaches the four right hosts by s2; its own are links of its own
    assert len(topo.nodeInfo("s1")["routes"]) == 4


def test_on_a_star_every_link_is_a_bottleneck() -> None:
    topo = Star(n=3)
    assert shaped(topo) == {("h1", "s1"), ("h2", "s1"), ("h3", "s1")}
    assert path(topo, "h1", "h3") == ["h1", "s1", "h3"]


def test_in_a_cluster_uplinks_alone_are_bottlenecks() -> None:
    topo = Cluster(3, 2)
    assert shaped(topo) == {("c1", "s1"), ("c1", "s2")} or shaped(topo) == {("s1", "c1"), ("s2", "c1")}
    assert path(topo, "h1", "h3") == ["h1", "s1", "h3"] and path(topo, "h1", "h4") == ["h1", "s1", "c1", "s2", "h4"]
    assert topo.servers() == {"s1": ("h1", "h2", "h3"), "s2": ("h4", "h5")}
    assert [path(topo, *pair) for pair in itertools.permutations(topo.servers()["s2"], 2)] == [
        ["h4", "s2", "h5"],
        ["h5", "s2", "h4"],
    ]
    with pytest.raises(ValueError, match="GPU"):
        Cluster(3, 0)


def test_job_schedulers_know_which_hosts_are_a_server() -> None:
    """Tightest fit keeps jobs inside servers; first fit cuts the second one; by leaves alone each host would be a server."""
    topo = Cluster(3, 4)
    assert place(topo, [3, 4], "tightest_fit") == [("h1", "h2", "h3"), ("h4", "h5", "h6", "h7")]
    assert place(topo, [2, 3], "first_fit") == [("h1", "h2"), ("h3", "h4", "h5")]
    assert place(topo, [2, 3], "tightest_fit") == [("h1", "h2"), ("h4", "h5", "h6")]
    assert place(topo, [2], "spread") == [("h1", "h4")]
    assert [gpu.host for gpu in job_schedulers.make_cluster(topo).gpus] == ["s1"] * 3 + ["s2"] * 4
    assert [gpu.host for gpu in job_schedulers.make_cluster(Star(2)).gpus] == ["h1", "h2"]


def test_on_a_parking_lot_the_long_way_crosses_every_bottleneck() -> None:
    topo = ParkingLot(n=3)
    assert shaped(topo) == {("s0", "s1"), ("s1", "s2"), ("s2", "s3")}
    assert path(topo, "h0_1", "h3_2") == ["h0_1", "s0", "s1", "s2", "s3", "h3_2"]
    assert [topo.edges(job) for job in range(5)] == [
        ["s0", "s3"], ["s0", "s1"], ["s1", "s2"], ["s2", "s3"], ["s0", "s1"],
    ]  # fmt: skip


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_a_ring_has_one_way_over_two_bottlenecks(n: int) -> None:
    topo = Ring(n=n)
    for i in range(1, n + 1):
        after = i % n + 1
        assert path(topo, f"x{i}", f"y{after}") == [
            f"x{i}", f"a{i}", f"b{i}", f"c{i}", f"a{after}", f"b{after}", f"y{after}",
        ]  # fmt: skip
        assert all(len(stage) == 1 for stage in stages(topo, f"x{i}", f"y{after}"))


def test_leaves_are_joined_by_every_spine() -> None:
    topo = LeafSpine(leaves=3, spines=2, hosts=2)
    assert stages(topo, "h1", "h3") == (
        (("h1", "l1"),), (("l1", "s1"), ("l1", "s2")), (("s1", "l2"), ("s2", "l2")), (("l2", "h3"),),
    )  # fmt: skip
    assert path(topo, "h1", "h2") == ["h1", "l1", "h2"]
    rates = {info["rate"] for *_, info in LeafSpine(2, 2, 6, 4).links(withInfo=True) if info["bottleneck"]}
    assert rates == {"75%"}  # 6 hosts at 4:1 over 2 spines


def test_a_fat_tree_has_a_way_over_every_core() -> None:
    topo = FatTree(k=6)
    assert [len(stage) for stage in stages(topo, "h1", "h54")] == [1, 3, 9, 9, 3, 1]  # another pod
    assert [len(stage) for stage in stages(topo, "h1", "h4")] == [1, 3, 3, 1]  # another edge of the pod
    assert len(stages(topo, "h1", "h3")) == 2  # the same edge
    degree = {node: sum(node in ends for ends in topo.links()) for node in topo.nodes() if topo.isRouter(node)}
    assert set(degree.values()) == {6}  # made of 6-port switches


class Twice(RoutedTopo):
    def wire(self) -> None:
        for _ in range(2):
            self.link(self.router("s1"), self.router("s2"))


class Homeless(RoutedTopo):
    def wire(self) -> None:
        for router in ("s1", "s2"):
            self.link(self.addHost("h1"), self.router(router))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Ring(n=2), "three bottlenecks or more"),
        (lambda: FatTree(k=5), "even number of ports"),
        (Twice, "two links between s1 and s2"),
        (Homeless, "host h1 has 2 links"),
    ],
)
def test_a_topology_that_cannot_be(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_the_example_of_ones_own() -> None:
    topo = networks.find(str(ROOT / "examples/two_sites.py")).sized(2, 2)  # type: ignore[attr-defined]
    assert path(topo, "a1", "b2") == ["a1", "west", "edge", "east", "b2"]
    asked = {"topo": str(ROOT / "examples/two_sites.py"), "rate": "1gbit"}
    made = plan.plans(plan.resolve(spec.read(None, asked)))[0]
    assert {name: link.rate_bps for name, link in made.bottlenecks.items()} == dict.fromkeys(
        ("west-edge", "edge-west"), 500_000_000
    )
    assert {wire.delay_ns for wire in made.wires.values()} == {5_000_000}


def test_a_misspelt_setting_of_a_link_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    example = (ROOT / "examples/two_sites.py").read_text()
    mine.write_text(example.replace('delay="5ms"', 'dellay="5ms"'))
    with pytest.raises(RequestError, match=r"link edge-east: a link has no setting 'dellay'. Did you mean 'delay'\?"):
        plan.resolve(spec.read(None, {"topo": str(mine)}))


def test_a_file_from_outside(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    assert networks.find(str(mine))(3).hosts() == ["h0", "h1", "h2", "s1"]


@pytest.mark.parametrize(
    ("content", "says"), [("1/0", "ZeroDivisionError"), ("x = 1", "define topos"), ("topos = {}", "no `topos` dict")]
)
def test_a_bad_file_from_outside(tmp_path: Path, content: str, says: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(content)
    with pytest.raises(RequestError, match=says):
        networks.find(str(mine))


def test_routes_lead_around_a_link_that_failed() -> None:
    topo = networks.find("leafspine")(2, 2, 2)
    far = topo.routes()["l1"]
    several = {prefix for prefix, vias in far if len(vias) == 2}
    assert several  # the hosts at the other leaf, over both spines
    around = topo.routes([("l1", "s1")])
    assert all(len(vias) == 1 for prefix, vias in around["l1"] if prefix in several)
    assert all(
        len(vias) == 1 for prefix, vias in around["l2"] if prefix in {p for p, v in topo.routes()["l2"] if len(v) == 2}
    )
    assert {prefix for prefix, _ in around["s1"]} >= several  # by way of the other leaf
    cut = topo.routes([("l1", "s1"), ("s2", "l1")])
    assert not several & {prefix for prefix, _ in cut["l1"]}


def test_stock_mininet_takes_the_example() -> None:
    """As `mn --custom` does it: the file is executed by a Python that knows nothing of the checkout."""
    file = ROOT / "examples/two_sites.py"
    script = (
        "import sys\n"
        f"sys.path = [path for path in sys.path if path != {str(ROOT)!r}]\n"
        "sys.meta_path = [one for one in sys.meta_path if 'editable' not in repr(one).lower()]\n"
        f"code, names = compile(open({str(file)!r}).read(), {str(file)!r}, 'exec'), {{}}\n"
        "exec(code, names, names)\n"
        "print(sorted(names['topos']['two_sites']().hosts()))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("['a1', 'a2', 'b1', 'b2'"), done.stderr


@pytest.mark.parametrize(("topo", "count"), [(LeafSpine(3, 4, 2), 4), (FatTree(4), 4), (Dumbbell(2), 1), (Star(3), 1)])
def test_every_path_leads_there_and_no_two_cross_the_same_links(topo: RoutedTopo, count: int) -> None:
    """A packet goes from router to router by the routes to its address; those far apart have `count` ways that differ."""
    assert spraying.paths(topo) == count
    routes = spraying.routes(topo, count)
    addresses = dict(
        itertools.chain.from_iterable(((topo._addresses[a, b], a), (topo._addresses[b, a], b)) for a, b in topo.links())
    )
    hosts = [node for node in topo.hosts() if not topo.isRouter(node)]
    ways = set()
    for path_number in range(count):
        wanted = spraying.address(topo, hosts[-1], path_number)
        way = [next(b for a, b in topo._addresses if a == hosts[0])]
        while way[-1] != hosts[-1]:
            (hop,) = routes[way[-1]][wanted]
            way.append(addresses[hop])
            assert len(way) < 8
        assert len(way) == len(path(topo, hosts[0], hosts[-1])) - 1
        ways.add(tuple(way))
    assert len(ways) == count


@pytest.mark.parametrize(("topo", "bits"), [(LeafSpine(3, 4, 2), {0: (4, 3)}), (FatTree(4), {0: (2, 8), 1: (2, 8)})])
def test_routers_that_take_turns_have_bits_of_their_own(topo: RoutedTopo, bits: dict[int, tuple[int, int]]) -> None:
    """At each level of choice another bit, so that together they are every path; from below alone, to whatever routes have several hops for."""
    found = spraying.turns(topo)
    for bit, (width, count) in bits.items():
        assert [len(turns.ways) for turns in found.values() if turns.bit == bit] == [width] * count
    for router, turns in found.items():
        routes = dict(topo.nodeInfo(router)["routes"])
        several = {prefix: vias for prefix, vias in routes.items() if len(vias) > 1}
        assert {prefix: tuple(way[prefix] for way in turns.ways) for prefix in several} == several
        own = {topo._addresses[a, b] for a, b in topo.links() if b == router} | {
            topo._addresses[b, a] for a, b in topo.links() if a == router
        }
        hops = {via for vias in several.values() for via in vias}
        assert hops <= own and not hops & {topo._addresses[node, router] for node in turns.below}
    with pytest.raises(ValueError, match="3 paths"):
        spraying.turns(LeafSpine(2, 3, 2))


def test_paths_have_addresses_of_their_own() -> None:
    topo = LeafSpine(2, 4, 2)
    every = [spraying.address(topo, f"h{host}", number) for host in range(1, 5) for number in range(4)]
    assert len(set(every)) == 16 and not set(every) & set(topo._addresses.values())
    assert every[:5] == ["10.128.0.1", "10.129.0.1", "10.130.0.1", "10.131.0.1", "10.128.0.2"]


@pytest.mark.parametrize("topo", [FatTree(k=4), FatTree(k=4, hosts=3), LeafSpine(3, 2, 2), Dumbbell(3)])
def test_stages_are_all_shortest_paths(topo: RoutedTopo) -> None:
    """As a search of the whole network finds them."""
    near: dict[str, list[str]] = {}
    for a, b in topo.links():
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    for target in topo.hosts():
        hops, queue = {target: 0}, [target]
        for node in queue:
            for other in near[node]:
                if other not in hops:
                    hops[other] = hops[node] + 1
                    queue.append(other)
        for source in near:
            here, found = {source}, list[set[tuple[str, str]]]()
            for left in range(hops[source], 0, -1):
                found.append({(a, b) for a in here for b in near[a] if hops[b] == left - 1})
                here = {b for _, b in found[-1]}
            assert [set(stage) for stage in stages(topo, source, target)] == found
    assert has_choice(topo) == (not isinstance(topo, Dumbbell))


def test_a_large_fat_tree_has_a_path_for_each_core() -> None:
    topo = FatTree(k=16)
    ways = stages(topo, "h1", "h1024")
    assert [len(stage) for stage in ways] == [1, 8, 64, 64, 8, 1]
    assert "all_routes" not in vars(topo)  # nobody has asked for them
