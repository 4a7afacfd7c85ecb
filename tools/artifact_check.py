"""``make artifact-check``: a short run for each headline claim, and whether it gives the expected value.

Reads ``tools/artifact.toml``. Results are kept in ``build/artifact``: a second call only compares, if the program is the same.
Exit code 0: every value is within its tolerance; 1: one is not, or its run failed; 2: no such check; 3: this machine cannot run them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[1]
CHECKS = Path(__file__).with_name("artifact.toml")
OUT = Path("build/artifact")
NEVER = "never"
MACHINE = 3  # exit code of a run that this machine cannot carry out
SETTLED: dict[str, Callable[[pd.Series[float]], float]] = {
    "settled_mean_s": lambda times: float(times.mean()),
    "settled_p99_s": lambda times: float(times.quantile(0.99)),
}
TIMES_IDEAL = "settled_p99_times_ideal"  # the 99th percentile of each time divided by the job's ideal

Runner = Callable[[Sequence[str]], int]  # the words of a command to its exit code


@dataclass(frozen=True)
class Value:
    """A number of one run: ``field`` of ``system``, or that of ``over`` divided by it. ``expected`` is None for never."""

    system: str
    field: str
    expected: float | None
    tolerance: float = 0.0
    over: str = ""
    claim: str = ""

    def agrees(self, measured: float | None) -> bool:
        """Return True if ``measured`` is within the tolerance; "never" (None) agrees only with "never"."""
        if self.expected is None or measured is None:
            return self.expected is measured
        return abs(measured - self.expected) <= self.tolerance

    @property
    def text(self) -> str:
        """Return the value as text: ``1.5 ± 0.1``."""
        return NEVER if self.expected is None else f"{self.expected:g} ± {self.tolerance:g}"


@dataclass(frozen=True)
class Check:
    """One command of `mltcp`, its cost on two cores, and its expected values."""

    id: str
    command: str
    minutes: float
    disk_mb: float
    values: tuple[Value, ...]


def read(path: Path = CHECKS) -> tuple[Check, ...]:
    """The checks of a file."""

    def value(row: dict[str, Any]) -> Value:
        return Value(**{**row, "expected": None if row["expected"] == NEVER else row["expected"]})

    rows = tomllib.loads(path.read_text())["run"]
    return tuple(
        Check(row["id"], row["command"], row["minutes"], row["disk_mb"], tuple(map(value, row["value"])))
        for row in rows
    )


def measure(folder: Path, value: Value) -> float | None:
    """The value in a results folder; None where its field has none. KeyError: no such system or field."""
    results = {row["system"]: row for row in json.loads((folder / "summary.json").read_text())["results"]}

    def of(system: str) -> float | None:
        if value.field in SETTLED:
            return SETTLED[value.field](settled(folder, system))
        if value.field == TIMES_IDEAL:
            ideals = {job["job"]: job["ideal_s"] for job in results[system]["per_job"]}
            times = settled(folder, system)
            return float((times / times.index.get_level_values("job").map(ideals)).quantile(0.99))
        found = results[system][value.field]
        return None if found is None else float(found)

    mine, base = of(value.system), of(value.over) if value.over else None
    return base / mine if mine and base else mine


def settled(folder: Path, system: str) -> pd.Series[float]:
    """Iteration times (s) of all jobs and seeds of a system, over the last half of each job's iterations."""
    tables = [pd.read_csv(path) for path in sorted(folder.glob("*/*/iterations.csv")) if path.parts[-3] != "isolated"]
    table = pd.concat(tables, ignore_index=True)
    table = table[table["system"] == system]
    if table.empty:
        raise KeyError(system)
    spans = table.groupby(["seed", "job", "iteration"]).agg(start=("start_s", "min"), end=("end_s", "max"))
    iterations = spans.index.get_level_values("iteration").to_series(index=spans.index)
    late = spans[iterations >= (iterations.groupby("job").transform("max") + 1) // 2]
    times: pd.Series[float] = late["end"] - late["start"]
    return times


def run(words: Sequence[str]) -> int:
    """Show a command of `mltcp` and run it; its exit code."""
    print("\nmltcp", shlex.join(words), flush=True)
    return subprocess.run([sys.executable, "-m", "testbed", *words], cwd=ROOT, check=False).returncode


def check(one: Check, out: Path, runner: Runner) -> tuple[list[str], bool, int]:
    """Rows of the table, whether all values agree, and the exit code of the run (4, an invalid result, does not agree)."""
    words = shlex.split(one.command)[1:]
    code = runner([*words, "--name", one.id, "--out", str(out), "--quiet"])
    if code:
        return [f"| {one.id} | – | – | run ended with code {code} |"], False, code
    rows, agree = [], True
    for value in one.values:
        measured = measure(out / one.id, value)
        good = value.agrees(measured)
        agree &= good
        ratio = f"{value.over} ÷ {value.system}, " if value.over else f"{value.system}, "
        shown = NEVER if measured is None else f"{measured:.4g}"
        rows.append(f"| {one.id}: {ratio}{value.field} | {value.text} | {shown} | {'agrees' if good else 'DIFFERS'} |")
    return rows, agree, 0


def main(argv: Sequence[str] | None = None, runner: Runner = run) -> int:
    """Run the checks and print the comparison. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="artifact_check", description="Short runs of the headline claims, compared.")
    parser.add_argument("--only", metavar="ID", nargs="+", help="checks to run (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / OUT, help=f"folder for results (default: {OUT})")
    options = parser.parse_args(argv)
    checks = read()
    unknown = set(options.only or ()) - {one.id for one in checks}
    if unknown:
        print(
            f"no check {', '.join(sorted(unknown))}; there are {', '.join(one.id for one in checks)}", file=sys.stderr
        )
        return 2
    wanted = [one for one in checks if options.only is None or one.id in options.only]
    print(f"{len(wanted)} checks: about {sum(one.minutes for one in wanted):g} minutes on two cores,", end=" ")
    print(f"{sum(one.disk_mb for one in wanted):g} MB in {options.out}", flush=True)
    began, rows, good = time.monotonic(), list[str](), 0
    for one in wanted:
        found, agrees, code = check(one, options.out, runner)
        if code == MACHINE:
            return MACHINE
        rows += found
        good += agrees
    print("\n| value | expected | measured | |\n|---|---|---|---|", *rows, sep="\n")
    print(f"\n{good} of {len(wanted)} checks agree, in {(time.monotonic() - began) / 60:.1f} minutes.")
    return 0 if good == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
