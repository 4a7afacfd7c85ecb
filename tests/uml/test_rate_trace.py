"""A link whose rate follows a trace carries what the trace says."""

from __future__ import annotations

import pytest

from testbed.backends import uml
from tests.support.rate_traces import BUSY, RATES_BPS, TRACE, carried_bps
from tests.support.runs import run_plan


def test_a_busy_link_has_the_rates_of_its_trace() -> None:
    """And delays what it carries at the same time."""
    result = run_plan(uml.find(), link={"s1-s2": {"rate_trace": TRACE, "delay": "2ms"}}, **BUSY)
    assert carried_bps(result) == pytest.approx(RATES_BPS, rel=0.03)
    assert result.manifest["measured"]["rtt_us_before"] == pytest.approx(4000, rel=0.02)
