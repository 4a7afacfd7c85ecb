"""``mltcp figures RESULTS…``: draw every figure again, from run directories alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.core import text

if TYPE_CHECKING:
    from testbed.report.figures import Figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, help="results folder, or one experiment's")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for figures (default: %(default)s)")
    parser.add_argument(
        "--figure", action="append", default=[], metavar="NAME|./mine.py",
        help="figure to draw from the results, once for each (default: an experiment's own figure, or else the default set)",
    )  # fmt: skip
    parser.add_argument(
        "--from-tables", action="store_true",
        help="figures already drawn in the given folders, drawn again there from their tables (CSV), without runs",
    )  # fmt: skip


def run(parsed: argparse.Namespace) -> int:
    from testbed.cli.unusable_results import check_there, unusable

    check_there(parsed.results)
    from testbed.core.heartbeat import Counter, Heartbeat
    from testbed.report import figures

    failed = drawn = False
    named = [figures.find(name) for name in parsed.figure]
    find = _redrawings if parsed.from_tables else _drawings
    drawings = [drawing for given in parsed.results for drawing in find(given, parsed.out, named)]
    counter = Counter(len(drawings), "figures")
    with Heartbeat(counter.line):
        for draw, what in drawings:
            drawn = True
            try:
                written = draw()
            except OSError:
                raise
            except Exception as error:
                unusable(error, what)
                failed = True
            else:
                images = [path for path in written if path.suffix == ".png"] or written[:1]
                print(*map(text.plain, images), sep="\n", end="\n" if images else "")
                failed = failed or not written
            counter.advance()
    if not drawn:
        missing = "figure with its table" if parsed.from_tables else "experiment"
        print(
            f"error: no {missing} found; `mltcp {'figures' if parsed.from_tables else 'run'}` makes one",
            file=sys.stderr,
        )
        return 1
    return int(failed)


def _drawings(given: Path, out: Path, named: Sequence[Figure]) -> Iterator[tuple[Callable[[], list[Path]], str]]:
    """What there is to draw of a results folder, or of one experiment's; with what to call it."""
    from testbed.core.runs.load import holds_schedules
    from testbed.report import figures, study

    if named:
        yield from ((partial(_one_figure, figure, given, out), figure.ID) for figure in named)
        return
    if any(given.glob("*/[0-9]*/manifest.json")):
        yield partial(_one_view, given, out / given.name), str(given)
        return
    known = {figure.ID: figure for figure in figures.every()}
    if holds_schedules(given) and given.name in known:
        yield partial(_one_figure, known[given.name], given.parent, out), given.name
        return
    ids = dict.fromkeys(figures.id_for(id) for id in study.ids(given))
    for id in sorted(ids, key=lambda id: list(known).index(id) if id in known else len(known)):
        if id in known:
            yield partial(_one_figure, known[id], given, out), id
            continue
        for name, folder in study.experiments(given).items():
            if study.figure_id(name) == id:
                yield partial(_one_view, folder, out / name), str(folder)


def _redrawings(given: Path, _: Path, named: Sequence[Figure]) -> Iterator[tuple[Callable[[], list[Path]], str]]:
    """What there is to draw again in a folder of figures: those named, or all that follow from their tables."""
    from testbed.report import figures, redrawing

    known = (figure for figure in figures.every() if figures.is_plotted(figure))
    for figure in named or [one for one in known if (given / f"{one.ID}.csv").is_file()]:
        yield partial(redrawing.redraw, figure, given), figure.ID


def _one_view(folder: Path, out: Path) -> list[Path]:
    from testbed.core.runs.load import load_experiment
    from testbed.report import views

    return views.draw(load_experiment(folder), out)


def _one_figure(figure: Figure, results: Path, out: Path) -> list[Path]:
    from testbed.report import sections

    section = sections.one(figure, results, out)
    problems = section.problems
    if section.study.is_empty and not problems:
        problems = (_no_experiment(figure, results),)
    for problem in problems:
        print(text.paragraph(f"{figure.ID}: {problem}"), file=sys.stderr)
    return list(section.files)


def _no_experiment(figure: Figure, results: Path) -> str:
    from testbed.report import figures

    if (pattern := figures.pattern(figure)) != figure.ID:
        return f"no experiment of {results} has a name like `{pattern}`, the EXPERIMENTS of this figure."
    return (
        f"no experiment named `{figure.ID}` in {results}. This figure draws the experiment named like its ID: "
        f"`mltcp run --name {figure.ID}`."
    )
