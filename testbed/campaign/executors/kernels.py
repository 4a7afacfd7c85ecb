"""Send the built user-mode Linux kernel to other machines: once, identified by its content, and never built there."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from pathlib import Path

import msgspec

from testbed.backends.usermode import kernel
from testbed.backends.usermode.build import disk_errors, locked
from testbed.core.errors import MachineError
from testbed.core.runs.manifest import Build, UserModeLinux
from testbed.core.temp_dirs import removed_in_any_case


def packed() -> bytes:
    """The newest kernel of this machine's cache, with the modules of today's sources; raises `MachineError` without one."""
    found = kernel.find()
    modules = found.modules()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=1) as archive:
        for path in (found.folder / "kernel.json", found.image, modules):
            archive.add(path, f"{found.folder.name}/{path.relative_to(found.folder)}")
    return buffer.getvalue()


def is_here(wanted: UserModeLinux) -> bool:
    """Return True if this machine's cache holds exactly this kernel, with its modules."""
    try:
        found = kernel.find(wanted)
    except MachineError:
        return False
    return found.identity == msgspec.convert(wanted, Build, from_attributes=True) and found.has_modules(wanted.modules)


def unpack(archive: bytes) -> None:
    """Put a `packed` kernel into this machine's cache, completely or not; raises `MachineError` on a full disk."""
    cache = kernel.cache_folder()
    with disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / "lock"):  # a concurrent build removes incomplete entries
            folder = Path(tempfile.mkdtemp(prefix="travelled-", dir=cache))
            with removed_in_any_case(folder):
                with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                    if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                        packed.extraction_filter = tarfile.data_filter
                    packed.extractall(folder)
                (entry,) = folder.iterdir()
                _put(entry, cache / entry.name)


def _put(entry: Path, there: Path) -> None:
    if not (there / "kernel.json").exists():
        shutil.rmtree(there, ignore_errors=True)
        entry.rename(there)
        return
    for modules in (entry / "modules").iterdir():  # of other sources than those that are there
        shutil.rmtree(there / "modules" / modules.name, ignore_errors=True)
        modules.rename(there / "modules" / modules.name)
