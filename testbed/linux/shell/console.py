"""Mininet's command line (`mininet.cli.CLI`) over a `Link`, with ``run`` and ``pause``."""

from __future__ import annotations

import select
import subprocess
import time
from cmd import Cmd
from typing import IO, Any, cast

from mininet.cli import CLI
from mininet.node import Node

from testbed.core.errors import TestbedError
from testbed.core.units import Duration, UnitError
from testbed.linux.shell.link import Link, current, printable
from testbed.linux.shell.node import Network, environment

# Commands without changes of the network, which take no virtual time.
LOOK = {
    "",
    "?",
    "EOF",
    "dump",
    "exit",
    "help",
    "intfs",
    "links",
    "net",
    "nodes",
    "pause",
    "ports",
    "quit",
    "run",
    "time",
}
FIRST_LOOK_S, GROWTH = (
    1.0,
    0.1,
)  # seconds until the first check for an interruption of a silent command, and growth of the interval
NO_WINDOWS = "there are no windows here. On `host`, type in another terminal: ip netns exec NODE COMMAND\n"
HELP = """\
  run            start the experiment, or go on after a pause, to its end
  pause TIME     the same, and stop TIME after the start (virtual time)
  exit           end everything; a run that has not ended is not stored
  (end of input: exit before the start, run in a pause)
"""


class Console(CLI):  # type: ignore[misc]
    """The command line of one run. ``then`` is the next action: "run", a pause in ns after the start, or None to leave."""

    def __init__(self, network: Network, link: Link, *, virtual_time: bool, scripted: bool = False) -> None:
        self.mn, self.locals, self.inputFile = network, {"net": network}, None
        self.link, self.virtual_time, self.scripted = link, virtual_time, scripted
        self.begun_ns: int | None = None  # of the run
        self.typed: list[str] = []  # that may have changed the run
        self.then: str | int | None = None
        Cmd.__init__(
            self, stdin=cast(IO[str], link), stdout=cast(IO[str], link)
        )  # the CLI's own constructor polls a terminal
        self.use_rawinput = False

    def converse(self) -> str | int | None:
        """Execute commands until one ends the shell; return the time or line to continue with, or None to leave."""
        self.then = None
        stop = None
        while not stop:
            line = self.link.prompt(CLI.prompt)
            stop = self.obey("EOF" if line is None else line)
        return self.then

    def obey(self, line: str) -> Any:
        """Execute one line."""
        line = self.precmd(line).strip()
        if line.split(" ")[0].split("?")[0] not in LOOK:
            self.typed.append(line)
        try:
            return self.onecmd(line)
        except TestbedError as error:
            self.link.write(f"{error}\n")
            return None
        except Exception as error:  # a failed command must not end the shell
            self.link.write(f"{type(error).__name__}: {error}\n")
            return None

    def isatty(self) -> bool:
        return False

    def do_help(self, line: str) -> None:
        "List the commands."
        super().do_help(line)
        if not line:
            self.link.write(HELP)

    def do_run(self, _line: str) -> bool:
        "Start the experiment, or go on with it."
        if self.scripted:
            self.link.write("a script has no experiment. Use exit, which goes on with the script.\n")
            return False
        self.then = "run"
        return True

    def do_pause(self, line: str) -> bool:
        """Start the experiment, or go on with it, and stop so long after its start (pause 10s)."""
        if self.scripted:
            return self.do_run(line)
        if not self.virtual_time:
            self.link.write("a real clock does not stop. Use --on uml, whose virtual time does.\n")
            return False
        try:
            at_ns = int(Duration.parse(line.strip()))
        except UnitError as error:
            self.link.write(f"{error} Give the time after the start: pause 10s\n")
            return False
        if self.begun_ns is not None and at_ns <= time.monotonic_ns() - self.begun_ns:
            self.link.write(f"the run is at {(time.monotonic_ns() - self.begun_ns) / 1e9:.3f} s already.\n")
            return False
        self.then = at_ns
        return True

    def do_EOF(self, line: str) -> Any:
        """Handle the end of input: exit; in a pause: continue the run."""
        return self.do_exit(line) if self.begun_ns is None else self.do_run(line)

    def do_sh(self, line: str) -> None:
        "Run a command outside the nodes (sh COMMAND)."
        with subprocess.Popen(
            ["sh", "-c", line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment()
        ) as process:  # fmt: skip
            assert process.stdout is not None
            fd, watch = process.stdout.fileno(), _Watch(self.link)
            while data := watch.read(fd):
                if not watch.print(data):
                    process.terminate()

    def waitForNode(self, node: Node) -> None:
        """Print the output of a node's command until it ends or is interrupted."""
        watch = _Watch(self.link)
        while node.waiting:
            text = node.monitor() if watch.readable(node.stdout.fileno()) else ""
            if not watch.print(text.encode()):
                node.sendInt()

    def do_xterm(self, _line: str, term: str = "xterm") -> None:
        """Print that there are no windows."""
        self.link.write(NO_WINDOWS)

    do_x = do_gterm = do_xterm


class _Watch:
    """Of a running command: its output, and regular checks for an interruption."""

    def __init__(self, link: Link) -> None:
        self.link, self.begun_s = link, time.monotonic()

    def readable(self, fd: int) -> bool:
        """Whether there is something to read before it is time to look."""
        patience_s = max(FIRST_LOOK_S, GROWTH * (time.monotonic() - self.begun_s))
        return bool(select.select([fd], [], [], patience_s)[0])

    def read(self, fd: int) -> bytes:
        """Return the next bytes of ``fd``, or none at its end; polls for an interruption while waiting."""
        while not self.readable(fd):
            if not self.print(b""):
                return b""
        return current(fd)

    def print(self, data: bytes) -> bool:
        """Whether the command is still running."""
        return self.link.goes_on(printable(data))
