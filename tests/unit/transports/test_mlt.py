"""MLT and DLCP: which packets matter, in which band they go, what may be missing, and how their rates move."""

from __future__ import annotations

import array
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from math import fsum, sqrt
from statistics import fmean, median
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import transports
from testbed.core.errors import RequestError
from testbed.spec import systems
from testbed.transports import Importance, Message, Place, Tag, Tagger, ltp, mlt
from testbed.transports.datagram import native, tags
from testbed.transports.datagram.endpoint import DatagramEndpoint, DatagramListening
from testbed.transports.datagram.engine import Engine, segment_bytes
from tests.support.processes import loopback
from tests.support.properties import examples
from tests.support.transport_core import MS, Core, Network, Sent
from tests.unit.transports.test_transport_core import COMPLETE, DATA, SEGMENT, TOLERANCE, S, both_ended, content

NUMBERS = 16  # of four bytes, in a packet of the core's tests


def gradients(count: int, seed: int = 1) -> array.array[float]:
    """Packets of very unlike magnitude, as a real tensor's are."""
    draw = random.Random(seed)
    return array.array("f", [draw.gauss(0, 1) * 10 ** (-(at // NUMBERS) % 4) for at in range(count)])


def reference(values: array.array[float], rule: str, numbers: int = NUMBERS) -> list[bool]:
    """As the rules are written down, number by number."""
    packets = [values[at : at + numbers] for at in range(0, len(values), numbers)]
    means = [fmean(map(abs, packet)) for packet in packets]
    if rule == "signed-median":
        limit = median(values[:: tags.SAMPLED])
        return [fmean(packet) >= limit for packet in packets]
    if rule == "element-median":
        limit = median(map(abs, values[:: tags.SAMPLED]))
        return [mean >= limit for mean in means]
    order = sorted(range(len(means)), key=lambda at: (-means[at], at))
    return [at in order[: (len(means) + 1) // 2] for at in range(len(means))]


def message(size: int, critical: tuple[tuple[int, int], ...] = ()) -> Message:
    return Message(0, 0, 0, size, "gradient", critical=critical)


def of_a_trace(*importance: float, part: int = 0) -> Message:
    return Message(3, 1, part, 1000 * SEGMENT, "gradient", importance=importance)


@pytest.mark.parametrize("rule", tags.RULES)
@pytest.mark.parametrize(
    ("importance", "shares"),
    [
        ((0.7,), {"packet-median": 0.7, "element-median": 0.7, "signed-median": 0.7}),
        ((0.0, 0.5, 1.5, 9.0), {"packet-median": 0.5, "element-median": 0.5}),  # a third below, half of the next third
        ((1.1, 2.0), {"packet-median": 0.5, "element-median": 1.0}),
        ((1.0, 1.0), {"packet-median": 0.5, "element-median": 1.0}),
    ],
)
def test_a_replay_tags_as_its_trace_says(rule: str, importance: tuple[float, ...], shares: dict[str, float]) -> None:
    asked = of_a_trace(*importance)
    chosen = list(tags.important(rule, asked, None, SEGMENT))
    assert sum(chosen) / len(chosen) == pytest.approx(shares.get(rule, tags.IMPORTANT[rule]), abs=0.001)
    assert chosen == list(tags.important(rule, asked, None, SEGMENT))
    if rule in shares:
        values = [one.value for one in tags.drawn(asked, 1000)]
        assert min(value for value, one in zip(values, chosen, strict=True) if one) >= max(
            (value for value, one in zip(values, chosen, strict=True) if not one), default=0.0
        )


def test_importances_are_those_of_the_distribution_and_neighbours_differ() -> None:
    values = [one.value for one in tags.drawn(of_a_trace(0.0, 1.0, 10.0), 1000)]
    assert sorted(values) == pytest.approx(
        [2 * at / 1000 + 0.001 if at < 500 else 1 + 18 * (at - 500) / 1000 + 0.009 for at in range(1000)]
    )
    assert fmean(abs(a - b) for a, b in pairwise(values)) > 2
    assert values != [one.value for one in tags.drawn(of_a_trace(0.0, 1.0, 10.0, part=1), 1000)]
    assert {one.value for one in tags.drawn(of_a_trace(), 10)} == {0.0}


def in_memory(values: array.array[float]) -> bytes:
    return values.tobytes()


@pytest.mark.parametrize(
    ("rule", "least", "most"), [("packet-median", 0.5, 0.51), ("element-median", 0.4, 1.0), ("signed-median", 0.2, 0.7)]
)
def test_every_tag_is_as_the_rule_says(rule: str, least: float, most: float) -> None:
    values = gradients(100 * NUMBERS)
    asked = message(len(values) * 4)
    chosen = list(tags.important(rule, asked, in_memory(values), SEGMENT))
    assert chosen == reference(values, rule)
    assert least <= sum(chosen) / len(chosen) <= most
    tag = tags.Rule(rule, 4)(asked, in_memory(values), SEGMENT)
    got = [tag((at, SEGMENT), b"") for at in range(0, asked.bytes, SEGMENT)]
    assert got == [Tag(3, droppable=not one) for one in chosen]


@cache
def heavy_tailed(packets: int, numbers: int) -> array.array[float]:
    """Student's t with 3 degrees of freedom, of a scale for each packet that is lognormal with a sigma of 0.2."""
    draw = random.Random(7)
    scales = [draw.lognormvariate(0, 0.2) for _ in range(packets)]
    return array.array(
        "f", [one * draw.gauss(0, 1) / sqrt(draw.gammavariate(1.5, 1 / 1.5)) for one in scales for _ in range(numbers)]
    )


@contextmanager
def engine(text: str) -> Iterator[Engine]:
    """Of rank 0, whom nobody has called."""
    native.build()
    listening = transports.parse(text).listen(Place(0, loopback(2), 7461, [(0, 1)]))
    (found,) = cast(DatagramListening, listening).channels
    try:
        yield found
    finally:
        found.library.endpoint_close(found.pointer)


@pytest.mark.parametrize("bands", [1, 2, 4, 7])
@pytest.mark.parametrize(("rule", "least", "most"), [("packet-median", 0.5, 0.5), ("element-median", 0.95, 0.985)])
def test_the_second_byte_says_band_and_importance(rule: str, least: float, most: float, bands: int) -> None:
    """Of the IP header (RFC 2474, RFC 3168): a class selector, higher for earlier layers; ECT(0) where a packet may not be dropped."""
    layers = 8
    with engine(f"mlt:tag={rule},bands={bands}+drop") as sender:
        segment = sender.library.endpoint_segment(sender.pointer, 1)
        values = heavy_tailed(400, segment // 4)
        matters = reference(values, rule, segment // 4)
        assert least <= sum(matters) / len(matters) <= most
        for layer in range(layers):
            m = replace(message(4 * len(values)), layer=layer, layers=layers)
            data = in_memory(values)
            assert sender.core.tagger is not None
            said = sender.written(sender.tags(1, m, data, sender.core.tagger(m, data, segment)))
            selector = max(at for at in range(bands) if layer * bands < layers * (bands - at))
            assert list(said) == [32 * selector + (2 if one else 0) for one in matters]


def test_on_the_wire_each_packet_has_its_byte() -> None:
    """As a peer's socket hears of it, of which only the core is there: those of a message as its rule says, all others above them."""
    with engine("mlt") as sender, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs:
        addresses, port = sender.place.addresses, sender.place.port
        theirs.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        theirs.settimeout(0.01)
        theirs.bind((addresses[1], port))
        peer, found = Core(1, segment=segment_bytes(1500)), list[tuple[int, int, int]]()

        def until(over: Callable[[], bool]) -> None:
            while not over():
                now = time.monotonic_ns()
                peer.tick(now)
                while (leaving := peer.output(now)) is not None:
                    theirs.sendto(leaving[1], (addresses[0], port))
                with suppress(TimeoutError):
                    datagram, ((_, _, byte),), *_ = theirs.recvmsg(2000, 64)
                    found.append((datagram[1], int.from_bytes(datagram[40:48]), byte[0]))
                    peer.input(datagram, now)

        sender.library.endpoint_call(sender.pointer, 1)
        until(lambda: peer.connected(0) and bool(sender.library.endpoint_await(sender.pointer, 1, 0)))
        segment = sender.library.endpoint_segment(sender.pointer, 1)
        values = heavy_tailed(400, segment // 4)
        m = replace(message(4 * len(values)), layer=2, layers=8)
        received = peer.receive(0, m.bytes, now=time.monotonic_ns())
        sent = DatagramEndpoint(sender, frozenset({(0, 1)}), None).post_send(1, m, in_memory(values))
        until(lambda: sent.done() and both_ended(received))
    expected = {at * segment: 64 + 2 * one for at, one in enumerate(reference(values, "packet-median", segment // 4))}
    assert {offset: byte for kind, offset, byte in found if kind == DATA} == expected
    assert {byte for kind, _, byte in found if kind != DATA} == {128}
    assert (sender.tagged, sender.important) == (len(expected), sum(byte & 2 > 0 for byte in expected.values()))


def test_ltp_says_of_no_packet_that_it_may_be_marked() -> None:
    """Its own tags are bands alone, whatever may be dropped."""
    with engine("ltp") as sender:
        m = message(100_000)
        said = sender.written(sender.tags(1, m, bytes(m.bytes), ltp.tagger(m)))
        assert list(said) == [32, *[0] * (len(said) - 2), 32]


def test_parameters_matter_by_their_update() -> None:
    parameters = gradients(100 * NUMBERS)
    update = parameters[2 * NUMBERS :] + parameters[: 2 * NUMBERS]
    asked = replace(message(len(update) * 4), stage="parameter", weighs=in_memory(update))
    tag = tags.Rule("packet-median", 4)(asked, in_memory(parameters), SEGMENT)
    got = [not tag((at, SEGMENT), b"").droppable for at in range(0, asked.bytes, SEGMENT)]
    assert got == reference(update, "packet-median") != reference(parameters, "packet-median")


def test_the_published_rule_calls_nearly_everything_important() -> None:
    """Numbers alike: a mean of many is hardly ever below the median of all."""
    draw = random.Random(7)
    values = array.array("f", [draw.gauss(0, 1) for _ in range(100 * 350)])
    share = sum(tags.important("element-median", message(len(values) * 4), in_memory(values), 1400)) / 100
    assert share > 0.98
    assert sum(tags.important("packet-median", message(len(values) * 4), in_memory(values), 1400)) == 50


@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("signed", [False, True])
@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=200))
def test_magnitudes_are_means(kind: str, signed: bool, values: list[float]) -> None:
    data = array.array(kind, values)
    numbers = SEGMENT // data.itemsize
    found = tags.means(in_memory(data), SEGMENT, data.itemsize, signed=signed)
    packets = [data[at : at + numbers] for at in range(0, len(data), numbers)]
    sums = [(fsum(one if signed else map(abs, one)) / len(one), fsum(map(abs, one))) for one in packets]
    assert len(found) == len(sums)
    assert all(abs(one - mean) <= 1e-12 * size for one, (mean, size) in zip(found, sums, strict=True))


@pytest.mark.parametrize("rule", ["packet-median", "element-median", "signed-median"])
def test_numbers_of_eight_bytes_are_tagged_by_the_same_rules(rule: str) -> None:
    """And by all of their bits: these differ where a float32 has none."""
    draw = random.Random(3)
    values = array.array("d", [one * (1 + draw.random() * 1e-12) for one in gradients(100 * NUMBERS // 2)])
    alike = array.array("d", [1 + draw.random() * 1e-12 for _ in range(100 * NUMBERS // 2)])
    for numbers in (values, alike):
        asked = replace(message(8 * len(numbers)), element=8)
        chosen = list(tags.important(rule, asked, in_memory(numbers), SEGMENT))
        assert chosen == reference(numbers, rule, SEGMENT // 8)
        assert 0 < sum(chosen) < len(chosen)


def test_numbers_of_two_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        tags.means(bytes(10), SEGMENT, 2)


def test_what_a_ring_tolerates_from_end_to_end_each_hop_tolerates_less_of() -> None:
    """So that all of them together let as much through; by default it is for each."""
    end = transports.parse("mlt:tolerance=20%,ring=end").close("gradient").over(3)
    assert 1 - (1 - end.tolerated(0)) ** 3 == pytest.approx(0.2) and end.tolerated(0) == pytest.approx(0.0717, abs=1e-4)
    assert transports.parse("mlt:tolerance=20%").close("gradient").over(3).tolerated(0) == 0.2
    falls = transports.parse("mlt:tolerance=phase:20%/0%/10,ring=end").close("parameter").over(3)
    assert falls.tolerated(0) == pytest.approx(end.tolerated(0)) and falls.tolerated(20) == 0


@pytest.mark.parametrize(("rule", "share"), tags.IMPORTANT.items())
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_where_nobody_has_the_bytes_as_many_are_important(rule: str, share: float, count: int) -> None:
    chosen = tags.important(rule, message(count * SEGMENT), None, SEGMENT)
    assert len(chosen) == count and sum(chosen) == round(share * count)
    again = tags.important(rule, message(count * SEGMENT), None, SEGMENT)
    assert list(chosen) == list(again)


def test_a_layers_band_is_its_share_of_them() -> None:
    assert [tags.band(layer, 8, 4) for layer in range(8)] == [3, 3, 2, 2, 1, 1, 0, 0]
    assert [tags.band(layer, 3, 4) for layer in range(3)] == [3, 2, 1]
    assert tags.band(0, 1, 1) == 0


def test_what_is_critical_is_never_dropped() -> None:
    tag = tags.Rule("packet-median", 4)(message(640, critical=((0, 640),)), None, SEGMENT)
    assert not any(tag((at, SEGMENT), b"").droppable for at in range(0, 640, SEGMENT))


def test_where_nothing_may_be_missing_any_more_nothing_may_be_dropped() -> None:
    rule = transports.parse("mlt:tolerance=phase:40%/0%/30").options.tagger
    for number, dropped in ((0, True), (29, True), (30, False), (300, False)):
        m = replace(message(640), round=number)
        tag = rule(m, None, SEGMENT)
        assert any(tag((at, SEGMENT), b"").droppable for at in range(0, 640, SEGMENT)) == dropped


def test_a_tolerance_may_follow_the_rounds() -> None:
    close = transports.parse("mlt:tolerance=phase:40%/10%/30").close("gradient")
    assert [close.tolerated(number) for number in (0, 10, 30, 31, 10**9)] == pytest.approx([0.4, 0.3, 0.1, 0.1, 0.1])
    less = transports.parse("dlcp:tolerance=phase:0%/40%/10").close("parameter")
    assert [less.tolerated(number) for number in (0, 5, 10)] == pytest.approx([0, 0.02, 0.04])
    assert transports.parse("mlt:parameters=whole,tolerance=phase:40%/10%/30").close("parameter").tolerated(0) == 0


def test_parameters_arrive_whole_once_in_so_many_rounds() -> None:
    rounds = range(12)
    for name, usual in (("mlt", 0.1), ("dlcp", 0.01)):
        asked = transports.parse(f"{name}:resync=5")
        pulled = [asked.close("parameter").tolerated(number) for number in rounds]
        assert pulled == pytest.approx([0 if number in (4, 9) else usual for number in rounds])
        assert {asked.close("gradient").tolerated(number) for number in rounds} == {0.1}
        assert [_droppable(asked.options.tagger, Message(number, 0, 0, 80_000, "parameter")) for number in rounds] == [
            number not in (4, 9) for number in rounds
        ]
        assert all(_droppable(asked.options.tagger, Message(number, 0, 0, 80_000, "gradient")) for number in rounds)
    never = transports.parse("mlt:resync=0")
    assert never == transports.parse("mlt")
    assert {never.close("parameter").tolerated(number) for number in rounds} == {0.1}


def test_what_may_be_written_behind_them() -> None:
    assert (
        transports.parse("mlt:f=1.75/0.25").options.f == transports.parse("ltp:f=1.75/0.25").options.f == (1.75, 0.25)
    )
    assert transports.parse("mlt:f=off").options.f is transports.parse("ltp").options.f is None
    found = transports.parse("mlt:tolerance=5%,spray=off,rate=dctcp,bands=2+drop")
    assert (found.options.tolerance, found.options.sprays, found.options.bands) == (0.05, False, "2,drop")
    assert transports.parse("mlt:spray=hashed:64").options.hashes == 64 and not found.options.hashes
    assert found.close("gradient").tolerance == found.close("parameter").tolerance == 0.05
    assert found.close("gradient").missing == "zero" and found.close("parameter").missing == "keep"
    assert transports.parse("mlt:parameters=whole").close("parameter").tolerance == 0
    dlcp = transports.parse("dlcp")
    assert systems.parse("mlt:bands=1+drop,spray=off").transport == "mlt:bands=1+drop,spray=off"
    assert dlcp.options.rate == "dctcp" and dlcp.close("parameter").tolerance == pytest.approx(0.01)
    for wrong in (
        "tolerance=100%",
        "tolerance=phase:40%/5%",
        "tolerance=phase:4/0%/9",
        "tolerance=fast:1%/2%/9",
        "rate=bbr",
        "tag=mine",
        "bands=9",
        "bands=4-drop",
        "spray=yes",
        "spray=hashed",
        "spray=hashed:65",
        "f=1.75",
        "f=0/1",
        "bands=4+solve",
        "resync=-1",
        "resync=often",
    ):
        with pytest.raises(RequestError):
            transports.parse(f"mlt:{wrong}")


def test_its_own_numbers_are_those_of_c() -> None:
    rule = mlt.Options().core.congestion
    assert rule is not None and (rule.control, rule.low_ns, rule.high_ns) == (1, 50_000, 250_000)


RULES = st.sampled_from([mlt.DELAY, mlt.MARKS])


@examples(60)
@given(
    st.integers(1, 60 * SEGMENT),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.booleans(),
    RULES,
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.2, 0.5]),
)
def test_no_more_is_missing_than_is_tolerated(
    size: int, tolerance: float, keep: bool, name: int, seed: int, loss: float
) -> None:
    """Over a network that loses and reorders: what came is right, a hole keeps what stood there or is zero, and both ends agree."""
    draw = random.Random(seed)

    def fate(_source: int, _target: int, _datagram: bytes, now: int) -> list[int]:
        return [] if draw.random() < loss else [now + MS // 4 + draw.randrange(MS)]

    def kind(_source: int, _target: int, _datagram: bytes, now: int) -> list[int]:
        return [now + MS // 4]

    rule = native.Congestion(
        control=name, step_permille=40, decrease_permille=800, first_permille=1000, low_ns=MS, high_ns=2 * MS,
        increase_wins=seed % 2, by_gradient=seed // 2 % 2,
    )  # fmt: skip
    cores = [Core(rank, reorder=mlt.ALL_FIRST, congestion=rule, silence_ns=60 * S) for rank in range(2)]
    network = Network(cores, kind)
    network.connect()
    network.fate = fate
    data = content(size, seed)
    sent = cores[0].send(1, data, now=network.now)
    received: Sent = cores[1].receive(0, size, now=network.now, tolerance=tolerance, keep=int(keep))
    network.run(lambda: both_ended(sent, received), network.now + 50 * S)
    found = received.result()
    assert found.done and sent.result().done and found.reason in (COMPLETE, TOLERANCE)
    assert found.delivered >= (1 - tolerance) * size and sent.holes() == received.holes()
    expected = bytearray(data)
    for offset, length in received.holes():
        expected[offset : offset + length] = (b"\xee" if keep else b"\0") * length
    assert received.content == expected
    assert tolerance or not received.holes()


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
@pytest.mark.parametrize("apart_ns", [MS // 4, 3 * MS])
@pytest.mark.parametrize("name", [mlt.DELAY, mlt.MARKS])
def test_what_only_arrives_in_another_order_is_not_sent_again(name: int, apart_ns: int, tolerance: float) -> None:
    """Over four paths in turn, each so much longer than the one before; who takes three later packets for a loss sends again."""
    assert sent_again(name, mlt.ALL_FIRST, apart_ns, tolerance) == 0
    assert sent_again(name, 3, apart_ns, tolerance) > 100


def sent_again(name: int, reorder: int, apart_ns: int, tolerance: float) -> int:
    """Packets of three messages over a network that loses nothing, after a first one that learns how long it is."""
    rule = native.Congestion(
        control=name, step_permille=40, decrease_permille=800, first_permille=1000, low_ns=20 * MS, high_ns=40 * MS
    )
    cores = [Core(rank, reorder=reorder, congestion=rule, silence_ns=60 * S) for rank in range(2)]
    turn = 0

    def fate(source: int, _target: int, _datagram: bytes, now: int) -> list[int]:
        nonlocal turn
        turn += not source
        return [now + MS + (0 if source else turn % 4 * apart_ns)]

    network = Network(cores, fate)
    network.connect()
    resent = []
    for number in range(4):
        data = content(400 * SEGMENT, number)
        sent = cores[0].send(1, data, round=number, now=network.now)
        received = cores[1].receive(0, len(data), round=number, now=network.now, tolerance=tolerance)
        network.run(partial(both_ended, sent, received), network.now + 50 * S)
        assert received.result().done and received.result().delivered >= (1 - tolerance) * len(data)
        resent.append(int(cores[0].counters(1).resent))
    return resent[-1] - resent[0]


def waited_behind(name: int, **more: int) -> list[int]:
    """Through a link of 8 Mbit/s whose queue marks from 16 packets on: of four messages after another, how long the queue became (ns)."""
    rule = native.Congestion(
        control=name, step_permille=20, decrease_permille=800, first_permille=1000, low_ns=MS, high_ns=3 * MS, **more
    )
    cores = [Core(rank, reorder=mlt.ALL_FIRST, congestion=rule, silence_ns=60 * S) for rank in range(2)]
    free, longest = 0, 0

    def fate(source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        nonlocal free, longest
        if source:
            return [now + MS]
        free = max(free, now) + len(datagram) * 1000  # ns: a byte in a microsecond
        longest = max(longest, free - now)
        if free - now > 2 * MS:
            cores[1].library.dg_marked(cores[1].core, 0)
        return [free + MS]

    network = Network(cores, fate)
    network.connect()
    waited = []
    for number in range(4):
        longest = 0
        data = content(400 * SEGMENT, number)
        sent, received = (
            cores[0].send(1, data, round=number, now=network.now),
            cores[1].receive(0, len(data), round=number, now=network.now),
        )
        network.run(partial(both_ended, sent, received), network.now + 50 * S)
        assert received.result().done and received.content == data
        waited.append(longest)
    return waited


@pytest.mark.parametrize("name", [mlt.DELAY, mlt.MARKS])
def test_a_queue_slows_it_down(name: int) -> None:
    """The last message keeps it short."""
    last = waited_behind(name)[-1]
    assert last < 25 * MS and last < 400 * SEGMENT * 1000


def test_what_the_paper_leaves_open_is_a_choice() -> None:
    """TIMELY's gradient keeps a queue shorter, an increase that wins makes it longer."""
    usual = waited_behind(mlt.DELAY)
    assert waited_behind(mlt.DELAY, by_gradient=1)[-1] < usual[-1]
    assert waited_behind(mlt.DELAY, increase_wins=1)[-1] > usual[-1]
    core = transports.parse("mlt:wins=increase,between=gradient").options.core.congestion
    assert (core.increase_wins, core.by_gradient) == (1, 1)


def test_where_parameters_are_whole_nothing_of_them_may_be_dropped() -> None:
    """FSDP's: each has to arrive, so that a switch that drops it only sends it again."""
    m = Message(0, 0, 0, 80_000, "parameter")
    for name, expected in (("lossy", True), ("whole", False)):
        options = transports.parse(f"mlt:parameters={name}").options
        assert isinstance(options, mlt.Options)
        tagger = options.tagger
        droppable = [_droppable(tagger, replace(m, stage=stage)) for stage in ("gradient", "parameter")]
        assert droppable == [True, expected]


def _droppable(tagger: Callable[..., Tagger], m: Message) -> bool:
    tag = tagger(m, None, 1448)
    spans = [(at, min(1448, m.bytes - at)) for at in range(0, m.bytes, 1448)]
    return any(tag(span, Importance(0.0)).droppable for span in spans)
