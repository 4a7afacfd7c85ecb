"""``make capsule``: one archive that gives the demo's numbers without network, in ten years.

``dist/mltcp-testbed-VERSION-capsule.tar`` has one folder::

    INDEX.json     what each file is, where it comes from, its SHA-256 and size
    SHA256SUMS     the same digests, for `sha256sum -c`
    restore        a script for /bin/sh: `./restore` (the image's root file system), `./restore --wheels` (Python 3.11 of your own)
    wheels/        the testbed's wheel with its kernel, and the wheels of tools/requirements.txt
    kernel/        the kernel's source as Debian has it; configuration and edits are in the testbed's source
    source/        the testbed's source at this commit
    image/         the container image, for `podman load` and `docker load`
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed import __version__
from testbed.backends.usermode import shipped
from testbed.core.errors import EXIT_OK, MachineError, TestbedError
from tools import image
from tools.checksums import digest, write

ROOT = Path(__file__).parents[1]
NAME = f"mltcp-testbed-{__version__}-capsule"
RESTORE = Path(__file__).with_name("restore.sh")


def kernel_source(into: Path) -> None:
    """The package that the release's kernel is built from. Raises `MachineError` where apt has another version."""
    package, _, wanted = shipped.release().source.partition(" ")
    done = subprocess.run(
        ["apt-get", "-q", "download", f"{package}={wanted}"], cwd=into, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MachineError(
            f"apt has no {package} {wanted}, from which the release's kernel is built: {done.stderr.strip()[-300:]}. "
            "https://snapshot.debian.org keeps it: download the .deb, and name it with --kernel-source."
        )


def describe(path: Path) -> tuple[str, str]:
    """Return the content and the origin of a file of the capsule."""
    folder = path.parts[0]
    if folder == "wheels":
        own = path.name.startswith("mltcp_testbed-")
        return (
            ("the testbed, with its kernel", "this commit")
            if own
            else ("a pinned package", "PyPI, tools/requirements.txt")
        )
    texts = {
        "kernel": ("the kernel's source", shipped.release().source),
        "source": ("the testbed's source", "this commit"),
        "image": ("the container image", "Containerfile"),
        "restore": ("restores the capsule", "tools/restore.sh"),
    }
    return texts[folder]


def index(folder: Path, commit: str) -> None:
    """Write ``INDEX.json`` and ``SHA256SUMS`` of a capsule's folder."""
    files = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        what, origin = describe(name)
        files.append(
            {"path": str(name), "what": what, "from": origin, "bytes": path.stat().st_size, "sha256": digest(path)}
        )
    kernel = shipped.release()
    about = {
        "name": NAME, "version": __version__, "commit": commit, "python": image.PYTHON, "kernel_sha256": kernel.image_sha256,
        "kernel_compiler": kernel.compiler, "files": files,
    }  # fmt: skip
    (folder / "INDEX.json").write_text(json.dumps(about, indent=1) + "\n")
    write(folder)


def build(into: Path, kernel_deb: Path | None = None) -> Path:
    """The capsule, from the image and the wheels that `make image` left."""
    archive = image.CONTEXT / image.ARCHIVE
    if not archive.exists() or not list((image.CONTEXT / "wheels").glob("mltcp_testbed-*.whl")):
        raise MachineError("there is no image yet: `make image`.")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="capsule-", dir=into) as work:
        folder = Path(work) / NAME
        for name in ("kernel", "source", "image"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(image.CONTEXT / "wheels", folder / "wheels")
        shutil.copy(archive, folder / "image")
        if kernel_deb is None:
            kernel_source(folder / "kernel")
        else:
            shutil.copy(kernel_deb, folder / "kernel")
        commit = _git("rev-parse", "HEAD")
        (folder / "source" / f"mltcp-testbed-{__version__}.tar").write_bytes(
            subprocess.run(
                ["git", "archive", f"--prefix=mltcp-testbed-{__version__}/", "HEAD"],
                cwd=ROOT,
                capture_output=True,
                check=True,
            ).stdout
        )
        shutil.copy(RESTORE, folder / "restore")
        (folder / "restore").chmod(0o755)
        index(folder, commit)
        made = into / f"{NAME}.tar"
        with tarfile.open(made, "w") as tar:
            tar.add(folder, NAME)
    return made


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Build the capsule. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="capsule", description="One archive that restores without network.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="folder for the archive (default: dist)"
    )
    parser.add_argument(
        "--kernel-source", type=Path, metavar="DEB", help="Debian's package of the kernel's source (default: from apt)"
    )
    parser.add_argument(
        "--keep-image", action="store_true", help="use of the existing image and wheels (default: built again)"
    )
    options = parser.parse_args(argv)
    if not options.keep_image and (code := image.main([])):
        return code
    try:
        made = build(options.out, options.kernel_source)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{made}: {made.stat().st_size / 1e6:.0f} MB")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
