"""Background traffic before it meets a kernel: its text and tables, its sizes, its arrivals, and what its flows come to."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import spec
from testbed.campaign import background
from testbed.cli import main
from testbed.core.errors import EXIT_REQUEST, RequestError
from testbed.core.runs.plan import Background
from testbed.models.frames import payload_share
from testbed.planning.plan import planned
from testbed.spec import background_tables
from testbed.traffic import kinds, sizes
from testbed.traffic.arrivals import arrivals, band
from tests.support.properties import examples


def sources(*texts: Any, **fields: Any) -> tuple[Background, ...]:
    asked = {"background": list(texts), "jobs": 2, "isolated_runs": "none", **fields}
    return planned(spec.make({}, asked, "test"))[1][0].background


@pytest.mark.parametrize("name", sizes.NAMED)
def test_the_mean_of_drawn_sizes_is_that_of_the_distribution(name: str) -> None:
    chance, found = random.Random(1), sizes.find(name)
    assert np.mean([found.draw(chance) for _ in range(200_000)]) == pytest.approx(found.mean, rel=0.05)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=9, unique=True), st.integers(0, 10**6))
@examples(50)
def test_drawn_sizes_lie_between_the_points_of_a_file(points: list[int], seed: int) -> None:
    found = sizes.Sizes(tuple(map(float, sorted(points))), tuple((n + 1) / len(points) for n in range(len(points))))
    assert min(points) <= found.draw(random.Random(seed)) <= max(points)


@pytest.mark.parametrize(
    "text", ["", "bytes,share\n", "1,0.5\n", "2,0.5\n1,1\n", "1,1\n2,1\n", "0,1\n", "many,1\n", "1,2,3\n", "1,nan\n"]
)
def test_a_file_that_is_no_cdf_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "sizes.csv").write_text(text)
    with pytest.raises(RequestError, match=r"^sizes: "):
        sizes.find(str(tmp_path / "sizes.csv"))


def test_sizes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "sizes.csv").write_text("bytes,share\n1000,0.5\n3000,1\n")
    assert sizes.find(str(tmp_path / "sizes.csv")).mean == 1500
    for wrong in ("web", str(tmp_path / "none.csv")):
        with pytest.raises(RequestError):
            sizes.find(wrong)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("poison", "Did you mean poisson"),
        ("foo", "^background.0: 'foo' is no kind of traffic"),
        ("poisson:load=many", "is not a number"),
        ("poisson:lod=0.1", "Did you mean load"),
        ("poisson:sources=h9", "no host 'h9'"),
        ("poisson:sources=l1,targets=l1", "l1 is both a source and a target"),
        ("long:congestion=mltcp_reno", "not a congestion control of the kernel"),
        ("long:congestion=nothing", "nothing"),
        ("incast:every=0s", "every"),
        ("cmd", "needs command"),
        ("checkpoint:bytes=0B", "0B is not between 1B and"),
        ("long:start=5s,stop=2s", "2 s is not after the start at 5 s"),
        ("cmd:command=true,priority=3", "is no option of cmd"),
        ("iperf3:priority=3", "is no option of iperf3"),
    ],
)
def test_wrong_traffic_is_refused(text: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        sources(text)


def test_two_sources_have_two_labels() -> None:
    with pytest.raises(RequestError, match="label=NAME"):
        sources("long", "long")
    assert [one.label for one in sources("long", "long:label=other")] == ["long", "other"]


def test_a_table_is_its_text() -> None:
    table = {"kind": "poisson", "load": 0.2, "sources": ["l1", "l2"], "label": "web"}
    assert background_tables.texts([table]) == ["poisson:load=0.2,sources=l1+l2,label=web"]
    assert sources(table) == sources("poisson:load=0.2,sources=l1+l2,label=web")
    for wrong in ({"load": 1}, {"kind": "poisson", "load": {}}, {"kind": "cmd", "command": "a,b"}):
        with pytest.raises(RequestError):
            background_tables.texts([wrong])


def test_poisson_flows_offer_their_load() -> None:
    (found,) = sources("poisson:load=0.4,sizes=rpc", rate="1gbit")
    until_ns = 20_000_000_000
    flows = list(itertools.takewhile(lambda one: one.at_ns < until_ns, arrivals(found)))
    offered = sum(one.bytes or 0 for one in flows) * 8 / 20 / (1e9 * payload_share(1500))
    assert offered == pytest.approx(0.4, rel=0.03)
    gaps = np.diff([one.at_ns for one in flows])
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.03)  # of an exponential distribution
    assert flows == list(itertools.takewhile(lambda one: one.at_ns < until_ns, arrivals(found)))
    assert flows[:9] != list(
        itertools.islice(arrivals(sources("poisson:load=0.4,sizes=rpc", rate="1gbit", seed=2)[0]), 9)
    )


def test_traffic_beyond_the_rate_is_noted() -> None:
    for load, noted in ((0.9, False), (1.5, True)):
        _, plans = planned(spec.make({}, {"background": [f"poisson:load={load}"], "jobs": 2}, "test"))
        assert any("150%" in note for note in plans[0].notes) is noted


def test_bursts() -> None:
    (incast,) = sources("incast:bytes=64kB,every=10ms,degree=3,start=1s,stop=1015ms")
    flows = [(one.at_ns, one.source, one.target, one.bytes, one.burst) for one in arrivals(incast)]
    assert flows == [
        (at, source, "r1", 64_000, burst)
        for burst, at in enumerate((10**9, 1_010_000_000))
        for source in ("l1", "l2", "l1")
    ]
    (checkpoint,) = sources("checkpoint:bytes=1MB,every=1s,stop=1s")
    assert [(one.source, one.target) for one in arrivals(checkpoint)] == [("l1", "r1"), ("l2", "r2")]
    (long,) = sources("long:flows=3")
    assert [(one.source, one.bytes) for one in arrivals(long)] == [("l1", None), ("l2", None), ("l1", None)]


def test_priorities() -> None:
    assert [band("by-size", size) for size in (None, 1, 100_000, 100_001, 1_000_000, 1_000_001)] == [0, 2, 2, 1, 1, 0]
    assert band("5", None) == 5


def test_isolated_runs_have_no_background_traffic() -> None:
    _, plans = planned(spec.make({"background": ["long"], "jobs": 2}, {}, "test"))
    assert {bool(plan.background) for plan in plans if plan.alone is None} == {True}
    assert {bool(plan.background) for plan in plans if plan.alone is not None} == {False}


def test_what_flows_come_to() -> None:
    columns = ["label", "flow", "source", "target", "burst", "bytes", "start_s", "end_s", "received_bytes", "failure"]
    rows = [
        ["web", 0, "l1", "r1", 0, 1000, 0.0, 1.0, 1000, ""],
        ["web", 1, "l1", "r1", 1, 2_000_000, 1.0, 4.0, 2_000_000, ""],
        ["web", 2, "l1", "r1", 2, 9000, 2.0, None, 500, ""],
        ["web", 3, "l1", "r1", 3, 9000, 2.0, None, 0, "refused"],
        ["bulk", 0, "l1", "r1", 0, None, 0.0, None, 5_000_000, ""],
    ]
    web, bulk = background.traffic([pd.DataFrame(rows, columns=columns)], [10.0])
    assert (web.flows, web.unfinished, web.failed) == (4, 1, 1)
    assert [(one.sizes, one.flows, one.mean_s) for one in web.completions] == [
        ("all sizes", 2, 2.0), ("up to 100 kB", 1, 1.0), ("over 1 MB", 1, 3.0)
    ]  # fmt: skip
    assert (bulk.goodput_bps, bulk.completions) == (4e6, ())


@pytest.mark.parametrize(
    ("flags", "says"), [(("--on", "flow", "--background", "long"), "consists of packets"), (("--on", "uml", "--background", "iperf3"), "stops the virtual clock")]
)  # fmt: skip
def test_backends_that_cannot_have_it(
    flags: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", *flags, "--alone", "none", "--out", str(tmp_path)]) == EXIT_REQUEST
    assert says in " ".join(capsys.readouterr().err.split())


def test_every_kind_has_a_default_that_is_planned() -> None:
    for name in kinds.KINDS:
        (found,) = sources("cmd:command=true" if name == "cmd" else name)
        assert found.kind == name and found.sources and found.targets
