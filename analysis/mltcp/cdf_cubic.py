"""Iteration times under CUBIC and MLTCP-CUBIC, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from pathlib import Path

from testbed.report import cdf
from testbed.report.finding import Finding
from testbed.report.study import Study

ID = "cdf-cubic"
POSITION = 70
TITLE = "Iteration times under CUBIC and MLTCP-CUBIC, and what MLTCP gains"
TEXT = cdf.TEXT
CONTROLS = cdf.controls("CUBIC")


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``cdf-cubic.{png,pdf,csv}``."""
    return cdf.draw(study, out)


def find(study: Study) -> list[Finding]:
    """The abstract's speed-ups of mean and 99th percentile."""
    return cdf.find(study, "CUBIC")
