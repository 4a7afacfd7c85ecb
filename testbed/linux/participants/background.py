"""Background traffic of a run: a process for each of its sources, their start and end, and the rows of their flows."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from testbed.core.errors import MachineError, TestbedError
from testbed.core.runs import rows
from testbed.core.runs.plan import Background, Plan
from testbed.linux import netns
from testbed.linux.network import Network
from testbed.linux.participants.child import Child, Module, child_environment, ending
from testbed.linux.participants.generator import PORT
from testbed.linux.participants.replay import WITH_LIBRARIES
from testbed.linux.participants.workers import wait_from_ns

LISTEN_S = 20.0  # of a program that serves
LINES = 5  # of a program's output, in messages
LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp


def check(plan: Plan) -> None:
    """The programs of its background traffic are here; raises `MachineError`."""
    for one in plan.background:
        for words in filter(None, (one.program, one.server)):
            if shutil.which(words[0], path=child_environment()["PATH"]) is None:
                raise MachineError(
                    f"background {one.label}: there is no program {words[0]} on this machine. Install it, or leave the traffic out."
                )


class _Program:
    """A program of the machine, and the one that serves it."""

    def __init__(self, plan: Background, network: Network) -> None:
        self.plan, self.network = plan, network
        self.output = tempfile.TemporaryFile(dir="/dev/shm")  # noqa: SIM115 (closed by `close`)
        self.server: subprocess.Popen[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.ended_ns: int | None = None
        self.begun_ns: int | None = None
        if plan.server:
            self.server = self._started(plan.server, plan.targets[0], subprocess.DEVNULL)

    def _started(self, words: Sequence[str], host: str, output: Any) -> subprocess.Popen[bytes]:
        with netns.entered(self.network[host].namespace):
            try:
                return subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=output if output == subprocess.DEVNULL else subprocess.STDOUT,
                    env=child_environment(), start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise TestbedError(
                    f"background {self.plan.label}: {words[0]} cannot be started: {error.strerror}. "
                    "Name an executable program, by its path if it is not on the PATH."
                ) from None

    def listen(self) -> None:
        """Wait until the server listens."""
        deadline = time.monotonic() + LISTEN_S
        while self.server is not None and not self._listens():
            if self.server.poll() is not None or time.monotonic() > deadline:
                raise TestbedError(
                    f"background {self.plan.label}: {self.plan.server[0]} does not listen on {self.plan.targets[0]}."
                )
            time.sleep(0.01)

    def _listens(self) -> bool:
        assert self.server is not None
        table = Path(f"/proc/{self.server.pid}/net/tcp")
        six = Path(f"/proc/{self.server.pid}/net/tcp6")
        text = table.read_text() + (six.read_text() if six.exists() else "")
        return any(line.split()[3] == LISTENING for line in text.splitlines() if line.split()[3:4] != ["st"])

    def begin(self, now_ns: int) -> None:
        self.begun_ns = now_ns
        address = self.network[self.plan.targets[0]].IP()
        words = [word.replace("{target}", address) for word in self.plan.program]
        self.process = self._started(words, self.plan.sources[0], self.output.fileno())

    def check(self, now_ns: int, stop_ns: int | None) -> None:
        """End it at ``stop_ns``. Raises `TestbedError` if it has failed."""
        if self.process is None or self.ended_ns is not None:
            return
        code = self.process.poll()
        if code is None and (stop_ns is None or now_ns < stop_ns):
            return
        self.ended_ns = now_ns
        if code is None:
            _kill(self.process)
        elif code:
            output = "\n".join(self._output().splitlines()[-LINES:])
            raise TestbedError(
                f"background {self.plan.label}: {' '.join(self.plan.program)} {ending(code)}."
                + (f" Its output ends:\n{output}" if output else "")
            )

    def _output(self) -> str:
        self.output.seek(0)
        return self.output.read().decode(errors="replace").strip()

    def row(self, start_ns: int) -> rows.BackgroundFlow:
        """Its start and end; for `iperf3` also the bytes that arrived."""
        received = 0
        if self.plan.kind == "iperf3" and self.ended_ns is not None:
            end = json.loads(self._output())["end"]
            received = int((end.get("sum_received") or end["sum"])["bytes"])
        begun = self.plan.start_ns if self.begun_ns is None else self.begun_ns - start_ns
        return rows.BackgroundFlow(
            self.plan.label, 0, self.plan.sources[0], self.plan.targets[0], 0, None, begun / 1e9,
            None if self.ended_ns is None else (self.ended_ns - start_ns) / 1e9, received, "",
        )  # fmt: skip

    def close(self) -> None:
        for process in filter(None, (self.process, self.server)):
            _kill(process)
        self.output.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With what it has started itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Sources:
    """All background traffic of a run; ends what it started when the block ends."""

    def __init__(self, plan: Plan, network: Network, *, virtual_time: bool) -> None:
        self.plan, self.network, self.virtual_time = plan, network, virtual_time
        self.generators: list[tuple[Background, Child]] = []
        self.programs: list[_Program] = []
        self.start_ns = 0

    def __enter__(self) -> Sources:
        try:
            for number, one in enumerate(self.plan.background):
                if one.program:
                    self.programs.append(_Program(one, self.network))
                else:
                    self.generators.append((one, self._generator(one, PORT + number)))
            for _, child in self.generators:
                _await_listening(child)
            for program in self.programs:
                program.listen()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for _, child in self.generators:
            child.close()
        for program in self.programs:
            program.close()

    def _generator(self, one: Background, port: int) -> Child:
        assert one.cc is not None
        hosts = dict.fromkeys((*one.sources, *one.targets))
        namespaces = {host: self.network[host].namespace for host in hosts}
        child = Child(
            f"background traffic {one.label}", Module("testbed.linux.participants.generator", copied=self.virtual_time),
            pass_fds=list(namespaces.values()), environment=WITH_LIBRARIES,
        )  # fmt: skip
        child.tell({
            "plan": msgspec.to_builtins(one), "congestion_control": self.network.name(one.cc.spec), "port": port,
            "addresses": {host: self.network[host].IP() for host in hosts}, "namespaces": namespaces,
        })  # fmt: skip
        return child

    def start(self, start_ns: int, participants: int) -> None:
        """``participants``: how many wait for the start before these do."""
        self.start_ns = start_ns
        for number, (_, child) in enumerate(self.generators, participants + 1):
            child.tell({"start_ns": start_ns, "wait_from_ns": wait_from_ns(start_ns, number)})

    @property
    def next_ns(self) -> list[int]:
        """When programs begin or have to end, on the monotonic clock."""
        begin = [one.plan.start_ns for one in self.programs if one.process is None]
        end = [one.plan.stop_ns for one in self.programs if one.plan.stop_ns is not None and one.ended_ns is None]
        return [self.start_ns + at for at in (*begin, *end)]

    def check(self) -> None:
        """Start the programs that are due. Raises `TestbedError` for a program that has failed."""
        if self.programs:
            now_ns = time.monotonic_ns()
            for program in self.programs:
                if program.process is None and now_ns >= self.start_ns + program.plan.start_ns:
                    program.begin(now_ns)
                stop_ns = program.plan.stop_ns
                program.check(now_ns, None if stop_ns is None else self.start_ns + stop_ns)
        for _, child in self.generators:
            if child.process.poll() is not None:
                child.died()

    def finished(self) -> list[rows.BackgroundFlow]:
        """The row of every flow and program. Ends the sources."""
        found: list[rows.BackgroundFlow] = []
        for one, child in self.generators:
            child.tell({"stop": True})
            found += _flows(one, child)
        return found + [program.row(self.start_ns) for program in self.programs]


def _await_listening(child: Child) -> None:
    while not child.lines():
        pass


def _flows(one: Background, child: Child) -> list[rows.BackgroundFlow]:
    found: list[rows.BackgroundFlow] = []
    while True:
        for line in child.lines():
            if isinstance(line, dict):
                return found
            for source, target, size, burst, start, end, received, failure in line:
                found.append(
                    rows.BackgroundFlow(
                        one.label, len(found), source, target, burst, size, start / 1e9, None if end is None else end / 1e9, received, failure
                    )
                )  # fmt: skip
