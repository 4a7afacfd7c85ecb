"""Transports as a run has them: named, planned, over real sockets, and what an iteration's messages came to."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from testbed import transports
from testbed.campaign.verdict import jobs
from testbed.core import builtin_transport
from testbed.core.errors import MachineError, RequestError
from testbed.core.options import OptionError
from testbed.core.runs import rows
from testbed.core.runs.plan import Burst, Plan, Wire
from testbed.core.units import Duration
from testbed.planning import plan as planning
from testbed.replay.exchange import Link
from testbed.replay.messages import Messages
from testbed.spec import job, read, systems
from testbed.traces import collectives
from testbed.transports import (
    Close,
    Delivery,
    Endpoint,
    Message,
    Place,
    TransportError,
    dlcp,
    ltp,
    mlt,
    optireduce,
    tcp,
)
from testbed.transports.datagram import native
from testbed.transports.datagram.endpoint import DatagramConnected, DatagramEndpoint, DatagramListening
from testbed.transports.datagram.engine import Silence, segment_bytes
from testbed.transports.datagram.transfer import SILENT_ROUNDS, DatagramTransfer, refused
from testbed.transports.framed import exactly
from tests.support.processes import HANG_S, loopback

*HERE, STRANGER = loopback(4)
GONE = 5  # a reason of the core
CLONE_NEWNET = 0x40000000


def made(**flags: object) -> list[Plan]:
    asked = {
        "topo": "star",
        "jobs": 1,
        "workers": 3,
        "collective": "parameter_server",
        "compute": "20ms",
        "bytes": "1MB",
    }
    return planning.planned(read(None, asked | flags))[1]


def test_a_transport_is_a_system_and_a_treatment() -> None:
    found = systems.parse("ltp:fraction=0.9")
    assert (found.name, found.transport, found.role, found.congestion) == ("ltp", "ltp:fraction=0.9", "treatment", ())
    assert systems.parse("ltp:c=5ms,role=reference").role == "reference"
    assert systems.parse("reno").transport == "tcp"
    with pytest.raises(RequestError, match="cannot alternate"):
        systems.parse("ltp+reno")
    with pytest.raises(OptionError, match=r"fraction .*default 0.8"):
        systems.parse("ltp:fractoin=0.9")
    with pytest.raises(OptionError, match="not between 0 and 1"):
        systems.parse("ltp:fraction=80")


def test_tcp_has_options_behind_its_congestion_control() -> None:
    found = systems.parse("reno:close=0.8")
    assert (found.label, found.name, found.transport, found.role) == (
        "reno:close=0.8",
        "reno",
        "tcp:close=0.8",
        "baseline",
    )
    assert [cc.spec for cc in found.congestion] == ["reno"]
    treated = systems.parse("mltcp_reno:slope=2,close=0.5,share=mark")
    assert (treated.transport, treated.congestion[0].spec) == ("tcp:close=0.5", "mltcp_reno:slope=2,share=mark")
    assert systems.parse("bbr").transport == systems.parse("reno+cubic").transport == "tcp"
    with pytest.raises(OptionError, match="close"):
        systems.parse("reno:close=80")
    with pytest.raises(RequestError, match="clsoe"):
        systems.parse("reno:clsoe=0.8")
    with pytest.raises(RequestError, match="jobs that alternate"):
        systems.parse("reno:close=0.8+cubic")
    plan = made(system=("bbr:share=0.8",))[0]
    assert (plan.jobs[0].transport, plan.jobs[0].cc.spec, plan.jobs[0].by_tcp) == ("tcp:share=0.8", "bbr", True)
    beside = made(jobs=2, system=("cubic",), job=[{"transport": "tcp:close=0.5"}, {}])[0]
    assert [(job.transport, job.cc.spec) for job in beside.jobs] == [("tcp:close=0.5", "cubic"), ("tcp", "cubic")]


def test_plans_carry_it() -> None:
    reno, gentle, *_ = made(system=("reno", "ltp:broadcast=tcp:cubic"))
    assert reno.jobs[0].transport == "tcp" and reno.transports == []
    assert gentle.jobs[0].transport == "ltp:broadcast=tcp:cubic" == gentle.transports[0]
    assert gentle.jobs[0].cc.spec == "cubic"
    assert gentle.host_queue_bytes("h1") == gentle.link.buffer_bytes


def test_a_job_may_have_its_own() -> None:
    beside = made(jobs=2, system=("reno",), job=[{"transport": "ltp"}, {}])[0]
    assert [job.transport for job in beside.jobs] == ["ltp", "tcp"]
    beside = made(jobs=2, system=("ltp",), job=[{}, {"cc": "reno"}])[0]
    assert [job.transport for job in beside.jobs] == ["ltp", "tcp"]


def test_a_real_training_may_have_it_another_program_not() -> None:
    asked = {"topo": "star", "on": "host"}
    plan = planning.planned(read(None, asked | {"job": [job.parse("ddp:resnet18 --batch 2,transport=ltp,workers=3")]}))[
        1
    ][0]
    assert plan.jobs[0].transport == "ltp" and len(plan.jobs[0].hosts) == 3
    assert plan.jobs[0].program == ("python", "-m", "testbed.replay.ddp.train", "resnet18", "--batch", "2")
    _, (plan, *_) = planning.planned(
        read(None, asked | {"job": [job.parse("ddp:resnet18,transport=mlt:bands=1,workers=3")]})
    )
    assert plan.jobs[0].transport == "mlt:bands=1"
    assert job.parse("cmd:python train.py a,b") == {"cmd": "python train.py a,b"}
    with pytest.raises(RequestError, match="broadcast=ltp"):
        read(None, asked | {"job": [job.parse("ddp:resnet18,transport=ltp:broadcast=tcp")]})
    with pytest.raises(RequestError, match="chooses its own transport"):
        planning.planned(read(None, asked | {"job": [{"cmd": "true"}], "system": ("ltp",)}))


def test_a_shaped_link_may_delay_and_lose() -> None:
    plan = made(system=("ltp",), delay="20ms", loss="1%")[0]
    assert set(plan.wires) == {"s1-h1", "s1-h2", "s1-h3"} < set(plan.bottlenecks)
    assert plan.wires["s1-h1"] == Wire(20_000_000, 0, 0.01, 0.0)
    assert plan.base_rtt_s == pytest.approx(0.040, rel=0.01)
    burst = made(system=("ltp",), loss="80%/0.1%/5%")[0].wires["s1-h1"]
    assert burst == Wire(0, 0, 0.8, 0.0, Burst(0.001, 0.05))
    for wrong in ("100%", "80%/1%", "80%/1%/0%", "80%/1%/5%/2%", "/1%/5%"):
        with pytest.raises(RequestError, match="loss"):
            read(None, {"loss": wrong})
    one = made(system=("ltp",), set=("link.h2-s1.loss=1%",))[0]
    assert set(one.wires) == {"s1-h2", "h2-s1"}
    one = made(system=("ltp",), set=("link.h2-s1.loss=1%", "link.h2-s1.oneway=true"))[0]
    assert set(one.wires) == {"h2-s1"}


def test_a_hosts_link_loses_both_ways_and_what_every_path_has_is_had_once() -> None:
    asked = {"system": ("ltp",), "topo": "leafspine,2,2,2", "delay": "20ms"}
    one = made(**asked, set=("link.h1-l1.loss=1%",))[0]
    assert one.wires["h1-l1"] == Wire(0, 0, 0.01, 0.0) and one.wires["l1-h1"] == Wire(20_000_000, 0, 0.01, 0.0)
    assert one.base_rtt_s == pytest.approx(0.040, rel=0.01)
    one = made(**asked | {"delay": "0ms"}, set=("link.h1-l1.loss=1%", "link.h1-l1.oneway=true"))[0]
    assert one.wires == {"h1-l1": Wire(0, 0, 0.01, 0.0)}


@pytest.mark.parametrize("name", collectives.names())
def test_a_collective_says_of_every_stage_whether_it_may_lose(name: str) -> None:
    """Gradients are what is summed up on the way: of an all-reduce half of it, of a reduce-scatter all, of others nothing."""
    n, size, lock = 2 if name == "send_recv" else 4, 4000, threading.Lock()
    sent = {"gradient": 0, "parameter": 0}

    class Fake:
        def post_send(self, to: int, m: Message, data: object, tag: object = None) -> Fake:
            with lock:
                sent[m.stage] += m.bytes if data is None else 0
            return self

        def post_receive(self, source: int, m: Message, into: object, close: Close) -> Fake:
            return self

        def wait(self, timeout_s: float | None = None) -> Delivery:
            return Delivery(0, 0, "complete")

        def on_done(self, callback: Callable[[Fake], None]) -> None:
            callback(self)

    flows = collectives.flows(name, n)
    for rank in range(n):
        links = {flow: Link(Fake(), 0) for flow in flows if rank in flow}  # type: ignore[arg-type]
        collectives.find(name).run(rank, n, size, links)
    kind = collectives.find(name).KIND
    whole = sum(sent.values())
    assert sent["gradient"] == {"all_reduce": whole // 2, "reduce_scatter": whole}.get(kind, 0)


@contextmanager
def endpoints(
    options: Sequence[ltp.Options],
    ranks: int = 2,
    port: int = 7301,
    keys: Sequence[bytes] = (b"", b"", b""),
    copying: bool = True,
) -> Iterator[list[Endpoint]]:
    native.build()
    flows = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    places = [
        Place(rank, HERE[:ranks], port, flows, mtu=1500, seed=b"test", key=keys[rank], copying=copying)
        for rank in range(ranks)
    ]
    waiting = [ltp.listen(place, one) for place, one in zip(places, options, strict=True)]
    connected: dict[int, DatagramConnected] = {}
    threads = [
        threading.Thread(target=lambda rank=rank, one=one: connected.update({rank: one.connect()}))
        for rank, one in enumerate(waiting)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    try:
        yield [connected[rank].endpoint(0, flows) for rank in range(ranks)]
    finally:
        for one in waiting:
            for engine in one.channels:
                engine.library.endpoint_close(engine.pointer)


def test_bytes_arrive_over_real_sockets() -> None:
    data, into = random.Random(1).randbytes(3_000_001), bytearray(3_000_001)
    with endpoints([ltp.Options()] * 2) as (here, there):
        message = Message(0, 1, 0, len(data), "parameter")
        received, sent = there.post_receive(0, message, into, Close()), here.post_send(1, message, data)
        assert received.wait(HANG_S).closed == sent.wait(HANG_S).closed == "complete"
        assert bytes(into) == data and received.done()
        assert here.counters(1).acked_bytes >= len(data)
        heard: list[str] = []
        again = Message(1, 1, 0, 8, "parameter")
        there.post_receive(0, again, None, Close()).on_done(lambda transfer: heard.append(transfer.wait().closed))
        here.post_send(1, again, b"eightxxx").wait(HANG_S)
        for _ in range(100):
            if heard:
                break
            threading.Event().wait(0.05)
        assert heard == ["complete"]


@contextmanager
def connections(options: tcp.Options, port: int) -> Iterator[list[tcp.Connected]]:
    flows = [(0, 1), (1, 0)]
    waiting = [tcp.listen(Place(rank, HERE[:2], port, flows), options) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda one: one.connect(), waiting))
    try:
        yield ends
    finally:
        for end in ends:
            end.endpoint(0, flows).end("over")


@pytest.mark.parametrize(("options", "port"), [("tcp:close=0.3", 7351), ("tcp:share=0.3", 7361)])
def test_an_application_may_close_tcp_early(options: str, port: int) -> None:
    """Round after round the first bytes arrive, the rest is a hole at both ends; parameters arrive whole."""
    with connections(transports.parse(options).options, port) as ends:
        here, there = (end.endpoint(0, [(0, 1), (1, 0)]) for end in ends)
        for number, size in enumerate([40_000_003, 1, 1000, 300_000]):
            data, into = random.Random(size).randbytes(size), bytearray(b"\xee" * size)
            message = Message(number, 0, 0, size, "gradient")
            sent, received = here.post_send(1, message, data), there.post_receive(0, message, into, Close())
            with ThreadPoolExecutor(1) as pool:
                told = pool.submit(sent.wait)
                ended = received.wait(HANG_S)
                assert told.result(HANG_S) == ended
            missing = sum(count for _, count in ended.holes)
            assert ended.delivered + missing == size and 0.3 * size <= ended.delivered <= 0.3 * size + 4
            assert into == data[: ended.delivered] + bytes(missing)
            whole = Message(number, 0, 1, size, "parameter")
            back, answered = bytearray(size), there.post_send(0, whole, data)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(answered.wait)
                assert here.post_receive(1, whole, back, Close()).wait(HANG_S).closed == "complete"
            assert back == data
        assert ends[0].sent() == 40_301_004, "what was handed over"
        assert here.counters(1).acked_bytes < 30_000_000, "what was given up is not sent"


def test_a_few_bytes_wake_who_waits_for_them() -> None:
    """Whatever mark of bytes to be woken for was left behind by what was received before."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        first, _ = server.accept()
        with first, ThreadPoolExecutor(1) as pool:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 10)
            for take, pieces in (
                (lambda: tcp._fill(first, memoryview(bytearray(3))), [b"abc"]),
                (lambda: exactly(first, 4), [b"ab", b"cd"]),
                (lambda: tcp._receive(first, 3), [b"a", b"bc"]),
            ):
                taken = pool.submit(take)
                for piece in pieces:
                    time.sleep(0.05)  # by then it waits
                    sender.sendall(piece)
                taken.result(HANG_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees packets with their headers")
def test_a_tag_is_the_band_of_a_packet() -> None:
    """What is critical travels above the rest; which packets these are, and how that is written in the IP header."""
    data = random.Random(5).randbytes(20_000)
    with endpoints([ltp.Options()] * 2, port=7391, copying=False) as (here, there), socket.socket(
        socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP
    ) as wire:  # fmt: skip
        wire.bind((HERE[1], 0))
        wire.settimeout(HANG_S)
        segment = segment_bytes(1500)
        message = Message(0, 0, 0, len(data), "gradient", critical=((3 * segment + 5, 1),))
        into = bytearray(len(data))
        received, sent = (
            there.post_receive(0, message, into, Close()),
            here.post_send(1, message, data, ltp.tagger(message)),
        )
        assert received.wait(HANG_S).closed == sent.wait(HANG_S).closed == "complete"
        assert into == data
        seen: dict[int, int] = {}
        while len(seen) < -(-len(data) // segment):
            packet = wire.recv(2000)
            if struct.unpack_from(">H", packet, 22)[0] == 7391 and packet[29] == 3:  # DATA to the port
                seen[struct.unpack_from(">Q", packet, 28 + 40)[0] // segment] = packet[1]
    last = max(seen)
    assert {number for number, tos in seen.items() if tos == 1 << 5} == {0, 3, last}
    assert {tos for number, tos in seen.items() if number not in (0, 3, last)} == {0}


def test_a_peer_that_ends_is_named() -> None:
    with endpoints([ltp.Options()] * 2, port=7311) as (here, there):
        waiting = there.post_receive(0, Message(0, 0, 0, 1000, "parameter"), None, Close())
        here.end("over")
        with pytest.raises(TransportError, match="worker 0 is gone"):
            waiting.wait(HANG_S)
    with endpoints([ltp.Options()] * 3, ranks=3, port=7401) as (here, there, _):
        waiting = there.post_receive(0, Message(0, 0, 0, 1000, "parameter"), None, Close())
        here.end("worker 2 is gone", gone=2)
        with pytest.raises(TransportError, match="worker 2 is gone") as caught:
            waiting.wait(HANG_S)
        assert caught.value.gone == 2


def test_a_silent_worker_costs_a_deadline_a_round_and_three_end_the_run() -> None:
    options = ltp.Options(lt=Duration.parse("500ms"), deadline_slack=Duration.parse("200ms"))
    how = ltp.close(options, "gradient")
    with endpoints([options] * 3, ranks=3, port=7321) as (server, worker, _silent):
        for number in range(3):
            message = Message(number, 0, 0, 50_000, "gradient")
            posted = [server.post_receive(source, message, None, how) for source in (1, 2)]
            worker.post_send(0, message, None).wait(HANG_S)
            assert posted[0].wait(HANG_S).delivered == 50_000
            if number == 2:
                with pytest.raises(TransportError, match="worker 2 has sent nothing for 3 rounds"):
                    posted[1].wait(HANG_S)
            else:
                last = posted[1].wait(HANG_S)
                assert (last.closed, last.delivered, last.holes) == ("deadline", 0, ((0, 50_000),))


def test_who_comes_after_every_deadline_is_late_not_silent() -> None:
    """Its messages are closed before it hands them over; that it does, its peer hears all the same."""
    options = ltp.Options(lt=Duration.parse("50ms"), deadline_slack=Duration.parse("50ms"))
    how = ltp.close(options, "gradient")
    with endpoints([options] * 3, ranks=3, port=7341) as (server, worker, late):
        for number in range(2 * SILENT_ROUNDS):
            message = Message(number, 0, 0, 50_000, "gradient")
            posted = [server.post_receive(source, message, None, how) for source in (1, 2)]
            worker.post_send(0, message, None).wait(HANG_S)
            last = posted[1].wait(HANG_S)
            assert (last.closed, last.delivered) == ("deadline", 0)
            assert late.post_send(0, message, None).wait(HANG_S).closed == "deadline"


def test_with_a_key_what_is_not_signed_by_it_is_nobodys() -> None:
    """SipHash-2-4 as published (its paper's appendix A); two ends with one key understand each other, with two they do not."""
    native.build()
    mac = ctypes.create_string_buffer(native.MAC_BYTES)
    native.load().siphash(bytes(range(16)), bytes(range(15)), 15, mac)
    assert mac.raw == bytes.fromhex("e545be4961ca29a1")
    data, into = random.Random(7).randbytes(1_000_001), bytearray(1_000_001)
    with endpoints([ltp.Options()] * 2, port=7371, keys=[b"k" * 16] * 2) as (here, there):
        message = Message(0, 0, 0, len(data), "parameter")
        received, sent = there.post_receive(0, message, into, Close()), here.post_send(1, message, data)
        assert received.wait(HANG_S).closed == sent.wait(HANG_S).closed == "complete"
        assert bytes(into) == data
    places = [Place(rank, HERE[:2], 7381, [(0, 1)], patience_s=0.3, key=bytes([rank]) * 16) for rank in range(2)]
    waiting = [ltp.listen(place, ltp.Options()) for place in places]
    with pytest.raises(TransportError, match=rf"worker 1 \({HERE[1]}\) does not answer"):
        waiting[0].connect()
    for one in waiting:
        one.channels[0].library.endpoint_close(one.channels[0].pointer)


@contextmanager
def listening(
    rank: int, port: int, key: bytes = b"", silence: str = "30s", patience_s: float = HANG_S
) -> Iterator[DatagramListening]:
    """One end of two, bound."""
    native.build()
    place = Place(rank, HERE[:2], port, [(0, 1), (1, 0)], mtu=1500, key=key, patience_s=patience_s)
    found = ltp.listen(place, ltp.Options(peer_timeout=Duration.parse(silence)))
    try:
        yield found
    finally:
        for engine in found.channels:
            engine.library.endpoint_close(engine.pointer)


def connected(*ends: DatagramListening) -> list[Endpoint]:
    with ThreadPoolExecutor(len(ends)) as pool:
        return [end.endpoint(0, [(0, 1), (1, 0)]) for end in pool.map(lambda end: end.connect(), ends)]


def go_round(here: Endpoint, there: Endpoint, number: int, size: int = 100_000) -> None:
    """A message that arrives whole, there and back."""
    data = random.Random(number).randbytes(size)
    for operation, (source, target, rank) in enumerate(((here, there, 0), (there, here, 1))):
        into, message = bytearray(size), Message(number, operation, 0, size, "parameter")
        received, sent = target.post_receive(rank, message, into, Close()), source.post_send(1 - rank, message, data)
        assert received.wait(HANG_S).closed == sent.wait(HANG_S).closed == "complete"
        assert into == data


@pytest.mark.parametrize("key", [b"", b"k" * 16])
def test_a_hello_that_comes_first_connects_nobody(key: bytes) -> None:
    """(M1.) It is of an earlier session, signed where there is a key, and sent again from the same address, before that of this one."""
    port = 7421 + 10 * bool(key)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink, listening(0, port, key, patience_s=0.2) as caller:
        sink.bind((HERE[1], port))
        sink.settimeout(HANG_S)
        with pytest.raises(TransportError, match="does not answer"):
            caller.connect()
        old = sink.recv(2000)
    with listening(1, port, key) as called:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.bind((HERE[0], port))
            forger.settimeout(HANG_S)
            forger.sendto(old, (HERE[1], port))
            answer = forger.recv(2000)
            assert answer[1] == 2 and len(answer) <= len(old)
            forger.settimeout(0.3)
            with pytest.raises(TimeoutError):
                forger.recv(2000)
        with listening(0, port, key) as caller:
            here, there = connected(caller, called)
            go_round(here, there, 0)


def test_a_message_that_cannot_be_posted_is_refused_by_name() -> None:
    """(M3.) Before the handshake; a name that is under way; and when there is no memory."""
    message = Message(0, 0, 0, 1000, "gradient")
    with listening(0, 7431) as caller, listening(1, 7431) as called:
        for early in (caller, called):
            endpoint = DatagramEndpoint(early.channels[0], frozenset({(0, 1)}), None)
            with pytest.raises(TransportError):
                endpoint.post_receive(1 - early.place.rank, message, None, Close())
            with pytest.raises(TransportError):
                endpoint.post_send(1 - early.place.rank, message, None)
        here, there = connected(caller, called)
        received = there.post_receive(0, message, None, Close())
        with pytest.raises(TransportError):
            there.post_receive(0, message, None, Close())
        here.post_send(1, message, None).wait(HANG_S)
        assert received.wait(HANG_S).closed == "complete"
    said = {str(refused(why, 1, message)) for why in (errno.ENOTCONN, errno.EEXIST, errno.ENOMEM, errno.EINVAL)}
    assert len(said) == 4


@pytest.mark.parametrize("stalled", [0, 1])
def test_a_peer_that_is_gone_or_acknowledges_nothing_ends_a_wait(stalled: int) -> None:
    class Core:
        def endpoint_wait(self, _endpoint: object, _handle: int, _patience: int, result: native.Result) -> None:
            result.done, result.bytes, result.reason, result.gone, result.stalled = 1, 10, GONE, 1, stalled

        def endpoint_release(self, *_: object) -> None: ...

    core = SimpleNamespace(silence=Duration.parse("1s"))
    engine = SimpleNamespace(library=Core(), pointer=0, silences=defaultdict(Silence), core=core)
    transfer = DatagramTransfer(cast(Any, engine), 1, 1, Message(0, 0, 0, 10, "gradient"), None)
    with pytest.raises(TransportError, match="acknowledged nothing" if stalled else "is gone") as caught:
        transfer.wait()
    assert caught.value.gone == 1


def test_without_memory_nothing_follows_a_transfer() -> None:
    with listening(0, 7435) as caller, listening(1, 7435) as called:
        _, there = connected(caller, called)
        received = cast(DatagramTransfer, there.post_receive(0, Message(0, 0, 0, 10, "gradient"), None, Close()))
        engine = received.engine
        plain, engine.library = (
            engine.library,
            cast(Any, SimpleNamespace(endpoint_follow=lambda *_: 0, endpoint_heard=lambda *_: 0)),
        )
        with pytest.raises(MemoryError):
            received.on_done(lambda _: None)
        assert not engine.followed and not received.asking
        engine.library = plain


def icmp(kind: int, code: int, rest: int, ends: Sequence[str], port: int, payload: bytes) -> bytes:
    """What a host says of a datagram from the first of the ``ends`` to the second, of which the attacker knows addresses and port."""
    udp = struct.pack(">HHHH", port, port, 8 + len(payload), 0) + payload
    source, target = map(socket.inet_aton, ends)
    quoted = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 1 << 14, 64, 17, 0, source, target) + udp
    said = struct.pack(">BBHI", kind, code, 0, rest) + quoted
    total = sum(struct.unpack(f">{len(said) // 2}H", said))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return said[:2] + struct.pack(">H", ~total & 0xFFFF) + said[4:]


def in_namespace(what: Callable[[], None]) -> None:
    """Call it in a network namespace of its own, with nothing but loopback: what a forged ICMP changes ends with it."""

    def inside() -> None:
        assert ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        what()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(inside).result()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root forges ICMP")
@pytest.mark.parametrize("key", [b"", b"k" * 16])
@pytest.mark.parametrize(("kind", "code", "rest"), [(3, 3, 0), (3, 4, 600), (3, 1, 0), (11, 0, 0), (12, 0, 0)])
def test_icmp_ends_nothing(kind: int, code: int, rest: int, key: bytes) -> None:
    """(H2.) Port unreachable, fragmentation needed and others, with 36 bytes of the datagram, to both ends, in every round: all go on, in packets as large."""
    port = 7441

    def attacked() -> None:
        with (
            listening(0, port, key) as caller,
            listening(1, port, key) as called,
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as forger,
        ):
            here, there = connected(caller, called)
            for number in range(5):
                for one, other in ((0, 1), (1, 0)):
                    forger.sendto(icmp(kind, code, rest, (HERE[one], HERE[other]), port, bytes(8)), (HERE[one], 0))
                go_round(here, there, number)
            own, _ = caller.channels[0].counted()
            assert not own.not_sent

    in_namespace(attacked)


def test_strangers_are_not_answered() -> None:
    with endpoints([ltp.Options()] * 2, port=7331), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((STRANGER, 7331))
        stranger.settimeout(0.3)
        for datagram in (b"", b"\1", bytes([1, 1]) + bytes(62), bytes([1, 3]) + bytes(200)):
            stranger.sendto(datagram, (HERE[0], 7331))
        with pytest.raises(TimeoutError):
            stranger.recv(2000)


def test_lt_follows_the_network_both_ways() -> None:
    """As recalled it is the shortest complete delivery of the last epoch; here it rises again when the rate halves."""
    threshold = ltp.Threshold(epoch=5)
    assert threshold.lt_ns is None
    number = 0
    for took in (100, 90, 110, 95, 120):
        threshold.heard(number, took, took, lost=0)
        number += 1
    threshold.heard(number, 200, 200, lost=0.5)
    assert threshold.lt_ns == 90
    while number < 50:  # half as fast: 190 for all of it, and closed early until then
        number += 1
        lt_ns = threshold.lt_ns or 0
        took = 190 if lt_ns >= 190 else max(lt_ns, 160)
        threshold.heard(number, took, took, lost=0.1 * (lt_ns < 190))
    assert threshold.lt_ns == 190
    steep = ltp.Threshold(epoch=1, rise=3)
    for number in range(3):
        steep.heard(number, 100, 100, lost=0.5)
    assert steep.lt_ns == 900


def test_who_begins_late_is_waited_for_by_its_own_clock_and_given_up_by_the_rounds() -> None:
    """LT counts from a worker's first packet, so it is learnt from there; its deadline stays `c` behind what the round's clock shows."""
    late, shared = ltp.Threshold(epoch=1, after=30), ltp.Threshold(epoch=1, after=30, shared=True)
    for threshold in (late, shared):
        threshold.heard(0, 150, 100, lost=0)
        threshold.heard(1, 150, 100, lost=0)
    assert (late.lt_ns, late.after_ns) == (100, 80)
    assert (shared.lt_ns, shared.after_ns) == (150, 30)
    late.heard(2, 180, 130, lost=0.4)
    late.heard(3, 180, 130, lost=0.4)
    assert (late.lt_ns, late.after_ns) == (150, 105)


def delivery(size: int, holes: tuple[tuple[int, int], ...] = (), closed: str = "complete") -> Delivery:
    return Delivery(size, size - sum(n for _, n in holes), closed, holes, first_ns=5, last_ns=9)  # type: ignore[arg-type]


def table(*asked: tuple[int, int, str, Delivery]) -> pd.DataFrame:
    told = []
    for worker, peer, end, ended in asked:
        messages = Messages()
        messages.add(peer, Message(0, 0, 0, ended.bytes, "gradient"), end == "send", ended)
        told += [[0, worker, 0, *row] for row in messages.to_rows(0)]
    return pd.DataFrame(told, columns=rows.columns(rows.Messages))


def test_every_message_may_have_a_row_of_its_own() -> None:
    whole, most = delivery(100), delivery(100, ((0, 20),), "fraction")
    job = made(system=("ltp",), messages="full")[0].jobs[0]
    tables = []
    for full in (False, True):
        told = []
        for worker, peer, sent in ((1, 0, True), (0, 1, False)):
            messages = Messages(full=full)
            for part, ended in enumerate((whole, most)):
                messages.add(peer, Message(0, 3, part, 100, "gradient"), sent, ended)
            told += [[0, worker, 0, *row] for row in messages.to_rows(0)]
        tables.append(pd.DataFrame(told, columns=rows.columns(rows.Messages)))
        assert jobs._misreported(job, tables[-1]) == 0
    rounds, each = tables
    assert list(rounds["messages"]) == [2, 2] and set(rounds["message_index"]) == {-1}
    assert list(each["missing_ranges"]) == ["", "", "", "0+20"]  # as the receiver has it
    assert [tuple(row) for row in each[["operation", "message_index", "delivered"]].to_numpy()] == [
        (3, 0, 100),
        (3, 1, 80),
    ] * 2


def test_both_ends_say_the_same_and_no_less_than_promised() -> None:
    job = made(system=("ltp",))[0].jobs[0]
    whole, most, too_few = delivery(100), delivery(100, ((0, 20),), "fraction"), delivery(100, ((0, 21),), "fraction")
    late = delivery(100, ((0, 60),), "deadline")
    for sent, received, wrong in (
        (whole, whole, 0), (most, most, 0), (late, late, 0), (too_few, too_few, 1), (whole, most, 1),
        (delivery(90), whole, 1),
    ):  # fmt: skip
        assert jobs._misreported(job, table((1, 0, "send", sent), (0, 1, "receive", received))) == wrong
    assert jobs._misreported(job, table((1, 0, "send", whole))) == 1, "nobody received it"
    assert jobs._misreported(job, None) == 1


@pytest.mark.parametrize(("how", "wrong"), [("hop", 0), ("end", 1)])
def test_in_a_ring_a_hop_may_miss_less_if_the_bound_is_from_end_to_end(how: str, wrong: int) -> None:
    """Of four workers, 10 %: less than the 20 % of a hop, more than the 7.2 % that each of three may miss for 20 % together."""
    job = made(system=(f"mlt:tolerance=20%,ring={how}",), workers=4, collective="ring")[0].jobs[0]
    ended = delivery(100, ((0, 10),), "tolerance")
    assert jobs._misreported(job, table((1, 0, "send", ended), (0, 1, "receive", ended))) == wrong


def test_a_real_training_says_what_it_lost_or_nothing() -> None:
    """Of how many bytes an iteration has, nobody knows; its two ends must agree all the same."""
    asked = {
        "topo": "star",
        "cc": ["reno"],
        "job": [{"ddp": "smallcnn", "transport": "ltp", "workers": 3}],
        "alone": "none",
    }
    (plan,) = planning.planned(read(None, asked))[1]
    whole, most = delivery(100), delivery(100, ((0, 20),), "fraction")
    for received, wrong in ((whole, 0), (most, 1)):
        told = table((1, 0, "send", whole), (0, 1, "receive", received))
        assert jobs.other_bytes(cast(Any, SimpleNamespace(plan=plan, messages=told))) == wrong
    assert jobs.other_bytes(cast(Any, SimpleNamespace(plan=plan, messages=None))) == 0, "it is of before"


def test_unknown_transports_are_refused() -> None:
    with pytest.raises(RequestError, match="unknown transport"):
        transports.parse("quic")


@pytest.mark.parametrize("found", ["none", "text", "cut", "another machine's"])
def test_a_library_that_is_not_built_for_this_machine_is_refused(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not there, is none, was cut, or names another machine; what a run is told is which one, and what to do."""
    whole = native.build().read_bytes()
    library = tmp_path / "libtransport.so"
    contents = {
        "text": b"no library\n" * 100,
        "cut": whole[:100],
        "another machine's": whole[:18] + (0xBEEF).to_bytes(2, sys.byteorder) + whole[20:],  # e_machine
    }
    if found in contents:
        library.write_bytes(contents[found])
    monkeypatch.setattr(native, "path", lambda: library)
    with pytest.raises(MachineError, match=r"libtransport\.so, built for this machine: `make setup`"):
        native.load.__wrapped__()


BY_THE_BOOK = Path(__file__).parents[2] / "support" / "by_the_book.py"


@pytest.mark.parametrize("rank", [0, 1])
def test_an_end_written_from_the_description_understands_it(rank: int) -> None:
    """In a process that finds nothing of the library; as who calls, and as who is called."""
    native.build()
    data, back, port, other = random.Random(2).randbytes(100_001), bytearray(100_001), 7341 + 10 * rank, 1 - rank
    listening = ltp.listen(Place(other, HERE[:2], port, [(0, 1), (1, 0)]), ltp.Options())
    words = [sys.executable, "-I", str(BY_THE_BOOK), str(rank), HERE[rank], HERE[other], str(port), str(len(data))]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as theirs:
        endpoint = listening.connect().endpoint(0, [(0, 1), (1, 0)])
        there, again = (Message(number, 0, 0, len(data), "parameter") for number in range(2))
        received = endpoint.post_receive(rank, again, back, Close())
        assert endpoint.post_send(rank, there, data).wait(HANG_S).closed == "complete"
        assert received.wait(HANG_S).closed == "complete"
        assert back == data[::-1]
        assert endpoint.counters(rank).resent_packets > 0, "every tenth was lost on the way there"
        endpoint.end("over")
        assert theirs.communicate(timeout=HANG_S)[1] == "" and theirs.returncode == 0
    listening.channels[0].library.endpoint_close(listening.channels[0].pointer)


def test_thirty_lines_take_a_message() -> None:
    native.build()
    data, port = random.Random(3).randbytes(100_001), 7361
    listening = ltp.listen(Place(0, HERE[:2], port, [(0, 1), (1, 0)]), ltp.Options())
    script = Path(__file__).parents[2] / "support" / "smallest_receiver.py"
    words = [sys.executable, "-I", str(script), HERE[1], HERE[0], str(port), str(len(data))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as theirs:
        endpoint = listening.connect().endpoint(0, [(0, 1), (1, 0)])
        sent = endpoint.post_send(1, Message(0, 0, 0, len(data), "gradient"), data)
        assert sent.wait(HANG_S).closed == "complete"
        endpoint.end("over")
        assert theirs.communicate(timeout=HANG_S) == (data, b"")
    listening.channels[0].library.endpoint_close(listening.channels[0].pointer)


@pytest.mark.parametrize("room", [2304, 4096, 8192, 16384])
def test_who_waits_for_all_of_a_message_is_woken_though_the_window_closed_before(room: int) -> None:
    """In packets of a byte, which take more memory than a socket has; the last byte comes in any case."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname()) as sending, listening.accept()[0] as receiving:
            sending.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            size = receiving.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
            waiting = threading.Thread(target=tcp._receive, args=(receiving, size), daemon=True)
            waiting.start()
            for _ in range(size):
                sending.send(b"x")
            waiting.join(HANG_S)
            assert not waiting.is_alive()


def test_nothing_is_forgotten_that_a_thread_still_looks_at() -> None:
    """Who is told of an end is told by another thread, which may wake up after everybody else has gone on."""

    class Core:
        released = 0

        def endpoint_wait(self, _endpoint: object, _handle: int, _patience: int, result: native.Result) -> None:
            assert not self.released
            result.done, result.bytes, result.delivered = 1, 10, 10

        def endpoint_release(self, _endpoint: object, _handle: int) -> None:
            self.released += 1

    core, followed, told = Core(), list[Callable[[], None]](), list[object]()
    engine = SimpleNamespace(
        library=core, pointer=0, silences=defaultdict(Silence), handed=lambda _peer: 1,
        follow=lambda _handle, callback: followed.append(callback),
    )  # fmt: skip
    transfer = DatagramTransfer(cast(Any, engine), 1, 1, Message(0, 0, 0, 10, "gradient"), None)
    transfer.on_done(told.append)
    assert transfer.wait().delivered == 10 and not core.released and not told
    followed.pop()()
    assert told == [transfer] and core.released == 1
    transfer.on_done(told.append)  # it is over
    assert told == [transfer] * 2 and not followed
    assert transfer.done() and transfer.wait().delivered == 10 and core.released == 1


def test_every_transport_satisfies_the_protocol() -> None:
    modules: tuple[transports.Module, ...] = (tcp, ltp, mlt, dlcp, optireduce)  # mypy checks them
    assert {transports.find(name) for name in transports.names()} == set(modules)
    for module in modules:
        asked: transports.TransportOptions = module.Options()
        assert (asked.sync_every, asked.by_tcp) == (0, None) and isinstance(module.TITLE, str)


@pytest.mark.parametrize(
    ("transport", "sprays"),
    [("tcp:spray=on", True), ("tcp:spray=yes", True), ("tcp:spray=off", False), ("tcp", False), ("mlt", False)],
)
def test_every_spelling_of_a_switch_reaches_the_routers(transport: str, sprays: bool) -> None:
    assert builtin_transport.routers_spray(transport) == sprays
