"""The alternative text of an image, for readers with a screen reader."""

from __future__ import annotations

from typing import Any

from testbed.core.text import plain

LONGEST = 900  # letters of a description


def panels(figure: Any) -> list[Any]:
    """The axes of a figure that show something, scales of colours left out."""
    return [axis for axis in figure.axes if axis.get_visible() and axis.axison and axis.get_label() != "<colorbar>"]


def describe(figure: Any) -> str:
    """Panels with their titles, axes, series, and the numbers written into them."""
    shown = panels(figure)
    titles = _distinct(axis.get_title(loc=place) for axis in shown for place in ("left", "center"))
    sentences = [f"{len(shown)} panels" if len(shown) > 1 else "One panel"]
    sentences[0] += f": {'; '.join(titles)}" if titles else ""
    for name, labels in (
        ("Horizontal", _distinct(axis.get_xlabel() for axis in shown)),
        ("Vertical", _distinct([*(axis.get_ylabel() for axis in shown), figure.get_supylabel()])),
        ("Series", _distinct(_series(figure))),
        ("Rows", _distinct(_names(shown, "y"))),
        ("Columns", _distinct(_names(shown, "x"))),
        ("Written", _distinct(text.get_text() for axis in shown for text in axis.texts)),
    ):
        if labels:
            sentences.append(f"{name}: {'; '.join(labels)}")
    text = ". ".join(sentences) + "."
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rsplit(" ", 1)[0] + " …"


def _series(figure: Any) -> list[str]:
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def _names(shown: list[Any], which: str) -> list[str]:
    """Names at the ticks of axes; numbers are none."""
    found = [text.get_text() for axis in shown for text in getattr(axis, f"get_{which}ticklabels")()]
    return [name for name in found if any(letter.isalpha() for letter in name)]


def _distinct(texts: Any) -> list[str]:
    """Each once, in one line."""
    lines = (" ".join(plain(line) for line in text.split("\n")).strip() for text in texts)
    return list(dict.fromkeys(line for line in lines if line))
