"""List content by kind; by default the library of traces for `--trace NAME` and `--job NAME`."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed import registry
from testbed.core import terminal
from testbed.core.environment import ROOT
from testbed.core.terminal import Column, Sheet
from testbed.core.units import size_text
from testbed.traces import model_files
from testbed.traces import trace as traces

TRACES = "traces"
FILES = {  # folders of the testbed's own files, and what to do with one
    "experiments": "Run one: mltcp sweep experiments/interleaving.toml",
    "examples": "Copy one: cp {folder}/two_sites.py .",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = [TRACES, *(kind.word for kind in registry.KINDS), *FILES]
    parser.add_argument(
        "kind",
        nargs="?",
        default=TRACES,
        choices=kinds,
        metavar="KIND",
        help=f"one of {', '.join(kinds)} (default: {TRACES})",
    )


def run(parsed: argparse.Namespace) -> int:
    for kind in registry.KINDS:
        if kind.word == parsed.kind:
            print(*sorted((*registry.names(kind), *kind.also)), *registry.installed(kind), sep="\n")
            return 0
    if parsed.kind in FILES:
        folder = Path(ROOT) / parsed.kind
        print(*sorted(path.relative_to(folder.parent) for path in folder.glob("*.*") if path.suffix != ".md"), sep="\n")
        terminal.errors().print(FILES[parsed.kind].format(folder=folder), soft_wrap=True, markup=False, highlight=False)
        return 0
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
