"""Iteration times under DCQCN and three arms of MLTCP-DCQCN, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from functools import partial

from testbed.report import cdf

ID = "cdf-dcqcn"
POSITION = 80
TITLE = "MLTCP-DCQCN makes two jobs 1.3 times as fast, and slows eight down"
TEXT = f"{cdf.TEXT} Right: packets marked."
draw = partial(cdf.draw, marks=True)
