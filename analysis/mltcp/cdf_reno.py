"""Iteration times under Reno and MLTCP-Reno, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from functools import partial

from testbed.report import cdf

ID = "cdf-reno"
POSITION = 60
TITLE = "Iteration times under Reno and MLTCP-Reno, and what MLTCP gains"
TEXT = cdf.TEXT
CONTROLS = cdf.controls("Reno")
draw = cdf.draw
find = partial(cdf.find, base="Reno")
