"""Bytecode of all modules that user-mode Linux imports, in one file.

Each system call in user-mode Linux costs a hundred times as much as outside. Python's import of one module makes eleven,
and compiles what no installer has compiled. With the archive it makes one. `testbed.linux.uml_start` reads the archive.

The archive is in the cache. It is written again if a file of it has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import marshal
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.core.environment import PACKAGES, cache_folder
from testbed.core.errors import TestbedError

MAGIC = b"mltcp bytecode 1"
LENGTH_BYTES = 8  # of the index, big endian, behind the magic
EXTRA = ("mininet", "pyroute2", "testbed")  # packages whose other modules a plan may need
# What the guest imports, printed as lines "name<TAB>file".
LIST = """
import sys
sys.path[:0] = [sys.argv[1]]
sys.path += sys.argv[2:]
from testbed.linux import uml_init
uml_init.import_run()
for name, module in sorted(sys.modules.items()):
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.has_location and spec.origin.endswith(".py"):
        print(spec.name, spec.origin, sep="\\t")
"""


class Entry(NamedTuple):
    """A module of the archive: its file when it was compiled, and the place of its code."""

    file: str
    inside: str  # the file's path in user-mode Linux
    is_package: bool
    mtime_ns: int
    size: int
    at: int  # bytes from the start of the codes
    length: int


def put(into: Path, packages: Sequence[str]) -> None:
    """Make the archive available as the file ``into``, from the cache if that can be written.

    ``packages``: folders of installed packages, searched after the testbed's own folder. Raises `TestbedError` if the
    guest's modules cannot be imported here.
    """
    key = hashlib.sha256("\n".join((PACKAGES, sys.prefix, sys.version, *packages)).encode()).hexdigest()[:12]
    path = Path(cache_folder()) / "bytecode" / f"{sysconfig.get_config_var('SOABI')}-{key}"
    known = _read(path)
    if not known or not all(map(_is_current, known.values())):
        modules = _modules(packages)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, known, modules)
        except OSError:  # a cache that cannot be written: this run has an archive of its own
            _write(into, {}, modules)
            return
    into.symlink_to(path)


def _read(path: Path) -> dict[str, Entry]:
    """The index of an archive; empty if there is none, or if another user may have written it."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError), path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022 and file.read(len(MAGIC)) == MAGIC:
            index = marshal.loads(file.read(int.from_bytes(file.read(LENGTH_BYTES))))
            return {name: Entry(*entry) for name, entry in index.items()}
    return {}


def inside(file: str) -> str:
    """Path of a file in user-mode Linux, where the testbed and its packages have the same paths on every machine."""
    for folder, name in ((PACKAGES, "checkout"), (sys.prefix, "python")):
        if file.startswith(f"{folder}/"):
            return f"/run/mltcp/{name}{file.removeprefix(folder)}"
    return file


def _is_current(entry: Entry) -> bool:
    try:
        status = os.stat(entry.file)
    except OSError:
        return False
    return (status.st_mtime_ns, status.st_size) == (entry.mtime_ns, entry.size)


def _modules(packages: Sequence[str]) -> dict[str, str]:
    """File of each module: those that every run imports, and all of the packages ``EXTRA``."""
    command = [sys.executable, "-S", "-P", "-c", LIST, PACKAGES, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        raise TestbedError(f"the modules of user-mode Linux cannot be imported here:\n{done.stderr.strip()}")
    modules = dict(line.split("\t") for line in done.stdout.splitlines())
    for folder in (PACKAGES, *packages):
        for package in EXTRA:
            for file in sorted(Path(folder, package).rglob("*.py")):
                parts = file.relative_to(folder).with_suffix("").parts
                if all(map(str.isidentifier, parts)):
                    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                    modules.setdefault(name, str(file))
    return modules


def _write(path: Path, known: Mapping[str, Entry], modules: Mapping[str, str]) -> None:
    """Write the archive. Code of files that have not changed comes from the present one."""
    codes, index, at = [], {}, 0
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(path.open("rb")) if known else None
        if old is not None:
            start = len(MAGIC) + LENGTH_BYTES
            old.seek(len(MAGIC))
            start += int.from_bytes(old.read(LENGTH_BYTES))
        for name, file in modules.items():
            entry = known.get(name)
            if old is not None and entry is not None and entry.file == file and _is_current(entry):
                old.seek(start + entry.at)
                code = old.read(entry.length)
                index[name] = entry._replace(at=at)
            else:
                status = os.stat(file)
                try:
                    code = marshal.dumps(importlib.machinery.SourceFileLoader(name, file).get_code(name))
                except (SyntaxError, ValueError):
                    continue  # not for this Python; its import says why
                package = os.path.basename(file) == "__init__.py"
                index[name] = Entry(file, inside(file), package, status.st_mtime_ns, status.st_size, at, len(code))
            codes.append(code)
            at += len(code)
    head = marshal.dumps({name: tuple(entry) for name, entry in index.items()})
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as new:
        try:
            new.write(MAGIC + len(head).to_bytes(LENGTH_BYTES) + head + b"".join(codes))
            new.flush()
            os.replace(new.name, path)
        except BaseException:
            os.unlink(new.name)
            raise
