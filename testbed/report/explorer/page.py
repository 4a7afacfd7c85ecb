"""The explorer: run directories as one HTML file in which a person scrubs through iterations.

``mltcp explore RESULTS -o FILE`` writes it. The file needs no network and no server: it holds uPlot (MIT licence, in
``uplot/``), the page's own JavaScript, and the columns of every run (`testbed.report.explorer.series`), compressed.
"""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import ceil
from pathlib import Path
from urllib.parse import quote, urlencode

import jinja2
import msgspec

from testbed.core import folders
from testbed.core.errors import RequestError
from testbed.core.runs.load import LoadError, Run, by_number, check, experiments_below, in_order, load_run
from testbed.core.text import plain
from testbed.core.units import Size
from testbed.report import drawing, style
from testbed.report.explorer.series import series

HERE = Path(__file__).parent
SCRIPTS = ("runs.js", "charts.js", "page.js")
MOST_BINS, FEWEST_BINS = 16384, 256  # of a run
INDEX = re.compile(rb'<script id="index" type="application/json">(.*?)</script>', re.DOTALL)
MOST_BYTES = 1 << 30
SAMPLED = 4  # runs by which the number of bins is estimated


class Seed(msgspec.Struct, frozen=True):
    """One run: the place of its columns in the page, and its description."""

    seed: int
    id: int
    verdict: str
    because: str  # invariants that are not kept; empty: none
    setting: str


class System(msgspec.Struct, frozen=True):
    label: str
    role: str
    seeds: list[Seed]


class Experiment(msgspec.Struct, frozen=True):
    name: str
    systems: list[System]


class Index(msgspec.Struct, frozen=True):
    """The content of the page."""

    experiments: list[Experiment]


def experiments(given: Sequence[Path]) -> dict[str, Path]:
    """Return the experiment folders named, or in named results folders, by their names on the page.

    An experiment in several results folders has the name of its results folder, too.
    """
    folders_found = list[tuple[str, Path]]()
    for one in given:
        if any(one.glob("*/[0-9]*/manifest.json")):
            folders_found.append((one.resolve().name, one))
        else:
            folders_found += experiments_below(one).items()
    names = [name for name, _ in folders_found]
    return {
        name if names.count(name) == 1 else f"{folder.resolve().parent.name}/{name}": folder
        for name, folder in folders_found
    }


def usable(experiments: dict[str, Path]) -> tuple[dict[str, list[Run]], list[str]]:
    """The runs of each experiment, in the order of its systems, and a paragraph for each run that cannot be read."""
    found, problems = dict[str, list[Run]](), list[str]()
    for name, folder in experiments.items():
        runs = []
        for path in sorted((path.parent for path in folder.glob("*/[0-9]*/manifest.json")), key=by_number):
            try:
                run = load_run(path)
                check(run)
            except LoadError as error:
                problems.append(f"{error}. Left out.")
            else:
                runs.append(run)
        if runs:
            found[name] = in_order(folder, runs)
    return found, problems


def write(
    found: dict[str, list[Run]], out: Path, most_bytes: Size, advance: Callable[[], None] = lambda: None
) -> tuple[int, list[str]]:
    """Write the page; its size in bytes, and a paragraph for each run with invalid tables.

    Bins become longer, equally for all runs, until the page is no larger than ``most_bytes``. Raises `RequestError` if it is
    larger even with `FEWEST_BINS` a run. ``advance`` is called after each run.
    """
    bins = _fitting(found, most_bytes)
    while bins >= FEWEST_BINS:
        made = _page(found, bins, most_bytes, advance)
        if made is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            folders.put(out, made[0])
            return len(made[0]), made[1]
        bins //= 2
    runs = sum(map(len, found.values()))
    raise RequestError(
        f"--max-size: the explorer of {drawing.count(runs, 'run')} is larger than {most_bytes}, even with {FEWEST_BINS} points a run. "
        "Name fewer experiments (results/NAME instead of results), or a larger --max-size."
    )


def _fitting(found: dict[str, list[Run]], most_bytes: int) -> int:
    """How many bins a run may have, by the sizes of a few runs."""
    every = [run for runs in found.values() for run in runs]
    few, bins = every[:: ceil(len(every) / SAMPLED)], MOST_BINS
    while bins > FEWEST_BINS and sum(_size(run, bins) for run in few) / len(few) * len(every) > most_bytes:
        bins //= 2
    for run in few:
        run.forget()
    return bins


def _page(
    found: dict[str, list[Run]], bins: int, most_bytes: int, advance: Callable[[], None]
) -> tuple[bytes, list[str]] | None:
    """The page with so many ``bins`` a run at most; None: it is larger than ``most_bytes``."""
    blobs, problems, experiments, size = list[str](), list[str](), list[Experiment](), 0
    for name, runs in found.items():
        systems = list[System]()
        for (label, role), own in groupby(runs, key=lambda run: (run.system, run.role)):
            seeds = list[Seed]()
            for run in own:
                try:
                    packed = _packed(run, bins)
                except LoadError as error:
                    problems.append(f"{error}. Left out.")
                    continue
                finally:
                    run.forget()
                seeds.append(_seed(run, len(blobs)))
                blobs.append(packed)
                size += len(packed)
                if size > most_bytes:
                    return None
                advance()
            if seeds:
                systems.append(System(plain(label), role, seeds))
        if systems:
            experiments.append(Experiment(plain(name), systems))
    if not experiments:
        raise LoadError("no run can be read: " + " ".join(problems))
    page = _render(Index(experiments), blobs).encode()
    return (page, problems) if len(page) <= most_bytes else None


def _size(run: Run, bins: int) -> int:
    try:
        return len(_packed(run, bins))
    except LoadError:  # reported when the page is written
        return 0


def _packed(run: Run, bins: int) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(series(run, bins)), 9)).decode()


def _seed(run: Run, id: int) -> Seed:
    because = ", ".join(row.label for row in run.verdict.invariants if row.status in ("invalid", "suspect"))
    return Seed(run.seed, id, run.verdict.verdict, plain(because), plain(drawing.setting(run)))


def _render(index: Index, blobs: Sequence[str]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(
        index=_in_script(msgspec.json.encode(index).decode()), blobs=blobs, palette=" ".join(style.JOBS), style=_own("page.css"),
        scripts=[_own(name) for name in SCRIPTS], uplot_style=_own("uplot/uPlot.min.css"), uplot=_own("uplot/uPlot.iife.min.js"),
        licence=_own("uplot/LICENSE"),
    )  # fmt: skip


def _own(name: str) -> str:
    return (HERE / name).read_text()


def _in_script(json: str) -> str:
    """JSON that ends no script element, for any names in it."""
    return json.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def links(page: Path, here: Path) -> dict[str, str]:
    """The address of each experiment in an explorer's file, from a page in the folder ``here``; raises as `experiments_of`."""
    file = quote(os.path.relpath(page, here))
    return {name: f"{file}#{urlencode({'e': name})}" for name in experiments_of(page)}


def experiments_of(page: Path) -> list[str]:
    """The names of the experiments that an explorer's file holds; raises `RequestError` if it is none."""
    with page.open("rb") as file:
        found = INDEX.search(file.read(MOST_BYTES))
    try:
        names: Iterable[Experiment] = msgspec.json.decode(found[1], type=Index).experiments if found else ()
    except (msgspec.DecodeError, UnicodeDecodeError):
        names = ()
    if not names:
        raise RequestError(f"{page} is not an explorer. Write one: mltcp explore RESULTS -o {page}")
    return [experiment.name for experiment in names]
