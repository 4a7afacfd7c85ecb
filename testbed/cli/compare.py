"""``mltcp compare A B``: two result sets side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.core import text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, help="results folder, or one experiment's")
    parser.add_argument("b", type=Path, help="results folder to compare with it")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for figures (default: %(default)s)")


def run(parsed: argparse.Namespace) -> int:
    from testbed.cli.unusable_results import check_there, unusable

    check_there((parsed.a, parsed.b))
    from testbed.core import terminal
    from testbed.core.runs.load import LoadError
    from testbed.report import agreement, comparison

    a, b = parsed.a, parsed.b
    try:
        found = comparison.compare(a, b)
        files = comparison.draw(found, parsed.out, str(a), str(b))
    except OSError:
        raise
    except Exception as error:
        unusable(error, "compare")
        return 1
    console = terminal.console(usual=140)
    comparison.table(found, str(a), str(b)).print(console)
    terminal.say(console, comparison.reading(found))
    for note in found.notes:
        terminal.say(console, f"note: {note}")
    print(text.plain(files[0]))
    try:
        table, written = agreement.compare([a, b], parsed.out)
    except LoadError:
        return 0  # the folders do not hold one experiment on two backends: nothing more to compare
    means = agreement.means(table).to_string(float_format="{:.4f}".format)
    console.print(text.paragraph(means))
    print(text.plain(written[0]))
    return 0
