"""List the library: every trace that `--trace NAME` and `--job NAME` know."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from workloads import trace as traces

HELP = "list the traces of the library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(_parsed: argparse.Namespace) -> int:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("name", "what", "from", "bytes of an iteration"):
        table.add_column(heading, justify="right" if "bytes" in heading else "left")
    for name in traces.names():
        trace = traces.load(name)
        table.add_row(name, trace.model, trace.source.kind, f"{trace.bytes_per_iteration:,}")
    console = Console(width=None if Console().is_terminal else 110)
    console.print(table, highlight=False)
    console.print("`python -m workloads show NAME` shows one of them.", highlight=False, soft_wrap=True)
    return 0
