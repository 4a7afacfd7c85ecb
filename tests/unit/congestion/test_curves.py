"""F in floats, which theory and the fluid model take, is the F that the kernel computes in integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.congestion.curves import CURVES, LEAST, MOST, ONE, factor
from testbed.models.curves import Curve


@given(
    curve=st.sampled_from(CURVES), slope=st.integers(0, 4 * ONE), intercept=st.integers(ONE // 8, 4 * ONE),
    ratio=st.integers(0, ONE),
)  # fmt: skip
def test_they_agree(curve: str, slope: int, intercept: int, ratio: int) -> None:
    computed = factor({"slope": slope, "intercept": intercept, "curve": CURVES.index(curve)}, ratio)
    exact = float(Curve(curve, slope / ONE, intercept / ONE)(ratio / ONE))
    assert LEAST <= computed <= MOST
    assert computed / ONE == pytest.approx(exact, rel=0.01, abs=8 / ONE)
