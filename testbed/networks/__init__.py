"""Networks: Mininet `Topo` classes, one file each, listed in Mininet's own ``topos`` dict.

Adding a topology is adding a file here, or naming one from anywhere with ``--topo ./mine.py``.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from mininet.topo import Topo

from testbed.core.errors import RequestError

_NOT_TOPOLOGIES = {"routed", "router", "spraying"}


class TopologyError(RequestError):
    """No such topology, or a file that does not define one; the message says what there is."""


def names() -> list[str]:
    """The topologies that come with the testbed."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(set(found) - _NOT_TOPOLOGIES)


def find(name: str) -> Callable[..., Topo]:
    """The `Topo` class called ``name``, or the only one of the file ``name`` (``./mine.py``)."""
    if name.endswith(".py"):
        path = Path(name)
        if not _is_file(path):
            raise TopologyError(f"there is no file {name[:200]}")
        topos = _topos(_load(path), name)
        if len(topos) != 1:
            raise TopologyError(f"{name[:200]} lists {len(topos)} topologies in its `topos` dict, not one")
        return next(iter(topos.values()))
    if name not in names():
        raise TopologyError(
            f"there is no topology {name[:80]!r}; there are {', '.join(names())}, or name a file of your own: ./mine.py"
        )
    topos = _topos(importlib.import_module(f"topologies.{name}"), name)
    return topos[name]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TopologyError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _topos(module: ModuleType, name: str) -> dict[str, Callable[..., Topo]]:
    topos = getattr(module, "topos", None)
    if not isinstance(topos, dict) or not topos:
        raise TopologyError(f"{name} has no `topos` dict (Mininet's convention: topos = {{'name': Class}})")
    return topos
