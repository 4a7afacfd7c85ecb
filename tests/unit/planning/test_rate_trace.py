"""Rates of a link from a recorded trace in mahimahi's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import spec
from testbed.backends import flow
from testbed.core.errors import RequestError
from testbed.planning import links, plan, rate_trace

ROOT = Path(__file__).parents[3]
STEPS = str(ROOT / "examples/link_steps.trace")


def planned(**fields: Any) -> Any:
    return plan.plans(plan.resolve(spec.read(None, {"jobs": 1, "system": ["reno"], **fields})))[0]


def test_the_rates_of_an_example() -> None:
    """6 Mbit/s for half a second (a packet every 2 ms), then 24 Mbit/s."""
    found = rate_trace.read(STEPS, 1500)
    assert found.every_ns == 100_000_000
    assert found.rates_bps == (6_000_000,) * 5 + (24_000_000,) * 5
    assert found.at(12) == found.at(2) == 6_000_000


@given(st.lists(st.integers(0, 300), min_size=1, max_size=400))
def test_no_packet_is_lost_or_added(gaps: list[int]) -> None:
    times = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    if times[-1] == 0:
        return
    path = Path("/tmp") / f"mltcp-test-{hash(tuple(gaps))}.trace"
    path.write_text("\n".join(map(str, times)))
    try:
        found = rate_trace.read(str(path), 1500)
    finally:
        path.unlink()
    spans = [rate * found.every_ns / 1e9 / 12_000 for rate in found.rates_bps]  # packets in each
    assert all(span > 0.99 for span in spans)
    empty = sum(1 for span in spans if span < 1.01)
    assert len(times) - 0.01 <= sum(spans) + 0.01 and sum(spans) <= len(times) + empty + 0.01 * len(spans)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no time after 0"), ("1\nx\n", "invalid literal"), ("5\n3\n", "'3' comes after a later time"), ("0\n", "no time after 0"),
     ("-1\n4\n", "no time after 0")],
)  # fmt: skip
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.trace"
    path.write_text(text)
    with pytest.raises(RequestError, match=words):
        rate_trace.read(str(path), 1500)
    with pytest.raises(RequestError, match="cannot be read"):
        rate_trace.read(str(tmp_path / "none"), 1500)


def test_links_follow_it_and_the_buffer_is_that_of_its_highest_rate() -> None:
    found = planned(rate_trace=STEPS, buffer="10ms").bottlenecks["s1-s2"]
    assert (found.rate_bps, found.buffer_bytes) == (24_000_000, 30_000)
    own = planned(link={"s1-s2": {"rate_trace": STEPS, "delay": "5ms"}})
    assert own.bottlenecks["s2-s1"].trace is not None and own.wires["s1-s2"].delay_ns == 5_000_000
    assert planned(rate_trace=STEPS, link={"s1-s2": {"rate": "10mbit"}}).bottlenecks["s1-s2"].trace is None


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(RequestError, match="both rate and rate_trace"):
        links.network(spec.read(None, {"link": {"s1-s2": {"rate": "10mbit", "rate_trace": STEPS}}}))
    with pytest.raises(RequestError, match="Leave out the rate or the trace"):
        planned(rate_trace=STEPS, event=[{"at": "1s", "link": "s1-s2", "rate": "10mbit"}])
    with pytest.raises(RequestError, match="rates in the flow simulator are constant"):
        flow.FlowLevel().check(planned(rate_trace=STEPS))
