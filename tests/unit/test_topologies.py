from pathlib import Path

import pytest

import topologies
from topologies.dumbbell import Dumbbell
from topologies.routed import path

MINE = """
from mininet.topo import Topo

class Line(Topo):
    def build(self, n=2):
        for i in range(n):
            self.addHost(f"h{i}")

topos = {"line": Line}
"""


def test_every_file_lists_itself_in_topos() -> None:
    for name in topologies.names():
        assert topologies.find(name)().hosts()


def test_dumbbell_has_its_hosts_one_bottleneck_and_exact_routes() -> None:
    topo = Dumbbell(n=4)
    assert topo.hosts() == [*(f"l{i}" for i in range(1, 5)), *(f"r{i}" for i in range(1, 5)), "s1", "s2"]
    shaped = [(a, b) for a, b, info in topo.links(withInfo=True) if info["bottleneck"]]
    assert shaped == [("s1", "s2")]
    assert path(topo, "l1", "r3") == ["l1", "s1", "s2", "r3"]
    assert path(topo, "l1", "l2") == ["l1", "s1", "l2"]
    addresses = [info[end]["ip"] for _, _, info in topo.links(withInfo=True) for end in ("params1", "params2")]
    assert len(set(addresses)) == len(addresses) == 2 * 9
    # s1 reaches the four right hosts by s2; its own are links of its own
    assert len(topo.nodeInfo("s1")["routes"]) == 4


def test_a_file_from_outside(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    assert topologies.find(str(mine))(3).hosts() == ["h0", "h1", "h2"]


@pytest.mark.parametrize(
    ("content", "says"), [("1/0", "ZeroDivisionError"), ("x = 1", "no `topos` dict"), ("topos = {}", "no `topos` dict")]
)
def test_a_bad_file_from_outside(tmp_path: Path, content: str, says: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(content)
    with pytest.raises(topologies.TopologyError, match=says):
        topologies.find(str(mine))
