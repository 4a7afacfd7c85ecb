"""The captures of a run: rings before and after the queues of links and hosts, and the process that empties them (`recorder`)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.core.errors import TestbedError
from testbed.core.runs.plan import Plan
from testbed.linux.capture import packet_ring
from testbed.linux.capture.mirror import mirrored
from testbed.linux.capture.pcapng import Direction
from testbed.linux.network import Network, VethIntf
from testbed.linux.participants.child import Child, Module
from testbed.linux.participants.timeline import Machine
from testbed.linux.participants.workers import Record

BEFORE, AFTER = 0, 1  # the queue: `recorder.INTERFACES`


class Captures:
    """The captures that a plan requests, if any. Packets are recorded from the start, or in the iterations that the
    plan names.

    The kernel writes packets to memory, and the process that empties it takes no virtual time. Under virtual time, a run is
    therefore identical with and without captures.
    """

    def __init__(self, plan: Plan, network: Network, folder: Path, machine: Machine) -> None:
        """``folder``: the folder that receives the files. Raises `MachineError` where the kernel cannot capture."""
        self.wanted = plan.capture
        self.sockets: list[tuple[str, socket.socket]] = []  # with the place of each
        self.open = self.over = False
        self.start_ns = 0
        # The last captured iteration of each worker.
        self.missing = {(job.job, rank): job.iterations - 1 for job in plan.jobs for rank in range(len(job.hosts))}
        if self.wanted is None:
            return
        wanted = self.wanted
        if wanted.last is not None:
            self.missing = {worker: min(wanted.last, last) for worker, last in self.missing.items()}
        taps: list[dict[str, Any]] = []
        copies: dict[VethIntf, str] = {}
        for place in wanted.places:
            for end, direction in _ends(network, place):
                if end not in copies:  # places may share an end
                    copies[end] = mirrored(end)
                for interface, device in ((BEFORE, copies[end]), (AFTER, end.name)):
                    sock = packet_ring.opened(end.node.namespace, device, wanted.snaplen, wanted.ring_packets)
                    self.sockets.append((place, sock))
                    taps.append({"place": place, "interface": interface, "direction": direction, "fd": sock.fileno()})
        self.recorder = Child(
            "the process that captures packets", Module("testbed.linux.capture.recorder", copied=machine.virtual_time),
            pass_fds=[sock.fileno() for _, sock in self.sockets],
        )  # fmt: skip
        self.recorder.tell(
            {"folder": str(folder), "snaplen": wanted.snaplen, "ring_packets": wanted.ring_packets, "taps": taps,
             "first_ns": machine.start_ns(), "interval_ns": wanted.drain_ns}
        )  # fmt: skip
        if wanted.first == 0:
            self._accept(packets=True)

    def hear(self, record: Record) -> None:
        """A worker has ended an iteration: captures may begin or end with it."""
        if self.wanted is None or self.over:
            return
        if record.iteration >= self.wanted.first - 1:
            self._accept(packets=True)
        if record.iteration >= self.missing.get((record.job, record.rank), record.iteration + 1):
            del self.missing[record.job, record.rank]
            if not self.missing:
                self._accept(packets=False)
                self.over = True

    def _accept(self, *, packets: bool) -> None:
        if self.wanted is not None and self.open != packets:
            self.open = packets
            for _, sock in self.sockets:
                packet_ring.accept(sock, self.wanted.snaplen if packets else 0)

    def check(self) -> None:
        """Raises `TestbedError` if packets cannot be written."""
        if self.wanted is not None and self.recorder.process.poll() is not None:
            self._check_recorder()

    def stop(self, start_ns: int) -> None:
        """Take no more packets; ``start_ns`` is t = 0 of the run's tables."""
        self._accept(packets=False)
        self.start_ns = start_ns

    def write(self) -> None:
        """Have the files written, after `stop`.

        Raises `TestbedError` if the kernel had to drop packets, or a file cannot be written.
        """
        if self.wanted is None:
            return
        self.check()
        for place, sock in self.sockets:
            if lost := packet_ring.dropped(sock):
                raise TestbedError(
                    f"--capture {place}: the kernel dropped {lost} packets, because they came faster than they could be stored. A capture "
                    "with gaps would be wrong, so this run is not kept. Use fewer places, --capture-iterations, a lower --rate, or --on uml."
                )
        self.recorder.tell({"start_ns": self.start_ns})
        self._check_recorder()
        self.recorder.close()

    def _check_recorder(self) -> None:
        """Read the final report of the recorder. Raises `TestbedError` unless all packets are written."""
        for line in self.recorder.lines():
            if "error" in line:
                raise TestbedError(
                    f"--capture {line['place']}: packets could not be written: {line['error']}. Make room there, or capture less: "
                    "--capture-iterations 3-5, a smaller --snaplen, fewer places."
                )


def _ends(network: Network, place: str) -> Iterator[tuple[VethIntf, Direction]]:
    """The interfaces by which packets cross a link (``s1-s2``), or leave and reach a node."""
    for end in network.ends():
        other = end.link.intf2 if end is end.link.intf1 else end.link.intf1
        here, there = end.node.name, other.node.name
        if place in (f"{here}-{there}", here):
            yield end, "out"
        elif place in (f"{there}-{here}", there):
            yield end, "in"
