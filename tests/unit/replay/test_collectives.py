"""Volumes against theory, and every collective for real over sockets."""

from __future__ import annotations

import fcntl
import socket
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import registry
from testbed.replay import ring
from testbed.replay.exchange import Link, Links
from testbed.traces import collectives
from testbed.transports import Flow
from testbed.transports.tcp import TcpEndpoint
from tests.support import processes
from tests.support.properties import examples

NAMES = collectives.names()


def sent_by(name: str, n: int, size: int) -> list[int]:
    total = [0] * n
    for one in collectives.find(name).rounds(n, size):
        for (source, _), volume in one.items():
            total[source] += volume
    return total


def test_every_file_is_a_collective() -> None:
    assert len(NAMES) == 12
    for name in NAMES:
        module = collectives.find(name)
        assert all(hasattr(module, part) for part in ("KIND", "rounds", "run")), name


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(registry.UnknownContentError, match="gossip"):
        collectives.find("gossip")


@given(name=st.sampled_from(["ring", "halving_doubling", "sharded_parameter_server", "transpose"]), n=st.integers(2, 64),
       size=st.integers(0, 10**10))  # fmt: skip
def test_optimal_all_reduces_send_two_n_minus_one_over_n(name: str, n: int, size: int) -> None:
    sent = sent_by(name, n, size)
    if name == "halving_doubling" and n & (n - 1):  # ranks above a power of two hand everything over, and get it back
        core = 1 << (n.bit_length() - 1)
        assert sum(sent) == 2 * (core - 1) * size + 2 * (n - core) * size
        return
    assert sum(sent) == 2 * (n - 1) * size
    assert max(sent) - min(sent) <= 2 * n


@given(chunk=st.integers(0, 10**8))
def test_slices_of_a_ring_fill_a_packet_each(chunk: int) -> None:
    slices = ring.slices(chunk)
    assert sum(slices) == chunk and len(slices) in (1, 2, ring.SLICES)
    assert len(slices) == 1 or min(slices) >= ring.LEAST_SLICE
    assert len(slices) == ring.SLICES or chunk < 2 * len(slices) * ring.LEAST_SLICE  # no fewer than need be


@given(n=st.integers(2, 64), size=st.integers(0, 10**10))
def test_volumes_of_the_others(n: int, size: int) -> None:
    for name in ("all_gather", "reduce_scatter", "all_to_all"):  # (n-1)/n of the tensor from every rank
        assert sum(sent_by(name, n, size)) == (n - 1) * size, name
    assert sent_by("broadcast", n, size) == [size] * (n - 1) + [0]
    assert sum(sent_by("tree", n, size)) == 2 * (n - 1) * size
    assert sent_by("parameter_server", n, size) == [(n - 1) * size] + [size] * (n - 1)
    inner = [2 * size] * (n - 2)
    assert sent_by("pipeline", n, size) == [size, *inner, size]


@examples(30)
@given(n=st.integers(2, 32), size=st.integers(1, 10**6))
def test_a_transpose_is_a_server_each_without_incast(n: int, size: int) -> None:
    """The same bytes on every flow as sharded parameter servers; in each step a rank hears from one, and sends to one."""
    steps = collectives.find("transpose").rounds(n, size)
    assert len(steps) == 2 * (n - 1)
    for step in steps:
        assert sorted(source for source, _ in step) == sorted(target for _, target in step) == list(range(n))
    for flow in collectives.flows("transpose", n):
        assert collectives.volume("transpose", n, size, flow) == collectives.volume(
            "sharded_parameter_server", n, size, flow
        )


@given(n=st.integers(2, 64), size=st.integers(0, 10**6))
def test_parts_make_the_whole(n: int, size: int) -> None:
    shares = collectives.parts(n, size)
    assert sum(shares) == size and max(shares) - min(shares) <= 1


def unacknowledged(sender: socket.socket) -> int:
    return int.from_bytes(fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4)), "little")


@dataclass
class Wires:
    """A connected pair of TCP sockets for each flow."""

    ends: dict[Flow, tuple[socket.socket, socket.socket]]

    def links_of(self, rank: int) -> Links:
        mine = {flow: pair[0] if flow[0] == rank else pair[1] for flow, pair in self.ends.items() if rank in flow}
        endpoint = TcpEndpoint(rank, mine)
        return {flow: Link(endpoint, flow[1] if flow[0] == rank else flow[0]) for flow in mine}

    def carried(self) -> dict[Flow, int]:
        """tcpi_bytes_acked, which counts the SYN, once everything is acknowledged (ACKs may be late)."""
        processes.until(lambda: not any(unacknowledged(ends[0]) for ends in self.ends.values()), lambda: self.ends)
        info = {flow: ends[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192) for flow, ends in self.ends.items()}
        return {flow: int.from_bytes(one[120:128], "little") - 1 for flow, one in info.items()}


@contextmanager
def wires(name: str, n: int) -> Iterator[Wires]:
    ends = {}
    for flow in collectives.flows(name, n):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sender = socket.create_connection(listener.getsockname())
            ends[flow] = (sender, listener.accept()[0])
    try:
        yield Wires(ends)
    finally:
        for pair in ends.values():
            for one in pair:
                one.close()


def run_all(name: str, n: int, size: int, times: int = 1) -> dict[Flow, int]:
    """Run a collective in n threads; bytes that went over each flow."""
    with wires(name, n) as connected:

        def rank_of(rank: int) -> None:
            for _ in range(times):
                collectives.find(name).run(rank, n, size, connected.links_of(rank))

        threads = [threading.Thread(target=rank_of, args=(rank,), daemon=True) for rank in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(processes.HANG_S)
            assert not thread.is_alive(), "deadlock"
        return connected.carried()


def ranks(name: str) -> list[int]:
    return [2] if name == "send_recv" else [2, 3, 4, 8]


@pytest.mark.parametrize(("name", "n"), [(name, n) for name in NAMES for n in ranks(name)])
@pytest.mark.parametrize("size", [1, 1000, 3_000_001])
def test_every_collective_runs_and_carries_its_volume(name: str, n: int, size: int) -> None:
    expected = {flow: collectives.volume(name, n, size, flow) for flow in collectives.flows(name, n)}
    assert run_all(name, n, size) == expected


@examples(40)
@given(name=st.sampled_from([name for name in NAMES if name != "send_recv"]), n=st.integers(2, 9),
       size=st.integers(0, 300_000), times=st.integers(1, 3))  # fmt: skip
def test_no_shape_dead_locks(name: str, n: int, size: int, times: int) -> None:
    expected = {flow: times * collectives.volume(name, n, size, flow) for flow in collectives.flows(name, n)}
    assert run_all(name, n, size, times) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_that_is_gone_fails_its_neighbours(name: str) -> None:
    """Whoever sends to it or hears from it gets an error at once, and blocks nobody else for good."""
    n = 2 if name == "send_recv" else 4
    with wires(name, n) as connected:
        for flow, pair in connected.ends.items():
            for rank, end in zip(flow, pair, strict=True):
                if rank == 1:
                    end.close()
        ended: list[int] = []

        def rank_of(rank: int) -> None:
            with pytest.raises(OSError):
                collectives.find(name).run(rank, n, 50_000_000, connected.links_of(rank))
            ended.append(rank)
            for flow, pair in connected.ends.items():  # as its process ends, so do its connections
                if rank in flow:
                    with suppress(OSError):
                        pair[flow.index(rank)].shutdown(socket.SHUT_RDWR)

        threads = [threading.Thread(target=rank_of, args=(rank,), daemon=True) for rank in range(n) if rank != 1]
        for thread in threads:
            thread.start()
        neighbours = {rank for flow in connected.ends for rank in flow if 1 in flow} - {1}
        for thread in threads:
            thread.join(processes.HANG_S)
        assert neighbours <= set(ended)
