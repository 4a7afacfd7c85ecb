"""Run the tests with every Python and kernel of this machine: ``make matrix`` (``LINUX_SOURCE=…`` for a custom kernel
source).

Every Python from 3.11 on runs the unit tests in a separate environment (``build/matrix/``). Every ``linux-source``
package that apt knows is built as user-mode Linux and runs a few of the golden plans twice, which must give the same
bytes both times. If the compiler makes 32-bit programs (``gcc-multilib``), the testbed's modules are built for such a
kernel, too, and must use no routine that it lacks. Prints a line for each at the end; code 1 if one failed. Each takes
about ten minutes.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as `python tools/matrix.py`

from testbed.backends.usermode.source import OLDEST  # noqa: E402
from tools import golden  # noqa: E402

BUILD = ROOT / "build" / "matrix"
OLDEST_PYTHON = (3, 11)
FOLDERS = ("/usr/bin", "/usr/local/bin", "~/.local/bin", "~/.pyenv/versions/*/bin")
PLANS = ("01-reno", "02-mltcp-reno", "19-cassini")
DEBIAN_PACKAGE = re.compile(r"linux-source-(\d+)\.(\d+)")

Check = tuple[str, Callable[[], bool]]  # its name, and a function that returns True if it passes


def pythons() -> list[Path]:
    """Return one Python of each version from 3.11 on."""
    found: dict[tuple[int, int], Path] = {}
    for folder in (path for pattern in FOLDERS for path in sorted(glob.glob(os.path.expanduser(pattern)))):
        for path in Path(folder).glob("python3.*"):
            match = re.fullmatch(r"python3\.(\d+)", path.name)
            if match and (version := (3, int(match[1]))) >= OLDEST_PYTHON:
                found.setdefault(version, path)
    return [found[version] for version in sorted(found)]


def linux_packages(listed: str) -> list[str]:
    """The kernel sources among what ``apt-cache search`` lists, from the oldest that works on."""
    versions = {(int(match[1]), int(match[2])) for match in DEBIAN_PACKAGE.finditer(listed)}
    return [f"linux-source-{major}.{minor}" for major, minor in sorted(versions) if (major, minor) >= OLDEST]


def unit_tests(python: Path) -> bool:
    """The unit tier by this Python."""
    environment = BUILD / python.name
    return (
        succeeds([python, "-m", "venv", "--clear", environment])
        and succeeds([environment / "bin/pip", "install", "-qq", "--disable-pip-version-check", "-e", f"{ROOT}[dev]"])
        and succeeds(
            [environment / "bin/python", "-m", "pytest", "tests/unit", "-q", "-n", "auto", "--dist", "loadgroup"]
        )
    )


def fetched(package: str) -> Path | None:
    """The tarball in a ``linux-source`` package, downloaded and unpacked without root; None if apt cannot."""
    folder = BUILD / package
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("*.deb")) and not succeeds(["apt-get", "-qq", "download", package], folder):
        return None
    if not succeeds(["dpkg-deb", "--extract", next(folder.glob("*.deb")), folder]):
        return None
    return next(folder.glob("usr/src/linux-source-*.tar.*"), None)


def virtual_time(source: Path) -> bool:
    """Return True if this kernel builds, and repeats its runs to the byte.

    It has a separate cache, because runs use the newest kernel.
    """
    os.environ["XDG_CACHE_HOME"] = str(BUILD / "cache")
    if not succeeds([sys.executable, "-m", "testbed", "kernel", "--linux-source", source]):
        return False
    first, kernel = golden.run_all(PLANS, 1, source)
    again, _ = golden.run_all(PLANS, 1, source)
    lines = golden.differences(first, again)
    print("\n".join([f"Linux {kernel['version']}: {len(PLANS)} plans, twice", *lines]))
    return not lines


def thirty_two_bits(source: Path) -> bool:
    """Return True if the modules build without a warning for a 32-bit kernel of this source (a tarball), without
    64-bit divisions."""
    folder = BUILD / "32" / source.name
    tree, built, modules = folder / "source", folder / "built", folder / "modules"
    for one in (tree, built, modules):
        shutil.rmtree(one, ignore_errors=True)
        one.mkdir(parents=True)
    for path in [*(ROOT / "kernel").glob("*.[ch]"), ROOT / "kernel" / "Kbuild"]:
        shutil.copy(path, modules)
    make: list[str | Path] = ["make", "-s", "ARCH=um", "SUBARCH=i386", f"O={built}", "-C", tree]
    words = [*make, f"M={modules}", "W=1", "KCFLAGS=-Werror", "KBUILD_MODPOST_WARN=1", "modules"]
    if not succeeds(["tar", "--extract", f"--file={source}", f"--directory={tree}", "--strip-components=1"]):
        return False
    if not (succeeds([*make, "defconfig", "modules_prepare"]) and succeeds(words)):
        return False
    found = subprocess.run(["nm", *modules.glob("*.ko")], capture_output=True, text=True, check=True).stdout
    missing = sorted({word for word in found.split() if re.fullmatch(r"__u?(div|mod)[dt]i3", word)})
    print(
        f"32 bits: {len(list(modules.glob('*.ko')))} modules, routines that no kernel has: {', '.join(missing) or 'none'}"
    )
    return not missing


def makes_32_bit_programs() -> bool:
    words = ["gcc", "-m32", "-x", "c", "-", "-o", os.devnull]
    return (
        subprocess.run(
            words, input="int main(void) { return 0; }", text=True, capture_output=True, check=False
        ).returncode
        == 0
    )


def of_package(package: str, check: Callable[[Path], bool] = virtual_time) -> bool:
    """A check of the source that the package holds."""
    source = fetched(package)
    return source is not None and check(source)


def succeeds(command: Sequence[str | Path], folder: Path = ROOT) -> bool:
    """Run it, its output in the open."""
    print("+", *command, flush=True)
    return subprocess.run(command, cwd=folder, check=False).returncode == 0


def checks(source: Path | None) -> list[Check]:
    """Return the checks of all kernels of this machine, or only of the kernel ``source``; in both cases of all its
    Pythons."""
    found: list[Check] = [(python.name, partial(unit_tests, python)) for python in pythons()]
    if source is not None:
        return [*found, (str(source), partial(virtual_time, source))]
    listed = subprocess.run(
        ["apt-cache", "--names-only", "search", "^linux-source-"], capture_output=True, text=True, check=False
    ).stdout
    packages = linux_packages(listed)
    found += [(package, partial(of_package, package)) for package in packages]
    if packages and makes_32_bit_programs():
        found.append((f"{packages[-1]}, 32 bits", partial(of_package, packages[-1], thirty_two_bits)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--linux-source", type=Path, help="tarball or tree instead of the distribution's packages")
    parser.add_argument("--list", action="store_true", help="list of what would be tested; nothing is run")
    parsed = parser.parse_args()
    every = checks(parsed.linux_source)
    if parsed.list:
        print("\n".join(name for name, _ in every))
        return 0
    results = [(name, passes()) for name, passes in every]
    print("\n".join(f"{name:24} {'passed' if passed else 'FAILED'}" for name, passed in results))
    return 0 if all(passed for _, passed in results) else 1


if __name__ == "__main__":
    sys.exit(main())
