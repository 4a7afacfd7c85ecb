"""Every claim as a row: ``claims.csv``, for programs and for whoever compares two reports."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from testbed.report.chapters import Chapter, Claim

COLUMNS = ("paper", "claim", "figure", "verdict", "value", "low", "high", "seeds", "criterion", "control")
LEVEL = 0.95
PAPERS = {
    "MLTCP": "MLTCP: Congestion Control for DNN Training (arXiv 2402.09589; HotNets 2024)",
    "LTP": "Boosting Distributed Machine Learning Training Through Loss-tolerant Transmission Protocol (LTP, IWQoS 2023)",
    "MLT": "Domain-specific Communication Optimization for Distributed DNN Training (DLCP, 2020; MLT, NSDI 2024)",
    "OptiReduce": "OptiReduce (NSDI 2025)",
    "SJF-BCO": "On Scheduling Ring-All-Reduce Learning Jobs in Multi-Tenant GPU Clusters with Communication Contention (SJF-BCO, MobiHoc 2022)",
}


def table(chapters: Sequence[Chapter]) -> pd.DataFrame:
    """A row for each claim, in the order of the report."""
    rows = [_row(chapter, claim) for chapter in chapters for claim in chapter.claims]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(chapter: Chapter, claim: Claim) -> tuple[object, ...]:
    low, high = claim.ends or (None, None)
    return (
        chapter.paper, claim.claim, chapter.id, claim.verdict, claim.value, low, high, claim.seeds, claim.reason, claim.control,
    )  # fmt: skip


def by_chance(chapters: Sequence[Chapter]) -> str:
    """How many of the intervals are to be expected to miss what they are of, in a sentence."""
    count = sum(claim.ends is not None for chapter in chapters for claim in chapter.claims)
    return f"Of {count} intervals at {LEVEL:.0%}, {(1 - LEVEL) * count:.1f} are to be expected to miss by chance alone."
