"""What can go wrong, and the exit code each kind ends the program with.

::

    TestbedError            1  the run failed
    ├── LostError           1  the connection to another machine ended too early
    ├── RequestError        2  the request was wrong
    │   └── VirtualTimeOnlyError  this experiment cannot be had against a real clock
    └── MachineError        3  this machine cannot do it
        └── UnreachableError   no connection to another machine came about

Code 4 (it ran, but the result is invalid) is no error: it is a verdict.
A message is one readable paragraph: what, where, what to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

EXIT_OK, EXIT_FAILED, EXIT_REQUEST, EXIT_MACHINE, EXIT_INVALID = range(5)


class TestbedError(Exception):
    """A run failed."""

    __test__ = False  # the name begins with Test, but pytest has nothing to collect here
    exit_code = EXIT_FAILED


class LostError(TestbedError):
    """The connection to another machine was lost; elsewhere, or later, the same may work."""


class RequestError(TestbedError):
    """What was asked for is wrong; asking again in the same words will not help."""

    exit_code = EXIT_REQUEST


class VirtualTimeOnlyError(RequestError):
    """The experiment's file says that there is no form of it for a real clock, and why."""


@contextlib.contextmanager
def said_of(source: str | None) -> Iterator[None]:
    """Put ``source`` (a file, an experiment) in front of a wrong request's message, if it is not named there."""
    try:
        yield
    except RequestError as error:
        if source is None or source in str(error):
            raise
        raise RequestError(f"{source}: {error}") from error


class MachineError(TestbedError):
    """What was asked for is fine, but this machine cannot do it; the message says what would."""

    exit_code = EXIT_MACHINE


class UnreachableError(MachineError):
    """Another machine cannot be reached, is not the one it should be, or does not let us in."""


def error_for_exit(code: int, message: str) -> TestbedError:
    """The error that a part of the run, in another process, ended with."""
    kinds = {EXIT_REQUEST: RequestError, EXIT_MACHINE: MachineError}
    return kinds.get(code, TestbedError)(message)
