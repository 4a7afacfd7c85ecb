"""A training's own rule of which packets of a gradient matter: asked for each packet, and what it says is what leaves."""

from __future__ import annotations

import copy
import ctypes
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest

from testbed.transports import Buffer, Endpoint, Importance, Message, Span, Stage, Tag, Tagger, Transfer, TransportError
from testbed.transports.datagram import native
from testbed.transports.datagram.engine import segment_bytes

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'mltcp-testbed[torch]'")
from testbed.transports.torch import Synchronisation  # noqa: E402

# As in `test_torch_transport`, and apart from what that takes.
PORTS = count(9_000 + os.getpid() * 7919 % 100 * 20, 20)
SIZE = 8_000  # no more packets than wait in a socket
SEGMENT = segment_bytes(1500)
PACKETS = -(-4 * SIZE // SEGMENT)
MARKABLE = 2  # ECT(0)
DATA = 3  # what kind of datagram
WHOLE = "mlt:tolerance=0%,bands=4"  # its own rule would let nothing be dropped, and has all in the highest band, 3


def numbers(rank: int) -> Any:
    return torch.rand(SIZE, generator=torch.Generator().manual_seed(rank)).add(1)


@contextmanager
def group(ranks: int, **options: Any) -> Iterator[tuple[list[Synchronisation], int]]:
    native.build()
    addresses, port = [f"127.0.0.{rank + 2}" for rank in range(ranks)], next(PORTS)
    with ThreadPoolExecutor(ranks) as pool:

        def made(rank: int) -> Synchronisation:
            return Synchronisation(rank, addresses, WHOLE, port=port, **options)

        found = list(pool.map(made, range(ranks)))
        try:
            yield found, port
        finally:
            list(pool.map(lambda one: one.close(), found))


def one_round(group: Sequence[Synchronisation]) -> list[Any]:
    with ThreadPoolExecutor(len(group)) as pool:
        return list(pool.map(lambda sync: sync.exchange(numbers(sync.rank), 0, last=True).wait(), group))


class Rule:
    """Packets with an even number may be dropped; the band is 2. Keeps what it was asked."""

    def __init__(self) -> None:
        self.messages: list[tuple[Message, Any]] = []
        self.packets: list[tuple[Span, bytes]] = []

    def __call__(self, message: Message, gradient: Any) -> Tagger:
        self.messages.append((message, gradient.clone()))

        def tag(span: Span, content: Buffer | Importance) -> Tag:
            assert not isinstance(content, Importance)
            self.packets.append((span, bytes(content)))
            return Tag(2, droppable=span[0] // SEGMENT % 2 == 0)

        return tag


class Posting:
    """An endpoint, and with which tagger what was posted there."""

    def __init__(self, own: Endpoint) -> None:
        self.own = own
        self.posted: list[tuple[int, Stage, bool]] = []

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        self.posted.append((to, m.stage, tag is not None))
        return self.own.post_send(to, m, data, tag)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def test_a_rule_of_ones_own_is_asked_for_every_packet_of_a_gradient() -> None:
    rule = Rule()
    with group(2, tagger=rule, servers=(0, 1)) as (ranks, _):
        ends = [Posting(sync._endpoint) for sync in ranks]
        for sync, end in zip(ranks, ends, strict=True):
            sync._endpoint = end
        model = torch.nn.Linear(10, 10)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda sync: sync.broadcast(copy.deepcopy(model)), ranks))
        for number in (1, 2):
            found = one_round(ranks)
            assert all(torch.equal(mean, (numbers(0) + numbers(1)) / 2) for mean in found), number
    for rank, end in enumerate(ends):
        first = [(1, "parameter", False)] * (rank == 0)
        round_ = [(1 - rank, "gradient", True), (1 - rank, "parameter", False)]
        assert end.posted == first + 2 * round_, "parameters and means go by the transport's own rule"
    # Rank 0 sends the second half of a gradient, which the other averages; and that the first half of its own.
    halves = {1: numbers(0)[SIZE // 2 :], 0: numbers(1)[: SIZE // 2]}
    assert sorted((m.round, m.operation, m.part) for m, _ in rule.messages) == [
        (1, 0, 0),
        (1, 0, 1),
        (2, 0, 0),
        (2, 0, 1),
    ]
    assert all(m.bytes == 2 * SIZE and torch.equal(gradient, halves[m.part]) for m, gradient in rule.messages)
    contents = {part: half.numpy().tobytes() for part, half in halves.items()}
    asked = [(at, content) for (at, size), content in rule.packets if len(content) == size]
    assert len(asked) == len(rule.packets) and sum(len(content) for _, content in asked) == 4 * 2 * SIZE
    assert all(content in (whole[at : at + len(content)] for whole in contents.values()) for at, content in asked)


SO_ATTACH_FILTER = 26  # which Python's socket module lacks


def only_to_ports(wire: socket.socket, ports: range) -> None:
    """Let a raw socket receive nothing of tests that run at the same time, nor keep what came before it had a filter."""
    jump_unless_at_least, load_half_word, accept = 0x35, 0x28, 0x06
    code = [
        (load_half_word, 0, 0, 22),  # the destination port, behind an IP header of 20 bytes
        (jump_unless_at_least, 0, 2, ports.start),
        (jump_unless_at_least, 1, 0, ports.stop),
        (accept, 0, 0, 1 << 16),
        (accept, 0, 0, 0),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    wire.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(code), ctypes.addressof(program)))
    wire.setblocking(False)
    with suppress(BlockingIOError):
        while wire.recv(1 << 16):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees packets with their headers")
@pytest.mark.parametrize("own", [True, False])
def test_what_it_says_is_in_the_header_of_each_packet(own: bool) -> None:
    """Band 2 as class selector, and not ECN-capable where a switch may drop it; without a rule, as MLT itself has it."""
    rule = Rule()
    with group(2, **({"tagger": rule} if own else {})) as (ranks, port), socket.socket(
        socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP
    ) as wire:  # fmt: skip
        only_to_ports(wire, range(port, port + 20))
        wire.bind(("127.0.0.2", 0))
        one_round(ranks)
        seen: dict[int, int] = {}
        with suppress(BlockingIOError):  # all have come: on loopback that is when they leave
            while packet := wire.recv(1 << 16):
                if packet[12:16] != bytes((127, 0, 0, 3)):
                    continue
                for at in range(
                    28, len(packet), native.DATA_HEADER + SEGMENT
                ):  # several of one tag are not yet cut apart here
                    if packet[at + 1] == DATA:
                        seen[struct.unpack_from(">Q", packet, at + 40)[0] // SEGMENT] = packet[1]
    assert len(rule.packets) == own * PACKETS
    as_mlt = dict.fromkeys(range(PACKETS), 3 << 5 | MARKABLE)
    assert seen == ({number: 2 << 5 | MARKABLE * (number % 2) for number in range(PACKETS)} if own else as_mlt)


def test_a_rule_that_fails_ends_the_training_everywhere() -> None:
    """Also that of a rank that waits for what is never sent."""

    def fails(_message: Message, _gradient: Any) -> Tagger:
        raise ArithmeticError("no such rule")

    def by_a_path(_message: Message, _gradient: Any) -> Tagger:
        return lambda _span, _content: Tag(path=1)

    for rule, error in ((fails, ArithmeticError), (by_a_path, ValueError)):
        with group(2, tagger=rule) as (ranks, _):
            waiting = ranks[0].exchange(numbers(0), 0, last=True)  # it serves, and sends no gradient itself
            with pytest.raises(error):
                ranks[1].exchange(numbers(1), 0, last=True).wait()
            with pytest.raises(TransportError, match="worker 1 is gone"):
                waiting.wait()
