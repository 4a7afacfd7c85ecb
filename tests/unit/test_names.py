"""Names say what they stand for: ``one`` does for a line or three, not for a signature, a field or a longer loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests import house

LONGEST_LOOP = 3  # lines of its body


def unclear(text: str) -> Iterator[int]:
    """The lines where a signature, a field or a long loop has something called ``one``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            yield from (argument.lineno for argument in arguments if argument.arg == "one")
        elif isinstance(node, ast.ClassDef):
            fields = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
            yield from (field.lineno for field in fields if isinstance(field, ast.Name) and field.id == "one")
        elif isinstance(node, ast.For) and (node.end_lineno or 0) - node.lineno > LONGEST_LOOP:
            names = (name for name in ast.walk(node.target) if isinstance(name, ast.Name))
            yield from (name.lineno for name in names if name.id == "one")


def test_nothing_that_lasts_is_called_one() -> None:
    found = {name: lines for name, path in house.modules().items() if (lines := sorted(unclear(path.read_text())))}
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "def f(one): pass",
        "def f(*, one=1): pass",
        "class A:\n    one: int",
        "for i, one in x:\n    a\n    b\n    c\n    d",
    ],
)
def test_it_is_found(text: str) -> None:
    assert list(unclear(text))


def test_short_ones_may_stay() -> None:
    assert not list(unclear("for one in x:\n    a\n    b\n    c\nd = [one for one in x]"))
