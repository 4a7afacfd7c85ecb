"""Linux' source: the distribution's newest ``linux-source`` package, or a custom tarball or tree."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.core import input_files, interruption
from testbed.core.children import ended_with_us, ends_with_parent
from testbed.core.errors import MachineError, RequestError, TestbedError

OLDEST = (6, 1)
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # of every tool that builds
# Of a source tree never needed here, and most of its size; Kconfig and Makefiles stay.
UNUSED = [
    *(f"*/drivers/{part}/*.[ch]" for part in ("gpu", "media", "infiniband", "scsi", "staging", "usb", "iio", "net/wireless",
                                              "net/ethernet", "accel", "crypto")),
    "*/Documentation/*.rst", "*/Documentation/*.yaml", "*/sound/*.[ch]", "*/tools/testing/*",
    *(f"*/arch/{arch}/*.[chS]" for arch in ("alpha", "arc", "arm", "arm64", "csky", "hexagon", "loongarch", "m68k",
                                            "microblaze", "mips", "nios2", "openrisc", "parisc", "powerpc", "riscv", "s390",
                                            "sh", "sparc", "xtensa")),
    "*.dts", "*.dtsi",
]  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """Every match of ``pattern`` in ``file`` is replaced; there must be ``matches`` of them at least."""

    file: str
    pattern: str
    replacement: str
    matches: int = 1


# All we change in Linux itself.
EDITS = (
    # A timer tick as on real hosts; with 100 Hz retransmission timers go in steps of 10 ms.
    Edit("arch/um/Kconfig", r"(config HZ\n\tint\n\tdefault) 100\n", r"\1 1000\n"),
    # The clock reads in nanoseconds, not in steps of 256: a step is a sixth of a large frame at
    # 50 Gbit/s, and where in a step one is would depend on all that came before.
    Edit("arch/um/include/linux/time-internal.h", r"(#define TIMER_MULTIPLIER) 256\b", r"\1 1"),
    # Two timers may be closer than 500 ns: frames at 200 Gbit/s are.
    Edit("arch/um/include/linux/time-internal.h", r"(#define TIMER_MIN_DELTA) +500\b", r"\1 1"),
    # Random numbers follow from the seed alone (kernel/uml/preload.c hands it out), not from
    # when which interrupt came; and a new key is generated when `testbed.linux.run_in_kernel` asks for it.
    Edit(
        "drivers/char/random.c", r"\bextract_entropy\(([\w.]+), sizeof\(\1\)\)", r"os_getrandom(\1, sizeof(\1), 0)", 3
    ),
    Edit("drivers/char/random.c", r"static void extract_entropy", r"static void __maybe_unused extract_entropy", 2),
    Edit("drivers/char/random.c", r"(CRNG_RESEED_START_INTERVAL =) HZ\b", r"\1 1000000 * HZ"),
    Edit("drivers/char/random.c", r"(CRNG_RESEED_INTERVAL =) 60 \* HZ\b", r"\1 1000000 * HZ"),
)


def edit(tree: Path) -> None:
    """Make `EDITS` in a source tree; raises `MachineError` where it is not as expected."""
    for wanted in EDITS:
        file = tree / wanted.file
        text, count = re.subn(wanted.pattern, wanted.replacement, file.read_text())
        if count < wanted.matches:
            raise MachineError(
                f"{wanted.file} of this Linux is not as expected (no {wanted.pattern!r}); the testbed knows 6.1 to 7.x. "
                "Use another version with --linux-source."
            )
        file.write_text(text)


@dataclass(frozen=True)
class Origin:
    """Origin of a kernel's source."""

    version: str
    identity: str
    package: str | None = None
    path: Path | None = None

    @classmethod
    def find(cls, source: Path | None) -> Origin:
        if source is None:
            return cls._find_in_distribution()
        source = source.resolve()
        if (source / "Makefile").is_file():
            digest = hashlib.sha256()
            for folder, folders, files in os.walk(source):
                folders[:] = sorted(set(folders) - {".git"})
                for name in sorted(files):
                    path = os.path.join(folder, name)
                    status = os.lstat(path)
                    digest.update(f"{os.path.relpath(path, source)} {status.st_size} {status.st_mtime_ns}\n".encode())
            text, digest_text = (source / "Makefile").read_text(), digest.hexdigest()
        elif source.is_file():
            text, digest_text = _makefile_in(source), compute_digest([source])
        else:
            raise RequestError(f"--linux-source: {source} is neither a tarball nor a tree of Linux' source.")
        version = cls._version(text, source)
        return cls(version, f"{source.name} (sha256 {digest_text[:16]})", path=source)

    @staticmethod
    def _version(makefile: str, source: Path) -> str:
        found = [
            re.search(rf"^{key} *= *(\d+)$", makefile, re.MULTILINE) for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")
        ]
        numbers = [int(match[1]) for match in found if match]
        if len(numbers) < 3:
            raise RequestError(f"--linux-source: {source} is not Linux' source: its Makefile names no version.")
        if tuple(numbers[:2]) < OLDEST:
            raise RequestError(
                f"--linux-source: {source} is Linux {numbers[0]}.{numbers[1]}; 6.1 is the oldest that works."
            )
        return ".".join(map(str, numbers))

    @classmethod
    def _find_in_distribution(cls) -> Origin:
        """The newest ``linux-source-X.Y`` package that apt lists."""
        hint = (
            "Name a tarball or tree with --linux-source (https://kernel.org), or let root run `apt-get update` first "
            "if this is Debian or Ubuntu."
        )
        if not shutil.which("apt-cache"):
            raise MachineError(f"there is no apt here to fetch Linux' source with. {hint}")
        words = subprocess.run(
            ["apt-cache", "--names-only", "search", r"^linux-source-[0-9]+\.[0-9.]+$"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        names = {line.split()[0] for line in words.stdout.splitlines() if line.strip()}
        known = sorted((tuple(map(int, name.rsplit("-", 1)[1].split("."))), name) for name in names)
        if not known or known[-1][0] < OLDEST:
            raise MachineError(f"apt knows no linux-source package of Linux 6.1 or newer. {hint}")
        package = known[-1][1]
        shown = subprocess.run(
            ["apt-cache", "show", "--no-all-versions", package], capture_output=True, text=True, check=False
        )
        match = re.search(r"^Version: (\S+)$", shown.stdout, re.MULTILINE)
        if not match:
            raise MachineError(f"apt gives no version of {package}: {shown.stderr.strip()}. {hint}")
        upstream = re.match(r"[\d.]+", match[1])
        return cls(upstream[0] if upstream else match[1], f"{package} {match[1]}", package=package)

    def unpack(self, entry: Path, unused: Sequence[str] = UNUSED) -> None:
        """Put the source at ``entry/source``, without what matches ``unused``."""
        into = entry / "source"
        into.mkdir()
        if self.path is not None and self.path.is_dir():
            shutil.copytree(self.path, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
            return
        tarball = self.path
        if tarball is None:
            assert self.package is not None
            fetched = entry / "package"
            fetched.mkdir()
            run(
                ["apt-get", "-q", "download", self.package],
                f"apt could not download {self.package}; `apt-get update` (as root) may help, or --linux-source", cwd=fetched,
            )  # fmt: skip
            run(["dpkg-deb", "-x", str(next(fetched.glob("*.deb"))), str(fetched)], "the package could not be unpacked")
            tarball = next(iter(sorted(fetched.rglob("linux-source-*.tar.*"))))
        command = [
            "tar",
            "-xf",
            str(tarball),
            "-C",
            str(into),
            "--no-same-owner",
            "--strip-components=1",
            "--wildcards",
        ]
        run([*command, *(f"--exclude={pattern}" for pattern in unused)], f"{tarball.name} could not be unpacked")
        if self.package is not None:
            shutil.rmtree(entry / "package")


def _makefile_in(tarball: Path) -> str:
    """The top Makefile of a kernel tarball; it comes early, and tar stops once it has it."""
    found = subprocess.run(
        ["tar", "-xOf", str(tarball), "--wildcards", "--no-wildcards-match-slash", "--occurrence=1", "*/Makefile"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        raise RequestError(
            f"--linux-source: {tarball} is not a tarball of Linux' source: {found.stderr.strip()[-200:]}"
        )
    return found.stdout


def run(
    command: list[str], what: str, see: Callable[[str], None] | None = None, cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Run a tool in a small environment with ``variables``; its last output becomes the error."""
    proxies = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    environment = {"PATH": PATH, "LC_ALL": "C", "HOME": "/", **proxies, **(variables or {})}
    last: list[str] = []
    with interruption.deferred():  # its own session, so that all of it can be ended
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=environment, cwd=cwd, start_new_session=True, preexec_fn=ends_with_parent(signal.SIGKILL),  # noqa: PLW1509
        )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            with ended_with_us(process.pid):
                for line in process.stdout:
                    last = [*last[-30:], line.rstrip()]
                    if see:
                        see(line)
                process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        words = "\n".join(last)
        if "No space left on device" in words:
            raise MachineError(f"{what}: the disk is full. Make room, or set XDG_CACHE_HOME to a larger disk.")
        raise TestbedError(f"{what} (code {process.returncode}):\n{words}")


def compute_digest(files: list[Path]) -> str:
    """SHA-256 over the contents of files, in order."""
    digest = hashlib.sha256()
    for file in files:
        with input_files.opened(file) as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
