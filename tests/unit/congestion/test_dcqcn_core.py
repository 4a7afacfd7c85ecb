"""kernel/dcqcn.h against DCQCN's equations in floating point, step by step."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.congestion import core as library
from tests.unit.congestion.core import Dcqcn, DcqcnParams

LINE_MBPS = 50_000


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library.build(tmp_path_factory.mktemp("core"))


def published(**changes: int) -> DcqcnParams:
    return DcqcnParams(**{
        "line_rate": LINE_MBPS, "r_ai": 40_000, "r_hai": 400_000, "g": 4, "cnp_interval": 50, "alpha_timer": 55,
        "rate_timer": 55, "fast_recovery": 5, "byte_counter": 10_000_000,
    } | changes)  # fmt: skip


@dataclass
class Equations:
    """Section 3.1 of the paper, one event at a time; rates in bit/s."""

    p: DcqcnParams
    rc: float = field(init=False)
    rt: float = field(init=False)
    alpha: float = 1.0
    t: int = 0
    bc: int = 0

    def __post_init__(self) -> None:
        self.rc = self.rt = self.line

    @property
    def line(self) -> float:
        return float(self.p.line_rate * 1e6)

    def cnp(self) -> None:
        if self.rc >= self.line:  # no rate limiter: the first CNP
            self.alpha = 1.0
        g = self.p.g / 1024
        self.rt = self.rc
        self.rc = max(self.rc * (1 - self.alpha / 2), self.line / 1000)
        self.alpha = (1 - g) * self.alpha + g
        self.t = self.bc = 0

    def no_cnp(self) -> None:
        self.alpha *= 1 - self.p.g / 1024

    def increase(self, r_ai: float) -> None:
        if min(self.t, self.bc) > self.p.fast_recovery:
            self.rt += self.p.r_hai * 1e3
        elif max(self.t, self.bc) >= self.p.fast_recovery:
            self.rt += r_ai
        self.rt = min(self.rt, self.line)
        self.rc = (self.rc + self.rt) / 2


class Flow:
    """The header's state beside the equations', driven by the same events."""

    def __init__(self, core: ctypes.CDLL, params: DcqcnParams) -> None:
        self.core, self.params, self.d, self.exact = core, params, Dcqcn(), Equations(params)
        self.now, self.bytes = 1000, 0
        core.core_dcqcn_init(self.d, params, self.now, 0)

    def cnp(self) -> None:
        if self.core.core_dcqcn_cnp(self.d, self.params, self.now % 2**32, self.bytes):
            self.exact.cnp()
            self.timer, self.alpha_timer, self.counter = self.now, self.now, self.bytes

    def step(self, us: int, sent: int, r_ai_kbps: int) -> None:
        """Less than one period of each timer and one byte counter at a time: at most one event each."""
        self.now += us
        self.bytes += sent
        if self.now - self.alpha_timer >= self.params.alpha_timer:
            self.alpha_timer += self.params.alpha_timer
            self.exact.no_cnp()
        if self.now - self.timer >= self.params.rate_timer:
            self.timer += self.params.rate_timer
            self.exact.t += 1
            self.exact.increase(r_ai_kbps * 1e3)
        if self.bytes - self.counter >= self.params.byte_counter:
            self.counter += self.params.byte_counter
            self.exact.bc += 1
            self.exact.increase(r_ai_kbps * 1e3)
        self.core.core_dcqcn_advance(self.d, self.params, self.now % 2**32, self.bytes, r_ai_kbps)

    timer = alpha_timer = 1000
    counter = 0

    def compare(self) -> None:
        assert self.d.current_rate == pytest.approx(self.exact.rc, rel=1e-4, abs=3000)
        assert self.d.target_rate == pytest.approx(self.exact.rt, rel=1e-4, abs=3000)
        assert self.d.alpha / 2**20 == pytest.approx(self.exact.alpha, abs=5e-4)


def test_the_first_cnp_halves_the_rate_and_fast_recovery_brings_it_back(core: ctypes.CDLL) -> None:
    flow = Flow(core, published())
    flow.cnp()
    assert flow.d.current_rate == 25e9 and flow.d.target_rate == 50e9
    for expected in (37.5e9, 43.75e9, 46.875e9):
        flow.step(50, 0, 40_000)
        flow.step(5, 0, 40_000)
        assert flow.d.current_rate == pytest.approx(expected, rel=1e-6)


def test_cnps_are_fifty_microseconds_apart(core: ctypes.CDLL) -> None:
    flow = Flow(core, published())
    assert core.core_dcqcn_cnp(flow.d, flow.params, 1000, 0)
    assert not core.core_dcqcn_cnp(flow.d, flow.params, 1049, 0)
    assert core.core_dcqcn_cnp(flow.d, flow.params, 1050, 0)
    assert flow.d.current_rate == 12.5e9


EVENT = st.tuples(st.integers(1, 50), st.integers(0, 900_000), st.booleans())


@given(
    events=st.lists(EVENT, max_size=400), line=st.sampled_from([1, 500, 40_000, 50_000, 400_000]),
    f=st.integers(16, 4096),
)  # fmt: skip
def test_the_traces_follow_the_equations(
    core: ctypes.CDLL, events: list[tuple[int, int, bool]], line: int, f: int
) -> None:
    """Any sequence of CNPs, time and bytes, at any link rate, with any F."""
    share = min(1.0, line / 40_000)
    r_ai = max(1, round(40_000 * share))
    flow = Flow(
        core, published(line_rate=line, r_ai=r_ai, r_hai=10 * r_ai, byte_counter=max(1_000_000, round(1e7 * share)))
    )
    for us, sent, marked in events:
        flow.step(us, sent, r_ai * f >> 10)
        if marked:
            flow.cnp()
        flow.compare()


def test_mltcp_changes_additive_increase_and_nothing_else(core: ctypes.CDLL) -> None:
    """After five timers R_T grows by F R_AI at each."""
    for f in (273, 1024, 1366):
        flow = Flow(core, published())
        flow.cnp()
        core.core_dcqcn_cnp(flow.d, flow.params, flow.now + 50, 0)
        for number in range(1, 8):
            core.core_dcqcn_advance(flow.d, flow.params, flow.now + 50 + 55 * number, 0, 40_000 * f >> 10)
            extra = max(0, number - 4) * (40_000 * f >> 10) * 1000
            assert flow.d.target_rate == 25_000_000_000 + extra


def test_after_a_pause_the_rate_is_the_line_rate(core: ctypes.CDLL) -> None:
    flow = Flow(core, published())
    for number in range(40):
        core.core_dcqcn_cnp(flow.d, flow.params, flow.now + 50 * number, 0)
    assert flow.d.current_rate == LINE_MBPS * 1000  # a thousandth of the line rate, in bit/s
    core.core_dcqcn_advance(flow.d, flow.params, flow.now + 2000 + 340_000, 0, 40_000)
    assert flow.d.current_rate == flow.d.target_rate == LINE_MBPS * 1_000_000
    assert flow.d.alpha == pytest.approx(0, abs=2**20 * 1e-4)


@given(
    calls=st.lists(st.tuples(st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 10**8)), max_size=60),
    line=st.integers(1, 10**6), g=st.integers(1, 512), timers=st.integers(1, 10**6), counter=st.integers(1000, 2**40),
)  # fmt: skip
def test_nothing_overflows(
    core: ctypes.CDLL, calls: list[tuple[bool, int, int, int]], line: int, g: int, timers: int, counter: int
) -> None:
    params = published(line_rate=line, g=g, alpha_timer=timers, rate_timer=timers, byte_counter=counter)
    flow = Flow(core, params)
    for is_cnp, now, sent, r_ai in calls:
        if is_cnp:
            core.core_dcqcn_cnp(flow.d, params, now, sent)
        else:
            core.core_dcqcn_advance(flow.d, params, now, sent, r_ai)
        assert line * 1000 <= flow.d.current_rate <= line * 1_000_000
        assert flow.d.current_rate <= flow.d.target_rate <= line * 1_000_000
        assert flow.d.alpha <= 2**20


def test_the_state_leaves_room_for_mltcp(core: ctypes.CDLL) -> None:
    assert core.core_dcqcn_size() == ctypes.sizeof(Dcqcn)
    # struct ce_state, delivered_ce and lost have 16 bytes
    assert ctypes.sizeof(Dcqcn) + 16 + core.core_size() <= library.CA_PRIV_BYTES
