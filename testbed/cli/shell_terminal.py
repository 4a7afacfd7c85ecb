"""The terminal of a run's shell: that of this process, or a pipe."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from testbed.backends import Backend
from testbed.backends.visit import Visit, Visitable, Visited
from testbed.core.runs.events import Output, Prompt
from testbed.core.runs.shell import Answer, ShellRequest

LONGEST_WAIT_S = 1.0  # seconds between two lines of a command, for any virtual time between them
GOES_ON = ("run", "pause", "exit", "quit")  # lines after which the run has the terminal


class Shown(Protocol):
    """A display that shares the terminal with a shell."""

    def hide(self) -> None: ...
    def show(self) -> None: ...


class Display:
    """The display of a command's runs, if there is one at the moment."""

    def __init__(self) -> None:
        self._shown: Shown | None = None

    @contextlib.contextmanager
    def of(self, shown: Shown) -> Iterator[None]:
        """Inside the block it is this one."""
        self._shown = shown
        try:
            yield
        finally:
            self._shown = None

    def hide(self) -> None:
        if self._shown is not None:
            self._shown.hide()

    def show(self) -> None:
        if self._shown is not None:
            self._shown.show()


class Terminal:
    """Print the output of a shell, and read its lines.

    On a terminal, lines are edited and kept (readline), and Ctrl-C ends the running command. A command that prints line
    after line under virtual time, such as ``ping``, prints no faster than on a real clock. From a pipe, each line is
    printed after its prompt, without delays.
    """

    def __init__(self, display: Display) -> None:
        self.display = display
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self.interrupted = False
        self.usual: Any = None  # the handler of SIGINT outside commands
        self.last: tuple[int, float] | None = None  # virtual and wall time of the running command's last line
        if self.interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # input() uses it

    def visit(self, backend: Backend, request: ShellRequest) -> Visited:
        """``backend`` with a shell in its runs."""
        return Visited(cast(Visitable, backend), Visit(request, self.answer))

    def answer(self, event: Prompt | Output) -> Answer:
        """Print an `Output`, or read a line for a `Prompt`; return the answer to the shell."""
        if isinstance(event, Prompt):
            return Answer(self._read(event.text))
        if event.number and event.text:
            self._wait(event.at_ns)
        print(event.text, end="", flush=True)
        if not event.number:
            return Answer()
        interrupted, self.interrupted = self.interrupted, False
        return Answer(interrupt=interrupted)

    def _read(self, prompt: str) -> str | None:
        self.display.hide()
        self.last = None
        line = self._typed(prompt) if self.interactive else self._piped(prompt)
        if line is None or (line.split()[:1] and line.split()[0] in GOES_ON):
            self.display.show()
        elif self.interactive:
            self._listen(self._note)
        return line

    def _typed(self, prompt: str) -> str | None:
        """A line of a terminal. Ctrl-C begins another one."""
        while True:
            self._listen(signal.default_int_handler)
            try:
                return input(prompt)
            except EOFError:
                print()
                return None
            except KeyboardInterrupt:
                print("^C")
            finally:
                self._listen(None)

    def _piped(self, prompt: str) -> str | None:
        line = sys.stdin.readline()
        print(f"{prompt}{line.rstrip()}", flush=True)
        return line.rstrip("\n") if line else None

    def _listen(self, handler: Callable[..., Any] | None) -> None:
        """What Ctrl-C does from now on; None: as ever."""
        if self.usual is None:
            self.usual = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, self.usual if handler is None else handler)

    def _note(self, _number: int, _frame: object) -> None:
        """Handle Ctrl-C during a command: the first ends the command at its next request, the second ends the shell."""
        if self.interrupted:
            self._listen(None)
            signal.raise_signal(signal.SIGINT)
        self.interrupted = True

    def _wait(self, at_ns: int) -> None:
        """Keep pace with virtual time."""
        if self.interactive and self.last is not None:
            passed_s = (at_ns - self.last[0]) / 1e9
            until = min(self.last[1] + passed_s, time.monotonic() + LONGEST_WAIT_S)
            while not self.interrupted and (left_s := until - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.05))
        self.last = at_ns, time.monotonic()
