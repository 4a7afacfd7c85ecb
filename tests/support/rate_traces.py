"""A busy link that follows the trace of the examples, and what it carried."""

from __future__ import annotations

from typing import Any

from tests.support.runs import ROOT, Result

TRACE = str(ROOT / "examples/link_steps.trace")  # half a second each
RATES_BPS = [6e6, 24e6, 6e6, 24e6]
BUSY: dict[str, Any] = {"jobs": 1, "iterations": 1, "compute": "500ms", "bytes": "6MB", "system": ["reno"], "ecn": "off", "buffer": "100p"}  # fmt: skip


def carried_bps(result: Result) -> list[float]:
    """What s1-s2 carried in four half seconds, from the first second on; 50 ms around each change are left out."""
    links = result.table("links.csv")
    rows = links[links["link"] == "s1-s2"]
    found = []
    for begin_s in (1.0, 1.5, 2.0, 2.5):
        within = rows[(rows["t_s"] >= begin_s + 0.05) & (rows["t_s"] <= begin_s + 0.45)]
        first, last = within.iloc[0], within.iloc[-1]
        found.append(float((last["bytes"] - first["bytes"]) * 8 / (last["t_s"] - first["t_s"])))
    return found
