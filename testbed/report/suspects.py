"""The suspect runs of a figure, and their violated invariants: they count, and the report marks their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from testbed.core.runs.load import load_run
from testbed.core.text import count


def describe_suspects(runs: Iterable[Path]) -> str:
    """Return the number of suspect runs of a figure, with reasons; empty if there are none."""
    verdicts = [load_run(path).verdict for path in runs]
    suspect = [verdict for verdict in verdicts if verdict.verdict == "suspect"]
    if not suspect:
        return ""
    causes = Counter(row.id for verdict in suspect for row in verdict.invariants if row.status == "suspect")
    why = ", ".join(f"{cause} in {count}" for cause, count in causes.most_common())
    return f"{len(suspect)} of {count(len(verdicts), 'run')}" + (f" ({why})" if why else "")
