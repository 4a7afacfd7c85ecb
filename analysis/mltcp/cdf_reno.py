"""Iteration times under Reno and MLTCP-Reno, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from testbed.report import cdf

ID = "cdf-reno"
POSITION = 60
TITLE = "Iteration times under Reno and MLTCP-Reno, and what MLTCP gains"
TEXT = cdf.TEXT
draw = cdf.draw
