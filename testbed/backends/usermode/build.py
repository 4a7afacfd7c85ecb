"""Requirements of any Linux kernel build: tools, disk space, a lock, and a configuration that is kept."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from testbed.backends.usermode.source import PATH, Origin
from testbed.core.errors import MachineError

Say = Callable[[str], None]
# The same source, configuration and compiler make the same bytes: neither time nor place is in them (Documentation/kbuild).
REPRODUCIBLE = {
    "KBUILD_BUILD_TIMESTAMP": "1970-01-01", "KBUILD_BUILD_VERSION": "1", "KBUILD_BUILD_USER": "mltcp",
    "KBUILD_BUILD_HOST": "testbed", "LOCALVERSION": "",
}  # fmt: skip


def check_tools(tools: Mapping[str, str], what: str) -> None:
    """Raise `MachineError` if one of ``tools`` (command or file → Debian's package) is missing for building ``what``."""
    found = {package for tool, package in tools.items() if shutil.which(tool, path=PATH) or os.path.exists(tool)}
    if missing := sorted(set(tools.values()) - found):
        raise MachineError(
            f"building {what} needs {', '.join(missing)}: run `make setup` as root once, or install "
            f"{'these packages' if len(missing) > 1 else 'this package'}."
        )


def check_space(cache: Path, needed_bytes: int) -> None:
    """Raise `MachineError` where the disk of ``cache`` has not that much room."""
    if (free := shutil.disk_usage(cache).free) < needed_bytes:
        raise MachineError(
            f"building the kernel takes {needed_bytes >> 30} GiB below {cache} for a while; {free / 2**30:.1f} GiB are free. "
            "Make room, or set XDG_CACHE_HOME to a larger disk."
        )


def check_mount(folder: Path) -> None:
    """Raise `MachineError` where the file system of ``folder`` runs no programs."""
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise MachineError(
            f"{folder} is on a file system that is mounted noexec, and the user-mode Linux kernel is a program. "
            "Set XDG_CACHE_HOME to a folder on another file system, or use --on flow."
        )


def check_executable(program: Path) -> None:
    """Raise `MachineError` where the kernel ``program`` cannot be run."""
    check_mount(program.parent)
    if not os.access(program, os.X_OK):
        raise MachineError(f"{program} may not be executed: `chmod +x {program}`.")


def check_config(fragment: Path, built: Path, origin: Origin, renamed: Mapping[str, str]) -> None:
    """Every line of ``fragment`` must hold: Kconfig drops what it cannot do without a word."""
    wanted = {line for line in fragment.read_text().splitlines() if line.startswith("CONFIG_")}
    held = set(built.read_text().splitlines())
    if missing := sorted(line for line in wanted - held if renamed.get(line) not in held):
        raise MachineError(f"{origin.identity} cannot be configured as needed; it does not take {', '.join(missing)}.")


def compiler_name() -> str:
    """The compiler's first line of `--version`."""
    done = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True, env={"PATH": PATH})
    return done.stdout.splitlines()[0]


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock that ends with this process."""
    with disk_errors(path):
        file = path.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Raise `MachineError` where a file below ``where`` cannot be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise MachineError(
            f"the kernel's cache cannot be written: {error.strerror or error} ({error.filename or where}). "
            "Make room, or set XDG_CACHE_HOME to a folder that is yours."
        ) from error


class Counter:
    """Prints from time to time how many of about ``about`` objects are compiled."""

    EVERY_S = 20.0

    def __init__(self, say: Say, about: int | None = None) -> None:
        self.say, self.objects, self.begun = say, 0, time.monotonic()
        self.of = "" if about is None else f" of about {about}"
        self.due = self.begun

    def __call__(self, line: str) -> None:
        self.objects += line.startswith(("  CC ", "  AS ", "  AR "))
        if self.objects and time.monotonic() >= self.due:
            self.say(f"  {self.objects}{self.of} objects compiled, {time.monotonic() - self.begun:.0f} s")
            self.due = time.monotonic() + self.EVERY_S
