"""The protocol between a shell inside a run and its terminal: events out (`testbed.core.runs.events`), answers in."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from testbed.core.runs.events import Event, Output, Prompt
from testbed.core.runs.shell import Answer, from_names

MOST = 3000  # characters of one event: on a console, longer lines of two processes would mix
DESCRIPTORS = 200  # in one message of a socket; the kernel takes 253


class Answers(Protocol):
    """A source of answers to the shell's questions."""

    def get(self, number: int) -> bytes:
        """The answer to this question; waits for it."""
        ...


class Files(Answers):
    """Answers in user-mode Linux: each is a set of file names in a folder of the host.

    Polling takes no virtual time; the host stops the guest meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def get(self, number: int) -> bytes:
        while (answer := from_names(number, os.listdir(self.folder))) is None:
            pass
        return answer


class Socket(Answers):
    """Answers on this machine's kernel: lines of a socket, which also passes descriptors of namespaces to the parent
    process."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.lines = self.socket.makefile("rb")

    def get(self, number: int) -> bytes:
        return self.lines.readline() or b'{"line":null}'

    def hand_over(self, namespaces: list[int]) -> None:
        """Send descriptors, in order."""
        for first in range(0, len(namespaces), DESCRIPTORS):
            socket.send_fds(self.socket, [b"n"], namespaces[first : first + DESCRIPTORS])


class Link(io.TextIOBase):
    """The shell's terminal: a stream of text, and typed lines."""

    def __init__(self, emit: Callable[[Event], None], answers: Answers) -> None:
        self.emit, self.answers = emit, answers
        self.asked = 0
        self.kept = ""

    def write(self, text: str) -> int:
        """Print; a line that has not ended is kept until it has, or something is asked."""
        complete, end, rest = (self.kept + text.replace("\r\n", "\n")).rpartition("\n")
        self.kept = rest
        self._print(complete + end)
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines are sent without it."""

    def _print(self, text: str) -> None:
        for first in range(0, len(text), MOST):
            self.emit(Output(0, text[first : first + MOST], time.monotonic_ns()))

    def drain(self) -> None:
        """Print a line that has not ended."""
        kept, self.kept = self.kept, ""
        self._print(kept)

    def _ask(self, event: Event) -> Answer:
        self.emit(event)
        return msgspec.json.decode(self.answers.get(self.asked), type=Answer)

    def prompt(self, text: str) -> str | None:
        """A line that is typed; None: there will be no more."""
        self.drain()
        self.asked += 1
        return self._ask(Prompt(self.asked, text)).line

    def goes_on(self, text: str) -> bool:
        """Print output of a running command; return True unless it must be interrupted."""
        self.drain()
        self.asked += 1
        self._print(text[:-MOST])
        return not self._ask(Output(self.asked, text[-MOST:], time.monotonic_ns())).interrupt


def printable(data: bytes) -> str:
    """Return the output of a program as text with plain line ends."""
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def current(fd: int, most: int = 1 << 16) -> bytes:
    """Return the bytes that ``fd`` has now, at most ``most``; empty at its end."""
    try:
        return os.read(fd, most)
    except OSError:  # a terminal without a process
        return b""
