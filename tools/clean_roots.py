"""Run the wheel's demo on clean roots of Debian: ``python -m tools.clean_roots --times 3 bookworm trixie sid`` (root;
mmdebstrap).

Each time, a fresh root file system with only Python gets the wheel and the pinned packages, without network. A user
without ``/dev/shm`` and without a compiler then runs `mltcp demo`. Prints a line for each: seconds until the first
figure and until the end, and a digest of all ``iterations.csv``, which is equal for the same Python version.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.backends.usermode.build import check_tools
from testbed.core.errors import EXIT_FAILED, EXIT_OK, MachineError, TestbedError
from tools import image

FOLDER = image.ROOT / "build" / "roots"
PACKAGES = "python3,python3-venv,libstdc++6"
USER = 1000
MOST_FIRST_FIGURE_S = 60.0


@dataclass(frozen=True)
class Demo:
    """The wall times of one demo in s, and the digest of its tables."""

    first_figure_s: float
    whole_s: float
    digest: str


def root(suite: str, stale: bool = False) -> Path:
    """The tar of a clean root; made once. ``stale``: also from a mirror whose release file has expired."""
    made = FOLDER / f"{suite}.tar"
    if not made.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = made.with_suffix(".part.tar")
        accepted = ['--aptopt=Acquire::Check-Valid-Until "false"'] if stale else []
        command = ["mmdebstrap", "-q", "--variant=minbase", f"--include={PACKAGES}", *accepted, suite, str(part)]
        image.run(command, f"mmdebstrap could not make Debian {suite}")
        part.rename(made)
    return made


def install(folder: Path, wheels: Path) -> None:
    """Install the wheel and its requirements into an environment of the root in ``folder``, by the root's Python and
    pip."""
    script = (
        f"mkdir -p /home/user && python3 -m venv /home/user/env && chown -R {USER}:{USER} /home/user && "
        "/home/user/env/bin/pip install -q --no-index --find-links /wheels /wheels/mltcp_testbed-*.whl"
    )
    image.run(["cp", "-r", str(wheels), f"{folder}/wheels"], "the wheels could not be copied")
    image.run(["chroot", str(folder), "sh", "-ec", script], "pip could not install the wheel")


def demo(folder: Path) -> Demo:
    """Run it as a user of the root. Raises `MachineError` where it fails."""
    home = folder / "home/user"
    mounts = (
        f'mount -t proc proc "{folder}/proc" && mkdir -p "{folder}/dev" && mount --bind /dev/null "{folder}/dev/null"'
    )
    enter = (
        f'exec chroot --userspec={USER}:{USER} "{folder}" env -i HOME=/home/user PATH=/usr/bin:/bin LANG=C.UTF-8 sh -c'
    )
    command = f"{mounts} && {enter} 'cd /home/user && exec env/bin/mltcp demo'"
    begun, first = time.monotonic(), 0.0
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--net", "sh", "-ec", command], stdout=log, stderr=log
        )
        while process.poll() is None:
            if not first and any(home.glob("results/*/figures/*.png")):
                first = time.monotonic() - begun
            time.sleep(0.1)
    if process.returncode:
        raise MachineError(f"the demo ended with code {process.returncode}:\n{(home / 'log').read_text()[-2000:]}")
    digest = hashlib.sha256()
    for path in sorted(home.glob("results/**/iterations.csv")):
        digest.update(path.read_bytes())
    return Demo(first, time.monotonic() - begun, digest.hexdigest())


def python_of(folder: Path) -> str:
    """Return the Python version of the root: ``3.13``."""
    return image.run(
        ["chroot", str(folder), "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], "no Python"
    ).strip()


def once(suite: str, stale: bool = False) -> tuple[str, Demo]:
    """Run the demo in a fresh root; return its Python version, and the result."""
    made = root(suite, stale)
    with tempfile.TemporaryDirectory(prefix=f"{suite}-", dir=FOLDER) as name:
        folder = Path(name)
        image.run(["tar", "-xf", str(made), "-C", name, "--exclude=./dev/*"], "the root could not be unpacked")
        folder.chmod(0o755)
        (folder / "dev/null").touch()
        version = python_of(folder)
        wheels = FOLDER / f"wheels-{version}"
        wheels.mkdir(exist_ok=True)
        image.requirements(wheels, version)
        image.own_wheel(wheels)
        install(folder, wheels)
        return version, demo(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demos. Returns an exit code: 1 if a first figure is late, or if digests of one Python version differ."""
    parser = argparse.ArgumentParser(prog="clean_roots", description="The wheel's demo on clean roots of Debian.")
    parser.add_argument("suite", nargs="+", help="Debian suite, such as bookworm")
    parser.add_argument(
        "--times", type=int, default=1, metavar="N", help="fresh roots of each suite (default: %(default)s)"
    )
    parser.add_argument(
        "--stale-mirror", action="store_true", help="accept a release file that has expired (default: refused)"
    )
    options = parser.parse_args(argv)
    digests: dict[str, set[str]] = {}
    late = False
    try:
        check_tools({"mmdebstrap": "mmdebstrap", "unshare": "util-linux"}, "clean roots")
        if os.geteuid() != 0:
            raise MachineError("clean roots are entered by chroot: run this as root.")
        for suite in options.suite:
            for _ in range(options.times):
                version, took = once(suite, options.stale_mirror)
                digests.setdefault(version, set()).add(took.digest)
                late |= not 0 < took.first_figure_s <= MOST_FIRST_FIGURE_S
                print(
                    f"{suite} Python {version}: first figure {took.first_figure_s:.1f} s, all {took.whole_s:.1f} s, {took.digest[:16]}",
                    flush=True,
                )
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return EXIT_FAILED if late or any(len(found) > 1 for found in digests.values()) else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
