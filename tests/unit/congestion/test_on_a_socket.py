"""What MLTCP's modules do to a socket, ACK by ACK, in user space: F at its place, and the bases as they are published."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import pytest

from tests.unit.congestion import sockets
from tests.unit.congestion.core import Dcqcn
from tests.unit.congestion.sockets import Module, Sock


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Module]:
    library = cache(lambda base: sockets.build(base, tmp_path_factory.mktemp("modules")))
    return lambda base, **changes: Module(library(base), **changes)


def test_reno_counts_each_ack_f_times(module: Callable[..., Module]) -> None:
    reno = module("reno")
    sk = reno.socket(100)
    reno.ack(sk, 7)
    assert (sk.snd_cwnd, sk.snd_cwnd_cnt) == (100, 14)
    reno.ack(sk, 43)
    assert (sk.snd_cwnd, sk.snd_cwnd_cnt) == (101, 0)


@pytest.mark.parametrize("base", ["reno", "dctcp"])
def test_slow_start_is_the_bases(module: Callable[..., Module], base: str) -> None:
    found = module(base)
    sk = found.socket(10, ssthresh=100)
    found.ack(sk, 7)
    assert sk.snd_cwnd == 17


@pytest.mark.parametrize(("cwnd", "marks", "counted"), [(9, 0, 8), (10, 0, 2), (9, 1, 2)])
def test_the_floor_holds_for_small_windows_without_marks(
    module: Callable[..., Module], cwnd: int, marks: int, counted: int
) -> None:
    reno = module("reno", floor_cwnd=10)
    reno.factor(0.25)
    sk = reno.socket(cwnd)
    sk.delivered_ce = marks
    reno.ack(sk, 8)
    assert sk.snd_cwnd_cnt == counted


def test_a_jobs_sockets_share_what_they_have_sent(module: Callable[..., Module]) -> None:
    """Two of a job with 1 MB an iteration each: r counts every byte once, and another mark has its own r."""
    reno = module("reno", share=1)
    first, second, other = reno.socket(100, mark=7), reno.socket(100, mark=7), reno.socket(100, mark=8)
    for sk in (first, second, other):
        reno.ops.cwnd_event(sk, sockets.TX_START)
    for acked in (100_000, 200_000, 400_000):
        first.bytes_acked = acked
        reno.ack(first, 1)
    second.bytes_acked = 100_000
    reno.ack(second, 1)
    assert reno.told(first).ratio == reno.told(second).ratio == 1024 // 4
    assert reno.told(other).ratio == 0
    for sk in (first, second, other):
        reno.ops.release(sk)


def dctcp_alpha(sk: Sock) -> int:
    """Alpha in 1/1024; struct dctcp begins with prior_rcv_nxt, marked, old_delivered and old_delivered_ce."""
    return int(ctypes.cast(sk.state, ctypes.POINTER(ctypes.c_uint32))[4])


def test_dctcp_averages_the_marks_of_each_window(module: Callable[..., Module]) -> None:
    """RFC 8257: once in a window, alpha = (1 - g) alpha + g F with g = 1/16, F being the marked share of that window."""
    dctcp, window, expected = module("dctcp"), 100 * 1448, 1024.0
    sk = dctcp.socket(100)
    sk.snd_nxt = window
    dctcp.ops.init(sk)
    for marked in (0, 0, 100, 20, 0):
        for quarter in range(4):
            assert dctcp_alpha(sk) == pytest.approx(expected, abs=4)
            sk.snd_una += window // 4
            sk.delivered += 25
            sk.delivered_ce += marked // 4
            sk.snd_nxt += window if quarter == 3 else 0
            dctcp.ops.in_ack_event(sk, 0)
        expected += (1024 * marked / 100 - expected) / 16
    assert dctcp_alpha(sk) == pytest.approx(expected, abs=4)


def test_dctcp_reduces_its_window_by_half_of_alpha(module: Callable[..., Module]) -> None:
    dctcp = module("dctcp")
    sk = dctcp.socket(100)
    assert dctcp.ops.ssthresh(sk) == 50


def test_cubic_keeps_seven_tenths(module: Callable[..., Module]) -> None:
    cubic = module("cubic")
    assert cubic.ops.ssthresh(cubic.socket(1000)) == 700


@pytest.mark.parametrize("seconds", [1, 3, 6, 12, 15])
def test_cubic_follows_its_curve_on_both_sides_of_the_last_maximum(module: Callable[..., Module], seconds: int) -> None:
    """W(t) = 0.4 (t - K)^3 + W_max with K = (0.3 W_max / 0.4)^(1/3): so many ACKs grow the window by one segment."""
    cubic, most = module("cubic"), 1000
    sk = cubic.socket(most)
    cubic.clock(100)
    sk.snd_cwnd = sk.snd_ssthresh = cubic.ops.ssthresh(sk)
    cubic.ack(sk, 1)  # the epoch begins
    cubic.clock(100 + seconds)
    cubic.ack(sk, 1)
    target = 0.4 * (seconds - (0.3 * most / 0.4) ** (1 / 3)) ** 3 + most
    count = ctypes.cast(sk.state, ctypes.POINTER(ctypes.c_uint32))[0]
    assert count == pytest.approx(max(2, 700 / (target - 700)), abs=1)


@pytest.mark.parametrize("f", [0.25, 1.0, 1.5])
def test_dcqcns_target_rate_grows_by_f_times_r_ai(module: Callable[..., Module], f: float) -> None:
    """After two CNPs it is half of the line rate; the fifth period of the timer is the first additive increase."""
    found = module("dcqcn")
    found.factor(f)
    params = found.dcqcn
    assert params
    sk = found.socket(100)
    state = Dcqcn.from_buffer(sk.state)
    for _ in range(2):
        sk.tcp_mstamp += params.cnp_interval
        sk.delivered_ce += 1
        found.ops.cong_control(sk, None)
    before = state.target_rate
    assert before == params.line_rate * 10**6 / 2
    for _ in range(params.fast_recovery):
        sk.tcp_mstamp += params.rate_timer
        found.ops.cong_control(sk, None)
    assert state.target_rate - before == int(params.r_ai * f) * 1000
