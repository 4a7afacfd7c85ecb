"""The elements of topologies, and the look-up of one by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from mininet.topo import Topo

from testbed import registry
from testbed.core.errors import RequestError
from testbed.core.text import quoted
from testbed.networks import mininet_script
from testbed.networks.routed import with_nics


class TopologyError(RequestError):
    """A file that does not define exactly one topology."""


def names() -> list[str]:
    """Return the names of built-in topologies."""
    return list(registry.names(registry.TOPOLOGY))


def find(name: str) -> Callable[..., Topo]:
    """Return the factory of the `Topo` called ``name``: a registered class, or the only one of a file (``./mine.py``)
    or installed module.

    A Mininet script, and a plain `Topo` of a file, become a `mininet_script.MininetTopo`.

    Raises `registry.UnknownContentError`, `registry.ContentError` or `TopologyError`.
    """
    if registry.is_file_name(name) and mininet_script.is_script(Path(name)):
        return mininet_script.find(Path(name))
    topos = _topos(registry.find(registry.TOPOLOGY, name), name)
    if name in topos:
        return mininet_script.routed(topos[name])
    if len(topos) != 1:
        raise TopologyError(f"topo: {name[:200]} lists {len(topos)} topologies in its `topos` dict. List exactly one.")
    return mininet_script.routed(next(iter(topos.values())))


def made(name: str, arguments: tuple[int, ...], nics: int = 1) -> Topo:
    """The network ``name`` with these arguments, and so many interfaces in every host."""
    with with_nics(nics):
        return find(name)(*arguments)


def how_to_enlarge(topo: str) -> str:
    """Return the remedy if the network ``topo`` (``NAME,ARGUMENTS``) has too few hosts."""
    name, _, arguments = topo.partition(",")
    can_be_sized = hasattr(find(name), "sized")
    if can_be_sized and arguments:
        return f"Give it larger arguments, or none (`{name}`) to size it automatically."
    if can_be_sized:
        return f"Its method `sized(jobs, workers)` must return a larger one, or write `{name},N`."
    return f"Write `{name},N` with a larger N, or define `sized(jobs, workers)` (docs/reference/topologies.md)."


def failure(topo: str, error: Exception, where: str = "") -> str:
    """Describe why the network ``topo`` (``NAME,ARGUMENTS``) cannot be made; in a custom file, with the line."""
    name = topo.partition(",")[0]
    if registry.is_file_name(name):
        return f"{quoted(topo)} cannot be made{where}. {registry.located(error, name)}"
    return f"{quoted(topo)} cannot be made{where}: {type(error).__name__}: {error}"


def _topos(module: ModuleType, name: str) -> dict[str, Callable[..., Topo]]:
    topos = module.topos
    if not isinstance(topos, dict) or not topos:
        raise TopologyError(f"topo: {name} has no `topos` dict (Mininet's convention: topos = {{'name': Class}}).")
    return topos
