"""A run's shell as a process: a fork of the run's, which waits for it before the start and continues during the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import NoReturn

from mininet.log import lg, setLogLevel

from testbed.core.clock import sleep_until
from testbed.core.errors import TestbedError
from testbed.core.runs.events import Event, Left, Named
from testbed.core.runs.shell import ShellRequest
from testbed.linux.network import Network as AnyNetwork
from testbed.linux.participants.timeline import Machine
from testbed.linux.shell import script
from testbed.linux.shell.console import Console
from testbed.linux.shell.link import Answers, Link, Socket
from testbed.linux.shell.node import Host, Network

OPENS_NS = 10**9  # ns after boot: in the first second `ping` treats its clock as unset
NO_TIME_NS = 10**6  # ns of virtual time; a shell that took less has not changed the run


class Session:
    """The shell of one run."""

    made, host = Network, Host  # classes of its network and hosts

    def __init__(self, request: ShellRequest, answers: Answers, emit: Callable[[Event], None]) -> None:
        self.request, self.answers, self.emit = request, answers, emit
        self.pid = 0
        self.record = os.memfd_create("typed")

    def open(self, network: AnyNetwork, machine: Machine) -> Machine:
        """Start it, and wait for ``run`` if it opens before the start; the machine, later by what commands took of its time."""
        if isinstance(self.answers, Socket):
            self.emit(Named(tuple(node.name for node in network.hosts)))
            self.answers.hand_over([node.namespace for node in network.hosts])
        if machine.virtual_time:
            sleep_until(OPENS_NS)
        begun_ns = time.monotonic_ns()
        go, self_go = os.pipe()
        theirs, self.start = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go)
            os.close(self.start)
            self._serve(network, machine, self_go, theirs)
        os.close(self_go)
        os.close(theirs)
        if self.request.at_start and not os.read(go, 1):
            if self.request.script:
                raise TestbedError(f"{self.request.script} ended with an error, which is printed above.")
            raise TestbedError("the shell of the run ended by itself.")
        os.close(go)
        took_ns = time.monotonic_ns() - begun_ns
        if not machine.virtual_time or took_ns < NO_TIME_NS:
            return machine
        return replace(machine, later_ns=ceil(took_ns / 1e9) * 10**9)

    def started(self, start_ns: int) -> None:
        """The run's first iteration begins then."""
        os.write(self.start, start_ns.to_bytes(8, "little"))

    def typed(self) -> tuple[str, ...]:
        """The lines so far that may have changed the run."""
        os.lseek(self.record, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self.record)) as lines:
            return tuple(json.loads(line) for line in lines)

    def _serve(self, network: AnyNetwork, machine: Machine, go: int, start: int) -> NoReturn:
        """The copy."""
        try:
            self._talk(network, machine, go, start)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)

    def _talk(self, network: AnyNetwork, machine: Machine, go: int, start: int) -> None:
        link = Link(self.emit, self.answers)
        sys.stdout = link
        lg.manager.loggerDict[lg.name] = lg  # else its levels are those that it had when it was first asked
        setLogLevel("output")
        lg.handlers[0].setStream(link)
        if machine.virtual_time:
            _terminals()
        os.chdir(self.request.folder)
        assert isinstance(network, Network)
        Host.virtual_time = machine.virtual_time
        console = Console(network, link, virtual_time=machine.virtual_time, scripted=bool(self.request.script))
        if self.request.script:
            self._play(console)
        then: str | int | None = self.request.pause_ns
        if self.request.at_start:
            then = self._converse(console)
            os.write(go, b"g")
        start_ns = int.from_bytes(os.read(start, 8), "little")
        while isinstance(then, int):
            sleep_until(start_ns + then + 1)  # all that happens at that instant has happened
            console.begun_ns = start_ns
            then = self._converse(console)
        sys.exit(0)

    def _play(self, console: Console) -> NoReturn:
        """Execute the script, and leave."""
        ended = script.play(Path(self.request.script or ""), console)
        console.link.drain()
        if not ended:
            sys.exit(1)
        self.emit(Left(paused=False))
        sys.exit(0)

    def _converse(self, console: Console) -> str | int:
        """Execute commands; return the time or line to continue with. Ends the process if the user leaves."""
        then = console.converse()
        os.write(self.record, "".join(json.dumps(line) + "\n" for line in console.typed).encode())
        console.typed.clear()
        if then is None:
            self.emit(Left(console.begun_ns is not None))
            sys.exit(0)
        return then


def _terminals() -> None:
    """User-mode Linux has no pseudo-terminals before they are mounted."""
    if not os.path.ismount("/dev/pts"):
        Path("/dev/pts").mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "devpts", "devpts", "/dev/pts"], check=True)
