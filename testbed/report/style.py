"""One look for every figure: readable in print and on a slide, colour-blind safe."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from testbed.core import folders
from testbed.core.text import plain
from testbed.report import alternative

# Okabe and Ito's palette (colour-blind safe), dark ones first, without its yellow.
JOBS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
REFERENCE = "#444444"
BACKGROUND = "#C8C8C8"  # traffic of no job
NOTE = "note"  # the small print among a figure's texts

_STYLE: dict[Any, Any] = {
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a file's name must not begin a formula
    "svg.hashsalt": "mltcp",
}


def new_figure(
    rows: int, columns: int, *, figsize: tuple[float, float] | None = None, **of_axes: Any
) -> tuple[Any, Any]:
    """A figure and its axes (always a 2-D array) in the shared style. Without pyplot: a notebook's or a window's backend stays selected."""
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)
    figure = Figure(figsize=figsize)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **of_axes)


_saved: ContextVar[list[Any] | None] = ContextVar("saved", default=None)


@contextlib.contextmanager
def collected() -> Iterator[list[Any]]:
    """Yield a list of the figures saved inside, in order. Matplotlib's settings are restored at the end."""
    found: list[Any] = []
    token = _saved.set(found)
    try:
        with matplotlib.rc_context():
            yield found
    finally:
        _saved.reset(token)


def save(figure: Any, path: Path) -> list[Path]:
    """Write PNG and PDF, without dates, so that equal data gives equal bytes. Both hold a description in words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for one in figure.findobj(Text):
        lines = "\n".join(map(plain, one.get_text().split("\n")))
        if lines != one.get_text():  # a name from a file, with characters that no font has
            one.set_text(lines)
    written = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    description = alternative.describe(figure)
    small = "\n".join(str(one.get_label()) for one in figure.texts if one.get_gid() == NOTE)
    about = (
        {"Software": None, "Description": description, "Panels": str(len(alternative.panels(figure))), "Note": small},
        {"CreationDate": None, "Subject": description},
    )
    figure.draw_without_rendering()  # the layout is found once, for both
    figure.set_layout_engine("none")
    for axes in figure.axes:  # the solver's last digits differ from one drawing to the next
        axes.set_position([round(side, 6) for side in axes.get_position(original=True).bounds])
    figure.draw_without_rendering()
    shown = figure.get_tightbbox().padded(matplotlib.rcParams["savefig.pad_inches"])
    shown = Bbox.from_extents(*(round(side, 4) for side in shown.extents))
    for place, metadata in zip(written, about, strict=True):
        content = io.BytesIO()
        figure.savefig(content, format=place.suffix[1:], bbox_inches=shown, metadata=metadata)
        folders.put(place, content.getvalue())
    if (collecting := _saved.get()) is not None:
        collecting.append(figure)
    return written


def note(image: Path) -> str:
    """The small print of a PNG that `save` wrote."""
    return _about(image).get("Note", "")


def description(image: Path) -> str:
    """The description in a PNG that `save` wrote."""
    return _about(image).get("Description", "")


def _about(image: Path) -> dict[str, str]:
    with Image.open(image) as found:
        return {str(name): str(value) for name, value in found.info.items()}
