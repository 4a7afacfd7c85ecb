"""Nothing is decided by what a congestion control, a protocol or a place is called, but where these are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from congestion import catalogue
from tests import house

NAMES = {
    *catalogue.families(),
    "mltcp",
    "mltcp_",
    "tcp",
    "ltp",
    "mlt",
    "dlcp",
    "uml",
    "host",
    "vagrant",
    "ssh",
    "ssh:",
    "flow",
}
READERS = ("congestion", "testbed.substrates", "testbed.spec.place")
ASKS = {"startswith", "endswith", "removeprefix", "removesuffix"}


def texts(node: ast.AST) -> Iterator[str]:
    """The texts in a comparison's side, also those of a tuple, a list or a set."""
    for inner in ast.walk(node) if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]:
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def decisions(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that compare with one of the `NAMES`."""
    for node in ast.walk(ast.parse(path.read_text())):
        sides: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKS:
            sides = list(node.args)
        elif isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchValue):
            sides = [node.pattern.value]
        yield from ((node.lineno, text) for side in sides for text in texts(side) if text in NAMES)  # type: ignore[attr-defined]


def test_no_name_decides() -> None:
    found = [
        f"{path.relative_to(house.ROOT)}:{line}: {text}"
        for module, path in sorted(house.modules().items())
        if not module.startswith(READERS)
        for line, text in decisions(path)
    ]
    assert found == []


def test_such_decisions_are_found(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        'if name in ("dctcp", "x") or "mltcp" in name or name.startswith("mltcp_") or place != "uml": pass\n'
    )
    assert sorted(text for _, text in decisions(file)) == ["dctcp", "mltcp", "mltcp_", "uml"]
