"""``mltcp report RESULTS``: every figure, every claim and its verdict, as HTML and Markdown."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.core import text
from testbed.core.errors import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="results folder")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        help="report as HTML, with Markdown next to it (default: %(default)s)",
    )
    parser.add_argument(
        "--figures", type=Path, default=Path("figures"), help="folder for figures (default: %(default)s)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="figures without results, as in the last report; without this flag they are left out",
    )
    parser.add_argument(
        "--experiments", nargs="+", type=Path, metavar="FILE",
        help="experiment files whose figures and claims are drawn: experiments/interleaving.toml (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--explorer", type=Path, metavar="FILE", help="file of `mltcp explore` that figures link to (default: no links)"
    )


def run(parsed: argparse.Namespace) -> int:
    from testbed.cli.unusable_results import unusable
    from testbed.core.heartbeat import Counter, Heartbeat
    from testbed.report import document, figures, study
    from testbed.report.grading import VERDICTS

    files = parsed.experiments
    only = None if files is None else {figures.id_for(study.figure_id(file.stem)) for file in files}
    if only is not None and not only & {figure.ID for figure in figures.every()}:
        message = f"no report: {', '.join(sorted(only))} belong to no figure; `mltcp figures {parsed.results}` draws their runs"
        print(text.paragraph(message), file=sys.stderr)
        return 0
    if not parsed.keep and not study.ids(parsed.results):
        print(text.paragraph(f"error: {parsed.results} holds no results; `make reproduce` makes some"), file=sys.stderr)
        return 1
    try:
        counter = Counter(len(only) if only is not None else len(figures.every()), "figures")
        with Heartbeat(counter.line):
            found, graded = document.write(
                parsed.results,
                parsed.figures,
                parsed.out,
                keep=parsed.keep,
                only=only,
                drawn=counter.advance,
                explorer=parsed.explorer,
            )
    except (OSError, RequestError):
        raise
    except Exception as error:
        unusable(error, parsed.results)
        return 1
    problems = [text.paragraph(f"{chapter.id}: {problem}") for chapter in found for problem in chapter.problems]
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    for verdict in VERDICTS:
        print(f"{sum(one.verdict == verdict for one in graded):4} {verdict}")
    print(parsed.out, parsed.out.with_suffix(".md"), sep="\n")
    return int(bool(problems))
