"""Iteration times under DCQCN and MLTCP-DCQCN, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from pathlib import Path

from testbed.report import cdf
from testbed.report.finding import Finding
from testbed.report.study import Study

ID = "cdf-dcqcn"
POSITION = 80
TITLE = "Iteration times under DCQCN and MLTCP-DCQCN, and what MLTCP gains"
TEXT = f"{cdf.TEXT} A third panel counts the packets that the bottleneck marked."
CONTROLS = cdf.controls("DCQCN")


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``cdf-dcqcn.{png,pdf,csv}``."""
    return cdf.draw(study, out, marks=True)


def find(study: Study) -> list[Finding]:
    """The abstract's speed-ups of mean and 99th percentile."""
    return cdf.find(study, "DCQCN")
