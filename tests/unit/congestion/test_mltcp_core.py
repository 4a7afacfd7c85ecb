"""kernel/mltcp.h, compiled for user space with sanitizers, against a float reference."""

from __future__ import annotations

import ctypes
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.congestion import catalogue, curves
from tests.support.properties import examples
from tests.unit.congestion import core as library
from tests.unit.congestion.core import CA_PRIV_BYTES, ONE, ROOT, Params, State

CURVES = {
    "linear": lambda s, i, r: s * r + i,
    "quadratic": lambda s, i, r: s * r * r + i,
    "reciprocal": lambda s, i, r: 1 / (1 / i - (1 / i - 1 / (s + i)) * r),
    "concave": lambda s, i, r: -s * r * r + 2 * s * r + i,
    "falling": lambda s, i, r: s + i - s * r,
    "falling_reciprocal": lambda s, i, r: 1 / (1 / (s + i) + (1 / i - 1 / (s + i)) * r),
}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library.build(tmp_path_factory.mktemp("core"))


def default(**changes: int) -> Params:
    return Params(
        **{"slope": 1792, "intercept": 256, "curve": 0, "gap_factor": 512, "first_gap_us": 1000, "total_bytes": 0}
        | changes
    )


class Flow:
    """A flow as the kernel would drive it: phases of bytes, gaps between them."""

    def __init__(self, core: ctypes.CDLL, params: Params | None = None) -> None:
        self.core, self.params, self.state, self.acked = core, params or default(), State(), 1
        core.core_init(ctypes.byref(self.state), ctypes.byref(self.params))

    def gap(self, ms: float) -> bool:
        return bool(
            self.core.core_tx_start(self.state, self.params, self.params.total_bytes, self.acked, int(ms * 1000))
        )

    def send(self, size: int) -> None:
        self.acked += size

    def ratio(self) -> int:
        return int(self.core.core_ratio(self.state, self.params, self.acked))

    def iterate(self, size: int, gap_ms: float) -> None:
        self.gap(gap_ms)
        self.send(size)


def test_state_leaves_room_for_cubic(core: ctypes.CDLL) -> None:
    # struct bictcp of tcp_cubic.c has 60 bytes, struct ca_guard 8
    assert core.core_size() == ctypes.sizeof(State) <= CA_PRIV_BYTES - 60 - 8


def test_f_is_one_until_a_whole_iteration_was_seen(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    flow.iterate(5_000_000, 1000)  # the connection waited; then the first, partial interval
    assert flow.ratio() == -1
    flow.iterate(10_000_000, 500)
    assert flow.ratio() == -1
    flow.gap(500)
    assert flow.state.total_bytes == 10_000_000
    assert flow.ratio() == 0
    flow.send(5_000_000)
    assert flow.ratio() == 512
    flow.send(5_000_000)
    assert flow.ratio() == ONE


def test_given_total_bytes_are_in_force_at_once(core: ctypes.CDLL) -> None:
    flow = Flow(core, default(total_bytes=10_000_000))
    flow.iterate(2_500_000, 1000)
    assert flow.ratio() == 256
    for _ in range(5):
        flow.iterate(1_000_000, 500)
    assert flow.state.total_bytes == 10_000_000


def test_pauses_between_buckets_are_no_boundaries(core: ctypes.CDLL) -> None:
    # ResNet-50's buckets: gaps of 8, 6, 28 and 40 ms within an iteration, 130 ms between two
    flow = Flow(core)
    buckets = [(130, 410_000), (8, 1_575_000), (6, 1_313_000), (28, 1_328_000), (40, 486_000)]
    for _ in range(6):
        for gap, size in buckets:
            flow.iterate(size, gap)
    assert flow.state.total_bytes == sum(size for _, size in buckets)
    flow.gap(130)
    assert flow.ratio() == 0


def test_many_equal_pauses_are_told_from_the_long_gap(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    for _ in range(8):
        flow.iterate(1_000_000, 100)
        for _ in range(19):
            flow.iterate(1_000_000, 5)
    assert flow.state.total_bytes == 20_000_000


def test_a_checkpoint_changes_nothing(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    for _ in range(10):
        flow.iterate(10_000_000, 500)
    flow.iterate(10_000_000, 30_000)
    for _ in range(3):
        flow.iterate(10_000_000, 500)
        assert flow.ratio() == ONE
    assert flow.state.gap_us == pytest.approx(500_000, rel=0.1)


def test_a_long_start_is_forgotten(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    flow.iterate(100_000_000, 1000)  # parameters are broadcast, then everything is compiled
    flow.iterate(10_000_000, 10_000)
    for _ in range(5 * 64):
        flow.iterate(10_000_000, 500)
    assert flow.ratio() == ONE
    assert flow.state.total_bytes == 10_000_000


def test_moments_without_data_are_no_pauses(core: ctypes.CDLL) -> None:
    """A ring's sender that is late by less than a millisecond, hundreds of times a phase."""
    flow = Flow(core)
    for _ in range(6):
        flow.iterate(100_000, 500)
        for _ in range(300):
            flow.iterate(100_000, 0.4)
    assert flow.state.total_bytes == 301 * 100_000
    assert flow.state.gap_us == 500_000


def test_many_pauses_in_a_phase_are_survived(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    for _ in range(12):
        flow.iterate(100_000, 500)
        for _ in range(100):
            flow.iterate(100_000, 4)
    assert flow.state.total_bytes == 101 * 100_000


def test_learns_anew_when_the_job_changes(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    for _ in range(10):
        flow.iterate(10_000_000, 500)
    for _ in range(40):
        flow.iterate(1_000_000, 60)  # a smaller, faster job on the same connection
    assert flow.state.total_bytes == pytest.approx(1_000_000, rel=0.15)
    for _ in range(4):
        flow.iterate(50_000_000, 60)
    assert flow.state.total_bytes == 50_000_000


def test_a_stray_boundary_does_no_lasting_harm(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    for _ in range(5):
        flow.iterate(10_000_000, 500)
    flow.iterate(4_000_000, 500)
    flow.iterate(6_000_000, 400)  # the ring's neighbour was stalled: the phase came in two
    flow.gap(500)
    flow.send(10_000_000)
    assert flow.ratio() == ONE
    flow.gap(500)
    assert flow.state.total_bytes == 10_000_000


def test_an_iteration_that_becomes_smaller_is_learned(core: ctypes.CDLL) -> None:
    """An eighth of what is known is forgotten at each boundary, until the smaller count is the largest one."""
    flow = Flow(core)
    for _ in range(5):
        flow.iterate(10_000_000, 500)
    for expected in (10_000_000, 8_750_000, 8_000_000, 8_000_000):
        flow.gap(500)
        assert flow.state.total_bytes == expected
        flow.send(8_000_000)


def test_twice_as_much_is_believed_when_it_comes_twice_in_a_row(core: ctypes.CDLL) -> None:
    """After a boundary that was missed one interval holds two iterations, which says nothing of the next."""
    flow = Flow(core)
    for _ in range(5):
        flow.iterate(10_000_000, 500)
    flow.iterate(25_000_000, 500)
    flow.gap(500)
    assert flow.state.total_bytes == 10_000_000
    flow.send(25_000_000)
    flow.gap(500)
    assert flow.state.total_bytes == 25_000_000


def test_outgrown_flows_behave_as_the_base(core: ctypes.CDLL) -> None:
    flow = Flow(core)
    for _ in range(4):
        flow.iterate(10_000_000, 500)
    flow.gap(500)
    flow.send(25_000_000)
    assert flow.ratio() == -1
    assert flow.core.core_factor(flow.params, -1) == ONE


@given(slope=st.integers(-16 * ONE, 16 * ONE), intercept=st.integers(0, 16 * ONE), ratio=st.integers(0, ONE))
def test_factor_is_the_line_within_its_bounds(core: ctypes.CDLL, slope: int, intercept: int, ratio: int) -> None:
    exact = slope / ONE * ratio / ONE + intercept / ONE
    found = core.core_factor(default(slope=slope, intercept=intercept), ratio) / ONE
    assert found == pytest.approx(min(64.0, max(1 / 64, exact)), abs=1.5 / ONE)


@pytest.mark.parametrize("curve", CURVES)
def test_the_curves_are_those_of_the_paper(core: ctypes.CDLL, curve: str) -> None:
    """Figure 5 with S = 1.75 and I = 0.25, for instance 1/(4 - 3.5 r)."""
    params = default(curve=curves.CURVES.index(curve))
    for ratio in range(0, ONE + 1, 16):
        exact = CURVES[curve](1.75, 0.25, ratio / ONE)
        assert core.core_factor(params, ratio) / ONE == pytest.approx(exact, abs=3 / ONE)


@given(
    slope=st.integers(-16 * ONE, 16 * ONE), intercept=st.integers(0, 16 * ONE), curve=st.integers(0, 5),
    ratio=st.integers(-1, ONE),
)  # fmt: skip
def test_python_computes_the_same_f(core: ctypes.CDLL, slope: int, intercept: int, curve: int, ratio: int) -> None:
    """What the sampler writes for eBPF flows; and no parameters lead to an overflow or a division by zero."""
    found = core.core_factor(default(slope=slope, intercept=intercept, curve=curve), ratio)
    assert found == curves.factor({"slope": slope, "intercept": intercept, "curve": curve}, ratio)
    assert curves.LEAST <= found <= curves.MOST


@pytest.mark.parametrize("header", ["mltcp.h", "dcqcn.h"])
def test_parameters_have_one_range_everywhere(header: str) -> None:
    """The list in the header (refused at load, sysctl) and the table of ``--cc``."""
    text = (ROOT / "kernel" / header).read_text().replace("\\\n", " ")
    rows = re.findall(r"P\((\w+), (\w+), \w+,\s+(\w+),\s+(-?\w+),\s+([\w <]+),", text)
    assert len(rows) >= 6
    by_constant = {parameter.constant: parameter for parameter in catalogue.parameters().values()}
    for _, name, _, low, high in rows:
        highest = 1 << int(high.split()[-1]) if "<<" in high else int(high)
        assert (int(low), highest) == (by_constant[name].lowest, by_constant[name].highest)


KEEP, ENTITLED, IN_FLIGHT, INITIAL = range(4)


@given(
    cwnd=st.integers(1, 2**30), in_flight=st.integers(0, 2**30), slope=st.integers(0, 16 * ONE),
    intercept=st.integers(16, 16 * ONE),
)  # fmt: skip
def test_a_newcomers_window_is_what_f_entitles_it_to(
    core: ctypes.CDLL, cwnd: int, in_flight: int, slope: int, intercept: int
) -> None:
    """cwnd √(F(0)/F(1)), ten segments at least; or what was in flight; a window only becomes smaller."""
    windows = {
        how: core.core_window(default(restart=how, slope=slope, intercept=intercept), cwnd, in_flight)
        for how in (KEEP, ENTITLED, IN_FLIGHT)
    }
    least, most = (min(64 * ONE, f) for f in (intercept, intercept + slope))
    entitled = cwnd * math.sqrt(least / most)
    assert windows[KEEP] == cwnd
    assert windows[ENTITLED] == pytest.approx(min(cwnd, max(10, entitled)), abs=1 + cwnd / ONE)
    assert windows[IN_FLIGHT] == min(cwnd, max(10, in_flight))


@given(slope=st.integers(-16 * ONE, 0), intercept=st.integers(0, 16 * ONE), cwnd=st.integers(1, 2**30))
def test_a_falling_f_entitles_nobody_to_more(core: ctypes.CDLL, slope: int, intercept: int, cwnd: int) -> None:
    assert core.core_window(default(restart=ENTITLED, slope=slope, intercept=intercept), cwnd, 0) == cwnd


@given(cwnd=st.integers(1, 2**30), ssthresh=st.integers(2, 2**31 - 1))
def test_ten_segments_and_an_eighth(core: ctypes.CDLL, cwnd: int, ssthresh: int) -> None:
    assert core.core_window(default(restart=INITIAL), cwnd, 3) == 10
    assert core.core_threshold(default(restart=INITIAL), cwnd, ssthresh) == min(ssthresh, max(cwnd // 8, 10))
    assert all(
        core.core_threshold(default(restart=how), cwnd, ssthresh) == ssthresh for how in (KEEP, ENTITLED, IN_FLIGHT)
    )


@given(f=st.integers(16, 64 * ONE), cwnd=st.integers(2, 2**24), share=st.floats(0, 1))
def test_a_decrease_leaves_f_times_the_odds(core: ctypes.CDLL, f: int, cwnd: int, share: float) -> None:
    """Of a half F / (1 + F): 0.2 at F = 1/4, 2/3 at 2; at F = 1 what the base leaves."""
    reduced = max(2, int(cwnd * share))
    found = core.core_reduced(f, cwnd, reduced)
    assert core.core_reduced(ONE, cwnd, reduced) == reduced
    if reduced < cwnd:
        exact = cwnd * reduced * f / (reduced * f + (cwnd - reduced) * ONE)
        assert found == pytest.approx(max(2, exact), abs=1 + cwnd / 2**14)
        assert found < cwnd or cwnd == 2
    assert core.core_reduced(256, 1000, 500) == 199 and core.core_reduced(2048, 1000, 500) == 666


def test_what_the_application_says_of_a_socket(core: ctypes.CDLL) -> None:
    """TCP_NOTSENT_LOWAT, where asked for and as large as an iteration; below, and unset, it is no statement."""
    assert core.core_given(default(total_bytes=5_000_000), 10_000_000) == 5_000_000  # it means what it means
    assert core.core_given(default(given=1), 0) == 0
    assert core.core_given(default(given=1), 16_384) == 0
    assert core.core_given(default(given=1), 2**32 - 1) == 0
    assert core.core_given(default(given=1, total_bytes=5_000_000), 0) == 5_000_000
    assert core.core_given(default(given=1, total_bytes=5_000_000), 10_000_000) == 10_000_000
    flow = Flow(core)
    core.core_tx_start(flow.state, flow.params, 10_000_000, flow.acked, 1_000_000)
    flow.send(2_500_000)
    assert flow.ratio() == 256
    for _ in range(5):
        core.core_tx_start(flow.state, flow.params, 10_000_000, flow.acked, 500_000)
        flow.send(1_000_000)
    assert flow.state.total_bytes == 10_000_000


@pytest.mark.skipif("CORE_ASAN" in os.environ, reason="it is what runs these tests with AddressSanitizer")
def test_with_address_sanitizer() -> None:
    """All of this file and of DCQCN's once more, with AddressSanitizer beneath Python."""
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        **os.environ, "CORE_ASAN": "1", "LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    command.append(str(Path(__file__).with_name("test_dcqcn_core.py")))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@given(
    total=st.integers(0, 2**64 - 1), start=st.integers(0, 2**64 - 1), acked=st.integers(0, 2**64 - 1),
)  # fmt: skip
def test_ratio_never_overflows(core: ctypes.CDLL, total: int, start: int, acked: int) -> None:
    state = State(start=start)
    core.core_know(state, total)
    ratio = core.core_ratio(state, default(), acked)
    sent = max(0, acked - start)
    if total == 0 or total > 2**54 or sent // 2 > total:
        assert ratio == -1
    else:
        assert ratio == min(ONE, (sent << 10) // total)  # exactly, though nothing is divided


@given(total=st.integers(1, 2**54), parts=st.lists(st.integers(0, ONE), min_size=1, max_size=20))
def test_the_reciprocal_is_exact_where_r_steps(core: ctypes.CDLL, total: int, parts: list[int]) -> None:
    state = State()
    core.core_know(state, total)
    for part in parts:
        for sent in (part * total // ONE + step for step in (-1, 0, 1)):
            if 0 <= sent <= total:
                assert core.core_ratio(state, default(), sent) == (sent << 10) // total


@given(sent=st.integers(0, 2**40))
def test_r_without_learning_is_a_logarithm(core: ctypes.CDLL, sent: int) -> None:
    exact = min(1.0, math.log2(1 + sent / 2**14) / 17)
    found = core.core_ratio(State(start=5), default(ratio=1), sent + 5)
    assert found / ONE == pytest.approx(exact, abs=1.6 / ONE)
    assert found == curves.log_ratio(sent)
    assert core.core_ratio(State(start=5), default(ratio=1), sent + 6 + 16_384) >= found


def test_the_first_whole_iteration_is_learned_from_where_asked(core: ctypes.CDLL) -> None:
    flow = Flow(core, default(learn=1))
    flow.iterate(10_000_000, 1000)
    assert flow.ratio() == -1
    flow.gap(500)
    assert flow.state.total_bytes == pytest.approx(10_000_000, abs=1) and flow.state.provisional
    flow.send(5_000_000)
    assert flow.ratio() == pytest.approx(512, abs=1)
    flow.send(5_000_000)
    flow.gap(500)
    assert flow.state.total_bytes == pytest.approx(10_000_000, abs=1) and not flow.state.provisional


@pytest.mark.parametrize("first", [1_000_000, 4_000_000, 30_000_000])
def test_a_first_interval_that_was_no_whole_one_is_corrected_at_the_next(core: ctypes.CDLL, first: int) -> None:
    flow = Flow(core, default(learn=1))
    flow.iterate(first, 1000)
    flow.iterate(10_000_000, 500)
    flow.gap(500)
    assert flow.state.total_bytes == 10_000_000


@given(
    acks=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=200), slope=st.integers(-2048, 4096),
    intercept=st.integers(0, 2048),
)  # fmt: skip
def test_scaling_loses_nothing(core: ctypes.CDLL, acks: list[int], slope: int, intercept: int) -> None:
    params = default(slope=slope, intercept=intercept)
    state = State(carry=0)
    core.core_know(state, 1000)
    f = core.core_factor(params, 512) / ONE
    scaled = [core.core_scale(state, params, 500, acked) for acked in acks]
    assert all(0 <= value <= 2**32 - 1 for value in scaled)
    if all(acked * f < 2**32 - 2 for acked in acks):
        assert sum(scaled) == pytest.approx(sum(acks) * f, abs=1)


@examples(50)
@given(
    rtts=st.integers(1, 400), window=st.integers(2, 5000), slope=st.integers(0, 4096), intercept=st.integers(16, 2048),
)  # fmt: skip
def test_the_window_grows_by_f_segments_a_round_trip(
    core: ctypes.CDLL, rtts: int, window: int, slope: int, intercept: int
) -> None:
    """Reno's additive increase on scaled ACKs, against the same in floating point (r fixed)."""
    params, state = default(slope=slope, intercept=intercept), State()
    core.core_know(state, 1000)
    f = core.core_factor(params, 512) / ONE
    cwnd, count, exact = window, 0, float(window)
    for _ in range(rtts):
        segments = cwnd
        for _ in range(min(segments, 40)):  # a round trip's ACKs, in batches
            count += core.core_scale(state, params, 500, max(1, segments // 40))
            while count >= cwnd:
                count, cwnd = count - cwnd, cwnd + 1
        exact += f * (min(segments, 40) * max(1, segments // 40)) / exact
    assert abs(cwnd - exact) <= 1 + f * 1.5 + 0.01 * exact


@given(
    events=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**40)), max_size=300),
    first_gap=st.integers(1, 10**7), factor=st.integers(64, 1024),
)  # fmt: skip
def test_any_history_is_survived(core: ctypes.CDLL, events: list[tuple[int, int]], first_gap: int, factor: int) -> None:
    flow = Flow(core, default(first_gap_us=first_gap, gap_factor=factor))
    for gap_us, size in events:
        core.core_tx_start(flow.state, flow.params, 0, flow.acked, gap_us)
        flow.send(size)
        assert -1 <= flow.ratio() <= ONE
        assert flow.core.core_factor(flow.params, flow.ratio()) >= 16
