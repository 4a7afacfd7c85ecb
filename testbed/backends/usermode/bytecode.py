"""Bytecode of all modules that user-mode Linux imports, in one file.

A system call in user-mode Linux costs a hundred times as much as outside. The import of a module makes eleven, and
compiles a module without bytecode. From the archive it makes one. `testbed.linux.uml_start` reads the archive.

The archive is in the cache. It is written again if a file of it has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import marshal
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from testbed.core.environment import PACKAGES, cache_folder
from testbed.core.errors import TestbedError
from testbed.linux.loading import bpf
from testbed.linux.uml_start import LENGTH_BYTES, MAGIC, read_index

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
    with contextlib.ExitStack() as stack:
        known, old = {}, None
        with contextlib.suppress(OSError):
            old = stack.enter_context(path.open("rb"))  # once: another process may replace it meanwhile
            known = _read(old)
        if known and all(map(_is_current, known.values())):
            into.symlink_to(path)
            return
        content = _archive(_modules(packages), known, old)
    try:
        bpf.keep(path, content)
        _sweep(path)
        into.symlink_to(path)
    except OSError:  # a cache that cannot be written: this run has an archive of its own
        into.write_bytes(content)


def _read(archive: BinaryIO) -> dict[str, Entry]:
    """The index of an archive; empty if the file is none, or if another user may have written it. The codes follow."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        status = os.fstat(archive.fileno())
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
            return {name: Entry(*entry) for name, entry in read_index(archive).items()}
    return {}


def _sweep(kept: Path) -> None:
    """Remove the other archives of which no file is left, such as those of a removed checkout."""
    for path in set(kept.parent.iterdir()) - {kept}:
        with contextlib.suppress(OSError), path.open("rb") as archive:
            if not any(map(_is_current, _read(archive).values())):
                path.unlink()


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


def _archive(modules: Mapping[str, str], known: Mapping[str, Entry], old: BinaryIO | None) -> bytes:
    """The content of the archive. Code of files that have not changed comes from ``old``, whose codes are read next."""
    codes, index, at = [], {}, 0
    present = old.read() if old is not None and known else b""
    for name, file in modules.items():
        entry = known.get(name)
        if entry is not None and entry.file == file and _is_current(entry):
            code = present[entry.at : entry.at + entry.length]
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
    return MAGIC + len(head).to_bytes(LENGTH_BYTES) + head + b"".join(codes)
