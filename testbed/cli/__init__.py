"""The command line: the commands of ``python -m testbed``, of which `testbed/run.py` is ``run``; one a file.

A command is a module with

``add_arguments(parser) -> None``
    its arguments, and what its help says of it;
``run(parsed) -> int``
    carries it out and gives the exit code; raises `TestbedError`.

Only the module of the command that is named is imported. What takes long to import is imported in `run`, so that nobody
waits for it to be told of a wrong flag.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from testbed.core import interruption, text
from testbed.core.arguments import Parser
from testbed.core.errors import RequestError, TestbedError

COMMANDS = {
    "run": "run one experiment",
    "sweep": "run the experiments of several files, in parallel",
    "schedule": "who gets which GPUs and when: job schedulers compared by a model",
    "calibrate": "the constants of the schedules' model, fitted to runs",
    "judge": "judge stored runs again, by the rules of this testbed",
    "doctor": "what this machine can do, found by trying",
    "kernel": "build the user-mode Linux kernel that `--on uml` runs",
    "cc": "congestion controls outside an experiment",
    "schema": "a JSON schema of experiment files, for editors",
}

EPILOG = "exit codes: 0 done, 1 a run failed, 2 the request was wrong, 3 this machine cannot do it, 4 the result is invalid, 130 interrupted"
INSIDE = {"calibrate": "schedule.calibrate"}  # commands that share a folder with another


class _Parser(Parser):
    """The parser of a command, which knows all of its flags."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is unknown here: argparse leaves it to the parser above, which names its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    interruption.listen()
    return interruption.guarded(lambda: _ended(arguments))


def _ended(arguments: Sequence[str]) -> int:
    try:
        if stray := text.first_stray(arguments):
            raise RequestError(stray)
        parsed = _parser("".join(arguments[:1])).parse_args(arguments)
        code: int = parsed.run(parsed)
        return code
    except TestbedError as error:
        print(text.paragraph(f"error: {error}"), file=sys.stderr)
        return error.exit_code


def _parser(named: str) -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m testbed", description="MLTCP testbed", epilog=EPILOG)
    commands = parser.add_subparsers(title="commands", required=True, parser_class=_Parser)
    for name, what in COMMANDS.items():
        own = commands.add_parser(name, help=what)
        if name == named:
            command = importlib.import_module(f"testbed.cli.{INSIDE.get(name, name)}")
            command.add_arguments(own)
            own.set_defaults(run=command.run)
    return parser
