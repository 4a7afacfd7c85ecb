"""``make vm-kernel``: the VM's kernel as Debian packages, from the distribution's source and ``kernel.config``.

The congestion controls of ``kernel/`` are put into its tree and come as its modules. A
finished one lies in the cache, named by a hash of all that went into it::

    ~/.cache/mltcp/vm/kernel/6.12.117-2f1c0a9b77de/
        linux-image-6.12.117-mltcp_*.deb    the kernel and its modules
        linux-headers-6.12.117-mltcp_*.deb  what further modules are built with (DKMS)
        vmlinuz                             the image alone, for direct boot
        config
        kernel.json                         version, source, compiler, digests; there when the rest is complete
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path

from testbed.backends.usermode.build import (
    Counter,
    Say,
    check_config,
    check_space,
    check_tools,
    compiler_name,
    disk_errors,
    locked,
)
from testbed.backends.usermode.source import UNUSED, Origin, compute_digest, run
from testbed.core.environment import ROOT
from testbed.core.errors import EXIT_OK, MachineError, TestbedError
from testbed.core.runs import rundir
from testbed.linux.loading import bpf

HERE = Path(__file__).parent
CONFIG = HERE / "kernel.config"
MODULES = Path(ROOT) / "kernel"
TREE = "net/ipv4/mltcp"  # their folder in Linux' source
SPACE_BYTES = 6 << 30
TOOLS = {
    "gcc": "gcc", "make": "make", "flex": "flex", "bison": "bison", "bc": "bc", "tar": "tar", "xz": "xz-utils", "perl": "perl",
    "rsync": "rsync", "cpio": "cpio", "kmod": "kmod", "dh_testdir": "debhelper", "dpkg-buildpackage": "dpkg-dev",
    "pahole": "dwarves", "/usr/include/libelf.h": "libelf-dev", "/usr/include/stdio.h": "libc6-dev",
    "python3": "python3", "fakeroot": "fakeroot",
}  # fmt: skip
# Drivers of disks and network cards are used here, other than in user-mode Linux.
LEFT_OUT = [pattern for pattern in UNUSED if "/drivers/scsi/" not in pattern and "/net/ethernet/" not in pattern]


def cache() -> Path:
    """Return the folder of kernels and boxes."""
    return bpf.cache_dir() / "vm"


def ensure(source: Path | None, say: Say) -> Path:
    """The folder of the kernel from ``source`` (a tarball or tree; None: the distribution's newest), built if need be."""
    if platform.machine() != "x86_64":
        raise MachineError(f"the VM is an x86_64 one; this machine is {platform.machine()}.")
    check_tools(TOOLS, "the VM's kernel")
    kernels = cache() / "kernel"
    if re.search(r"[\s:]", str(kernels)):
        raise MachineError(
            f"Linux cannot be built below {kernels}: its makefiles know no blanks and colons in paths. "
            "Set XDG_CACHE_HOME to a folder without any."
        )
    with disk_errors(kernels):
        kernels.mkdir(parents=True, exist_ok=True)
    origin = Origin.find(source)
    identity = {
        "version": origin.version,
        "source": origin.identity,
        "compiler": compiler_name(),
        "config_sha256": compute_digest([CONFIG]),
        "modules_sha256": compute_digest(_module_sources()),
    }
    entry = kernels / f"{origin.version}-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]}"
    with locked(kernels / "lock", lambda: say("another build is in progress; waiting for it")):
        if (entry / "kernel.json").exists():
            return entry
        with disk_errors(kernels):
            shutil.rmtree(entry, ignore_errors=True)
        check_space(kernels, SPACE_BYTES)
        try:
            _build(entry, origin, identity, say)
        except BaseException:
            shutil.rmtree(entry, ignore_errors=True)
            raise
    return entry


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, as `sha256sum` prints it."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _build(entry: Path, origin: Origin, identity: dict[str, str], say: Say) -> None:
    begun = time.monotonic()
    with disk_errors(entry):
        work = entry / "work"
        work.mkdir(parents=True)
        say(f"the VM's kernel from {origin.identity}: fetching and unpacking the source")
        origin.unpack(work, LEFT_OUT)
        epoch = str(int((work / "source/Makefile").stat().st_mtime))  # of the source's release
        _add_modules(work / "source")
        (work / "build").mkdir()
    _make(work, ["-s", f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig"], epoch, None)
    check_config(CONFIG, work / "build/.config", origin, {})
    _make(work, ["bindeb-pkg"], epoch, say)
    with disk_errors(entry):
        for package in (*work.glob("linux-image-*.deb"), *work.glob("linux-headers-*.deb")):
            if "-dbg_" not in package.name:
                shutil.move(package, entry / package.name)
        shutil.copy(work / "build/arch/x86/boot/bzImage", entry / "vmlinuz")
        shutil.copy(work / "build/.config", entry / "config")
        shutil.rmtree(work)
        files = sorted(path for path in entry.iterdir() if path.is_file())
        built = {**identity, "sha256": {path.name: sha256(path) for path in files}}
        rundir.write_text(entry / "kernel.json", json.dumps(built, indent=1) + "\n")
    say(f"the VM's kernel built in {time.monotonic() - begun:.0f} s")


def _add_modules(source: Path) -> None:
    (source / TREE).mkdir()
    for file in _module_sources():
        shutil.copy(file, source / TREE / file.name)
    with (source / TREE).parent.joinpath("Makefile").open("a") as makefile:
        makefile.write(f"\nobj-m += {Path(TREE).name}/\n")


def _module_sources() -> list[Path]:
    return sorted([*MODULES.glob("*.[ch]"), MODULES / "Kbuild"])


def _make(work: Path, goals: list[str], epoch: str, say: Say | None) -> None:
    """Build the packages without the builder's name and time."""
    variables = {
        "SOURCE_DATE_EPOCH": epoch,
        "KBUILD_BUILD_TIMESTAMP": f"@{epoch}",
        "KBUILD_BUILD_USER": "mltcp",
        "KBUILD_BUILD_HOST": "mltcp",
        "KDEB_PKGVERSION": "1",
        "KDEB_COMPRESS": "xz",
        "DEB_BUILD_PROFILES": "pkg.linux-upstream.nokerneldbg",
        "DEBEMAIL": "mltcp@localhost",
    }
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    command = ["make", jobs, "-C", str(work / "source"), f"O={work / 'build'}", "ARCH=x86_64", *goals]
    run(command, f"{goals[-1]} of the VM's kernel failed", Counter(say) if say else None, variables=variables)


def main() -> int:
    """Build the kernel, and print its location. Returns an exit code."""
    parser = argparse.ArgumentParser(description="Build the VM's kernel as Debian packages.")
    parser.add_argument("--linux-source", type=Path, metavar="PATH", help="tarball or tree of Linux 6.1 or newer")
    try:
        entry = ensure(parser.parse_args().linux_source, lambda line: print(line, flush=True))
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for path in sorted(entry.iterdir()):
        print(f"{path.stat().st_size / 1e6:7.1f} MB  {path}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
