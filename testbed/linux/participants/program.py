"""Real training as a job: a program on every worker replaces the replay (``--job ddp:resnet18``, ``--job cmd:…``).

Each worker's process gets the transport of its gradients (``MLTCP_TRANSPORT``, ``MLTCP_MTU``) and PyTorch's environment
(``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``, ``GLOO_SOCKET_IFNAME``). It also gets `testbed.traces.hook`,
which reports its iterations (`testbed.traces.recording`). Where a transport may lose gradients, our training programs also
report how their messages ended. The program opens its sockets itself. They use the job's congestion control, because it is
the default of the worker's network namespace. It is read back from every connection between two workers.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import threading
from dataclasses import asdict
from typing import Any

from pyroute2.netlink.diag import DiagSocket

from testbed.core.environment import PACKAGES
from testbed.core.errors import MachineError, TestbedError
from testbed.core.runs.plan import JobPlan, Plan
from testbed.linux import netns
from testbed.linux.network import Network
from testbed.linux.participants.child import Child
from testbed.linux.participants.participant import Participant
from testbed.traces.recording import MESSAGES, MTU, TRANSPORT
from testbed.transports import Connection

MASTER_PORT = 29500
KEPT_BYTES = 1 << 16  # of a program's output
LAST_WORDS_S = 2.0
ESTABLISHED = 1 << 1
WITH_CONGESTION_CONTROL = 1 << 3  # INET_DIAG_CONG


def check(plan: Plan) -> None:
    """What its real programs need is here; raises `MachineError`."""
    for job in plan.jobs:
        if job.program and job.program[:3] == ("python", "-m", "testbed.replay.ddp.train") and not has_torch():
            raise MachineError(
                f"job {job.job} ({job.trace}) trains with PyTorch, which is not installed here: "
                "`make torch`, or pip install 'mltcp-testbed[torch]'."
            )


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


class _Tail:
    """A program's output. Only the end is kept, because a program may write for hours."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.kept = b""
        self.hearing = threading.Thread(target=self._hear, daemon=True)
        self.hearing.start()

    def _hear(self) -> None:
        while data := os.read(self.reading, 1 << 16):
            self.kept = (self.kept + data)[-KEPT_BYTES:]
        os.close(self.reading)

    def fileno(self) -> int:
        return self.writing

    def seek(self, _position: int) -> None:
        """Called before `read`: waits until the reading thread has received all output."""
        self.hearing.join(LAST_WORDS_S)

    def read(self) -> bytes:
        return self.kept

    def close(self) -> None:
        """The reading thread ends when the last process that may write has ended."""


class Program(Participant):
    """One rank of a real program, with the interface of a replay."""

    def __init__(
        self, job: JobPlan, rank: int, network: Network, congestion_control: str, *,
        mtu: int = 1500, messages: str = "rounds",
    ) -> None:  # fmt: skip
        assert job.program is not None
        super().__init__(job, rank)
        self._plan, self._network, self._congestion_control = job, network, congestion_control
        self._start_ns = 0
        self._mtu, self._messages = mtu, messages
        self._beside: list[dict[str, Any]] = []  # extra values for the next iteration that it reports
        said = _Tail()
        reading, report = os.pipe()
        os.write(report, b'{"listening": true}\n')
        words = [sys.executable if job.program[0] == "python" else job.program[0], *job.program[1:]]
        try:
            self._child = Child(
                self.what, words, namespace=network[self.host].namespace, pass_fds=[report],
                environment=self._environment(report), reading=reading, words=said,
            )  # fmt: skip
        finally:
            os.close(report)
            os.close(said.writing)

    def _environment(self, report: int) -> dict[str, str]:
        hosts = [self._network[name] for name in self._plan.hosts]
        return {
            "RANK": str(self.rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": hosts[0].IP(),
            "MASTER_PORT": str(MASTER_PORT), "GLOO_SOCKET_IFNAME": hosts[self.rank].intfNames()[0],
            "OMP_NUM_THREADS": "1", "HOME": "/dev/shm",
            "MLTCP_REPORT_FD": str(report), "MLTCP_START_FD": "0", TRANSPORT: self._plan.transport,
            MESSAGES: self._messages, MTU: str(self._mtu),
            "PYTHONPATH": f"{PACKAGES}/testbed/traces/hook:{PACKAGES}",
        }  # fmt: skip

    def connect(self, at_ns: int) -> None:
        """It connects when it pleases."""

    def start(self, at_ns: int, wait_from_ns: int, offset_ns: int | None = None) -> None:
        self._start_ns = at_ns
        self._child.tell({"start_ns": at_ns + (self._plan.offset_ns if offset_ns is None else offset_ns)})

    def grant(self) -> None:
        """It never asks."""

    def lines(self) -> list[Any]:
        return [told for line in self._child.lines() if (told := self._translated(line)) is not None]

    def _translated(self, line: Any) -> Any:
        """The line in the format of a replay. None: its values belong to the next line."""
        if isinstance(line, list):
            iteration, start, comm_start, end, sent, late = line
            since = [at - self._start_ns for at in (start, comm_start, end)]
            beside, self._beside = self._beside, []
            return [iteration, *since, sent, late, [], *beside]
        if "messages" in line:
            rows = [
                [*row[:-5], *(at - self._start_ns if at else 0 for at in row[-5:-3]), *row[-3:]]
                for row in line["messages"]
            ]
            self._beside = [{**line, "messages": rows}]
            return None
        return {"flows": [asdict(each) for each in self._connections()]} if "ready" in line else line

    def _connections(self) -> list[Connection]:
        """Its connections to other workers of the job; raises `TestbedError` if one uses another congestion control."""
        ranks = {self._network[name].IP(): rank for rank, name in enumerate(self._plan.hosts)}
        with netns.entered(self._network[self.host].namespace):
            diag = DiagSocket()
        with diag:
            diag.bind()
            found = diag.get_sock_stats(family=socket.AF_INET, states=ESTABLISHED, extensions=WITH_CONGESTION_CONTROL)
        flows: list[Connection] = []
        for sock in sorted(found, key=lambda sock: (sock["idiag_dst"], sock["idiag_sport"])):
            target = ranks.get(sock["idiag_dst"])
            if target is None or target == self.rank or MASTER_PORT in (sock["idiag_sport"], sock["idiag_dport"]):
                continue
            used = sock.get_attr("INET_DIAG_CONG")
            if used != self._congestion_control:
                raise TestbedError(f"{self.what}: a connection uses {used}, not {self._congestion_control}.")
            channel = sum(flow.target == target for flow in flows)
            flows.append(Connection(
                self.rank, target, channel,
                sock["idiag_src"], sock["idiag_sport"], sock["idiag_dst"], sock["idiag_dport"],
            ))  # fmt: skip
        if not flows:
            raise TestbedError(
                f"{self.what} has no connection to another worker of its job. Check that the program trains with all workers."
            )
        return flows
