"""Nothing is decided by what a congestion control, a protocol or a place is called, but where these are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from testbed import transports
from testbed.congestion import catalogue
from testbed.spec import place
from tests import house

NAMES = {*catalogue.families(), "mltcp", "mltcp_", *transports.names(), *place.HERE, place.VAGRANT, "ssh", "ssh:"}
READERS = ("congestion", "transports", "testbed.backends", "testbed.spec.place", "testbed.core.builtin_transport")
ASKS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split"}


Constants = dict[
    str, tuple[str, ...]
]  # of what is written to what it stands for: ``TCP``, ``place.EXACT``, ``place.HERE``


def constants(tree: ast.Module) -> Constants:
    """Names that a module gives to texts, or to several of them."""
    found: Constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.Constant | ast.Tuple | ast.List | ast.Set | ast.Name
        ):
            said = tuple(texts(node.value, found))
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and said:
                    found[target.id] = said
    return found


def visible(tree: ast.Module, others: dict[str, Constants]) -> Constants:
    """A module's own constants, and those that it imports, or reaches by a module that it imports."""
    found = constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                said = name.asname or name.name
                if name.name in others.get(node.module, {}):
                    found[said] = others[node.module][name.name]
                inner = others.get(f"{node.module}.{name.name}", {})
                found |= {f"{said}.{key}": value for key, value in inner.items()}
    return found


def texts(node: ast.AST, known: Constants) -> Iterator[str]:
    """The texts in a comparison's side, also those of a tuple, a list or a set, and by what constants they are called."""
    for inner in ast.walk(node) if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]:
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value
        elif isinstance(inner, ast.Name | ast.Attribute) and ast.unparse(inner) in known:
            yield from known[ast.unparse(inner)]


def decisions(tree: ast.Module, others: dict[str, Constants]) -> Iterator[tuple[int, str]]:
    """Lines that compare with one of the `NAMES`."""
    known = visible(tree, others)
    for node in ast.walk(tree):
        sides: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKS:
            sides = list(node.args)
        elif isinstance(node, ast.match_case):
            sides = [inner.value for inner in ast.walk(node.pattern) if isinstance(inner, ast.MatchValue)]
        yield from ((side.lineno, text) for side in sides for text in texts(side, known) if text in NAMES)  # type: ignore[attr-defined]


def test_no_name_decides() -> None:
    trees = {module: ast.parse(path.read_text()) for module, path in sorted(house.modules().items())}
    others = {module: constants(tree) for module, tree in trees.items()}
    found = [
        f"{module}:{line}: {text}"
        for module, tree in trees.items()
        if not module.startswith(READERS)
        for line, text in decisions(tree, others)
    ]
    assert found == []


def test_such_decisions_are_found() -> None:
    wrong = ast.parse(
        'if name in ("dctcp", "x") or "mltcp" in name or name.startswith("mltcp_") or place != "uml": pass\n'
        'from a.b import KERNELS as OWN\nfrom a import b\nHERE = "host"\n'
        "if name == OWN or name.startswith(b.KERNELS) or place in (HERE, AWAY): pass\n"
        'BOTH = (HERE, "ssh")\nif place in BOTH or name.partition("dlcp")[1]: pass\nmatch name:\n    case "mlt" | "x": pass\n'
    )
    found = sorted(text for _, text in decisions(wrong, {"a.b": {"KERNELS": ("tcp",)}}))
    assert found == ["dctcp", "dlcp", "host", "host", "mlt", "mltcp", "mltcp_", "ssh", "tcp", "tcp", "uml"]
