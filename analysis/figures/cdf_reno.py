"""Iteration times under Reno and MLTCP-Reno, and the speed-ups of their mean and 99th percentile."""

from __future__ import annotations

from pathlib import Path

from analysis import cdf
from analysis.finding import Finding
from analysis.study import Study

ID = "cdf-reno"
TITLE = "Iteration times under Reno and MLTCP-Reno, and what MLTCP gains"
TEXT = (
    "Above: the distribution of iteration times of all jobs, divided by the ideal (a job with the link to itself), for several "
    "numbers of jobs that together just fit the link. Further left is better; a vertical line at 1 is perfect interleaving. "
    "Below: how many times shorter the mean and the 99th percentile are than the base's, over all iterations and over the "
    "settled half. The first iterations are the base's by construction (MLTCP still learns), so that the 99th "
    "percentile over all of a short run cannot gain."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``cdf-reno.{png,pdf,csv}``."""
    return cdf.draw(study, out)


def find(study: Study) -> list[Finding]:
    """The abstract's speed-ups of mean and 99th percentile."""
    return cdf.find(study)
