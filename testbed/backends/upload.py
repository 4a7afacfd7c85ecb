"""Files for another machine: the testbed's source, the packages that it imports, and a plan's custom files.

The other machine needs no testbed, no compiler and, if it has the same Python, no package.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from testbed.congestion import catalogue
from testbed.core import source as program
from testbed.core.environment import ROOT
from testbed.core.errors import MachineError
from testbed.core.runs import own_files, rundir
from testbed.core.runs.plan import Plan
from testbed.linux.loading import bpf, classifier
from testbed.transports.datagram import native

# Modules that `testbed.linux.run_in_kernel` imports, by distribution.
PACKAGES = {"mininet": "mininet", "msgspec": "msgspec", "pyelftools": "elftools", "pyroute2": "pyroute2"}


def soabi() -> str:
    """ABI of the Pythons that can use this one's packages, as ``cpython-311-x86_64-linux-gnu``."""
    return str(sysconfig.get_config_var("SOABI"))


@functools.cache
def archive() -> bytes:
    """The source (``code/…``) and the packages (``packages/…``) as a compressed tar archive."""
    return gzip.compress(rundir.pack({name: path.read_bytes() for name, path in (*_code(), *_packages())}), 6)


def _code() -> Iterator[tuple[str, Path]]:
    for name, path in program.files():
        yield f"code/{name}", path
    with contextlib.suppress(MachineError):  # no compiler here: runs there that need it report this
        yield f"code/{native.build().relative_to(ROOT)}", native.build()


def _packages() -> Iterator[tuple[str, Path]]:
    for name in PACKAGES.values():
        yield from _package(name, _folder(name))
    if sys.version_info >= (3, 12):  # Mininet imports distutils, an undeclared dependency that setuptools provides
        yield from _package("distutils", _folder("setuptools") / "_distutils")


def _folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _package(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".so"):
            yield f"packages/{name}/{path.relative_to(folder)}", path


def files(plan: Plan) -> dict[str, bytes]:
    """Files of this plan: topology and congestion controls from outside the checkout, and compiled programs."""
    found: dict[str, bytes] = {}
    for own, name in own_files.names(plan, "own/content").items():
        found[name] = Path(own).read_bytes()
    programs = [source for source in map(catalogue.program, plan.ccs) if source is not None]
    if any(link.ecn_threshold for link in plan.bottlenecks.values()):
        programs.append(classifier.PROGRAM)
    for source in programs:
        found |= {f"cache/mltcp/{name}": content for name, content in bpf.compile_for_others(source).items()}
    for cc in plan.ccs:
        if cc.source is not None:
            source = Path(cc.source)
            for path in (source, *source.parent.glob("*.h")):
                found[f"own/{cc.folder}/{path.name}"] = path.read_bytes()
    return found


def elsewhere(plan: Plan, folder: str) -> Plan:
    """The plan with the names that its own files have there, below ``folder``."""
    sources = {
        cc.folder: f"{folder}/own/{cc.folder}/{Path(cc.source).name}" for cc in plan.ccs if cc.source is not None
    }
    return own_files.moved(plan, own_files.names(plan, f"{folder}/own/content"), sources)
