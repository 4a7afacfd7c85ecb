"""The command line: ``mltcp COMMAND``, or ``python -m testbed COMMAND``; `testbed/run.py` is ``run``. A command is one file here.

`testbed.cli.commands` has the table of them, and the one parser. Only the module of the command that is named is imported.
What takes long to import is imported in its `run`, so that a wrong flag is reported at once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from testbed.cli import commands
from testbed.core import interruption, text
from testbed.core.errors import EXIT_REQUEST, RequestError, TestbedError

_COMMAND_LINE = re.compile("^the command line: (?:([a-z_]+): )?")  # the place of an error, and the field of a flag


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    interruption.listen()
    return interruption.guarded(lambda: _ended(list(arguments)))


def _ended(arguments: list[str]) -> int:
    name = "".join(arguments[:1])
    try:
        if stray := text.first_stray(arguments):
            raise RequestError(stray)
        commands.check(arguments)
        if name in commands.COMMANDS and commands.COMMANDS[name].group == "figures":
            # Matrices are small: threads cost more than they save, and add up in another order where there are more cores.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        parsed = commands.parser([name]).parse_args(arguments)
        code: int = parsed.run(parsed)
        return code
    except TestbedError as error:
        return _refused(error, error.exit_code)
    except OSError as error:  # a file that a trace or figure is read from or written to
        if name not in commands.COMMANDS or commands.COMMANDS[name].group == "experiments":
            raise
        return _refused(
            f"{text.shown(error.filename or '')}: {error.strerror}. Name another file or folder.", EXIT_REQUEST
        )


def _refused(why: object, code: int) -> int:
    from testbed.core import terminal

    why = _COMMAND_LINE.sub(lambda place: f"--{place[1].replace('_', '-')}: " if place[1] else "", str(why))
    if sys.stderr.isatty() or "COLUMNS" in os.environ:
        terminal.say_error(f"error: {why}")
    else:  # a log has no width
        print(text.paragraph(f"error: {why}"), file=sys.stderr)
    return code
