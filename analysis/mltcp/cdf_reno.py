"""Iteration times under Reno and MLTCP-Reno, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from pathlib import Path

from testbed.report import cdf
from testbed.report.finding import Finding
from testbed.report.study import Study

ID = "cdf-reno"
POSITION = 60
TITLE = "Iteration times under Reno and MLTCP-Reno, and what MLTCP gains"
TEXT = cdf.TEXT
CONTROLS = cdf.controls("Reno")


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``cdf-reno.{png,pdf,csv}``."""
    return cdf.draw(study, out)


def find(study: Study) -> list[Finding]:
    """The abstract's speed-ups of mean and 99th percentile."""
    return cdf.find(study, "Reno")
