"""Results of background traffic: flow completion times by size, goodput, latency percentiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from testbed.core.runs.summary import Completion, Traffic

SIZES = ((0, 100_000, "up to 100 kB"), (100_000, 1_000_000, "100 kB to 1 MB"), (1_000_000, 1 << 62, "over 1 MB"))


def traffic(tables: Sequence[pd.DataFrame], lasted_s: Sequence[float]) -> tuple[Traffic, ...]:
    """The sources of runs of one system: their ``background.csv``, and how long each run lasted in seconds."""
    labels = dict.fromkeys(label for table in tables for label in table["label"])
    return tuple(_traffic(label, tables, lasted_s) for label in labels)


def _traffic(label: str, tables: Sequence[pd.DataFrame], lasted_s: Sequence[float]) -> Traffic:
    own = [table[table["label"] == label] for table in tables]
    rates = [_goodput(table, end) for table, end in zip(own, lasted_s, strict=True)]
    rows = pd.concat(own)
    failed = rows["failure"].notna() & (rows["failure"].astype(str) != "")
    ended = rows[rows["end_s"].notna() & ~failed & rows["bytes"].notna()]
    return Traffic(
        label, len(rows), int((rows["end_s"].isna() & ~failed).sum()), int(failed.sum()), float(np.mean(rates)),
        tuple(_completions(ended)),
    )  # fmt: skip


def _goodput(rows: pd.DataFrame, lasted_s: float) -> float:
    ends = rows["end_s"].fillna(lasted_s)
    seconds = float(ends.max() - rows["start_s"].min()) if len(rows) else 0.0
    return float(rows["received_bytes"].sum()) * 8 / seconds if seconds > 0 else 0.0


def _completions(ended: pd.DataFrame) -> Iterator[Completion]:
    if ended.empty:
        return
    yield _completion("all sizes", ended)
    classes = [
        (name, rows)
        for low, high, name in SIZES
        if len(rows := ended[(ended["bytes"] > low) & (ended["bytes"] <= high)])
    ]
    if len(classes) > 1:
        for name, rows in classes:
            yield _completion(name, rows)


def _completion(name: str, rows: pd.DataFrame) -> Completion:
    took = (rows["end_s"] - rows["start_s"]).to_numpy()
    return Completion(
        name, len(rows), float(took.mean()), float(np.percentile(took, 50)), float(np.percentile(took, 99))
    )
