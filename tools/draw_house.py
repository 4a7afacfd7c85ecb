"""The rooms and their imports as a drawing: ``python tools/draw_house.py`` writes docs/house.svg from the code itself.

A room stands above all that it imports. An import that follows from others (a room two floors down, through one between) has no
line of its own.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as `python tools/draw_house.py`

from tests import house  # noqa: E402

DRAWING = ROOT / "docs" / "house.svg"
WIDTH, ROW, BOX, TALL = 980, 74, 138, 32

Rooms = Mapping[str, frozenset[str]]


def rooms() -> dict[str, frozenset[str]]:
    """Each room, and which others its modules import."""
    found: dict[str, set[str]] = {}
    for module, others in house.imports().items():
        if (room := house.room(module)) != "testbed":
            found.setdefault(room, set()).update(map(house.room, others))
    return {room: frozenset(others - {room, "testbed"}) for room, others in found.items()}


def floors(arrows: Rooms) -> list[list[str]]:
    """Rooms by how many stand below each other under them, from the ground up."""

    @cache
    def floor(room: str) -> int:
        return max((1 + floor(other) for other in arrows[room]), default=0)

    highest = max(map(floor, arrows))
    return [sorted(room for room in arrows if floor(room) == level) for level in range(highest + 1)]


def direct(arrows: Rooms) -> list[tuple[str, str]]:
    """The imports that do not follow from others."""

    @cache
    def below(room: str) -> frozenset[str]:
        return arrows[room].union(*map(below, arrows[room]))

    return [
        (room, other)
        for room in sorted(arrows)
        for other in sorted(arrows[room])
        if not any(other in below(between) for between in arrows[room])
    ]


def places(arrows: Rooms) -> tuple[dict[str, tuple[float, float]], float]:
    """Where each room is drawn, and how high the drawing is: of all orders within the floors the one with the clearest lines."""
    # A room alone on its floor leaves half of it free, so that lines can pass.
    levels, lines = [level if len(level) > 1 else [*level, ""] for level in floors(arrows)], direct(arrows)
    height = ROW * len(levels) + 10

    def placed(order: Sequence[Sequence[str]]) -> dict[str, tuple[float, float]]:
        return {
            room: ((index + 1) * WIDTH / (len(level) + 1), height - ROW * (number + 0.5))
            for number, level in enumerate(order)
            for index, room in enumerate(level)
            if room
        }

    def unclear(at: Mapping[str, tuple[float, float]]) -> tuple[int, float]:
        """How often a line runs behind a room that it is not about; then how long all lines are."""
        hidden = sum(
            abs(at[a][0] + (at[b][0] - at[a][0]) * (y - at[a][1]) / (at[b][1] - at[a][1]) - x) < BOX / 2
            for a, b in lines
            for x, y in at.values()
            if at[a][1] < y < at[b][1]
        )
        return hidden, sum(math.dist(at[a], at[b]) for a, b in lines)

    return min(map(placed, itertools.product(*map(itertools.permutations, levels))), key=unclear), height


def svg(arrows: Rooms) -> str:
    """The whole drawing."""
    at, height = places(arrows)
    lines = [
        f'<path d="M{at[a][0]:.0f},{at[a][1] + TALL / 2:.0f} L{at[b][0]:.0f},{at[b][1] - TALL / 2:.0f}"/>'
        for a, b in direct(arrows)
    ]
    boxes = [
        f'<rect x="{x - BOX / 2:.0f}" y="{y - TALL / 2:.0f}" width="{BOX}" height="{TALL}" rx="5"/>'
        for x, y in at.values()
    ]
    names = [f'<text x="{x:.0f}" y="{y + 5:.0f}">{room}</text>' for room, (x, y) in at.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="14">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            '<g stroke="#8a8f98" fill="none">', *lines, "</g>",
            '<g fill="#e8eef7" stroke="#3b5b8c">', *boxes, "</g>",
            '<g text-anchor="middle">', *names, "</g>",
            "</svg>\n",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    DRAWING.write_text(svg(rooms()))
