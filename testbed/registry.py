"""Find content of every kind: built in, installed by another package, or a custom file.

A piece of content is one Python file. `find` looks a name up in this order:

1. ``./mine.py`` (any name that ends in ``.py``): the file itself
2. a file in the kind's folder, in a checkout or an installed wheel
3. an entry point of another installed package, in the group ``testbed.KINDS``

Uses the standard library only: workers use this module inside the emulated hosts.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from testbed.core.environment import ROOT
from testbed.core.errors import RequestError
from testbed.core.text import closest, quoted

if TYPE_CHECKING:
    import importlib.metadata


class UnknownContentError(RequestError):
    """No content has that kind and name; the message suggests a close name or how to list all."""


class ContentError(RequestError):
    """A file or an installed package cannot be used as content of that kind."""


@dataclass(frozen=True)
class Kind:
    """A kind of content.

    ``name`` and ``plural``: for messages. ``packages``: the packages whose modules are the built-in content. ``has``: names that
    each module must define. ``also``: names that need no module.
    """

    name: str
    plural: str
    packages: tuple[str, ...]
    has: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The kind as one word: ``job_schedulers``."""
        return self.plural.replace(" ", "_")

    @property
    def group(self) -> str:
        """The entry-point group of other packages' content."""
        return f"testbed.{self.word}"


PAPERS = ("mltcp", "ltp", "mlt", "sjf_bco", "beyond")  # folders of analysis/

TOPOLOGY = Kind("topology", "topologies", ("testbed.content.topologies",), ("topos",))
COLLECTIVE = Kind(
    "collective", "collectives", ("testbed.content.workloads.collectives",), ("KIND", "connections", "rounds", "run"),
)  # fmt: skip
IMPORTER = Kind(
    "format", "importers", ("testbed.content.workloads.importers",), ("TITLE", "USES", "recognises", "read"),
)  # fmt: skip
JOB_LIST = Kind(
    "job-list format", "joblists", ("testbed.content.workloads.joblists",), ("TITLE", "recognises", "read"),
)  # fmt: skip
TRANSPORT = Kind(
    "transport", "transports", ("testbed.transports",), ("TITLE", "DATAGRAMS", "Options", "lossy", "listen", "close")
)
FLOW_SCHEDULER = Kind(
    "flow scheduler",
    "flow schedulers",
    ("testbed.schedulers.flow",),
    ("Options", "share"),
)
JOB_SCHEDULER = Kind("job scheduler", "job schedulers", ("testbed.schedulers.job",), ("Options", "schedule"))
MODEL = Kind("model", "models", ("testbed.replay.training.models",), ("TITLE", "MODEL", "task"))
FIGURE = Kind(
    "figure", "figures", tuple(f"testbed.content.analysis.{paper}" for paper in PAPERS),
    ("ID", "TITLE", "TEXT", "draw"),
)  # fmt: skip
QUEUE = Kind(
    "queue", "queues", ("testbed.queues",), ("TITLE", "KERNEL_NAME", "MARKS", "Options", "FORMAT", "parameters"),
    also=("fifo",),
)  # fmt: skip
KINDS = (TOPOLOGY, QUEUE, COLLECTIVE, IMPORTER, JOB_LIST, TRANSPORT, FLOW_SCHEDULER, JOB_SCHEDULER, MODEL, FIGURE)


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """The names of the built-in content of a kind, sorted. Folders and modules that begin with ``_`` are helpers, and left out."""
    return tuple(sorted(_modules(kind)))


@cache
def _modules(kind: Kind) -> dict[str, str]:
    """The full name of each built-in module, by its short name."""
    return {
        module.name: f"{package}.{module.name}"
        for package in kind.packages
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
        if not module.ispkg and not module.name.startswith("_")
    }


@cache
def installed(kind: Kind) -> tuple[str, ...]:
    """The names of the content of a kind that other installed packages offer as entry points, sorted."""
    return tuple(sorted(point.name for point in _entry_points(kind)))


def _entry_points(kind: Kind) -> Sequence[importlib.metadata.EntryPoint]:
    import importlib.metadata  # noqa: PLC0415  # costs 20 ms, and built-in content needs none of it

    return tuple(importlib.metadata.entry_points(group=kind.group))


def is_file_name(name: str) -> bool:
    """Return True if ``name`` is a custom file (it ends in ``.py``) instead of a registered name."""
    return name.endswith(".py")


def find(kind: Kind, name: str) -> ModuleType:
    """The module of the content ``name``: a registered name, or the path of a custom file.

    Raises `UnknownContentError` for an unknown name, and `ContentError` for a file that cannot be used.
    """
    if is_file_name(name):
        return load(kind, Path(name))
    if (module := _modules(kind).get(name)) is not None:
        return importlib.import_module(module)
    for point in _entry_points(kind):
        if point.name == name:
            try:
                return _checked(kind, point.load(), f"the entry point {name} of {point.group}")
            except (ImportError, AttributeError) as error:
                raise ContentError(
                    f"{kind.name} {quoted(name)} cannot be loaded from {point.value}: {error}."
                ) from error
    raise UnknownContentError(unknown(kind, name))


def unknown(kind: Kind, name: str) -> str:
    """Return the error message for an unknown name: the name, and the closest one or the command that lists all."""
    known = (*names(kind), *kind.also, *installed(kind))
    if (close := closest(name, known)) is None:
        way_out = f"Names: {', '.join(known)}. Or name a file: ./mine.py."
    else:
        way_out = f"Did you mean {close!r}? `mltcp list {kind.word}` lists all."
    return f"unknown {kind.name} {quoted(name)}. {way_out}"


def kind_of(path: str, kinds: Sequence[Kind]) -> Kind | None:
    """The first of ``kinds`` whose attributes a custom file defines; None if there is none. Raises `ContentError` if it cannot be read."""
    for kind in kinds:
        module = _executed(Path(path))
        if all(hasattr(module, attribute) for attribute in kind.has):
            return kind
    return None


def load(kind: Kind, path: Path) -> ModuleType:
    """A custom file as a module of a kind. Executed once for each content of the file. Raises `ContentError` if it cannot be used."""
    return _checked(kind, _executed(path), str(path))


def _executed(path: Path) -> ModuleType:
    import hashlib  # noqa: PLC0415
    import importlib.util  # noqa: PLC0415

    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ContentError(f"there is no file {path}.") from error
    except OSError as error:
        raise ContentError(f"{path} cannot be read: {error.strerror or error}.") from error
    name = f"testbed.content.file_{hashlib.sha256(os.fsencode(path.resolve()) + content).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ContentError(f"{path} cannot be imported: {type(error).__name__}: {error}.") from error
    return module


def _checked(kind: Kind, module: ModuleType, where: str) -> ModuleType:
    if missing := [attribute for attribute in kind.has if not hasattr(module, attribute)]:
        raise ContentError(f"{where} is no {kind.name}: it does not define {', '.join(missing)}.")
    return module


def located(error: Exception, file: str | Path) -> str:
    """Describe an error that the content ``file`` caused: the file, its last line that was executed, and the error."""
    import traceback  # noqa: PLC0415

    executed = [line for frame, line in traceback.walk_tb(error.__traceback__) if _is_code_of(frame.f_code, file)]
    what = str(error) if isinstance(error, RequestError) else f"{type(error).__name__}: {error}"
    return f"{file}, line {executed[-1]}: {what}" if executed else f"{file}: {what}"


def _is_code_of(code: CodeType, file: str | Path) -> bool:
    return os.path.abspath(code.co_filename) == os.path.abspath(file)


def sha256(name: str) -> str | None:
    """The SHA-256 of a custom file, in hexadecimal; None for a registered name."""
    import hashlib  # noqa: PLC0415

    return hashlib.sha256(Path(name).read_bytes()).hexdigest() if is_file_name(name) else None


def folder(*parts: str) -> Path:
    """The path of built-in content, such as ``folder("kernel")``, in a checkout or an installed wheel."""
    return Path(ROOT, *parts)
