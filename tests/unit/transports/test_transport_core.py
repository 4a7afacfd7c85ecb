"""The transports' core, packet by packet: against a model of what may arrive, over networks that lose, repeat and reorder."""

from __future__ import annotations

import errno
import random
import re
import struct
import subprocess
from functools import cache, partial
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.transports.datagram import native
from testbed.transports.datagram.native import Result
from tests.support.processes import HANG_S
from tests.support.properties import examples
from tests.support.receiver_model import Receiver, which
from tests.support.transport_core import MS, Core, Network, Sent

COMPLETE, TOLERANCE, FRACTION, DEADLINE, _ROUND, GONE = range(6)
HELLO, WELCOME, DATA, PING, PONG, END = 1, 2, 3, 7, 8, 9
SEGMENT = 64
S = 10**9


def pair(fate: object = None, **settings: int) -> Network:
    def late(_source: int, _target: int, _datagram: bytes, now: int) -> list[int]:
        return [now + MS // 2]

    network = Network([Core(0, **settings), Core(1, **settings)], fate or late)  # type: ignore[arg-type]
    network.connect()
    return network


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def both_ended(*transfers: Sent) -> bool:
    return all(one.result().done for one in transfers)


def agree(sent: Sent, received: Sent, data: bytes) -> Result:
    """What both ends say of a message that has ended; every byte delivered is right, every other is in a hole, and zero."""
    here, there = sent.result(), received.result()
    assert here.done and there.done
    assert (here.reason, here.delivered, sent.holes()) == (there.reason, there.delivered, received.holes())
    holes = received.holes()
    assert there.delivered + sum(size for _, size in holes) == len(data) == there.bytes
    expected = bytearray(data)
    for offset, size in holes:
        expected[offset : offset + size] = bytes(size)
    assert received.content == expected
    assert (there.reason == COMPLETE) == (not holes)
    return there


@pytest.mark.parametrize("size", [1, SEGMENT, SEGMENT + 1, 100 * SEGMENT, 12_345])
def test_a_message_arrives(size: int) -> None:
    network, data = pair(), content(size)
    sent, received = network.cores[0].send(1, data, now=network.now), network.cores[1].receive(0, size, now=network.now)
    network.run(lambda: both_ended(sent, received), network.now + 10 * S)
    assert agree(sent, received, data).reason == COMPLETE


def test_what_comes_before_it_is_expected_is_kept() -> None:
    network, data = pair(), content(5000)
    sent = network.cores[0].send(1, data, now=network.now)
    network.run(lambda: False, network.now + 20 * MS)
    received = network.cores[1].receive(0, len(data), now=network.now)
    network.run(lambda: both_ended(sent, received), network.now + 10 * S)
    assert agree(sent, received, data).reason == COMPLETE


class Unkind:
    """A network that loses, repeats and holds back, as drawn."""

    def __init__(self, draw: random.Random, loss: float, repeat: float, spread_ns: int) -> None:
        self.draw, self.loss, self.repeat, self.spread_ns = draw, loss, repeat, spread_ns

    def __call__(self, _source: int, _target: int, _datagram: bytes, now: int) -> list[int]:
        copies = 1 + (self.draw.random() < self.repeat)
        return [
            now + MS // 10 + self.draw.randrange(self.spread_ns + 1)
            for _ in range(copies)
            if self.draw.random() >= self.loss
        ]


@examples(150)
@given(
    seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.01, 0.1, 0.5]), repeat=st.sampled_from([0.0, 0.2]),
    spread_ns=st.sampled_from([0, 10**4, 10**6, 2 * 10**7]), size=st.integers(1, 60 * SEGMENT),
    messages=st.integers(1, 4), fraction=st.sampled_from([1.0, 0.8, 0.3]), tolerance=st.sampled_from([0.0, 0.1]),
    lt_ns=st.sampled_from([-1, 0, 3 * 10**6]), after_ns=st.sampled_from([-1, 0, 10**6, 5 * 10**7]),
    group=st.sampled_from([0, 7]), wait_ns=st.sampled_from([0, 2 * 10**6]),
)  # fmt: skip
def test_every_byte_is_right_every_hole_is_told_and_every_message_ends(
    seed: int, loss: float, repeat: float, spread_ns: int, size: int, messages: int, fraction: float,
    tolerance: float, lt_ns: int, after_ns: int, group: int, wait_ns: int,
) -> None:  # fmt: skip
    draw = random.Random(seed)
    network = pair(Unkind(draw, loss, repeat, spread_ns), silence_ns=1000 * S)
    here, there = network.cores
    for number in range(3):  # rounds
        under_way = []
        for message in range(messages):
            data = content(size, seed=10 * number + message)
            first = draw.random() < 0.5  # who is there first
            closes = {
                "tolerance": tolerance,
                "fraction": fraction,
                "lt_ns": lt_ns,
                "after_ns": after_ns,
                "group": group,
            }
            if first:
                sent = here.send(1, data, now=network.now, round=number, message=message)
                network.run(lambda: False, network.now + wait_ns)
            received = there.receive(0, size, now=network.now, round=number, message=message, **closes)  # type: ignore[arg-type]
            if not first:
                network.run(lambda: False, network.now + wait_ns)
                sent = here.send(1, data, now=network.now, round=number, message=message)
            under_way.append((sent, received, data))
        network.run(lambda: all(both_ended(s, r) for s, r, _ in under_way), network.now + 3000 * S)  # noqa: B023
        for sent, received, data in under_way:
            result = agree(sent, received, data)
            assert result.reason != GONE
            if result.reason == TOLERANCE:
                assert result.delivered >= (1 - tolerance) * size
            if result.reason == FRACTION:
                assert result.delivered >= fraction * size
            if fraction == 1 and not tolerance and after_ns < 0:
                assert result.reason == COMPLETE


@examples(150)
@given(
    seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.01, 0.1, 0.5]), repeat=st.sampled_from([0.0, 0.2]),
    spread_ns=st.sampled_from([0, 10**4, 10**6, 2 * 10**7]), size=st.integers(1, 60 * SEGMENT), messages=st.integers(1, 4),
    fraction=st.sampled_from([1.0, 0.8, 0.3]), tolerance=st.sampled_from([0.0, 0.1]), lt_ns=st.sampled_from([0, 3 * 10**6]),
    after_ns=st.sampled_from([-1, 0, 10**6, 5 * 10**7]), wait_ns=st.sampled_from([0, 2 * 10**6]),
)  # fmt: skip
def test_a_receiver_does_what_its_model_does(
    seed: int, loss: float, repeat: float, spread_ns: int, size: int, messages: int, fraction: float, tolerance: float, lt_ns: int,
    after_ns: int, wait_ns: int,
) -> None:  # fmt: skip
    """Fed with the same packets at the same instants: it ends for the same reason, with the same bytes and holes."""
    network = pair(Unkind(random.Random(seed), loss, repeat, spread_ns), silence_ns=1000 * S)
    here, there = network.cores
    models = {(0, number): Receiver(size, tolerance, fraction, lt_ns, after_ns) for number in range(messages)}
    plain = there.input

    def watched(datagram: bytes, now: int) -> int:
        if (name := which(datagram)) is not None:
            models[name].take(datagram, now)
        return plain(datagram, now)

    there.input = watched  # type: ignore[method-assign]
    sent = [here.send(1, content(size, number), message=number, now=network.now) for number in range(messages)]
    received = []
    for number in range(messages):
        network.run(lambda: False, network.now + wait_ns)
        how = {"tolerance": tolerance, "fraction": fraction, "lt_ns": lt_ns, "after_ns": after_ns}
        received.append(there.receive(0, size, message=number, now=network.now, **how))  # type: ignore[arg-type]
        models[0, number].post(network.now)
    network.run(lambda: both_ended(*sent, *received), network.now + 3000 * S)
    for number, (transfer, model) in enumerate(zip(received, models.values(), strict=True)):
        model.until(native.NEVER)
        result = agree(sent[number], transfer, content(size, number))
        assert (result.reason, result.delivered, transfer.holes()) == (model.reason, model.delivered, model.holes)
        assert transfer.content == model.whole


def test_the_same_seed_and_clock_bring_the_same_datagrams() -> None:
    def told() -> list[tuple[int, bytes]]:
        heard: list[tuple[int, bytes]] = []
        unkind = Unkind(random.Random(3), 0.05, 0.05, 10**5)

        def fate(source: int, target: int, datagram: bytes, now: int) -> list[int]:
            heard.append((now, datagram))
            return unkind(source, target, datagram, now)

        network, data = pair(fate), content(40_000)
        sent, received = (
            network.cores[0].send(1, data, now=network.now),
            network.cores[1].receive(0, len(data), now=network.now),
        )
        network.run(lambda: both_ended(sent, received), network.now + 100 * S)
        return heard

    assert told() == told()


def test_packets_leave_at_most_four_at_once() -> None:
    """Whatever the connection finds its rate to be, at the beginning and after a pause too; a late timer is caught up with."""

    free = 0

    def narrow(_source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        if datagram[1] != DATA:
            return [now + MS // 2]
        nonlocal free
        free = max(free, now) + 10**4  # 64 bytes in 10 µs
        return [free + MS // 2]

    network, data = pair(narrow, segment=64), content(200_000)
    for number in range(3):
        sent = network.cores[0].send(1, data, round=number, now=network.now)
        received = network.cores[1].receive(0, len(data), round=number, now=network.now)
        network.run(lambda: both_ended(sent, received), network.now + 10 * S)  # noqa: B023
        network.run(lambda: False, network.now + 30 * MS)
    assert network.cores[0].counters(1).burst == 4


def test_what_is_critical_goes_first_and_what_was_lost_last() -> None:
    """The first and the last packet are critical, and whatever is named so; of those that are lost, critical ones still go before new ones."""
    packets, lost, named = 300, {0, 4, 150}, 150
    offsets: list[int] = []

    def lossy(_source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        if datagram[1] == DATA:
            offsets.append(int.from_bytes(datagram[40:48]) // SEGMENT)
            if offsets[-1] in lost and offsets.count(offsets[-1]) == 1:
                return []
        return [now + MS // 10]

    network, data = pair(lossy), content(packets * SEGMENT)
    critical = [(named * SEGMENT + 8, 8)]
    sent = network.cores[0].send(1, data, now=network.now, critical=critical)
    received = network.cores[1].receive(0, len(data), now=network.now, critical=critical)
    network.run(lambda: both_ended(sent, received), network.now + 10 * S)
    assert agree(sent, received, data).reason == COMPLETE
    assert offsets[:3] == [0, named, packets - 1]
    again = {packet: offsets.index(packet, offsets.index(packet) + 1) for packet in lost}
    newest = offsets.index(packets - 2)
    assert again[0] < newest and again[named] < newest < again[4]


@examples(100)
@given(seed=st.integers(0, 2**32), first=st.integers(0, 59), count=st.integers(1, 4), closes=st.sampled_from([{"tolerance": 0.4}, {"fraction": 0.3, "lt_ns": 0}]))  # fmt: skip
def test_what_is_critical_arrives_however_a_message_closes(
    seed: int, first: int, count: int, closes: dict[str, float]
) -> None:
    draw, data, critical = random.Random(seed), content(60 * SEGMENT), [(first * SEGMENT, count * SEGMENT)]
    network = pair(Unkind(draw, 0.5, 0, 0), silence_ns=1000 * S)
    sent = network.cores[0].send(1, data, now=network.now, critical=critical)
    received = network.cores[1].receive(0, len(data), now=network.now, critical=critical, **closes)  # type: ignore[arg-type]
    network.run(lambda: both_ended(sent, received), network.now + 1000 * S)
    agree(sent, received, data)
    begin, end = first * SEGMENT, (first + count) * SEGMENT
    for offset, size in received.holes():
        assert offset + size <= begin or offset >= end
        assert offset > 0 and offset + size < len(data)


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.2])
def test_a_loss_that_no_queue_caused_does_not_slow_ltp_down(loss: float) -> None:
    """A link of 6.4 MB/s, 0.1 ms each way, that loses what it likes: the rate is the link's."""
    draw, free = random.Random(1), 0

    def link(_source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        nonlocal free
        if datagram[1] != DATA:
            return [now + MS // 10]
        free = max(free, now) + 10**4  # ns: 64 bytes
        return [] if draw.random() < loss else [free + MS // 10]

    network, data = pair(link), content(200_000)
    for number in range(3):
        sent = network.cores[0].send(1, data, round=number, now=network.now)
        received = network.cores[1].receive(0, len(data), round=number, now=network.now)
        network.run(lambda: both_ended(sent, received), network.now + 10 * S)  # noqa: B023
    assert network.cores[0].counters(1).rate_bps == pytest.approx(8 * 6.4e6, rel=0.1 + loss)


def test_a_byte_now_and_then_is_never_held_back() -> None:
    """What such a sender measures is itself, and no rate to keep to: each of its bytes leaves at once."""
    network = pair()
    for number in range(30):
        begun = network.now
        sent = network.cores[1].send(0, b"!", round=number, now=begun)
        received = network.cores[0].receive(1, 1, round=number, now=begun)
        network.run(partial(both_ended, sent, received), begun + 10 * S)
        assert network.now - begun < 3 * MS, number
        network.now += 40 * MS


def test_a_silent_worker_costs_one_deadline() -> None:
    """Of two workers one sends nothing: its message ends with the deadline, which began with the other's first packet."""
    cores = [Core(rank, 3, segment=SEGMENT) for rank in range(3)]
    network = Network(cores, lambda _source, _target, _datagram, now: [now + MS])
    network.connect()
    data = content(6400)
    closes = {"fraction": 0.8, "lt_ns": 20 * MS, "after_ns": 30 * MS, "group": 1}
    received = [cores[0].receive(source, len(data), now=network.now, **closes) for source in (1, 2)]  # type: ignore[arg-type]
    begun = network.now
    sent = cores[1].send(0, data, now=network.now)
    network.run(lambda: both_ended(*received, sent), network.now + 10 * S)
    first, second = (one.result() for one in received)
    assert (first.reason, second.reason, second.delivered) == (COMPLETE, DEADLINE, 0)
    assert 50 * MS <= network.now - begun <= 53 * MS
    late = cores[2].send(0, data, now=network.now)  # too late: it hears at once that nobody waits
    network.run(lambda: both_ended(late), network.now + S)
    assert (late.result().reason, late.result().delivered, late.holes()) == (DEADLINE, 0, [(0, len(data))])


def test_the_first_lt_has_as_many_round_trips_as_it_is_told() -> None:
    """Of a message of which one packet never comes: it ends once LT is over; the shortest round trip, while they connect, takes 200 µs."""

    def took(rtts: int) -> int:
        network = pair(lambda _source, _target, datagram, now: [] if b"NEVERGO!" in datagram else [now + MS], rtts=rtts)
        for number, data in enumerate([content(6400)] * 9 + [content(3200) + b"NEVERGO!" + content(3192)]):
            sent = network.cores[0].send(1, data, round=number, now=network.now)
            received = network.cores[1].receive(
                0, len(data), round=number, now=network.now, fraction=1 - number // 9 / 5
            )
            begun = network.now
            network.run(partial(both_ended, received, sent), begun + S)
        assert received.result().reason == FRACTION
        return network.now - begun

    assert took(50_000) - took(10_000) == pytest.approx(40 * MS / 5, rel=0.01)


@pytest.mark.parametrize("shared", [False, True])
def test_lt_is_of_each_worker_or_of_a_round(shared: bool) -> None:
    """(`per=worker`, `per=round`.) Of two workers that lose one packet for good the second begins 15 ms later: with its own clock it ends as much later."""
    data = bytearray(content(6400))
    data[3200:3208] = b"NEVERGO!"
    cores = [Core(rank, 3, segment=SEGMENT) for rank in range(3)]
    network = Network(cores, lambda _source, _target, datagram, now: [] if b"NEVERGO!" in datagram else [now + MS])
    network.connect()
    closes = {"fraction": 0.8, "lt_ns": 20 * MS, "after_ns": 300 * MS, "group": 1, "shared_lt": int(shared)}
    first, second = (cores[0].receive(source, len(data), now=network.now, **closes) for source in (1, 2))  # type: ignore[arg-type]
    begun = network.now
    sent = [cores[1].send(0, bytes(data), now=network.now)]
    network.run(lambda: False, begun + 15 * MS)
    sent.append(cores[2].send(0, bytes(data), now=network.now))
    network.run(lambda: both_ended(first), begun + S)
    assert 20 * MS <= network.now - begun <= 23 * MS
    network.run(lambda: both_ended(second, *sent), begun + S)
    assert first.result().delivered == len(data) - SEGMENT and second.result().delivered >= 0.8 * len(data)
    later = second.result().reason, network.now - begun < 30 * MS
    assert later == (FRACTION, shared)


@pytest.mark.parametrize("by_progress", [False, True])
def test_who_is_further_in_its_round_has_more_of_a_link(by_progress: bool) -> None:
    """By MLT's rule, two senders through one queue, the second from when the first has 40 % of its round there: with F the first has the more, else the second."""
    rule = native.Congestion(
        control=1, step_permille=40, decrease_permille=800, first_permille=1000, low_ns=MS // 10, high_ns=MS
    )
    f = {"slope": 1750, "offset": 250} if by_progress else {}
    cores = [Core(rank, 3, congestion=rule, **f) for rank in range(3)]
    free = 0

    def queue(_source: int, target: int, datagram: bytes, now: int) -> list[int]:
        nonlocal free
        if target:
            return [now + MS // 2]
        free = max(free, now) + len(datagram) * 200  # ns: 5 MB/s
        return [free + MS // 2]

    network = Network(cores, queue)
    network.connect()
    data = content(400_000)
    kept = [network.cores[0].receive(source, len(data), now=network.now) for source in (1, 2)]
    kept.append(network.cores[1].send(0, data, now=network.now))
    network.run(lambda: network.cores[1].counters(0).acked >= 160_000, network.now + S)
    kept.append(network.cores[2].send(0, data, now=network.now))
    begun = [network.cores[source].counters(0).acked for source in (1, 2)]
    network.run(lambda: network.cores[1].counters(0).acked >= 360_000, network.now + S)
    had = [network.cores[source].counters(0).acked - at for source, at in zip((1, 2), begun, strict=True)]
    assert (had[0] > 2 * had[1]) if by_progress else (had[1] > 2 * had[0])
    assert len(kept) == 4  # their memory is the core's until then


@pytest.mark.parametrize(("kind", "nth"), [(HELLO, 1), (WELCOME, 1), (HELLO, 2), (PING, 1)])
def test_a_lost_datagram_of_the_handshake_costs_a_tenth_of_a_second(kind: int, nth: int) -> None:
    """HELLO, WELCOME, HELLO by the peer's id, PING: whichever is lost, both ends are connected, and once one of them is, both soon are."""
    seen: list[int] = []

    def fate(_source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        seen.append(datagram[1])
        return [] if datagram[1] == kind and seen.count(kind) == nth else [now + MS]

    network = Network([Core(0), Core(1)], fate)
    begun = network.now
    here, there = network.cores
    here.call(1, begun)
    network.run(lambda: here.connected(1) and there.connected(0), begun + 10 * S)
    assert here.connected(1) and there.connected(0)
    assert 100 * MS <= network.now - begun < 110 * MS
    sent, received = there.send(0, content(1000), now=network.now), here.receive(1, 1000, now=network.now)
    network.run(lambda: both_ended(sent, received), network.now + 10 * S)
    assert received.result().reason == COMPLETE
    assert network.now - begun < 120 * MS


def hello(rank: int, own: int, to: int = 0, segment: int = SEGMENT) -> bytes:
    """A HELLO as docs/reference/wire-format.md describes it."""
    return struct.pack(">BBHIQQH", native_version(), HELLO, 0, rank, to, own, segment).ljust(64, b"\0")


@cache
def native_version() -> int:
    """What the core itself writes first."""
    one = Core(0)
    one.call(1, 0)
    told = one.output(0)
    assert told is not None
    return told[1][0]


@examples(100)
@given(data=st.data())
def test_no_hello_but_the_peers_own_decides(data: st.DataObject) -> None:
    """(M1.) HELLOs of other ids, forged or of an earlier connection, before, between and after those of the peer."""
    forged = st.builds(
        hello, st.integers(0, 1), st.integers(1, 2**64 - 1), st.sampled_from([0, 1, 2**64 - 1]), st.sampled_from([8, 16, SEGMENT, 1400])
    )  # fmt: skip
    brought = 0

    def fate(_source: int, _target: int, _datagram: bytes, now: int) -> list[int]:
        nonlocal brought
        for core in network.cores:
            for one in data.draw(st.lists(forged, max_size=3)) if brought < 30 else []:
                brought += 1
                assert core.input(one, now) == -1
        return [now + MS]

    network = Network([Core(0), Core(1)], fate)
    here, there = network.cores
    for core in network.cores:
        for one in data.draw(st.lists(forged, min_size=1, max_size=3)):
            assert core.input(one, network.now) == -1
    here.call(1, network.now)
    network.run(lambda: here.connected(1) and there.connected(0), network.now + 10 * S)
    assert here.connected(1) and there.connected(0)
    sent, received = here.send(1, content(1000), now=network.now), there.receive(0, 1000, now=network.now)
    network.run(lambda: both_ended(sent, received), network.now + 10 * S)
    assert agree(sent, received, content(1000)).reason == COMPLETE


def test_a_hello_of_an_earlier_session_is_answered_and_changes_nothing() -> None:
    """(M1.) All that an earlier session's ends said, brought to those of a new one first, in any order."""
    old: list[tuple[int, bytes]] = []

    def record(_source: int, target: int, datagram: bytes, now: int) -> list[int]:
        old.append((target, datagram))
        return [now + MS]

    def session(seed: int) -> Network:
        network = Network([Core(0, seed=seed), Core(1, seed=seed)], record)
        network.cores[0].call(1, network.now)
        return network

    first = session(1)
    first.run(lambda: all(core.connected(1 - core.rank) for core in first.cores), first.now + S)
    replayed, second = list(old), session(2)
    for target, datagram in [*replayed, *reversed(replayed)]:
        second.cores[target].input(datagram, second.now)
    assert not any(core.connected(1 - core.rank) for core in second.cores)
    second.run(lambda: all(core.connected(1 - core.rank) for core in second.cores), second.now + S)
    here, there = second.cores
    sent, received = there.send(0, content(1000), now=second.now), here.receive(1, 1000, now=second.now)
    second.run(lambda: both_ended(sent, received), second.now + S)
    assert agree(sent, received, content(1000)).reason == COMPLETE


def test_an_answer_to_a_hello_is_no_larger_than_it() -> None:
    """In datagrams and in bytes, whatever headers and a MAC add to each: one that nobody has confirmed cannot be used against another."""
    core, asked, said = Core(1), 0, 0
    for number in range(1, 500):
        assert core.input(hello(0, number), number * MS) == -1
        asked += 1
        if number % 7 == 0:
            for at in (number * MS, number * MS + S):
                core.tick(at)
                while (told := core.output(at)) is not None:
                    said += 1
                    assert len(told[1]) <= 64
    assert 0 < said <= asked


def test_what_is_posted_before_the_handshake_is_refused() -> None:
    """(M3.) Until then nobody knows what a packet holds; with the smaller segment it is right."""
    network = Network([Core(0, segment=64), Core(1, segment=8)], lambda _source, _target, _datagram, now: [now + MS])
    here, there = network.cores
    here.call(1, network.now)
    datagrams = 0
    while not (here.connected(1) and there.connected(0)):
        for core in network.cores:
            if not core.connected(1 - core.rank):
                for post in (core.send_or_errno, core.receive_or_errno):
                    assert post(1 - core.rank, 3000, now=network.now) == errno.ENOTCONN
        datagrams += 1
        network.run(lambda: network.count >= datagrams, network.now + S)  # noqa: B023
    data = content(3000)
    sent, received = here.send(1, data, now=network.now), there.receive(0, len(data), now=network.now)
    assert here.receive_or_errno(7, 1, now=network.now) == here.send_or_errno(1, 0, now=network.now) == errno.EINVAL
    assert there.receive_or_errno(0, len(data), now=network.now) == errno.EEXIST
    network.run(lambda: both_ended(sent, received), network.now + 10 * S)
    assert agree(sent, received, data).reason == COMPLETE


@examples(50)
@given(first=st.sampled_from([8, 16, 64, 1400]), second=st.sampled_from([8, 24, 64, 1384]), size=st.integers(1, 5000), seed=st.integers(0, 2**32))  # fmt: skip
def test_the_smaller_segment_holds(first: int, second: int, size: int, seed: int) -> None:
    network = Network([Core(0, segment=first), Core(1, segment=second)], Unkind(random.Random(seed), 0.1, 0.1, MS))
    here, there = network.cores
    here.call(1, network.now)
    network.run(lambda: here.connected(1) and there.connected(0), network.now + 60 * S)
    data = content(size)
    sent, received = there.send(0, data, now=network.now), here.receive(1, size, now=network.now)
    network.run(lambda: both_ended(sent, received), network.now + 100 * S)
    assert agree(sent, received, data).reason == COMPLETE
    assert {core.library.dg_segment(core.core, 1 - core.rank) for core in network.cores} == {min(first, second)}


def test_a_path_that_carries_no_data_ends_an_exchange() -> None:
    """(H2.) The peer answers every PING, and acknowledges nothing: after `silence` it counts as gone, and is said to have stalled."""
    network = pair(lambda _source, _target, datagram, now: [] if datagram[1] == DATA else [now + MS], silence_ns=S)
    begun = network.now
    sent = network.cores[0].send(1, content(5000), now=network.now)
    received = network.cores[1].receive(0, 5000, now=network.now)
    network.run(lambda: both_ended(sent), begun + 10 * S)
    assert (sent.result().reason, sent.result().stalled) == (GONE, 1)
    assert S <= network.now - begun < 2 * S
    assert not received.result().done and not received.result().stalled, "its peer's PINGs came"


def test_who_computes_for_longer_than_silence_is_waited_for() -> None:
    """Its endpoint answers, and takes, or at least hears of, what is sent meanwhile: neither end takes the other for gone."""
    network = pair(silence_ns=S, segment=1400)
    data = content(5000)
    sent = network.cores[0].send(1, data, now=network.now)
    waiting = network.cores[0].receive(1, 5000, now=network.now)
    large = network.cores[0].send(
        1, bytes(300 << 20), message=1, now=network.now
    )  # more than is kept before it is asked for
    network.run(lambda: False, network.now + 20 * S)
    assert not waiting.result().done and sent.result().reason == COMPLETE and not large.result().done
    received = network.cores[1].receive(0, 5000, now=network.now)
    back = network.cores[1].send(0, data, now=network.now)
    network.run(lambda: both_ended(received, back, waiting), network.now + 10 * S)
    assert agree(sent, received, data).reason == agree(back, waiting, data).reason == COMPLETE


def test_what_there_was_no_room_for_comes_soon_after_it_is_asked_for() -> None:
    """Of messages that are not asked for so many are kept; another one is tried again ten times a second, however long it takes."""
    cores = [Core(rank, silence_ns=100 * S) for rank in range(2)]
    network = Network(cores, lambda _source, _target, _datagram, now: [now + 50 * MS])
    here, there = network.cores
    here.call(1, network.now)
    network.run(lambda: here.connected(1) and there.connected(0), network.now + S)
    kept = [here.send(1, content(SEGMENT), now=network.now, message=number) for number in range(4096)]
    network.run(lambda: both_ended(*kept), network.now + 100 * S)
    sent = here.send(1, content(SEGMENT), now=network.now, message=4096)
    network.run(lambda: False, network.now + 60 * S)
    assert both_ended(*kept) and not sent.result().done
    asked = network.now
    received = there.receive(0, SEGMENT, now=asked, message=4096)
    network.run(lambda: both_ended(sent, received), asked + 100 * S)
    assert agree(sent, received, content(SEGMENT)).reason == COMPLETE
    assert network.now - asked < S


def test_whoever_says_nothing_for_too_long_is_gone() -> None:
    network = pair(silence_ns=S)
    received = network.cores[1].receive(0, 1000, now=network.now)
    begun = network.now
    network.run(lambda: network.now > begun + 4 * S, begun + 5 * S)
    assert not received.result().done, "it answers pings, although it has nothing to send"
    network.fate = lambda *_: []
    network.run(lambda: both_ended(received), network.now + 5 * S)
    assert received.result().reason == GONE


@pytest.mark.parametrize(("whom", "named"), [(2, 2), (None, 0), (1, 0), (7, 0)])
def test_who_leaves_says_because_of_whom(whom: int | None, named: int) -> None:
    """Of three words that it leaves two are lost; that its peer itself is gone, or nobody, that one does not believe."""
    ends: list[bytes] = []

    def fate(_source: int, target: int, datagram: bytes, now: int) -> list[int]:
        if datagram[1] == END and target == 1:
            ends.append(datagram)
            return [now + MS] if len(ends) == 3 else []
        return [now + MS]

    network = Network([Core(rank, 3) for rank in range(3)], fate)
    network.connect()
    here, there, _ = network.cores
    received, own = there.receive(0, 1000, now=network.now), here.receive(1, 1000, now=network.now)
    other = there.receive(2, 1000, now=network.now)
    here.end(whom)
    network.run(lambda: both_ended(received, own), network.now + 10 * MS)
    assert both_ended(received, own) and len(ends) == 3
    assert (received.result().reason, received.result().gone, received.holes()) == (GONE, named, [(0, 1000)])
    assert own.result().gone == (2 if named == 2 else 1), "what is under way here ends for the same reason"
    assert not other.result().done
    late = there.send(0, b"too late", now=network.now)
    assert (late.result().reason, late.result().gone) == (GONE, named)


def test_a_word_of_an_end_that_names_nobody_is_none() -> None:
    network = pair()
    received = network.cores[1].receive(0, 1000, now=network.now)
    network.cores[0].end()
    told = network.cores[0].output(network.now)
    assert told is not None and told[1][1] == END and len(told[1]) == 20
    before = network.cores[1].counters(0).malformed
    network.cores[1].input(told[1][:19], network.now)
    network.cores[1].input(bytes([1]) + told[1][1:], network.now)  # of another version
    assert network.cores[1].counters(0).malformed == before + 1 and not received.result().done
    network.cores[1].input(told[1], network.now)
    assert (received.result().reason, received.result().gone) == (GONE, 0)


@examples(300)
@given(data=st.data())
def test_garbage_changes_nothing(data: st.DataObject) -> None:
    """Anybody's bytes, and our own with some changed, cut or stale, while a message is under way."""
    network, whole = pair(), content(4000)
    sent, received = (
        network.cores[0].send(1, whole, now=network.now),
        network.cores[1].receive(0, len(whole), now=network.now),
    )
    real: list[bytes] = []

    def fate(_source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        real.append(datagram)
        return [now + MS // 2]

    network.fate = fate
    network.run(lambda: len(real) > 3, network.now + S)
    for _ in range(data.draw(st.integers(1, 10))):
        kind = data.draw(st.sampled_from(["any", "cut", "head"]))
        one = data.draw(st.sampled_from(real))
        if kind == "any":
            one = data.draw(st.binary(max_size=200))
        elif kind == "cut":
            one = one[: data.draw(st.integers(0, len(one) - 1))]
        else:  # another connection's
            one = one[:8] + data.draw(st.binary(min_size=8, max_size=8)) + one[16:]
        for core in network.cores:
            core.input(one, network.now)
    network.run(lambda: both_ended(sent, received), network.now + 100 * S)
    assert agree(sent, received, whole).reason == COMPLETE


FUZZ = Path(__file__).with_name("transport_fuzz.c")
EXCHANGE = Path(__file__).with_name("transport_exchange.c")
LIMITS = Path(__file__).with_name("transport_limits.c")
LIBRARY = [path for path in native.sources() if path.suffix == ".c"]
ALLOCATOR = tuple(f"-D{name}=core_{name}" for name in ("malloc", "calloc", "realloc"))  # failing_malloc.h


def sanitized(compiler: str, kinds: str, sources: list[Path], folder: Path, *words: str) -> Path:
    """A program of these, watched; skips where the compiler has not what watches."""
    made = folder / sources[0].stem
    command = [compiler, *words, "-g", "-O1", f"-fsanitize={kinds}", "-fno-sanitize-recover=all", "-pthread"]
    try:
        done = subprocess.run(
            [*command, *map(str, sources), "-lm", "-o", str(made)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip(f"there is no {compiler} here")
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip(f"{compiler} has no sanitizers here{': make libfuzzer' if compiler == 'clang' else ''}")
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_nothing_that_comes_breaks_it(compiler: str, tmp_path: Path) -> None:
    """Under ASan and UBSan: lost, repeated, late, cut, changed and forged datagrams, handshakes in any order, several segments, and
    allocations that fail; by libFuzzer where clang has it."""
    sources = [FUZZ, *LIBRARY]
    examples = settings().max_examples  # 5000 in `make test-long`: ten million datagrams
    if compiler == "clang":
        made = sanitized(compiler, "fuzzer,address,undefined", sources, tmp_path, *ALLOCATOR)
        arguments = [f"-runs={20 * examples}", "-max_len=2000", "-seed=1"]
    else:
        made = sanitized(compiler, "address,undefined", sources, tmp_path, "-DALONE", *ALLOCATOR)
        arguments = [str(2000 * examples)]
    done = subprocess.run([str(made), *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    print(compiler, done.stdout)  # with -s or -rP a log shows how many
    brought, _, connected, refused, without_memory = map(int, re.findall(r"\d+", done.stdout))
    assert brought >= (2000 if compiler == "gcc" else 20) * examples
    assert compiler == "clang" or min(connected, refused, without_memory) > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", ["costs", "names", "critical", "closes", "memory"])
def test_a_peer_cannot_make_it_work_or_reserve_and_without_memory_nothing_is_lost(part: str, tmp_path: Path) -> None:
    """(M4, Low 5, Low 7.) Work is counted in basic blocks, memory in bytes, and each allocation fails in turn (transport_limits.c)."""
    sources = [LIMITS, *LIBRARY]
    words = "-fsanitize-coverage=trace-pc", "-Wall", "-Wextra", "-Werror", *ALLOCATOR
    made = sanitized("gcc", "address,undefined", sources, tmp_path, *words)
    done = subprocess.run([str(made), part], capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_nothing_that_comes_breaks_it_on_its_sockets(compiler: str, tmp_path: Path) -> None:
    """All of the library under ASan and UBSan, by system calls and by a ring, signed or not, with somebody between both ends or not."""
    words = "-Wall", "-Wextra", "-Werror", *ALLOCATOR
    made = sanitized(compiler, "address,undefined", [EXCHANGE, *LIBRARY], tmp_path, *words)
    done = subprocess.run([str(made)], capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout


@pytest.mark.slow
def test_what_rests_takes_no_instant_for_one_that_is_still_to_come(tmp_path: Path) -> None:
    """By a ring, with much to send and rests in which that fits: a look that did not wait was taken for one at its rest's end."""
    words = "-DCHECK_CLOCK", "-DSIZE=5000003", "-DCOALESCE=1000000", *ALLOCATOR
    made = sanitized("gcc", "undefined", [EXCHANGE, *LIBRARY], tmp_path, *words)
    done = subprocess.run([str(made)], capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout


def test_no_circle_between_the_files() -> None:
    """A .c and a .h of one name are one file here: what it declares it also defines."""
    graph: dict[str, set[str]] = {}
    for path in native.sources():
        asked = {Path(name).stem for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)}
        graph.setdefault(path.stem, set()).update(asked - {path.stem})
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("reorder", [1, 3, 6])
@pytest.mark.parametrize("fewer", [1, 0])
def test_a_packet_is_lost_when_so_many_later_ones_are_acknowledged(reorder: int, fewer: int) -> None:
    """A packet near the end of a message arrives late: behind as many later ones as count as a loss, or one fewer."""
    packets, later, number, free = 300, reorder - fewer, 0, 0

    def fate(source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        nonlocal number, free
        if source or datagram[1] != DATA:
            return [now + MS // 10]
        number += 1
        free = max(free, now) + MS // 10
        return [free + (MS if number == packets - later else 0)]

    network, data = pair(fate, reorder=reorder, acks=1), content(packets * SEGMENT)
    sent = network.cores[0].send(1, data, now=network.now)
    received = network.cores[1].receive(0, len(data), now=network.now)
    network.run(lambda: both_ended(sent, received), network.now + 10 * S)
    assert agree(sent, received, data).reason == COMPLETE
    assert network.cores[0].counters(1).resent == 1 - fewer


def test_each_timeout_in_a_row_is_twice_as_long() -> None:
    """A packet that nobody receives is sent again and again."""
    sent_at: list[int] = []

    def fate(_source: int, _target: int, datagram: bytes, now: int) -> list[int]:
        if datagram[1] != DATA:
            return [now + MS]
        sent_at.append(now)
        return []

    network = pair(fate, silence_ns=60 * S)
    network.cores[0].send(1, content(SEGMENT), now=network.now)
    network.run(lambda: len(sent_at) > 5, network.now + 20 * S)
    gaps = [after - before for before, after in pairwise(sent_at)]
    assert [after / before for before, after in pairwise(gaps)] == pytest.approx([2] * 4, rel=0.05)
