"""A link whose rate follows a trace, on this machine's own kernel."""

from __future__ import annotations

import pytest

from tests.support.rate_traces import BUSY, RATES_BPS, TRACE, carried_bps
from tests.support.runs import Result, shown_in_real_time

pytestmark = pytest.mark.alone


def test_a_busy_link_has_the_rates_of_its_trace() -> None:
    def check(result: Result) -> None:
        assert carried_bps(result) == pytest.approx(RATES_BPS, rel=0.05)

    shown_in_real_time(check, rate_trace=TRACE, **BUSY)
