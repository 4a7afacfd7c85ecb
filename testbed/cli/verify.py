"""``mltcp verify RUN``: repeat a run from its manifest, and compare it byte for byte."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.cli import flags
from testbed.core import text
from testbed.core.errors import EXIT_FAILED, EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verify", type=Path, metavar="RUN", help="run directory, with its manifest.json")
    parser.add_argument(
        "--linux-source",
        type=Path,
        metavar="PATH",
        help="custom user-mode Linux: tarball or tree, 6.1 or newer (default: the shipped or installed one)",
    )
    flags.add(parser, "wall_limit")
    flags.add_external(
        parser, "permission to execute code (topology, congestion control, program) that the manifest names"
    )
    parser.add_argument("--dry-run", action="store_true", help="list of what would be done; nothing is run")


def run(parsed: argparse.Namespace) -> int:
    from testbed.linux import privileges

    privileges.give_up()  # it repeats what ran under virtual time
    # Imported after root is given up: compiled loops are kept in the caller's folder.
    from testbed import backends, spec
    from testbed.campaign import verify
    from testbed.cli import dry_run

    if parsed.dry_run:
        plan = verify.read(parsed.verify, trusted=parsed.allow_external_code)[0].plan
        print("\n".join(map(text.plain, dry_run.describe(plan, backends.foreseen("uml")))))
        return EXIT_OK
    limit = None if parsed.wall_limit is None else spec.read(None, {"wall_limit": parsed.wall_limit}).wall_limit
    lines = verify.repeat(parsed.verify, parsed.linux_source, limit, trusted=parsed.allow_external_code)
    print("\n".join(map(text.paragraph, lines or [f"{parsed.verify}: repeated, identical to the byte"])))
    return EXIT_FAILED if lines else EXIT_OK
