"""``python -m analysis figures RESULTS…``: draw every figure again, from run directories alone.
``python -m analysis report RESULTS``: the figures, every claim and its verdict, as HTML and Markdown.
``python -m analysis compare A B``: two result sets side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from testbed.core import interruption, terminal, text
from testbed.core.errors import RequestError
from testbed.core.heartbeat import Counter, Heartbeat
from testbed.core.runs.load import LoadError, holds_schedules, load_experiment
from testbed.report import agreement, comparison, document, figures, sections, study, views
from testbed.report.figures import Figure
from testbed.report.finding import VERDICTS


def main(arguments: list[str]) -> int:
    """Run a command; 0 if all could be drawn, 1 if some could not (each said so), 2 if the request was wrong, 130 interrupted."""
    return interruption.guarded(lambda: _ended(arguments))


def _ended(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m analysis", description="Analyse run directories.",
        epilog="exit codes: 0 done, 1 something could not be drawn, 2 the request was wrong, 130 interrupted",
    )  # fmt: skip
    commands = parser.add_subparsers(required=True)
    drawing = commands.add_parser("figures", help="draw every figure of each experiment")
    drawing.add_argument("results", nargs="+", type=Path, help="results folder, or one experiment's")
    drawing.add_argument("--out", type=Path, default=Path("figures"))
    drawing.add_argument(
        "--figure", action="append", default=[], metavar="NAME|./mine.py",
        help="figure to draw from the results, once for each (default: every figure that knows an experiment)",
    )  # fmt: skip
    drawing.set_defaults(command=_figures)
    reporting = commands.add_parser(
        "report", help="every figure, every claim and its verdict, as report.html and report.md"
    )
    reporting.add_argument("results", type=Path, help="results folder")
    reporting.add_argument("--out", type=Path, default=Path("report.html"))
    reporting.add_argument("--figures", type=Path, default=Path("figures"), help="where the figures go (%(default)s)")
    reporting.add_argument(
        "--keep",
        action="store_true",
        help="a figure without results stays as the last report with these figures had it; without this it is left out",
    )
    reporting.add_argument(
        "--experiments", nargs="+", type=Path, metavar="FILE",
        help="only the figures of these experiment files (experiments/interleaving.toml), and their claims",
    )  # fmt: skip
    reporting.set_defaults(command=_report)
    comparing = commands.add_parser(
        "compare", help="two result sets side by side, with the confidence of each difference"
    )
    comparing.add_argument("a", type=Path, help="a results folder, or one experiment's")
    comparing.add_argument("b", type=Path, help="what to compare with it")
    comparing.add_argument("--out", type=Path, default=Path("figures"))
    comparing.set_defaults(command=_compare)
    if stray := text.first_stray(arguments):
        return _refused(stray)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.command(parsed)
    except (
        OSError
    ) as error:  # what cannot be read of results is told by `LoadError`: this is a name, or a place to write to
        return _refused(f"{text.shown(error.filename or '')}: {error.strerror}; name another place (--out, --figures).")
    return code


def _refused(why: str) -> int:
    print(text.paragraph(f"error: {why}"), file=sys.stderr)
    return 2


def _unusable(error: Exception, what: object) -> None:
    """Say why results cannot be used: whatever a foreign run directory holds, there is no traceback."""
    why = (
        str(error)
        if isinstance(error, LoadError)
        else f"these results cannot be used ({type(error).__name__}: {error})"
    )
    print(text.paragraph(f"error: {what}: {why}"), file=sys.stderr)


def _compare(parsed: argparse.Namespace) -> int:
    a, b = parsed.a, parsed.b
    try:
        found = comparison.compare(a, b)
        files = comparison.draw(found, parsed.out, str(a), str(b))
    except OSError:
        raise
    except Exception as error:
        _unusable(error, "compare")
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
        return 0  # not the same experiment on two substrates: there is no more to say
    means = agreement.means(table).to_string(float_format="{:.4f}".format)
    console.print(text.paragraph(means))
    print(text.plain(written[0]))
    return 0


def _figures(parsed: argparse.Namespace) -> int:
    failed = drawn = False
    try:
        named = [figures.find(name) for name in parsed.figure]
    except RequestError as error:
        return _refused(str(error))
    drawings = [drawing for given in parsed.results for drawing in _drawings(given, parsed.out, named)]
    counter = Counter(len(drawings), "figures")
    with Heartbeat(counter.line):
        for draw, what in drawings:
            drawn = True
            try:
                written = draw()
            except OSError:
                raise
            except Exception as error:
                _unusable(error, what)
                failed = True
            else:
                print(*map(text.plain, written[:1]), sep="\n", end="\n" if written else "")
            counter.advance()
    if not drawn:
        print("error: no experiment found; `python testbed/run.py` makes one", file=sys.stderr)
        return 1
    return int(failed)


def _drawings(given: Path, out: Path, named: Sequence[Figure]) -> Iterator[tuple[Callable[[], list[Path]], str]]:
    """What there is to draw of a results folder, or of one experiment's; with what to call it."""
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
    for id in sorted(study.ids(given), key=lambda id: list(known).index(id) if id in known else len(known)):
        if id in known:
            yield partial(_one_figure, known[id], given, out), id
            continue
        for name, folder in study.experiments(given).items():
            if study.id_of(name) == id:
                yield partial(_one_view, folder, out / name), str(folder)


def _one_view(folder: Path, out: Path) -> list[Path]:
    return views.draw(load_experiment(folder), out)


def _one_figure(figure: Figure, results: Path, out: Path) -> list[Path]:
    section = sections.one(figure, results, out)
    for problem in section.problems:
        print(text.paragraph(f"{figure.ID}: {problem}"), file=sys.stderr)
    return list(section.files)


def _report(parsed: argparse.Namespace) -> int:
    only = None if parsed.experiments is None else {study.id_of(file.stem) for file in parsed.experiments}
    if only is not None and not only & {figure.ID for figure in figures.every()}:
        said = f"no report: {', '.join(sorted(only))} belong to no figure; `python -m analysis figures {parsed.results}` draws their runs"
        print(text.paragraph(said), file=sys.stderr)
        return 0
    if not study.ids(parsed.results):
        print(text.paragraph(f"error: {parsed.results} holds no results; `make reproduce` makes some"), file=sys.stderr)
        return 1
    try:
        counter = Counter(len(only) if only is not None else len(figures.every()), "figures")
        with Heartbeat(counter.line):
            found = document.write(
                parsed.results, parsed.figures, parsed.out, keep=parsed.keep, only=only, drawn=counter.advance
            )
    except OSError:
        raise
    except RequestError as error:
        return _refused(str(error))
    except Exception as error:
        _unusable(error, parsed.results)
        return 1
    problems = [text.paragraph(f"{chapter.id}: {problem}") for chapter in found for problem in chapter.problems]
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    for verdict in VERDICTS:
        print(f"{sum(claim.verdict == verdict for chapter in found for claim in chapter.claims):4} {verdict}")
    print(parsed.out, parsed.out.with_suffix(".md"), sep="\n")
    return int(bool(problems))
