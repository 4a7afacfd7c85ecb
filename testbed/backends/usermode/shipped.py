"""The additional files of the platform wheel: the kernel, its modules, and the transports' core.

``python -m testbed.backends.usermode.shipped FOLDER`` puts those of this machine into FOLDER, laid out as below
``testbed/content``, and prints the wheel's platform tag. The build hook of the wheel calls it (``tools/wheel_hook.py``).
Without FOLDER it prints what ``kernel/uml/release.json`` would pin of this machine.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from testbed.backends.usermode import kernel
from testbed.backends.usermode.source import compute_digest
from testbed.core.environment import ROOT
from testbed.core.errors import EXIT_OK, MachineError, TestbedError
from testbed.core.runs.manifest import Build
from testbed.transports.datagram import native

RELEASE = Path(ROOT) / "kernel" / "uml" / "release.json"


class Release(Build, frozen=True):
    """A kernel with the other files that a wheel ships: the digest of its modules, and that of the transports' core."""

    modules_sha256: str
    library_sha256: str


@cache
def release() -> Release:
    """The files of the release: what source, configuration and compiler of these names make, byte for byte."""
    return msgspec.json.decode(RELEASE.read_bytes(), type=Release)


def built_here() -> Release:
    """The same of this machine; raises `MachineError` where a part is missing."""
    found = kernel.find(release())
    return Release(
        **msgspec.structs.asdict(found.identity),
        modules_sha256=compute_digest(kernel.products(found.modules())),
        library_sha256=compute_digest([native.build()]),
    )


def is_release(identity: Build) -> bool:
    """Return True if a kernel is that of the release, regardless of where it was built."""
    return identity.image_sha256 == release().image_sha256


def export(into: Path) -> str:
    """Copy what a wheel carries below ``into``; returns its platform tag. Raises `MachineError` where a part is missing."""
    kernel.check_platform()
    found = kernel.find(release())
    modules = found.modules()
    entry = into / "uml" / found.folder.name
    programs = [found.image, *kernel.products(modules)]
    for file in (found.folder / "kernel.json", *programs, modules / "complete"):
        _copy(file, entry / file.relative_to(found.folder))
    library = native.build()
    _copy(library, into / "build" / library.parent.name / library.name)
    return platform_tag([found.image, *(modules / program for program in kernel.PROGRAMS), library])


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, to)


def platform_tag(programs: Sequence[Path]) -> str:
    """Tag of PEP 600: the oldest C library with every symbol that ``programs`` need. Raises `MachineError` if they need another library."""
    needed = {(2, 5)}
    for program in programs:
        with program.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    needed |= {_glibc(symbol.name) for _, symbols in section.iter_versions() for symbol in symbols}
    major, minor = max(needed)
    return f"manylinux_{major}_{minor}_x86_64"


def _glibc(version: str) -> tuple[int, int]:
    if not (match := re.match(r"GLIBC_(\d+)\.(\d+)", version)):
        raise MachineError(f"a wheel's programs may need the C library only, and one needs {version}.")
    return int(match[1]), int(match[2])


def main(arguments: Sequence[str]) -> int:
    """Its exit code."""
    try:
        if not arguments:
            print(msgspec.json.format(msgspec.json.encode(built_here()), indent=1).decode())
            return EXIT_OK
        tag = export(Path(arguments[0]))
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    found = kernel.find(release()).identity
    if not is_release(found):
        print(f"not the kernel of the release: {found.source}, by {found.compiler}", file=sys.stderr)
    print(tag)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
