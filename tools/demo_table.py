"""What ``make demo`` measured, as the table of README.md: ``python tools/demo_table.py RESULTS/NAME…`` prints it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = (
    "| demo | congestion control | mean iteration | last ten ÷ ideal | interleaved from iteration | verdict |\n"
    "|---|---|---|---|---|---|"
)


def numbers(result: dict[str, Any]) -> tuple[float, float]:
    """Of one congestion control: the mean iteration in seconds, and its jobs' last ten ÷ the ideal."""
    return result["mean_s"], result["last10_mean_s"] / result["ideal_s"]


def rows(what: str, summary: dict[str, Any]) -> list[str]:
    """The lines of one experiment, ``what`` in words."""
    found = []
    for result in summary["results"]:
        mean_s, steady = numbers(result)
        at = "–" if result["interleaved_at"] is None else result["interleaved_at"]
        verdict = ", ".join(sorted(set(result["verdicts"])))
        found.append(f"| {what} | `{result['system']}` | {mean_s:.3f} s | {steady:.3f}× | {at} | {verdict} |")
    return found


def words(summary: dict[str, Any]) -> str:
    """An experiment by its jobs."""
    kind = "ResNet-50" if "resnet50" in summary["experiment"] else "synthetic"
    return f"{summary['results'][0]['jobs']} × {kind}"


if __name__ == "__main__":
    print(HEAD)
    for name in sys.argv[1:]:
        summary = json.loads((Path(name) / "summary.json").read_text())
        print("\n".join(rows(words(summary), summary)))
