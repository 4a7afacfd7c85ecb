"""``mltcp explore RESULTS -o FILE``: run directories as one HTML file in which a person scrubs through iterations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.core import text

MOST = "3MB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, help="results folder, or one experiment's")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("explorer.html"), metavar="FILE", help="HTML file (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="permission to overwrite FILE")
    parser.add_argument(
        "--max-size", default=MOST, metavar="SIZE",
        help="largest size of the file; longer time bins make it fit (default: %(default)s)",
    )  # fmt: skip


def run(parsed: argparse.Namespace) -> int:
    from testbed.cli.unusable_results import check_there
    from testbed.core.errors import RequestError, within
    from testbed.core.heartbeat import Counter, Heartbeat
    from testbed.core.units import Size, size_text

    with within("--max-size"):
        most = Size.parse(parsed.max_size)
    check_there(parsed.results)
    if parsed.out.exists() and not parsed.force:
        raise RequestError(f"--out: {parsed.out} exists already. Name another file, or add --force to overwrite it.")
    from testbed.report.explorer import page

    found, problems = page.usable(page.experiments(parsed.results))
    if not found:
        named = ", ".join(map(str, parsed.results))
        raise RequestError(" ".join([f"{named} holds no run that can be read; `mltcp run` makes one.", *problems]))
    counter = Counter(sum(map(len, found.values())), "runs")
    with Heartbeat(counter.line):
        size, unusable = page.write(found, parsed.out, most, counter.advance)
    problems += unusable
    print(*map(text.paragraph, problems), sep="\n", end="\n" if problems else "", file=sys.stderr)
    print(f"{parsed.out} ({size_text(size)})")
    return int(bool(problems))
