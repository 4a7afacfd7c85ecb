"""Every claim as a row: ``claims.csv``, for programs and for whoever compares two reports."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.finding import Finding
from analysis.sections import Section

COLUMNS = ("paper", "claim", "figure", "verdict", "value", "low", "high", "seeds", "criterion", "control")
LEVEL = 0.95
USUAL_PAPER = "MLTCP"
PAPERS = {
    "MLTCP": "MLTCP: Congestion Control for DNN Training (arXiv 2402.09589; HotNets 2024)",
    "LTP": "Boosting Distributed Machine Learning Training Through Loss-tolerant Transmission Protocol (LTP, IWQoS 2023)",
    "MLT": "Domain-specific Communication Optimization for Distributed DNN Training (DLCP, 2020; MLT, NSDI 2024)",
    "OptiReduce": "OptiReduce (NSDI 2025)",
    "SJF-BCO": "On Scheduling Ring-All-Reduce Learning Jobs in Multi-Tenant GPU Clusters with Communication Contention (SJF-BCO, MobiHoc 2022)",
}


def table(sections: Sequence[Section]) -> pd.DataFrame:
    """A row for each claim, in the order of the report."""
    rows = [_row(section, finding) for section in sections for finding in section.findings]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(section: Section, finding: Finding) -> tuple[object, ...]:
    low, high = finding.interval or (None, None)
    return (
        paper(section), finding.claim, section.figure.ID, finding.verdict, finding.value, low, high, finding.seeds, finding.reason,
        finding.control,
    )  # fmt: skip


def paper(section: Section) -> str:
    """Whose claims a figure judges, in a word."""
    return str(getattr(section.figure, "PAPER", USUAL_PAPER))


def by_chance(sections: Sequence[Section]) -> str:
    """How many of the intervals are to be expected to miss what they are of, in a sentence."""
    count = sum(finding.interval is not None for section in sections for finding in section.findings)
    return f"Of {count} intervals at {LEVEL:.0%}, {(1 - LEVEL) * count:.1f} are to be expected to miss by chance alone."
