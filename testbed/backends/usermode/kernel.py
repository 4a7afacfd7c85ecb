"""The user-mode Linux kernel: the one that the wheel ships, or one of the cache, built from the distribution's source.

An entry of the cache is one kernel, complete when its ``kernel.json`` is there::

    ~/.cache/mltcp/uml/6.12.117-2f1c0a9b77de/
        kernel.json      identity: version, source, configuration, compiler, digests
        linux            the kernel, an ordinary program
        source/ build/   headers and scripts: what modules are built with
        modules/HASH/    the congestion controls of kernel/ and the PROGRAMS of kernel/uml/, by their sources

A shipped kernel is such an entry, without ``source`` and ``build``, below ``testbed/content/uml`` of the installation. `add` puts
a wheel's kernel into the cache of a checkout.
The entry's name is a hash of source, configuration and compiler, so that a change of any is another entry. A watching
process removes a build that is killed. If that process is killed as well, the next command that looks for a kernel removes
the build. Root runs no kernel that another user could have changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from testbed.backends.usermode.build import (
    REPRODUCIBLE,
    Counter,
    Say,
    check_config,
    check_executable,
    check_mount,
    check_space,
    check_tools,
    compiler_name,
    disk_errors,
    locked,
)
from testbed.backends.usermode.source import EDITS, Origin, compute_digest, edit, run
from testbed.core import children, input_files, progress, temp_dirs
from testbed.core.environment import IS_CHECKOUT, PACKAGES, ROOT
from testbed.core.errors import MachineError, RequestError, TestbedError
from testbed.core.runs.manifest import Build
from testbed.linux.loading import bpf

SOURCES = Path(ROOT) / "kernel"
SHIPPED = Path(ROOT) / "uml"  # the entry that a wheel carries; a checkout has none
# The files of a wheel's kernel. No part of their path is `..`.
IN_WHEEL = re.compile(r"testbed/content/uml/((?:[\w.-]*\w[\w.-]*/)+[\w.-]*\w[\w.-]*)", re.ASCII)
CHOSEN = "chosen"  # in the cache: the name of the entry that replaces the shipped one
AGAIN = "Install the wheel again (`pip install --force-reinstall mltcp-testbed`), or build a kernel here (`mltcp kernel --build`)."
MOST_BYTES = 1 << 20  # of an entry's description (kernel.json)
OBJECTS = 1000  # about; Linux 6.12 has a little more
SPACE_BYTES = 4 << 30  # source and objects while it is built; a tenth of it stays
TOOLS = {
    "gcc": "gcc", "make": "make", "flex": "flex", "bison": "bison", "bc": "bc", "tar": "tar", "xz": "xz-utils",
    "perl": "perl", "strip": "binutils", "/usr/include/stdio.h": "libc6-dev",
}  # fmt: skip
# Options with two names, by kernel version: one of the two is enough.
RENAMED = {"CONFIG_PROC_SYSCTL=y": "CONFIG_SYSCTL=y"}  # Linux 7.3
# Tools that no part of the kernel needs. Their versions would become part of the configuration, and so of the image.
ABSENT = ("PAHOLE=none", "RUSTC=none", "BINDGEN=none")
# Programs of kernel/uml/, with the compiler's flags: the guest's first process, and libraries that the kernel and the guest's Python preload.
SHARED = ("-shared", "-fPIC")
PROGRAMS = {
    "init": ("-static", "-no-pie", "-nostdlib", "-ffreestanding", "-fno-stack-protector"),
    "prefault.so": SHARED,
    "preload.so": SHARED,
}
# Parts of a source tree that building a module needs.
KEPT = ("arch", "include", "scripts", "Makefile", "Kbuild", "Kconfig")


@dataclass(frozen=True)
class Kernel:
    """One kernel: an entry of the cache, or the shipped one."""

    folder: Path
    identity: Build

    @property
    def is_shipped(self) -> bool:
        return self.folder.parent == SHIPPED

    @property
    def has_headers(self) -> bool:
        """Return True if modules can be built for this kernel. One from a wheel has none."""
        return (self.folder / "source").exists()

    @property
    def image(self) -> Path:
        return self.folder / "linux"

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", self.identity.version))

    def check_owner(self) -> None:
        """Raises `MachineError` if this process would run, or build with, files that another user may have put there.

        A shipped kernel is next to the program that this process runs already.
        """
        if os.geteuid() == 0 and not self.is_shipped and not _is_owned_by(self.folder, {0}):
            raise MachineError(
                f"{self.folder} belongs to another user, or other users may write to it. Root does not run such a kernel. "
                "Run this without root, or build a kernel for root (`mltcp kernel`)."
            )

    def modules(self) -> Path:
        """The folder of the congestion controls' modules and of `PROGRAMS`; built if a source has changed."""
        self.check_owner()
        folder = self.folder / "modules" / compute_digest(_module_sources())[:12]
        if not _modules_are_whole(folder):
            if self.is_shipped:
                raise MachineError(
                    f"the modules of the shipped kernel in {folder.parent} are damaged, or content/kernel was changed. {AGAIN}"
                )
            if not self.has_headers:
                raise MachineError(
                    f"the modules of the wheel's kernel in {folder.parent} are damaged, or kernel/ was changed since. "
                    "Build a kernel here, once (`mltcp kernel --build`, about three minutes, with a compiler)."
                )
            check_tools(TOOLS, "the user-mode Linux kernel")
            with locked(self.folder / "modules.lock"):
                if not _modules_are_whole(folder):
                    self._sweep_modules()
                    self._build_modules(folder)
        return folder

    def _sweep_modules(self) -> None:
        """Remove what is left of builds that were killed; under their lock."""
        for one in (self.folder / "modules").glob("*/"):
            if not (one / "complete").exists():
                shutil.rmtree(one, ignore_errors=True)

    def has_modules(self, name: str) -> bool:
        """Return True if the modules of that name (a hash of their sources) exist completely."""
        return _modules_are_whole(self.folder / "modules" / name)

    def _build_modules(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with disk_errors(folder):
            folder.mkdir(parents=True)
            for source in _module_sources():
                shutil.copy(source, folder / source.name)
        _make(self.folder, ["modules", f"M={folder}"], None)
        for program, flags in PROGRAMS.items():
            name = f"{program.removesuffix('.so')}.c"
            compiled = ["gcc", "-O2", "-s", *flags, "-o", str(folder / program), str(folder / name)]
            run(compiled, f"kernel/uml/{name} could not be compiled")
        (folder / "complete").write_text(compute_digest(products(folder)))

    def own_module(self, source: Path) -> Path:
        """A congestion control from outside the checkout (``tcp_NAME.c``), built against this kernel.

        It may include the headers of ``kernel/`` and those in its folder. Raises `RequestError` with the compiler's output.
        """
        self.check_owner()
        if not re.fullmatch(r"tcp_\w+", source.stem, re.ASCII):  # it becomes part of a makefile
            raise RequestError(f"{source}: the file of a custom module must be named tcp_NAME.c.")
        headers = {header.name: header for folder in (SOURCES, source.parent) for header in sorted(folder.glob("*.h"))}
        folder = self.folder / "modules" / f"own-{compute_digest([source, *headers.values(), SOURCES / 'Kbuild'])[:12]}"
        module = folder / f"{source.stem}.ko"
        if (folder / "complete").exists():
            return module
        if not self.has_headers:
            raise MachineError(
                f"{source} must be compiled, but the shipped kernel has no headers. Build a kernel here, once "
                "(`mltcp kernel --build`, about three minutes, with a compiler)."
            )
        check_tools(TOOLS, "the user-mode Linux kernel")
        with locked(self.folder / "modules.lock"):
            self._sweep_modules()
            shutil.rmtree(folder, ignore_errors=True)
            with disk_errors(folder):
                folder.mkdir(parents=True)
                for file in (source, *headers.values()):
                    shutil.copy(file, folder / file.name)
                kbuild = (SOURCES / "Kbuild").read_text()
                (folder / "Kbuild").write_text(re.sub(r"(?m)^obj-m := .*$", f"obj-m := {source.stem}.o", kbuild))
            try:
                _make(self.folder, ["modules", f"M={folder}"], None)
            except MachineError:
                raise
            except TestbedError as error:
                words = [
                    line.strip() for line in str(error).splitlines() if "rror: " in line or line.startswith("ERROR")
                ]
                said = "\n".join(words or [str(error)]).replace(str(folder), str(source.parent))
                shutil.rmtree(folder, ignore_errors=True)
                raise RequestError(f"{source} could not be built as a module:\n{said}") from error
            (folder / "complete").touch()
        return module


def find(prefer: Build | None = None) -> Kernel:
    """The kernel that ``prefer`` names, if it is here; else the chosen one, the shipped one, or the newest of the cache.

    Raises `MachineError` if a chosen or shipped kernel is damaged, instead of using another one.
    """
    _sweep()
    entries = _entries()
    if prefer is not None:
        wanted = msgspec.convert(prefer, Build, from_attributes=True)
        for entry in entries:
            with contextlib.suppress(_UnusableError):
                if (found := _usable(entry)).identity == wanted:
                    return found
    damaged = ""
    for entry in entries:
        try:
            return _usable(entry)
        except _UnusableError as error:
            if entry == chosen():
                back = "" if shipped() is None else ", or go back to the shipped one (`mltcp kernel --shipped`)"
                raise MachineError(
                    f"the kernel chosen for runs cannot be used: {error} Build one (`mltcp kernel --build`){back}."
                ) from error
            if entry.parent == SHIPPED:
                raise MachineError(f"the shipped kernel is refused: {error} {AGAIN}") from error
            damaged += f" {error}"
    raise MachineError(f"the user-mode Linux kernel is not built yet.{damaged} {_how_to_build()}")


def _how_to_build() -> str:
    if IS_CHECKOUT:
        return "`make kernel` builds it (about three minutes, once)."
    return (
        "`mltcp kernel` builds it (about three minutes, once; it needs a compiler). This wheel ships none; the one for "
        "x86-64 Linux does. `--on flow` needs no kernel."
    )


def is_built() -> bool:
    """Return True if a kernel exists. A damaged shipped or chosen one counts; `find` reports the damage."""
    if shipped() is not None or chosen() is not None:
        return True
    try:
        find()
    except MachineError:
        return False
    return True


def shipped() -> Path | None:
    """The entry that came with this installation; None in a checkout, and in a wheel without one."""
    return next(iter(sorted(path.parent for path in SHIPPED.glob("*/kernel.json"))), None)


def chosen() -> Path | None:
    """The entry of the cache that `choose` was given."""
    with contextlib.suppress(input_files.FileError):
        if name := input_files.read_text(cache_folder() / CHOSEN, MOST_BYTES).strip():
            return cache_folder() / name
    return None


def choose(built: Kernel | None) -> None:
    """Runs use this kernel of the cache from now on; with None, the shipped one again."""
    with disk_errors(cache_folder()):
        if built is None:
            (cache_folder() / CHOSEN).unlink(missing_ok=True)
        else:
            (cache_folder() / CHOSEN).write_text(f"{built.folder.name}\n")


def is_there() -> bool:
    """Return True if `find` would find a kernel with the modules of the current sources."""
    try:
        find().modules()
    except MachineError:
        return False
    return True


def check_possible() -> None:
    """Raises `MachineError` where none can be built, as far as this can be determined without building it."""
    check_platform()
    check_tools(TOOLS, "the user-mode Linux kernel")


def check_platform() -> None:
    """Raises `MachineError` where user-mode Linux does not run."""
    bits = "" if sys.maxsize > 1 << 32 else ", with a 32-bit Python"
    if platform.system() != "Linux" or platform.machine() != "x86_64" or bits:
        raise MachineError(
            f"user-mode Linux runs on x86_64 Linux only; this is {platform.system()} {platform.machine()}{bits}. "
            "`--on flow`, the flow-level simulator, runs everywhere."
        )


def build_apart(*arguments: str) -> str | None:
    """Build one in a child process (`mltcp kernel`), which under ``sudo`` runs as the caller, and ends with this one.

    Its output goes to stderr as it arrives. Returns the reason if it failed, None if it did not.
    """
    command = [sys.executable, "-P", "-m", "testbed", "kernel", "--if-missing", *arguments]
    with tempfile.TemporaryFile("w+") as errors:
        code = children.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if progress.is_silent() else sys.stderr,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": PACKAGES},
        )
        errors.seek(0)
        words = " ".join(errors.read().split()).removeprefix("error: ")
    return (words or f"its build ended with code {code}.") if code else None


def ensure(source: Path | None, say: Say) -> Kernel:
    """The kernel of ``source`` (a tarball or tree; None: the distribution's newest), built if need be."""
    check_possible()
    cache = cache_folder()
    if re.search(r"[\s:]", str(cache)):
        raise MachineError(
            f"Linux cannot be built below {cache}: its makefiles know no blanks and colons in paths. "
            "Set XDG_CACHE_HOME to a folder without any."
        )
    with disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
    origin = Origin.find(source)
    compiler = compiler_name()
    key = hashlib.sha256(json.dumps([origin.identity, _config_digest(), compiler]).encode()).hexdigest()[:12]
    entry = cache / f"{origin.version}-{key}"
    with locked(cache / "lock", lambda: say("another build is in progress; waiting for it")):
        with contextlib.suppress(_UnusableError):
            if (found := _usable(entry)).has_headers:  # one from a wheel is built again
                return found
        with disk_errors(cache):
            for partial in {entry, *_partial(cache)}:
                if partial.exists():
                    shutil.rmtree(partial)
        check_space(cache, SPACE_BYTES)
        check_mount(cache)
        with temp_dirs.removed_unless_kept(entry) as keep:
            _build(entry, origin, compiler, say)
            keep()
    return _usable(entry)


def add(wheel: Path) -> Kernel:
    """Put the kernel and the modules of a wheel into the cache, unless the cache has them.

    Raises `RequestError` if the file is no wheel, or has no kernel that fits this checkout; `MachineError` if its modules do
    not fit, or the cache cannot be written.
    """
    cache = cache_folder()
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = {match[1]: name for name in archive.namelist() if (match := IN_WHEEL.fullmatch(name))}
            entries = {name.split("/")[0] for name in members}
            if len(entries) != 1:
                raise RequestError(f"{wheel} has no kernel inside. The testbed's wheel for x86-64 Linux has one.")
            entry = cache / entries.pop()
            with disk_errors(cache):
                cache.mkdir(parents=True, exist_ok=True)
            check_mount(cache)
            with locked(cache / "lock"):
                with contextlib.suppress(_UnusableError):
                    return _usable(entry)
                with temp_dirs.removed_unless_kept(entry) as keep:
                    with disk_errors(cache):
                        shutil.rmtree(entry, ignore_errors=True)
                        # `kernel.json` comes last, because it makes the entry complete.
                        for name in sorted(members, key=lambda name: name.endswith("kernel.json")):
                            (cache / name).parent.mkdir(parents=True, exist_ok=True)
                            (cache / name).write_bytes(archive.read(members[name]))
                            (cache / name).chmod(0o755)
                    added = _usable(entry)
                    added.modules()
                    keep()
                    return added
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, RuntimeError, EOFError, OSError, _UnusableError) as error:
        raise RequestError(f"{wheel} is no wheel of the testbed that fits this checkout: {error}") from error


def _partial(cache: Path) -> list[Path]:
    """Entries that are not complete; under the lock of the cache no other process works on them."""
    return [path for path in cache.iterdir() if path.is_dir() and not (path / "kernel.json").exists()]


def _sweep() -> None:
    """Remove what is left of builds that were killed."""
    cache = cache_folder()
    with contextlib.suppress(OSError):
        if _partial(cache):
            with (cache / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a build in progress has it
                for partial in _partial(cache):
                    shutil.rmtree(partial, ignore_errors=True)


def _build(entry: Path, origin: Origin, compiler: str, say: Say) -> None:
    begun = time.monotonic()
    with disk_errors(entry):
        entry.mkdir()
        say(f"user-mode Linux from {origin.identity}: fetching and unpacking the source")
        origin.unpack(entry)
        if (entry / "source/.config").exists() or (entry / "source/include/config").exists():
            run(["make", "-s", "-C", str(entry / "source"), "ARCH=um", "mrproper"], "the source could not be cleaned")
        edit(entry / "source")
        (entry / "build").mkdir()
    _make(entry, ["-s", f"KCONFIG_ALLCONFIG={SOURCES / 'uml/config'}", "allnoconfig"], None)
    check_config(SOURCES / "uml/config", entry / "build/.config", origin, RENAMED)
    _make(entry, ["linux", "modules"], say)
    with disk_errors(entry):
        run(["strip", "-o", str(entry / "linux"), str(entry / "build/linux")], "the kernel could not be stripped")
        _prune(entry)
        identity = Build(
            version=origin.version,
            source=origin.identity,
            compiler=compiler,
            config_sha256=_config_digest(),
            image_sha256=_image_digest(entry / "linux"),
        )
        Kernel(entry, identity).modules()
        (entry / "kernel.json.new").write_bytes(msgspec.json.format(msgspec.json.encode(identity), indent=1) + b"\n")
        (entry / "kernel.json.new").rename(entry / "kernel.json")
    say(f"user-mode Linux {origin.version} built in {time.monotonic() - begun:.0f} s: {entry}")


def _prune(entry: Path) -> None:
    """Keep of source and build what modules need."""
    for path in (entry / "source").iterdir():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in (entry / "source/arch").iterdir():
        if path.is_dir() and path.name not in ("um", "x86"):
            shutil.rmtree(path)
    for path in (entry / "build").iterdir():
        if path.is_dir() and path.name not in ("arch", "include", "scripts", "source"):
            shutil.rmtree(path)
        elif path.name.startswith(("vmlinux", "linux", ".vmlinux", ".tmp", "System")):
            path.unlink()
    for path in [*(entry / "build/arch").rglob("*.[oa]"), *(entry / "source/arch").rglob("*.c")]:
        path.unlink()


class _UnusableError(Exception):
    """An entry of the cache that is not what it should be."""


def _usable(entry: Path) -> Kernel:
    """The kernel at ``entry``, if everything in it is as it was built."""
    if os.geteuid() == 0 and not _is_owned_by(entry, {0, *_caller()}):
        raise _UnusableError(f"{entry} belongs to another user, or others may write to it.")
    try:
        identity = msgspec.json.decode(input_files.read_bytes(entry / "kernel.json", MOST_BYTES), type=Build)
        if identity.config_sha256 != _config_digest():
            raise _UnusableError(f"{entry.name} was built with another configuration.")
        if _image_digest(entry / "linux") != identity.image_sha256:
            raise _UnusableError(f"{entry / 'linux'} is damaged: its SHA-256 is not the one in kernel.json.")
    except input_files.MissingError as error:
        raise _UnusableError(f"{entry} is incomplete.") from error
    except (OSError, ValueError, KeyError, TypeError, input_files.FileError) as error:
        raise _UnusableError(f"{entry} cannot be read: {error}.") from error
    check_executable(entry / "linux")
    return Kernel(entry, identity)


def _image_digest(image: Path) -> str:
    """As `sha256sum` has it."""
    with input_files.opened(image) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _entries() -> list[Path]:
    """The chosen entry, the shipped one, then all of the cache: the newest kernel first, of equal ones the one built last."""
    found: list[Path] = []
    for cache in _caches():
        with contextlib.suppress(OSError):  # another user's home folder
            found += [path.parent for path in cache.glob("*/kernel.json")]

    def rank(entry: Path) -> tuple[list[int], float]:
        return [int(n) for n in re.findall(r"\d+", entry.name.split("-")[0])], (entry / "kernel.json").stat().st_mtime

    first = [one for one in (chosen(), shipped()) if one is not None]
    return first + [entry for entry in sorted(found, key=rank, reverse=True) if entry not in first]


def cache_folder() -> Path:
    """Folder of kernels, which may not exist yet."""
    return bpf.cache_dir() / "uml"


def _caches() -> list[Path]:
    """This user's cache and, under sudo, that of the caller."""
    caches = [cache_folder()]
    for uid in _caller():
        import pwd  # noqa: PLC0415

        with contextlib.suppress(KeyError):
            caches.append(Path(pwd.getpwuid(uid).pw_dir) / ".cache" / "mltcp" / "uml")
    return caches


def _caller() -> set[int]:
    """The user id of the caller of `sudo`; empty without it."""
    uid = os.environ.get("SUDO_UID", "")
    return {int(uid)} if os.geteuid() == 0 and uid.isdecimal() else set()


def _is_owned_by(entry: Path, users: set[int]) -> bool:
    """Whether only ``users`` can have changed the files of an entry that are run."""
    names = ("", "linux", "kernel.json", "modules", "source", "build")
    found = [path.lstat() for name in names if os.path.lexists(path := entry / name)]
    return all(one.st_uid in users and not one.st_mode & (0o022 if one.st_gid else 0o002) for one in found)


def products(folder: Path) -> list[Path]:
    """All that is built into a folder of modules."""
    return sorted([*folder.glob("*.ko"), *(folder / program for program in PROGRAMS)])


def _modules_are_whole(folder: Path) -> bool:
    """Whether they are as they were built; without preload.so a run would silently not repeat."""
    try:
        return input_files.read_text(folder / "complete", MOST_BYTES) == compute_digest(products(folder))
    except (OSError, input_files.FileError):
        return False


def _module_sources() -> list[Path]:
    return sorted([*SOURCES.glob("*.[ch]"), SOURCES / "Kbuild", *(SOURCES / "uml").glob("*.c")])


def _config_digest() -> str:
    """Of the configuration, and of all else that decides on a kernel's bytes but source and compiler."""
    parts = (compute_digest([SOURCES / "uml/config"]), EDITS, REPRODUCIBLE, ABSENT)
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def _make(entry: Path, goals: list[str], say: Say | None) -> None:
    build = entry / "build"
    command = [
        "make", f"-j{len(os.sched_getaffinity(0))}", "-C", str(entry / "source"), f"O={build}", "ARCH=um", *ABSENT, *goals,
    ]  # fmt: skip
    what = f"{' '.join(goals[-1:])} of {entry.name} could not be built"
    run(command, what, Counter(say, OBJECTS) if say else None, variables=REPRODUCIBLE)
