"""The user-mode Linux kernel that `--on uml` runs: build one, or print which one is used."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.core.errors import EXIT_OK, RequestError

if TYPE_CHECKING:
    from testbed.backends.usermode.kernel import Kernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--linux-source",
        type=Path,
        metavar="PATH",
        help="tarball or tree of Linux 6.1 or newer (default: the distribution's newest package)",
    )
    parser.add_argument("--if-missing", action="store_true", help="no build if a usable kernel is there")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--build", action="store_true", help="new build on this machine, which runs use instead of the shipped kernel"
    )
    which.add_argument(
        "--wheel", type=Path, metavar="FILE", help="wheel whose kernel a checkout uses; nothing is compiled"
    )
    which.add_argument("--shipped", action="store_true", help="return to the kernel that the installed wheel ships")


def run(parsed: argparse.Namespace) -> int:
    from testbed.backends.usermode import kernel
    from testbed.linux import privileges

    privileges.give_up()

    def say(line: str) -> None:
        print(line, flush=True)

    if parsed.shipped and kernel.shipped() is None:
        raise RequestError("--shipped: this installation ships no kernel. The wheel for x86-64 Linux does.")
    if parsed.shipped:
        kernel.choose(None)
    if parsed.if_missing and kernel.is_there():
        return EXIT_OK
    if kernel.shipped() is not None and not (parsed.build or parsed.wheel or parsed.linux_source):
        found = kernel.find()
        origin = "shipped with this installation; `--build` builds one here" if found.is_shipped else "built here"
        say(f"{_name(found)} ({origin})")
        return EXIT_OK
    built = kernel.add(parsed.wheel) if parsed.wheel else kernel.ensure(parsed.linux_source, say)
    if parsed.build or parsed.wheel or kernel.shipped() is not None or kernel.chosen() is not None:
        kernel.choose(built)
    if not parsed.if_missing:
        say(_name(built))
    return EXIT_OK


def _name(found: Kernel) -> str:
    from testbed.backends.usermode import shipped

    same = shipped.is_release(found.identity)
    return (
        f"Linux {found.identity.version} ({found.identity.source}) in {found.folder}, "
        f"SHA-256 {found.identity.image_sha256[:16]}: {'' if same else 'not '}the kernel of the release"
    )
