"""``python -m analysis figures RESULTS…``: draw every figure again, from run directories alone."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

from analysis import figures
from analysis.load import LoadError, load_experiment


def main(arguments: list[str]) -> int:
    """Draw; 0 if all could be drawn, 1 if some could not (each said so)."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Analyse run directories.")
    commands = parser.add_subparsers(required=True)
    drawing = commands.add_parser("figures", help="draw every figure of each experiment")
    drawing.add_argument("results", nargs="+", type=Path, help="results folder, or one experiment's")
    drawing.add_argument("--out", type=Path, default=Path("figures"))
    parsed = parser.parse_args(arguments)
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
                print(written[0])
    return int(failed)


def _experiments(given: Path) -> list[Path]:
    """The experiment folders at or directly below ``given``."""
    here = [given] if any(given.glob("*/*/manifest.json")) else []
    below = sorted(path for path in given.iterdir() if path.is_dir()) if given.is_dir() and not here else []
    return here + [path for path in below if any(path.glob("*/*/manifest.json"))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
