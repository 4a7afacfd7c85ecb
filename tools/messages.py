"""Print every error message of the code, for reading: ``python -m tools.messages [FOLDER …]`` prints ``file:line:
text``, one a line.

A message is the first argument of an error of `testbed.errors`, of ``Lack(...)``, or of ``parser.error(...)``. ``{…}`` stands for a value.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from testbed import errors

ROOT = Path(__file__).parents[1]
CALLS = frozenset({*errors.__all__, "Lack", "error", "ArgumentTypeError"})


def messages(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """File, line and text of every message below ``folder``."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in CALLS:
                given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "where")]
                if message := " | ".join(text for each in given if (text := _text(each)).strip("{…} ")):
                    yield path, node.lineno, " ".join(message.split())


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(node: ast.expr) -> str:
    """A string as written; empty for an expression that contains none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{…}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left) or "{…}") + (_text(node.right) or "{…}")
    if isinstance(node, ast.IfExp):
        return f"{_text(node.body)} / {_text(node.orelse)}".strip(" /")
    return ""


def main(folders: list[str]) -> int:
    for folder in folders or ["testbed"]:
        for path, line, text in messages(ROOT / folder):
            print(f"{path.relative_to(ROOT)}:{line}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
