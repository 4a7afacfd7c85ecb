"""``mltcp completion SHELL``: the script that completes commands, flags, their choices and file names."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.core.errors import EXIT_OK

SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="shell that reads the script")


def run(parsed: argparse.Namespace) -> int:
    import shtab

    from testbed.cli import commands

    whole = commands.parser(commands.COMMANDS, "mltcp")
    _complete_files(whole, shtab.FILE)
    print(shtab.complete(whole, parsed.shell))
    return EXIT_OK


def _complete_files(parser: argparse.ArgumentParser, how: object) -> None:
    """Arguments that are paths complete to names of files."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None  # shtab omits hidden actions
            for own in action.choices.values():
                _complete_files(own, how)
        elif action.type is Path or action.dest in ("file", "files", "out"):
            action.complete = how  # type: ignore[attr-defined]
