"""Several exchanges in flight, and iterations that overlap: who goes next, who waits for whom, and how long it takes at best."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import spec
from testbed.core.errors import RequestError
from testbed.planning.plan import plans, resolve
from testbed.replay.bands import ByBand
from testbed.replay.exchange import Link, exchange
from testbed.replay.sending import Window, pieces
from testbed.traces import trace as traces
from testbed.traces.cycles import Edge, longest_mean_s
from testbed.traces.pipelining import Iteration, Overlapping
from testbed.traces.trace import TraceError
from testbed.transports import Close, Counters, Delivery, Message
from testbed.transports.framed import FramedEndpoint
from testbed.transports.tcp import Options
from tests.support.processes import HANG_S
from tools import layer_traces

ROOT = Path(__file__).parents[3]


def test_the_longest_cycle_of_some_graphs() -> None:
    assert longest_mean_s(2, [Edge(0, 1, 3.0)]) == 0
    assert longest_mean_s(2, [Edge(0, 1, 3.0), Edge(1, 0, 4.0, later=True)]) == 7
    # Two cycles that share a node: 7 in one iteration, 16 in two.
    both = [
        Edge(0, 1, 3.0),
        Edge(1, 0, 4.0, later=True),
        Edge(0, 2, 1.0),
        Edge(2, 3, 6.0, later=True),
        Edge(3, 0, 9.0, later=True),
    ]
    assert longest_mean_s(4, both) == pytest.approx(8.0)


def layered() -> dict[str, Any]:
    """Three layers, as in VGG: the front ones compute, 31 ms forward and 32 ms backward, and the last one is large."""
    operations: list[dict[str, Any]] = [
        {"id": f"f{k}", "kind": "compute", "duration": took, "after": [f"g{k}@-1"], "layer": k}
        for k, took in enumerate(("15ms", "15ms", "1ms"))
    ]
    for k, took, size in ((2, "2ms", "400kB"), (1, "15ms", "50kB"), (0, "15ms", "50kB")):
        operations += [
            {"id": f"b{k}", "kind": "compute", "duration": took},
            {"id": f"g{k}", "kind": "all_reduce", "bytes": size, "after": [f"b{k}"], "layer": k},
        ]
    return {
        "version": 1,
        "name": "layered",
        "model": "three layers",
        "source": {"kind": "synthetic"},
        "operations": operations,
    }


@pytest.fixture
def layered_file(tmp_path: Any) -> str:
    path = tmp_path / "layered.json"
    path.write_bytes(msgspec.json.encode(layered()))
    return str(path)


def test_the_ideal_is_the_longest_of_computing_the_link_and_each_layers_way_round(layered_file: str) -> None:
    trace = traces.load(layered_file)

    def ideal(seconds: float) -> float:
        return traces.critical_path_s(trace, lambda op: (op.bytes or 0) / 500_000 * seconds)

    assert ideal(0.0) == pytest.approx(0.063)  # computing
    assert ideal(0.3) == pytest.approx(0.3)  # the link
    # Layer 0 comes last and is needed first: all computing, and its own exchange.
    assert ideal(0.04) == pytest.approx(0.063 + 0.004)


@pytest.mark.parametrize("name", list(layer_traces.MODELS))
def test_layers_add_up_to_the_published_parameters_and_the_library_is_what_the_tool_writes(name: str) -> None:
    _, layers, _, parameters = layer_traces.MODELS[name]
    assert sum(layer.parameters for layer in layers) == parameters
    found = traces.load(f"{name}-layers")
    assert found == layer_traces.trace(name)
    assert found.bytes_per_iteration == 4 * parameters and found.overlaps


@pytest.mark.parametrize("name", list(layer_traces.MODELS))
def test_a_fully_sharded_model_moves_its_parameters_twice_and_its_gradients_once(name: str) -> None:
    found = traces.load(f"{name}-fsdp")
    assert found == layer_traces.sharded(name)
    sizes = {
        kind: sum(int(op.bytes or 0) for op in found.operations if op.kind == kind)
        for kind in ("all_gather", "reduce_scatter")
    }
    assert sizes["all_gather"] == 2 * sizes["reduce_scatter"] == 8 * layer_traces.MODELS[name][3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"after": ["nobody@-1"]}, "no such operation"),
        ({"id": "f0@-1"}, "means the iteration before"),
        ({"layer": -1}, "no place in a model"),
    ],
)
def test_what_refers_to_nothing_is_refused(change: dict[str, Any], words: str, tmp_path: Any) -> None:
    raw = layered()
    raw["operations"][0] |= change
    (tmp_path / "x.json").write_bytes(msgspec.json.encode(raw))
    with pytest.raises(TraceError, match=words):
        traces.load(str(tmp_path / "x.json"))


def test_a_window_lets_front_layers_pass_and_no_more_than_it_holds() -> None:
    window, order = Window(100), list[int]()
    assert window.ask((0, 9), 100, partial(order.append, 9))
    assert not any(window.ask((0, layer), 60, partial(order.append, layer)) for layer in (3, 1, 2, 0))
    assert not order
    for count in (100, 60, 60, 60):
        window.give_back(count)
        assert window.free == 40  # two of them do not fit
    assert order == [0, 1, 2, 3]
    window.give_back(60)
    assert window.ask((0, 0), 1000, partial(order.append, 0))  # what is larger than the window goes alone
    assert window.free == -900


class Noting:
    """An endpoint that notes what is posted, and ends nothing by itself."""

    def __init__(self) -> None:
        self.posted: list[tuple[int, int]] = []  # peer and part
        self.ends: list[Callable[[], None]] = []

    def post_send(self, to: int, m: Message, _data: object) -> Any:
        self.posted.append((to, m.part))
        done = SimpleNamespace(wait=lambda: Delivery(m.bytes, m.bytes, "complete"))
        done.on_done = lambda callback: self.ends.append(partial(callback, done))
        return done


@pytest.mark.parametrize("rises", [False, True])
def test_pieces_of_a_tensor_leave_in_their_order(rises: bool) -> None:
    """Though those behind may have a higher priority, of what is left of it; and another tensor's take their turns between them."""
    endpoint, window = Noting(), Window(100)

    def band(message: Message) -> int:
        return message.part if rises else 0

    links = [Link(cast(Any, endpoint), peer, window=window, partition=50, band=band) for peer in (1, 2)]
    sending = threading.Thread(target=exchange, args=([(link, 400) for link in links], []), daemon=True)
    sending.start()
    while len(endpoint.posted) < 16 or endpoint.ends:
        if endpoint.ends:
            endpoint.ends.pop(0)()
        else:
            time.sleep(0.001)
    sending.join(HANG_S)
    for peer in (1, 2):
        assert [part for to, part in endpoint.posted if to == peer] == list(range(8))
    if not rises:
        assert endpoint.posted[2:6] == [(1, 2), (2, 0), (1, 3), (2, 1)]


def test_pieces() -> None:
    assert pieces(10, None) == [10] and pieces(0, None) == pieces(0, 4) == []
    assert pieces(10, 4) == [4, 4, 2] and pieces(8, 4) == [4, 4]


WHOLE = Options()


def framed_pair(options: Options = WHOLE) -> tuple[FramedEndpoint, FramedEndpoint]:
    """Two workers with a connection each way."""

    def send(link: socket.socket, size: int) -> None:
        link.sendall(bytes(size))

    def receive(link: socket.socket, size: int) -> None:
        while size:
            got = len(link.recv(size))
            if not got:
                raise ConnectionResetError("gone")
            size -= got

    links: tuple[dict[Any, socket.socket], dict[Any, socket.socket]] = ({}, {})
    for flow in ((0, 1), (1, 0)):
        links[0][flow], links[1][flow] = socket.socketpair()
    one, other = (
        FramedEndpoint(rank, links[rank], send, receive, lambda _: Counters(0, 0, 0, 0), options.ended)
        for rank in (0, 1)
    )
    return one, other


def message(operation: int, size: int = 100_000) -> Message:
    return Message(3, operation, 0, size, "gradient")


def test_messages_end_in_any_order_and_whether_or_not_they_are_awaited_yet() -> None:
    one, other = framed_pair()
    sent = [one.post_send(1, message(operation), None) for operation in range(3)]
    assert [transfer.wait(HANG_S).delivered for transfer in sent] == [100_000] * 3  # nobody asked for them so far
    for operation in (2, 0, 1):
        assert other.post_receive(0, message(operation), None, Close()).wait(HANG_S).closed == "complete"
    later = one.post_receive(1, message(7, 5), None, Close())
    assert not later.done()
    ended = threading.Event()
    later.on_done(lambda _: ended.set())
    other.post_send(0, message(7, 5), None)
    assert ended.wait(HANG_S) and later.done()


@pytest.mark.parametrize("sent_first", [True, False])
def test_of_a_gradient_only_a_share_is_sent(sent_first: bool) -> None:
    one, other = framed_pair(Options(send_fraction=0.9))
    parameters = Message(3, 1, 0, 1000, "parameter")
    if sent_first:
        sent = [one.post_send(1, m, None).wait(HANG_S) for m in (message(0, 1000), parameters)]
    received = [other.post_receive(0, m, None, Close()) for m in (message(0, 1000), parameters)]
    if not sent_first:
        sent = [one.post_send(1, m, None).wait(HANG_S) for m in (message(0, 1000), parameters)]
    assert sent == [transfer.wait(HANG_S) for transfer in received]
    assert [(each.delivered, each.holes) for each in sent] == [(900, ((900, 100),)), (1000, ())]
    assert one.offered == 2000


def test_who_waits_for_a_peer_that_is_gone_hears_of_it() -> None:
    one, other = framed_pair()
    waiting = one.post_receive(1, message(1), None, Close())
    other.end("killed")
    for link in other.links.values():
        link.close()
    one.end("over")
    with pytest.raises(OSError, match=r"over|closed|gone|Bad file"):
        waiting.wait(HANG_S)


@dataclass(frozen=True)
class Op:
    id: str
    after: tuple[str, ...] = ()
    duration_ns: int = 0


class EnoughError(Exception):
    pass


def told(
    computes: list[Op], exchanges: list[Op], *, at_once: bool, count: int = 4
) -> tuple[list[Iteration], list[tuple[int, str]]]:
    """So many iterations, and which exchanges ended in which order; each takes 2 ms."""
    found: list[Iteration] = []
    ended: list[tuple[int, str]] = []

    def carry_out(number: int, name: str) -> None:
        time.sleep(0.002)
        ended.append((number, name))

    def tell(one: Iteration) -> None:
        found.append(one)
        if len(found) == count:
            raise EnoughError

    running = Overlapping(computes, exchanges, carry_out, tell, lambda: 1.0, at_once=at_once)
    with pytest.raises(SystemExit):
        running.run(time.monotonic_ns())
    return found, ended


@pytest.mark.parametrize("at_once", [False, True])
def test_an_operation_waits_for_that_of_the_iteration_before(at_once: bool) -> None:
    computes = [Op("f0", ("g0@-1",), 10**6), Op("f1", ("g1@-1",), 10**6), Op("b1", (), 10**6), Op("b0", (), 10**6)]
    found, _ = told(computes, [Op("g1", ("b1",)), Op("g0", ("b0",))], at_once=at_once)
    for one, following in itertools.pairwise(found):
        assert one.end == following.begun >= {name: until for name, _, until in one.timeline}["g0"]
        assert {name for name, _, _ in one.timeline} == {"g0", "g1"}


@pytest.mark.parametrize("at_once", [False, True])
def test_an_iteration_may_begin_with_an_exchange(at_once: bool) -> None:
    """Of a fully sharded model: its first parameters are gathered before anything is computed, and an iteration counts from its first compute."""
    computes = [Op("f", ("gather",), 10**6), Op("b", (), 10**6)]
    found, ended = told(computes, [Op("gather", ("scatter@-1",)), Op("scatter", ("b",))], at_once=at_once)
    assert ended[:4] == [(0, "gather"), (0, "scatter"), (1, "gather"), (1, "scatter")]
    for one, following in itertools.pairwise(found):
        times = {name: (begun, until) for name, begun, until in one.timeline}
        assert times["gather"][1] <= one.begun < times["scatter"][0] < following.begun == one.end


def test_without_a_window_exchanges_follow_each_other() -> None:
    computes = [Op("f0", ("g0@-1",), 10**6), Op("b", (), 10**6)]
    found, ended = told(computes, [Op("g1", ("b",)), Op("g0", ("b",))], at_once=False)
    assert ended[:6] == [(0, "g1"), (0, "g0"), (1, "g1"), (1, "g0"), (2, "g1"), (2, "g0")]
    spans = [span for one in found for span in one.timeline]
    assert all(begun >= until for (_, _, until), (_, begun, _) in itertools.pairwise(spans))


def test_where_nothing_overlaps_the_next_iteration_waits_for_all() -> None:
    found, _ = told([Op("c", (), 10**6)], [Op("g", ("c",))], at_once=True)
    for one, following in itertools.pairwise(found):
        assert following.begun >= one.timeline[0][2]


def planned(trace: str, **fields: Any) -> Any:
    return plans(
        resolve(
            spec.read(None, {"jobs": 1, "trace": trace, "workers": 3, "topo": "star", "system": ["reno"], **fields})
        )
    )[0]


def test_a_plan_has_layers_and_a_connection_for_each_band(layered_file: str) -> None:
    (job,) = planned(layered_file, credit_bytes="64kB", partition_bytes="16kB", priority_queues="3").jobs
    assert (job.window, job.partition, job.channels, job.overlaps) == (64_000, 16_000, 3, True)
    assert [op.layer for op in job.collectives] == [2, 1, 0]
    assert planned(layered_file, priority_queues="3").jobs[0].channels == 1


def test_the_example_is_byteps_at_its_scale() -> None:
    """4 MB at 25 Gbit/s take as long as 32 kB at 200 Mbit/s."""
    (made,) = (one for one in plans(resolve(spec.read(str(ROOT / "examples/byteps.toml"), {}))) if one.alone is None)
    (job,) = made.jobs
    assert job.partition is not None and job.partition * 25_000 // 200 == 4_000_000
    assert job.window == 4 * job.partition and job.channels == made.sender.bands == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"credit_bytes": "64kB", "partition_bytes": "65kB"}, "partition_bytes"),
        ({"partition_bytes": "1kB"}, "partition_bytes"),
        ({"credit_bytes": "64kB", "channels": 2}, "Leave out `channels`"),
        ({"credit_bytes": "64kB", "system": ["reno:close=0.8"]}, "Leave out credit_bytes, or use"),
        ({"credit_bytes": "64kB", "system": ["lretf:preempt=no"], "jobs": 2}, "schedules one after the other"),
        ({"system": ["priority"], "jobs": 2}, "schedules one after the other"),
        ({"credit_bytes": "64kB", "priority_queues": "3", "system": ["pias"]}, "the flow scheduler sets its own priority queues"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_in_a_window_is_refused(fields: dict[str, Any], words: str, layered_file: str) -> None:
    with pytest.raises(RequestError, match=words):
        planned(layered_file, **fields)


def test_a_transport_with_bands_of_its_own_takes_no_others(layered_file: str) -> None:
    job = f"{layered_file},workers=3,window=64kB,transport=mlt"
    with pytest.raises(RequestError, match="mlt sets priority queues itself"):
        plans(resolve(spec.read(None, {"job": [job], "topo": "star", "system": ["pias"]})))


@pytest.mark.parametrize(("system", "falls"), [("priority:bands=4", False), ("pias:bands=4", True)])
def test_in_a_window_bands_go_by_tensors(layered_file: str, system: str, falls: bool) -> None:
    """Of sharded servers: a third of the largest layer's 400 kB goes from each worker to each other one."""
    made = planned(layered_file, credit_bytes="64kB", collective="sharded_parameter_server", system=[system])
    (job,) = made.jobs
    largest = 133_333
    assert max(job.bands) == pytest.approx(largest / 2, abs=1) and min(job.bands) == pytest.approx(largest / 8, abs=1)
    assert list(job.bands) == sorted(job.bands, reverse=not falls) and job.falls == falls
    assert job.channels == made.sender.bands == made.bottlenecks["s1-h1"].bands == 4


def test_a_flow_scheduler_knows_a_job_whose_way_a_hash_decides(layered_file: str) -> None:
    (job,) = planned(
        layered_file, topo="leafspine,2,2,4", workers=4, credit_bytes="64kB", system=["priority:bands=4"]
    ).jobs
    assert len(job.bands) == 3


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=7),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.booleans(),
)
def test_a_tensors_parts_only_rise_or_only_fall(found: list[int], size: int, part: int, falls: bool) -> None:
    thresholds = sorted(found, reverse=not falls)
    levels = [_Noting() for _ in range(len(thresholds) + 1)]
    by_band = ByBand(levels, thresholds, falls)
    before, bands = 0, []
    for number, piece in enumerate(pieces(size, max(part, -(-size // 50)))):
        message = Message(0, 0, number, piece, "parameter", before=before, behind=size - before - piece)
        by_band.post_send(1, message, None)
        by_band.post_receive(1, message, None, Close())
        bands.append(by_band.band(message))
        assert levels[bands[-1]].told == [message, message]
        levels[bands[-1]].told.clear()
        before += piece
    assert before == size and bands == sorted(bands, reverse=falls)
    assert bands[0] == (len(thresholds) if falls else sum(size <= one for one in thresholds))


class _Noting:
    """An endpoint that notes what it is asked to carry."""

    def __init__(self) -> None:
        self.told: list[Message] = []

    def post_send(self, to: int, m: Message, data: Any, tag: Any = None) -> Any:
        self.told.append(m)

    def post_receive(self, source: int, m: Message, into: Any, close: Close) -> Any:
        self.told.append(m)

    def counters(self, peer: int) -> Counters:
        return Counters(1, 1, 1, 1)

    def end(self, reason: str, gone: int | None = None) -> None:
        self.told.clear()


def test_what_is_answered_each_time_cannot_be_in_flight() -> None:
    with pytest.raises(RequestError, match="which wait for each other"):
        plans(resolve(spec.read(None, {"jobs": 1, "compute": "5ms", "bytes": "1MB", "credit_bytes": "64kB"})))
