"""What `test_modules` does inside a user-mode Linux (`Uml.call`): each function answers in JSON."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.congestion import catalogue
from testbed.core.errors import MachineError
from testbed.linux import netns
from testbed.linux.loading import bpf, modules, registry
from testbed.linux.loading.bpfsys import libc
from testbed.linux.participants.timeline import Machine

SYS_DELETE_MODULE = 176
TCP_CC_INFO, TCP_NOTSENT_LOWAT = 26, 25
NAMES = ("mltcp_reno", "mltcp_cubic", "mltcp_dctcp", "dcqcn", "mltcp_dcqcn")
ROUNDS = 200


def _answer(task: Callable[[Machine], dict[str, Any]]) -> Callable[[Machine], bytes]:
    def run(machine: Machine) -> bytes:
        libc().system(b"ip link set lo up")
        Path("/proc/sys/net/ipv4/tcp_ecn").write_text("1")
        return json.dumps({**task(machine), "log": _log()}).encode()

    return run


def _log() -> str:
    buffer = ctypes.create_string_buffer(1 << 20)
    size = libc().klogctl(3, buffer, len(buffer))
    return buffer.raw[: max(0, size)].decode(errors="replace")


def _unreclaimable_kb() -> int:
    """What the kernel has allocated and will not give back by itself."""
    (line,) = [row for row in Path("/proc/meminfo").read_text().splitlines() if row.startswith("SUnreclaim")]
    return int(line.split()[1])


def _load(machine: Machine, name: str, **parameters: int) -> str:
    """The kernel's error, or nothing."""
    assert machine.modules is not None
    try:
        modules.load(machine.modules / f"tcp_{name}.ko", parameters)
    except MachineError as error:
        return str(error)
    return ""


def _unload(name: str) -> int:
    result = libc().syscall(SYS_DELETE_MODULE, f"tcp_{name}".encode(), os.O_NONBLOCK)
    return ctypes.get_errno() if result else 0


class _Traffic:
    """A connection over loopback that never pauses, until the block ends."""

    def __init__(self, name: str) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        self.client = socket.socket()
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        self.client.connect(listener.getsockname())
        self.server, _ = listener.accept()
        listener.close()
        self.threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]
        self.received = 0

    def __enter__(self) -> _Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for sock in (self.client, self.server):
            sock.close()

    def _send(self) -> None:
        try:
            while True:
                self.client.send(bytes(65536))
                time.sleep(0.0005)  # or virtual time would stand still
        except OSError:
            pass

    def _receive(self) -> None:
        while data := self.server.recv(1 << 20):
            self.received += len(data)


@_answer
def reload(machine: Machine) -> dict[str, Any]:
    """Load, use, try to unload in use, unload: over and over, beside traffic of the kernel's own algorithm."""
    refusals, received, left = set(), [], []
    used = 0
    with _Traffic("cubic"):
        for number in range(ROUNDS):
            name = NAMES[number % len(NAMES)]
            assert _load(machine, name) == ""
            with _Traffic(name) as traffic:
                time.sleep(0.01)
                refusals.add(_unload(name))
            received.append(traffic.received)
            for _ in range(1000):  # the last packets are still on their way
                if (code := _unload(name)) != errno.EAGAIN:
                    break
                time.sleep(0.01)
            left.append(code)
            if number == ROUNDS // 4:
                used = _unreclaimable_kb()
    return {
        "grown_kb": _unreclaimable_kb() - used,
        "rounds": len(received), "least_received": min(received), "refusals": sorted(refusals), "left": sorted(set(left)),
        "available": bpf.available(), "sysctls": sorted(os.listdir("/proc/sys/net")),
    }  # fmt: skip


@_answer
def parameters(machine: Machine) -> dict[str, Any]:
    """Ranges at load and in sysctls; a value for each network namespace."""
    refused = {
        "slope": _load(machine, "mltcp_reno", slope=16385), "gap_factor": _load(machine, "mltcp_cubic", gap_factor=0),
        "g": _load(machine, "mltcp_dcqcn", g=0), "curve": _load(machine, "mltcp_dctcp", curve=6),
    }  # fmt: skip
    before = bpf.available()
    assert _load(machine, "mltcp_reno", slope=2048, total_bytes=1 << 40) == ""
    path = Path("/proc/sys/net/mltcp_reno")
    held = {name.name: name.read_text().strip() for name in sorted(path.iterdir())}
    other = netns.create()
    with netns.entered(other):
        (path / "slope").write_text("-1024")
        elsewhere = (path / "slope").read_text().strip()
        try:
            (path / "intercept").write_text("16385")
            out_of_range = "taken"
        except OSError as error:
            out_of_range = errno.errorcode[error.errno or 0]
    here = (path / "slope").read_text().strip()
    os.close(other)
    return {
        "refused": refused, "before": before, "held": held, "elsewhere": elsewhere, "here": here, "out_of_range": out_of_range,
    }  # fmt: skip


def _state(sock: socket.socket) -> tuple[int, int, int]:
    """What `mltcp_ca_info` tells: iterations, F, r."""
    info = sock.getsockopt(socket.IPPROTO_TCP, TCP_CC_INFO, 20)
    iterations, f, ratio = struct.unpack_from("=IIi", info)
    return iterations, f, ratio


@_answer
def override(machine: Machine) -> dict[str, Any]:
    """An application that knows its iteration says so; another learns."""
    assert _load(machine, "mltcp_reno", given=1) == ""
    told: dict[str, list[tuple[int, int, int]]] = {"given": [], "learned": []}
    for kind, states in told.items():
        listener = socket.create_server(("127.0.0.1", 0))
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"mltcp_reno")
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        if kind == "given":
            client.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4_000_000)
        for _ in range(4):
            time.sleep(0.5)
            client.sendall(bytes(1_000_000))
            got = 0
            while got < 1_000_000:
                got += len(server.recv(1 << 20))
            time.sleep(0.05)  # until the last ACK
            states.append(_state(client))
        for sock in (client, server, listener):
            sock.close()
    return dict(told)


@_answer
def restricted(machine: Machine) -> dict[str, Any]:
    """What a namespace of its own may have as its default: only what the host's root allows."""
    assert _load(machine, "mltcp_reno") == ""
    default, allowed = (Path(f"/proc/sys/net/ipv4/tcp_{what}congestion_control") for what in ("", "allowed_"))
    other, answers = netns.create(), []
    for _ in range(2):
        with netns.entered(other):
            try:
                default.write_text("mltcp_reno")
                answers.append(default.read_text().strip())
            except OSError as error:
                answers.append(errno.errorcode[error.errno or 0])
        allowed.write_text(f"{allowed.read_text().strip()} mltcp_reno")
    os.close(other)
    return {"answers": answers}


@_answer
def found(machine: Machine) -> dict[str, Any]:
    """On a host whose kernel has the module (as DKMS loads it), a run uses that."""
    before = registry.loaded_module(catalogue.parse("mltcp_reno"))
    assert _load(machine, "mltcp_reno") == ""
    registered = registry.register(catalogue.parse("mltcp_reno:slope=2"))
    return {"before": before, "name": registered.name, "kind": registered.kind}
