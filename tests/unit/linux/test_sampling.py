"""What the sampler is made of: questions asked together, and the timer. Sockets of this machine's loopback."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from testbed.core.clock import PeriodicTimer
from testbed.core.layouts import INET_DIAG_INFO, INET_DIAG_MSG_BYTES, NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, TCP_INFO
from testbed.linux.sampling import netlink, ring
from testbed.linux.sampling.netlink import MOST_AT_ONCE, Field, Question, Questions, message

ACKED = TCP_INFO.reader("tcpi_bytes_acked")


@pytest.fixture
def asked() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as found:
        found.bind((0, 0))
        yield found


def of(asked: socket.socket, source: tuple[str, int], target: tuple[str, int]) -> Question:
    """How the socket between these fares."""
    ports = source[1].to_bytes(2, "big") + target[1].to_bytes(2, "big")
    addresses = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host, _ in (source, target))
    body = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0xFFFFFFFF)
    return Question(asked, message(SOCK_DIAG_BY_FAMILY, body + ports + addresses + struct.pack("=IQ", 0, 2**64 - 1)))


def acked(answer: bytes) -> int:
    at = Field(INET_DIAG_MSG_BYTES, INET_DIAG_INFO).find(answer)
    assert at is not None
    return int(ACKED.unpack_from(answer, at)[0])


@pytest.mark.parametrize("with_ring", [True, False])
def test_each_answer_is_its_questions(asked: socket.socket, monkeypatch: pytest.MonkeyPatch, with_ring: bool) -> None:
    """More flows than are asked for at once, asked for more often than the ring is long, each with bytes of its own."""

    def forbidden(*_: object) -> int:
        raise PermissionError(1, "no io_uring")

    if not with_ring:
        monkeypatch.setattr(ring, "_call", forbidden)
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=200))
        clients = [stack.enter_context(socket.create_connection(server.getsockname())) for _ in range(MOST_AT_ONCE + 6)]
        for _ in clients:
            stack.enter_context(server.accept()[0])
        whole = [of(asked, client.getsockname(), client.getpeername()) for client in clients]
        questions = Questions([*whole, of(asked, ("127.0.0.1", 1), ("127.0.0.1", 2))])
        sent = [0] * len(clients)
        for turn in range(9):
            for number, client in enumerate(clients):
                sent[number] += client.send(bytes(1 + (number + turn) % 7))
            *told, nothing = questions.ask()
            assert [acked(each) for each in told] == [1 + bytes_sent for bytes_sent in sent]  # the SYN counts
            assert nothing == b""


def test_nobody_is_asked() -> None:
    assert Questions([]).ask() == []


def test_an_answer_to_another_question_is_noticed(asked: socket.socket) -> None:
    questions = Questions([of(asked, ("127.0.0.1", 1), ("127.0.0.1", 2))] * 2)
    questions.ask()
    asked.send(netlink._numbered(of(asked, ("127.0.0.1", 1), ("127.0.0.1", 2)).message, 7))
    with pytest.raises(RuntimeError, match="question 0 is answered by"):
        questions.ask()


def test_the_timer_says_how_often_it_expired() -> None:
    begun = time.monotonic_ns()
    timer = PeriodicTimer(begun + 2_000_000, 1_000_000)
    passed = timer.expirations()
    assert passed >= 1
    assert time.monotonic_ns() >= begun + 2_000_000 + (passed - 1) * 1_000_000
    time.sleep(0.02)
    assert passed + timer.expirations() >= 19
