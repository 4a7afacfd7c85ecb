"""Iteration times under Reno and three arms of MLTCP-Reno, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from testbed.report import cdf

ID = "cdf-reno"
POSITION = 60
TITLE = "MLTCP-Reno makes equal jobs up to 1.5 times as fast as Reno does"
TEXT = cdf.TEXT
draw = cdf.draw
