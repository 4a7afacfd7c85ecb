"""Kinds of errors, and the exit code of each.

::

    TestbedError            1  the run failed
    ├── LostError           1  the connection to another machine ended too early
    ├── LoadError           1  results cannot be used
    ├── TransportError      1  a worker's peer is gone, or sent an invalid message
    ├── RequestError        2  the request was wrong
    │   ├── UnitError, OptionError, TomlError, FileError            the text of an argument, a named file
    │   ├── TraceError, JobError, TopologyError, ScheduleError           the content of the request
    │   ├── UnknownContentError, ContentError     unknown content, or an invalid file
    │   ├── TooLargeError         more than its backend takes
    │   └── VirtualTimeOnlyError  this experiment needs virtual time
    └── MachineError        3  this machine cannot do it
        └── UnreachableError   no connection to another machine

Each states what is wrong, and where. A caller adds to the place (`within`) and passes the error on.
Code 4 (it ran, but the result is invalid) is no error: it is a verdict. Code 130 is an interrupted command.
A message is one readable paragraph: what, where, what to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

EXIT_OK, EXIT_FAILED, EXIT_REQUEST, EXIT_MACHINE, EXIT_INVALID = range(5)
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it; for SIGTERM and SIGHUP, too


class TestbedError(Exception):
    """A run failed."""

    __test__ = False  # the name begins with Test, but pytest has nothing to collect here
    exit_code = EXIT_FAILED

    def __init__(self, what: str = "", where: str = "") -> None:
        super().__init__(what)
        self.what, self.where = what, where

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


@contextlib.contextmanager
def within(where: str, joint: str = ": ") -> Iterator[None]:
    """Errors from inside happened at ``where``: a file, one of its fields. It precedes the place that they have already."""
    try:
        yield
    except TestbedError as error:
        error.where = f"{where}{joint}{error.where}" if error.where else where
        raise


class LostError(TestbedError):
    """The connection to another machine was lost; elsewhere, or later, the same may work."""


class RequestError(TestbedError):
    """The request is wrong; repeating it unchanged will not help."""

    exit_code = EXIT_REQUEST


class VirtualTimeOnlyError(RequestError):
    """The experiment's file has no form for a real clock, and gives the reason."""


@contextlib.contextmanager
def within_unless_named(source: str | None) -> Iterator[None]:
    """Prefix a `RequestError` with ``source`` (a file, an experiment), as `within` does, unless its message already
    names it."""
    try:
        yield
    except RequestError as error:
        if source is None or source in str(error):
            raise
        with within(source):
            raise


class MachineError(TestbedError):
    """The request is valid, but this machine cannot run it. The message states a remedy."""

    exit_code = EXIT_MACHINE


class UnreachableError(MachineError):
    """Another machine cannot be reached, is not the one it should be, or does not let us in."""


def error_for_exit(code: int, message: str) -> TestbedError:
    """The error that a part of the run, in another process, ended with."""
    kinds = {EXIT_REQUEST: RequestError, EXIT_MACHINE: MachineError}
    return kinds.get(code, TestbedError)(message)
