"""``make image``: the container image of `mltcp`, and ``build/image/mltcp-testbed.tar``, which docker and podman load.

The context ``build/image`` has the wheels: those of ``tools/requirements.txt`` for Debian 12's Python, held against their hashes,
and the checkout's own. No container runs while the image is built (``buildah --isolation chroot``). The base comes
from a registry, or from Debian's packages (mmdebstrap) where no registry can be reached.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed import __version__
from testbed.backends.usermode.build import check_tools
from testbed.core.errors import EXIT_OK, MachineError, TestbedError

ROOT = Path(__file__).parents[1]
CONTEXT = ROOT / "build" / "image"
NAME = "localhost/mltcp-testbed"
ARCHIVE = "mltcp-testbed.tar"
REGISTRY_BASE = "docker.io/library/debian:12-slim"
OWN_BASE = "localhost/mltcp-debian:12"
MOST_BYTES = 400_000_000
TOOLS = {"buildah": "buildah"}
PYTHON = "3.11"  # Debian 12's, which reproduces the README's numbers
GLIBC = (5, 12, 17, 24, 27, 28, 31, 34, 35, 36)  # minor versions that wheels are built for, up to Debian 12's
PACKAGES = "python3,python3-venv,binutils,libstdc++6,usr-is-merged"
UNUSED = (
    "share/doc",
    "share/man",
    "share/locale",
    "share/info",
    "share/i18n",
    "lib/x86_64-linux-gnu/gconv",
)  # of the base's /usr
EPOCH = 1_735_689_600  # the time of all files of the base (1 January 2025)


def requirements(into: Path, python: str = PYTHON) -> None:
    """Download what ``tools/requirements.txt`` pins, for x86-64 and a Python version, unless that is done already."""
    pinned, done = ROOT / "tools/requirements.txt", into.with_name(f"{into.name}.txt")
    if done.exists() and done.read_bytes() == pinned.read_bytes():
        return
    platforms = [
        *(f"manylinux_2_{minor}_x86_64" for minor in GLIBC),
        "manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "linux_x86_64",
    ]  # fmt: skip
    run(
        [
            sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps",
            "--only-binary", ":all:", "--python-version", python, "--implementation", "cp", "--abi", f"cp{python.replace('.', '')}",
            "--abi", "abi3", "--abi", "none", *(word for name in platforms for word in ("--platform", name)),
            "-d", str(into), "-r", str(pinned),
        ],
        "pip could not download the wheels of tools/requirements.txt",
    )  # fmt: skip
    shutil.copy(pinned, done)


def own_wheel(into: Path) -> Path:
    """Build the checkout's wheel. Raises `MachineError` where it has no kernel inside."""
    for old in into.glob("mltcp_testbed-*.whl"):
        old.unlink()
    run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-w", str(into), str(ROOT)],
        "the wheel could not be built",
    )  # fmt: skip
    (found,) = into.glob("mltcp_testbed-*.whl")
    if "x86_64" not in found.name:
        raise MachineError(f"{found.name} has no kernel inside. Run `make setup`; `pip wheel -v .` prints the reason.")
    return found


def wheels(into: Path) -> Path:
    """Build the wheels of requirements and checkout in a folder; return the path of the checkout's."""
    into.mkdir(parents=True, exist_ok=True)
    requirements(into)
    return own_wheel(into)


def base() -> str:
    """The image to start from."""
    if subprocess.run(["buildah", "pull", "-q", REGISTRY_BASE], capture_output=True, check=False).returncode == 0:
        return REGISTRY_BASE
    print("no registry can be reached: the base is made of Debian's packages", flush=True)
    check_tools({"mmdebstrap": "mmdebstrap"}, "the image's base")
    with tempfile.TemporaryDirectory(prefix="mltcp-base-") as folder:
        root = Path(folder) / "base.tar"
        run(
            [
                "mmdebstrap", "-q", "--variant=essential", f"--include={PACKAGES}",
                "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",  # else Perl is needed to merge them
                *(f"--dpkgopt=path-exclude=/usr/{name}/*" for name in UNUSED), "bookworm", str(root),
            ],
            "mmdebstrap could not make Debian 12", SOURCE_DATE_EPOCH=str(EPOCH),
        )  # fmt: skip
        made = run(["buildah", "from", "scratch"], "buildah failed").strip()
        try:
            run(["buildah", "add", "-q", made, str(root), "/"], "the base could not be added to an image")
            run(["buildah", "commit", "-q", made, OWN_BASE], "the base could not be made an image")
        finally:
            subprocess.run(["buildah", "rm", made], capture_output=True, check=False)
    return OWN_BASE


def build(start: str) -> Path:
    """Build the image from the base ``start``; its archive. Raises `MachineError` where it is larger than `MOST_BYTES`."""
    tag = f"{NAME}:{__version__}"
    run(
        [
            "buildah", "build", "-q", "--isolation", "chroot", "--squash", "--timestamp", str(EPOCH), "--build-arg", f"BASE={start}",
            "-t", tag, "-t", f"{NAME}:latest", "-f", str(ROOT / "Containerfile"), str(CONTEXT),
        ],
        "the image could not be built",
    )  # fmt: skip
    archive = CONTEXT / ARCHIVE
    archive.unlink(missing_ok=True)
    run(["buildah", "push", "-q", tag, f"docker-archive:{archive}:{tag}"], "the image could not be saved")
    if (size := unpacked_bytes(archive)) > MOST_BYTES:
        raise MachineError(f"the image has {size / 1e6:.0f} MB; at most {MOST_BYTES / 1e6:.0f} MB are allowed.")
    return archive


def layers(archive: Path) -> list[str]:
    """Members of an image's archive that are its file system, the lowest first."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        found: list[str] = json.load(manifest)[0]["Layers"]
        return found


def unpacked_bytes(archive: Path) -> int:
    """Return the size in bytes of the image's file system."""
    with tarfile.open(archive) as tar:
        return sum(tar.getmember(name).size for name in layers(archive))


def run(command: Sequence[str], what: str, **variables: str) -> str:
    """Return the output of a program. Raises `MachineError` with its last lines if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    if done.returncode:
        raise MachineError(f"{what} ({command[0]}):\n" + "\n".join((done.stdout + done.stderr).splitlines()[-15:]))
    return done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Build the image. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="image", description="Build the container image of mltcp.")
    parser.add_argument(
        "--base", metavar="IMAGE", help="image to start from (default: Debian 12, from a registry or by mmdebstrap)"
    )
    options = parser.parse_args(argv)
    try:
        check_tools(TOOLS, "the image")
        print("wheels", flush=True)
        wheels(CONTEXT / "wheels")
        archive = build(options.base or base())
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{NAME}:{__version__}: {unpacked_bytes(archive) / 1e6:.0f} MB; {archive.relative_to(ROOT)}")
    print(f'podman run --rm -v "$PWD/results:/results" {NAME} demo')
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
