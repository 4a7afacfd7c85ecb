"""Tables of the documentation, made anew: ``python tools/tables.py lines|traces``, ``… demo RESULTS/NAME…``.

``lines``: what MLTCP adds to each base (docs/reference/congestion-controls.md). ``traces``: the library (docs/reference/trace-format.md). ``demo``: what ``make demo`` measured (README.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from testbed.cli.show import busy_s
from testbed.core.units import Rate
from testbed.report import added_lines
from testbed.traces import trace as traces

WORKERS = 2


def lines() -> str:
    rows = [
        f"| `{name}` | {base} | {added_lines.added(name)} | {added_lines.executed(name)} |"
        for name, base in added_lines.BASES.items()
    ]
    return table(
        "congestion control | base | lines added to the base | with the lines of the algorithm they execute", rows
    )


def library() -> str:
    names = [name for name in traces.names() if not name.endswith(("-layers", "-fsdp"))]
    return table("name | what | bytes | duty", map(_trace, names))


def _trace(name: str) -> str:
    """What, how much, how busy."""
    trace = traces.load(name)
    rate = trace.native_rate or Rate(50 * 10**9)
    period_s = traces.critical_path_s(trace, lambda op: traces.busiest_s(op, WORKERS, rate))
    busy = busy_s(trace, WORKERS, rate)
    return f"| `{name}` | {trace.model} | {trace.bytes_per_iteration / 1e6:,.1f} MB | {busy / period_s:.0%} |"


def demo(folders: Sequence[str]) -> str:
    summaries = [json.loads((Path(folder) / "summary.json").read_text()) for folder in folders]
    rows = [row for summary in summaries for row in of_demo(summary)]
    return table(
        "demo | congestion control | mean iteration | last 10 iterations ÷ ideal | interleaved from iteration | verdict",
        rows,
    )


def of_demo(summary: dict[str, Any]) -> list[str]:
    """The lines of one experiment."""
    found = []
    for result in summary["results"]:
        at = "–" if result["interleaved_at"] is None else result["interleaved_at"]
        verdict = ", ".join(sorted(set(result["verdicts"])))
        steady = result["last10_mean_s"] / result["ideal_s"]
        found.append(
            f"| {jobs(summary)} | `{result['system']}` | {result['mean_s']:.3f} s | {steady:.3f}× | {at} | {verdict} |"
        )
    return found


def jobs(summary: dict[str, Any]) -> str:
    """An experiment by its jobs."""
    kind = "ResNet-50" if "resnet50" in summary["experiment"] else "synthetic"
    return f"{summary['results'][0]['jobs']} × {kind}"


def table(head: str, rows: Iterable[str]) -> str:
    """Return a Markdown table."""
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *rows])


if __name__ == "__main__":
    which, *folders = sys.argv[1:]
    print(demo(folders) if which == "demo" else {"lines": lines, "traces": library}[which]())
