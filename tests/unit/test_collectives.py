"""Volumes against theory, and every collective for real over socket pairs."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import collectives
from workloads.collectives import Links, ring


def test_every_file_is_a_collective() -> None:
    assert collectives.names() == ["ring", "send_recv"]
    for name in collectives.names():
        module = collectives.find(name)
        assert all(hasattr(module, part) for part in ("flows", "volume", "run")), name


def test_unknown_collective_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="ring, send_recv"):
        collectives.find("gossip")


@given(n=st.integers(2, 64), size=st.integers(0, 10**10))
def test_ring_volume_is_two_n_minus_one_over_n(n: int, size: int) -> None:
    assert sum(ring.chunks(n, size)) == size
    sent = [ring.volume(n, size, flow) for flow in ring.flows(n)]
    # Every chunk travels 2(n-1) hops in all.
    assert sum(sent) == 2 * (n - 1) * size
    assert max(sent) - min(sent) <= 2 * (n - 1)


def run_all(name: str, n: int, size: int) -> dict[tuple[int, int], int]:
    """Run a collective in n threads; bytes that went over each flow."""
    module = collectives.find(name)
    pairs = {}
    carried = dict.fromkeys(module.flows(n), 0)
    for flow in module.flows(n):
        listener = socket.create_server(("127.0.0.1", 0))
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        listener.close()
        pairs[flow] = (sender, receiver)

    def links_of(rank: int) -> Links:
        return {flow: ends[0] if flow[0] == rank else ends[1] for flow, ends in pairs.items() if rank in flow}

    threads = [
        threading.Thread(target=module.run, args=(rank, n, size, links_of(rank)), daemon=True) for rank in range(n)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "deadlock"
    for flow, (sender, receiver) in pairs.items():
        info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        carried[flow] = int.from_bytes(info[120:128], "little") - 1  # tcpi_bytes_acked counts the SYN
        sender.close()
        receiver.close()
    return carried


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [1, 1000, 3_000_001])
def test_ring_runs_and_carries_its_volume(n: int, size: int) -> None:
    carried = run_all("ring", n, size)
    assert carried == {flow: ring.volume(n, size, flow) for flow in ring.flows(n)}


def test_send_recv_runs_and_carries_its_volume() -> None:
    assert run_all("send_recv", 2, 5_000_000) == {(0, 1): 5_000_000}
