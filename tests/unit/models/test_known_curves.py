"""Published curves as formulas, by values that their papers give."""

from __future__ import annotations

import pytest

from testbed.models import known_curves as curves


def test_windows_over_loss() -> None:
    assert curves.reno_window(0.01) == pytest.approx(12.2, rel=0.01)
    # RFC 9438, tables 1 and 2: average window by C = 0.4 and round trips of 0.1 s and 0.01 s.
    assert curves.cubic_window(1e-4, 0.1) == pytest.approx(187, rel=0.01)
    assert curves.cubic_window(1e-6, 0.1) == pytest.approx(5926, rel=0.01)
    assert curves.cubic_window(1e-5, 0.01) == pytest.approx(curves.reno_window(1e-5), rel=0.01)
    # Windows that were simulated with independent losses, without CUBIC's fast convergence.
    assert curves.cubic_window_random(1e-4, 0.1) == pytest.approx(232, rel=0.01)
    assert curves.cubic_window_random(1e-3, 0.1) == pytest.approx(43.7, rel=0.06)


def test_queues_and_marks() -> None:
    assert curves.dctcp_queue(40, 0, 2) == pytest.approx(42 - 160**0.5 / 4)
    assert curves.red_share(1.0) == 1.0 and curves.red_share(0.001) == pytest.approx(0.002, rel=0.01)
    assert curves.bbr_share(0.1) == 0.9
    assert curves.stalled_goodput(0.2, 0.2) == 0.5
