"""Iteration times under DCQCN and MLTCP-DCQCN, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from functools import partial

from testbed.report import cdf

ID = "cdf-dcqcn"
POSITION = 80
TITLE = "Iteration times under DCQCN and MLTCP-DCQCN, and what MLTCP gains"
TEXT = f"{cdf.TEXT} A third panel counts the packets that the bottleneck marked."
draw = partial(cdf.draw, marks=True)
