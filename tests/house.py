"""The house as its imports draw it: every module, and whom it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from testbed.core import packages

ROOT = Path(__file__).parents[1]
# Which rooms each may use, besides itself; within `testbed` each those above it here.
USES = {
    "core": (),
    "topologies": ("core",),
    "transports": ("core",),
    "workloads": ("core", "transports"),
    "congestion": ("core",),
    "theory": ("core", "topologies", "transports", "workloads", "congestion"),
    "flow_schedulers": ("core", "theory", "workloads"),
    "job_schedulers": ("core", "theory", "topologies"),
    "analysis": ("core", "theory", "congestion"),
}
TESTBED = ("spec", "planning", "linux", "inside", "substrates", "campaign", "cli")


@cache
def modules() -> dict[str, Path]:
    """By dotted name: everything in the project's packages."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in packages.names()
        for path in (ROOT / package).rglob("*.py")
    }


@cache
def imports() -> dict[str, frozenset[str]]:
    """Whom each module imports of the others, in functions too; not for type checking alone."""
    return {name: frozenset(_imported(name, path)) for name, path in modules().items()}


def _imported(name: str, path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    unread = {id(node) for block in ast.walk(tree) if _for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found = [
                deeper if (deeper := f"{node.module}.{alias.name}") in modules() else node.module
                for alias in node.names
            ]
        else:
            continue
        yield from (one for one in found if one in modules() and one != name)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def circles(arrows: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Modules that import each other, directly or in a ring (strongly connected components of more than one)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in arrows.get(name, ()):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            ring, stack[at:] = sorted(stack[at:]), []
            if len(ring) > 1:
                found.append(ring)

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return found


def room(module: str) -> str:
    """``core``, …; of the testbed ``testbed.spec``, …; its version and its entry points are ``testbed``."""
    first, *rest = module.split(".")
    return f"testbed.{rest[0]}" if first == "testbed" and rest and rest[0] in TESTBED else first


def may_use(user: str, used: str) -> bool:
    """Whether a module of the room ``user`` may import one of the room ``used``."""
    if user == used:
        return True
    if not user.startswith("testbed"):
        return used in USES[user]
    if used == "analysis":
        return user == "testbed.cli"
    if not used.startswith("testbed."):
        return used != "testbed"
    order = [f"testbed.{name}" for name in TESTBED]
    return user == "testbed" or order.index(used) < order.index(user)


def upward() -> list[str]:
    """Imports that run up, ``user -> used``; the testbed's version, which imports nothing, may be read by all of it."""
    return sorted(
        f"{user} -> {used}"
        for user, others in imports().items()
        for used in others
        if not may_use(room(user), room(used)) and not (user.startswith("testbed") and used == "testbed")
    )
