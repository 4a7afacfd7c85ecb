"""Draw the engine's packages and their imports: ``python tools/draw_architecture.py`` writes docs/explanation/architecture.svg.

A package stands above every package that it imports. An import that follows from other imports is not drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
DRAWING = ROOT / "docs/explanation/architecture.svg"
WIDTH, ROW, BOX, TALL = 980, 74, 138, 32

Packages = Mapping[str, frozenset[str]]


def packages() -> dict[str, frozenset[str]]:
    """Each package of the engine, and which others its modules import; imports for type checking do not count."""
    graph = grimp.build_graph("testbed", exclude_type_checking_imports=True, cache_dir=None)
    names = {name.split(".")[1] for name in graph.find_children("testbed")} - {"run", "__main__", "errors", "testing"}
    found: dict[str, set[str]] = {name: set() for name in names}
    for module in graph.modules:
        parts = module.split(".")
        if len(parts) > 1 and parts[1] in names:
            imported = {
                other.split(".")[1] for other in graph.find_modules_directly_imported_by(module) if "." in other
            }
            found[parts[1]] |= imported & names
    return {name: frozenset(others - {name}) for name, others in found.items()}


def floors(arrows: Packages) -> list[list[str]]:
    """Packages by how many stand below each other under them, from the ground up."""

    @cache
    def floor(package: str) -> int:
        return max((1 + floor(other) for other in arrows[package]), default=0)

    highest = max(map(floor, arrows))
    return [sorted(package for package in arrows if floor(package) == level) for level in range(highest + 1)]


def direct(arrows: Packages) -> list[tuple[str, str]]:
    """The imports that do not follow from others."""

    @cache
    def below(package: str) -> frozenset[str]:
        return arrows[package].union(*map(below, arrows[package]))

    return [
        (package, other)
        for package in sorted(arrows)
        for other in sorted(arrows[package])
        if not any(other in below(between) for between in arrows[package])
    ]


def places(arrows: Packages) -> tuple[dict[str, tuple[float, float]], float]:
    """Return the position of each package and the height of the drawing, for the order within the floors that hides
    the fewest lines."""
    # A package alone on its floor leaves half of it free, so that lines can pass.
    levels, lines = [level if len(level) > 1 else [*level, ""] for level in floors(arrows)], direct(arrows)
    height = ROW * len(levels) + 10

    def placed(order: Sequence[Sequence[str]]) -> dict[str, tuple[float, float]]:
        return {
            package: ((index + 1) * WIDTH / (len(level) + 1), height - ROW * (number + 0.5))
            for number, level in enumerate(order)
            for index, package in enumerate(level)
            if package
        }

    def unclear(at: Mapping[str, tuple[float, float]]) -> tuple[int, float]:
        """How often a line runs behind a package that it is not about; then how long all lines are."""
        hidden = sum(
            abs(at[a][0] + (at[b][0] - at[a][0]) * (y - at[a][1]) / (at[b][1] - at[a][1]) - x) < BOX / 2
            for a, b in lines
            for x, y in at.values()
            if at[a][1] < y < at[b][1]
        )
        return hidden, sum(math.dist(at[a], at[b]) for a, b in lines)

    return min(map(placed, itertools.product(*map(itertools.permutations, levels))), key=unclear), height


def svg(arrows: Packages) -> str:
    """Return the complete drawing."""
    at, height = places(arrows)
    lines = [
        f'<path d="M{at[a][0]:.0f},{at[a][1] + TALL / 2:.0f} L{at[b][0]:.0f},{at[b][1] - TALL / 2:.0f}"/>'
        for a, b in direct(arrows)
    ]
    boxes = [
        f'<rect x="{x - BOX / 2:.0f}" y="{y - TALL / 2:.0f}" width="{BOX}" height="{TALL}" rx="5"/>'
        for x, y in at.values()
    ]
    names = [f'<text x="{x:.0f}" y="{y + 5:.0f}">{package}</text>' for package, (x, y) in at.items()]
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
    DRAWING.write_text(svg(packages()))
