"""A data set of letters: a to z in matplotlib's fonts, at several sizes and positions, with noise; nothing is
downloaded."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np

from testbed.replay.training import Examples

SIDE = 20  # pixels
CLASSES = len(ascii_lowercase)
FONTS = (
    *(f"DejaVu{family}{style}" for family in ("Sans", "SansMono") for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta", "cmr10", "cmb10", "cmss10", "cmti10", "cmtt10",
)  # fmt: skip
SIZES = (15, 18, 21)  # points at 72 per inch: pixels
NOISE = 0.1  # standard deviation, where ink is 1
TRAIN, TEST = 20_000, 6_000
DRAWN = 500  # pictures at a time: memory that is new costs time


@cache
def examples() -> tuple[Examples, Examples]:
    """Return training and test examples: separate samples of the same fonts. A row is a picture of `SIDE` × `SIDE`
    pixels."""
    draw = np.random.default_rng(2023)
    return _drawn(draw, TRAIN), _drawn(draw, TEST)


def _drawn(draw: np.random.Generator, count: int) -> Examples:
    letters = [[_bitmap(font, size, letter) for font in FONTS for size in SIZES] for letter in ascii_lowercase]
    classes = draw.integers(len(letters), size=count)
    images = np.empty((count, SIDE, SIDE), np.float32)
    for at in range(0, count, DRAWN):
        images[at : at + DRAWN] = draw.normal(0, NOISE, (min(DRAWN, count - at), SIDE, SIDE))
    for image, number in zip(images, classes, strict=True):
        ink = letters[number][draw.integers(len(FONTS) * len(SIZES))]
        height, width = ink.shape
        top, left = (int(draw.integers((SIDE - extent) // 2 + 1)) + (SIDE - extent) // 4 for extent in (height, width))
        image[top : top + height, left : left + width] += ink
    return Examples(images.reshape(count, -1), classes)


@cache
def _bitmap(font: str, size: int, letter: str) -> np.ndarray:
    """Ink of a letter, 0 to 1, no larger than the picture."""
    face = _face(font)
    face.set_size(size, 72)
    face.set_text(letter, 0)
    face.draw_glyphs_to_bitmap(antialiased=True)
    return np.asarray(face.get_image(), np.float32)[:SIDE, :SIDE] / 255


@cache
def _face(font: str) -> Any:
    import matplotlib as mpl  # noqa: PLC0415  # slow import, not needed for a model's size
    from matplotlib.ft2font import FT2Font  # noqa: PLC0415

    file = Path(mpl.get_data_path(), "fonts", "ttf", f"{font}.ttf")
    return FT2Font(BytesIO(file.read_bytes()))  # from memory: it reads piece by piece
