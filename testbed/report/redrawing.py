"""Draw figures again from their tables, without any run.

Such a figure has ``plot(tables) -> Figure``. ``tables`` are its CSV files by name, as text. The image stores the small
print on its runs (`style.note`), so the runs are not needed for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.errors import RequestError
from testbed.report import chapters, drawing, style
from testbed.report.figures import Figure, Plotted, Tables, is_plotted

Plot = Callable[[Tables], Any]


def publish(plot: Plot, tables: Tables, note: str, out: Path) -> list[Path]:
    """Write each table as ``NAME.csv``, and what ``plot`` makes of them as ``.png`` and ``.pdf``, named as the first is."""
    written = drawing.write_tables(tables, out)
    image = _draw(plot, {path.stem: read(path) for path in written}, note, out / next(iter(tables)))
    return [*image, *written]


def read(path: Path) -> pd.DataFrame:
    """A figure's table. Empty cells are NaN; a text such as ``none`` stays a text."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def redraw(figure: Figure, folder: Path) -> list[Path]:
    """Draw a figure again in ``folder``, which has its tables, and update the part that a report keeps of it there.

    With several bases, each has an image (``map-cubic.png``), as `bases.draw` writes them. Raises `RequestError`
    without table and image.
    """
    if not is_plotted(figure):
        raise RequestError(
            f"{figure.ID} needs its runs: it shows more than its tables hold. Draw it with `mltcp figures RESULTS`."
        )
    tables = {path.stem: read(path) for path in sorted(folder.glob(f"{figure.ID}*.csv")) if _belongs(path, figure.ID)}
    if figure.ID not in tables or not (folder / f"{figure.ID}.png").is_file():
        raise RequestError(
            f"{folder} holds no {figure.ID}.csv with its {figure.ID}.png. Draw the figure from its runs first: `mltcp figures RESULTS`."
        )
    written = [
        path for name, part in _by_image(figure, tables, folder).items() for path in _again(figure, part, folder / name)
    ]
    chapters.renew(figure.ID, figure.TITLE, figure.TEXT, folder)
    return written


def _belongs(table: Path, id: str) -> bool:
    return table.stem == id or table.stem.startswith(f"{id}-")


def _by_image(figure: Plotted, tables: Tables, folder: Path) -> dict[str, Tables]:
    """The tables of each image, by its name."""
    bases = dict.fromkeys(map(str, tables[figure.ID]["base"])) if "base" in tables[figure.ID] else {}
    others = [base for base in bases if (folder / f"{figure.ID}-{base}.png").is_file()]
    if not others:
        return {figure.ID: tables}
    first = [base for base in bases if base not in others]
    return {figure.ID: _of(tables, first)} | {f"{figure.ID}-{base}": _of(tables, [base]) for base in others}


def _of(tables: Tables, bases: list[str]) -> Tables:
    return {name: table[table["base"].isin(bases)] if "base" in table else table for name, table in tables.items()}


def _again(figure: Plotted, tables: Tables, image: Path) -> list[Path]:
    return _draw(figure.plot, tables, style.note(image.with_suffix(".png")), image)


def _draw(plot: Plot, tables: Tables, note: str, image: Path) -> list[Path]:
    figure = plot(tables)
    drawing.caption(figure, *note.splitlines())
    return style.save(figure, image)
