"""``python -m workloads``: traces made and looked at; see `testbed.cli.traces`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from testbed.cli import traces
from testbed.core import interruption, text
from testbed.core.arguments import Parser
from testbed.core.errors import EXIT_REQUEST, TestbedError
from testbed.traces.trace import TraceError


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit code: 0 done, 2 the request or a file was wrong, 130 interrupted."""
    return interruption.guarded(lambda: _ended(arguments))


def _ended(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="python -m workloads", description="Traces of training jobs",
        epilog="exit codes: 0 done, 2 the request or a file was wrong, 130 interrupted",
    )  # fmt: skip
    known = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    for name in traces.names():
        command = traces.find(name)
        own = known.add_parser(name, help=command.HELP, description=command.__doc__)
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    try:
        if stray := text.first_stray(arguments):
            raise TraceError(stray)
        parsed = parser.parse_args(arguments)
        code: int = parsed.run(parsed)
        return code
    except (TestbedError, OSError) as error:
        print(text.paragraph(f"error: {error}"), file=sys.stderr)
        return EXIT_REQUEST
