"""LTP over paths that lose packets at random: loss × round-trip time, against every TCP, and against itself without loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.report import drawing, phases
from testbed.report.study import Study

ID = "ltp-loss"
POSITION = 220
TITLE = "LTP over paths that lose: how many times TCP's speed"
TEXT = (
    "Bars: a mean iteration, from computing over the gather to the broadcast; ticks are seeds. Beside them the speed-up over the first system, and "
    "what of the gradients was delivered where that is less than all. Random loss on a long path starves a TCP that takes it for congestion; one that "
    "does not (BBR), or LTP that delivers everything, says how much of the gain is the rate and how much the tolerance."
)
LONG_MS = 200.0
CELL = ["rate_bps", "rtt_ms", "rto_ms"]


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-loss.{png,pdf,csv}``; the data: a row per run."""
    rows = phases.table(study)
    column = rows["loss"] + (rows["rto_ms"] < LONG_MS)  # those with a small timeout to the right of all others
    drawn = phases.figure(
        study, rows.assign(column=column), CELL[:2], "column",
        lambda one: f"{drawing.rate(one['rate_bps'])}, round trip {one['rtt_ms']:g} ms,\nloss {100 * one['loss']:g} %" + _timeout(one, ", "),
    )  # fmt: skip
    return drawing.save(drawn, rows.assign(complete=_complete(rows)), out, ID)


def _timeout(run: pd.Series[Any], before: str) -> str:
    """A least timeout that is not the kernel's own."""
    return f"{before}least timeout {run['rto_ms']:g} ms" if run["rto_ms"] < LONG_MS else ""


def _complete(rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether no stock TCP is missing in a run's cell that most cells have: else the fastest is not known."""
    keys = [*CELL, "loss"]
    cells = {at: set(phases.tcp(cell)) for at, cell in rows.groupby(keys) if cell["own"].any()}
    counts = Counter(base for bases in cells.values() for base in bases)
    usual = {base for base, count in counts.items() if 2 * count > len(cells)}
    return pd.Series([usual <= cells.get(tuple(at), set()) for at in rows[keys].to_numpy().tolist()], index=rows.index)
