"""Iteration times under CUBIC and three arms of MLTCP-CUBIC, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from testbed.report import cdf

ID = "cdf-cubic"
POSITION = 70
TITLE = "MLTCP-CUBIC makes 16 equal jobs 1.3 times as fast as CUBIC does"
TEXT = cdf.TEXT
draw = cdf.draw
