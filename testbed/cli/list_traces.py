"""List the library: every trace that `--trace NAME` and `--job NAME` know."""

from __future__ import annotations

import argparse

from testbed.core import terminal
from testbed.core.terminal import Column, Sheet
from testbed.core.units import size_text
from testbed.traces import model_files
from testbed.traces import trace as traces


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(_parsed: argparse.Namespace) -> int:
    rows = []
    for name in traces.names():
        trace = traces.load(name)
        rows.append([name, size_text(trace.bytes_per_iteration), trace.source.kind, trace.model])
    console = terminal.console(usual=110)
    columns = [Column("name"), Column("bytes of\nan iteration", right=True), Column("from"), Column("what", prose=True)]
    Sheet(columns, rows).print(console)
    terminal.say(console, "`mltcp show NAME` shows one of them.")
    terminal.say(console, f"Models that `mltcp import --model NAME` makes traces of: {', '.join(model_files.names())}.")
    return 0
