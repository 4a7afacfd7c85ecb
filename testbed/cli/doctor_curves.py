"""``mltcp doctor --curves``: the quick set of the figure `known`, whose curves are published, one line each."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path

import pandas as pd
from rich.text import Text

from testbed import api
from testbed.core import terminal
from testbed.core.environment import ROOT
from testbed.core.errors import EXIT_INVALID, EXIT_OK
from testbed.core.terminal import Column, Sheet
from testbed.report import known_curves
from testbed.report.study import load_study

FIGURE = "known"
MOST_AT_A_TIME = 8


def report(*, as_json: bool) -> int:
    """Run them in virtual time, and print measured next to published values; code 4 if one is outside its tolerance."""
    files = sorted(str(file) for file in Path(ROOT, "experiments").glob(f"{FIGURE}*.toml"))
    terminal.say_error("Short runs of stock protocols in virtual time, about two minutes.")
    with tempfile.TemporaryDirectory() as folder:
        api.sweep(files, quick=True, out=folder, on="uml", parallel=min(os.cpu_count() or 1, MOST_AT_A_TIME))
        table = known_curves.table(load_study(Path(folder), FIGURE))
    return told(table, as_json=as_json)


def told(table: pd.DataFrame, *, as_json: bool) -> int:
    """Print a table of `known_curves`; the exit code."""
    table = table.assign(within=(table["ratio"] - 1).abs() <= table["tolerance"])
    agrees = bool(table["within"].all())
    if as_json:
        rows = json.loads(table.drop(columns=["seed", "rto_ms"]).to_json(orient="records"))
        print(json.dumps({"version": 1, "kernel": platform.release(), "agrees": agrees, "curves": rows}, indent=1))
        return EXIT_OK if agrees else EXIT_INVALID
    console = terminal.console(usual=110)
    columns = [
        Column(),
        Column("curve"),
        Column("point"),
        Column("measured", right=True),
        Column("published", right=True),
        Column("off by", right=True),
        Column("allowed", right=True),
        Column("formula"),
    ]
    rows = [
        [
            Text("yes", "green") if row["within"] else Text("NO", "red"), known_curves.CURVES[row["curve"]].title, row["point"],
            f"{row['measured']:.3g}", f"{row['expected']:.3g}", f"{row['ratio'] - 1:+.1%}", f"{row['tolerance']:.0%}",
            known_curves.CURVES[row["curve"]].formula,
        ]
        for _, row in table.iterrows()
    ]  # fmt: skip
    Sheet(columns, rows, names=3).print(console)
    close = int(table["within"].sum())
    console.print()
    terminal.say(
        console,
        f"{close} of {len(table)} curves are within their tolerance.",
        style="green" if agrees else "red",
    )
    return EXIT_OK if agrees else EXIT_INVALID
