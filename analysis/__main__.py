"""``python -m analysis figures RESULTS…``: draw every figure again, from run directories alone.
``python -m analysis compare A B``: the same experiment on two substrates, side by side."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

from analysis import agreement, figures
from analysis.load import LoadError, load_experiment


def main(arguments: list[str]) -> int:
    """Run a command; 0 if all could be drawn, 1 if some could not (each said so)."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Analyse run directories.")
    commands = parser.add_subparsers(required=True)
    drawing = commands.add_parser("figures", help="draw every figure of each experiment")
    drawing.add_argument("results", nargs="+", type=Path, help="results folder, or one experiment's")
    drawing.add_argument("--out", type=Path, default=Path("figures"))
    drawing.set_defaults(command=_figures)
    comparing = commands.add_parser("compare", help="the same experiment on several substrates, side by side")
    comparing.add_argument("results", nargs="+", type=Path, help="the experiment's folder on each")
    comparing.add_argument("--out", type=Path, default=Path("figures"))
    comparing.set_defaults(command=_compare)
    parsed = parser.parse_args(arguments)
    code: int = parsed.command(parsed)
    return code


def _compare(parsed: argparse.Namespace) -> int:
    try:
        table, written = agreement.compare(parsed.results, parsed.out)
    except LoadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(agreement.means(table).to_string(float_format="{:.4f}".format))
    print(written[0])
    return 0


def _figures(parsed: argparse.Namespace) -> int:
    drawers = [
        importlib.import_module(f"analysis.figures.{module.name}") for module in pkgutil.iter_modules(figures.__path__)
    ]
    failed = False
    folders = [folder for given in parsed.results for folder in _experiments(given)]
    if not folders:
        print("error: no experiment found; `python testbed/run.py` makes one", file=sys.stderr)
        return 1
    for folder in folders:
        for drawer in drawers:
            try:
                written = drawer.draw(load_experiment(folder), parsed.out / folder.name)
            except LoadError as error:
                print(f"error: {error}", file=sys.stderr)
                failed = True
            else:
                print(*written[:1], sep="\n", end="\n" if written else "")
    return int(failed)


def _experiments(given: Path) -> list[Path]:
    """The experiment folders at or directly below ``given``."""
    here = [given] if any(given.glob("*/*/manifest.json")) else []
    below = sorted(path for path in given.iterdir() if path.is_dir()) if given.is_dir() and not here else []
    return here + [path for path in below if any(path.glob("*/*/manifest.json"))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
