"""Iteration times under CUBIC and MLTCP-CUBIC, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from testbed.report import cdf

ID = "cdf-cubic"
POSITION = 70
TITLE = "Iteration times under CUBIC and MLTCP-CUBIC, and what MLTCP gains"
TEXT = cdf.TEXT
draw = cdf.draw
