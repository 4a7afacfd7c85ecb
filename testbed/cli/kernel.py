"""Build the user-mode Linux kernel that `--on uml` runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.core.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--linux-source",
        type=Path,
        metavar="PATH",
        help="a tarball or tree of Linux 6.1 or newer (the distribution's newest package)",
    )
    parser.add_argument("--if-missing", action="store_true", help="be content with any usable one")


def run(parsed: argparse.Namespace) -> int:
    from testbed.backends.usermode import kernel
    from testbed.linux import privileges

    privileges.give_up()

    def say(line: str) -> None:
        print(line, flush=True)

    if parsed.if_missing and kernel.is_there():
        return EXIT_OK
    built = kernel.ensure(parsed.linux_source, say)
    if not parsed.if_missing:
        say(f"Linux {built.identity.version} ({built.identity.source}) in {built.folder}")
    return EXIT_OK
