"""Settings that reach a kernel: each is a value that is applied, read back, and printed.

A set-up is a list of them (`testbed.linux.setup_steps`). A mismatch between what was asked and what the kernel holds
stops the run; what it cannot tell is recorded as unknown. Nothing is undone: a setting ends with the namespace it lives in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from testbed.core.errors import TestbedError
from testbed.core.runs.manifest import ReadBack
from testbed.core.runs.plan import CongestionControl
from testbed.linux.kernel import Addressing, Kernel
from testbed.linux.queues import turns
from testbed.linux.queues.tree import matches


class Setting(Protocol):
    """One change in one place."""

    @property
    def where(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def asked(self) -> Any: ...
    @property
    def line(self) -> str:
        """It in words, without where."""
        ...

    def apply(self, kernel: Kernel) -> None: ...
    def read(self, kernel: Kernel) -> Any: ...


@dataclass(frozen=True)
class Addressed:
    """What a node of the topology is made with; in the manifest by its numbers, since a fat tree has thousands of routes."""

    node: str
    addressing: Addressing

    @property
    def where(self) -> str:
        return self.node

    @property
    def what(self) -> str:
        return "addresses, neighbours and routes"

    @property
    def asked(self) -> dict[str, Any]:
        return self._told(self.addressing)

    @property
    def line(self) -> str:
        return "addresses, neighbours and shortest routes, as the topology has them"

    def apply(self, kernel: Kernel) -> None:
        kernel.set_addressing(self.node, self.addressing)

    def read(self, kernel: Kernel) -> dict[str, Any]:
        return self._told(kernel.addressing(self.node))

    def _told(self, found: Addressing) -> dict[str, Any]:
        kinds = (field.name for field in fields(Addressing))
        pairs = [(kind, getattr(self.addressing, kind), getattr(found, kind)) for kind in kinds]
        told: dict[str, Any] = {kind: len(held) for kind, _, held in pairs}
        return told | {"wrong": [line for _, wanted, held in pairs for line in unlike(wanted, held)][:5]}


def unlike(wanted: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[str]:
    """What is held and not wanted, or the other way round, or is not the same."""
    for key in sorted(wanted.keys() | held.keys()):
        if wanted.get(key) != held.get(key):
            yield f"{key}: {held.get(key, 'none')}, not {wanted.get(key, 'there')}"


@dataclass(frozen=True)
class Sysctl:
    """A namespaced sysctl (``net.ipv4.…``)."""

    node: str
    key: str
    value: str

    @property
    def where(self) -> str:
        return self.node

    @property
    def what(self) -> str:
        return self.key

    @property
    def asked(self) -> str:
        return self.value

    @property
    def line(self) -> str:
        return f"{self.key} = {self.value}"

    def apply(self, kernel: Kernel) -> None:
        kernel.set_sysctl(self.node, self.key, self.value)

    def read(self, kernel: Kernel) -> str:
        return kernel.sysctl(self.node, self.key)


@dataclass(frozen=True)
class Mtu:
    """An interface's MTU in bytes, and its address and state along with it."""

    node: str
    device: str
    value: int

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "mtu, up"

    @property
    def asked(self) -> list[Any]:
        return [self.value, "up"]

    @property
    def line(self) -> str:
        return f"MTU {self.value}"

    def apply(self, kernel: Kernel) -> None:
        kernel.set_device(self.node, self.device, mtu=self.value)

    def read(self, kernel: Kernel) -> list[Any]:
        link = kernel.device(self.node, self.device)
        return [link["mtu"], link["state"]]


@dataclass(frozen=True)
class FrameByFrame:
    """What TCP sends is one frame at a time; else it paces bunches of up to 64 kB, segmented below it."""

    node: str
    device: str

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "gso_max_segs"

    @property
    def asked(self) -> int:
        return 1

    @property
    def line(self) -> str:
        return "TCP sends frame by frame (gso_max_segs 1)"

    def apply(self, kernel: Kernel) -> None:
        kernel.set_device(self.node, self.device, gso_max_segs=1)

    def read(self, kernel: Kernel) -> int:
        return int(kernel.device(self.node, self.device)["gso_max_segs"])


@dataclass(frozen=True)
class PathAddresses:
    """The addresses of a host by which a sender chooses a path to it (`testbed.networks.spraying`)."""

    node: str
    device: str
    asked: tuple[str, ...]

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "addresses of paths"

    @property
    def line(self) -> str:
        return f"{len(self.asked)} addresses, by which senders choose a path"

    def apply(self, kernel: Kernel) -> None:
        for address in self.asked:
            kernel.add_address(self.node, self.device, address)

    def read(self, kernel: Kernel) -> tuple[str, ...]:
        return tuple(kernel.addresses(self.node, self.device))


@dataclass(frozen=True)
class PathRoutes:
    """How a router goes by these: the next hop to each address, or several that it hashes over."""

    node: str
    hops: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def where(self) -> str:
        return self.node

    @property
    def what(self) -> str:
        return "routes of paths"

    @property
    def asked(self) -> dict[str, tuple[str, ...]]:
        return dict(self.hops)

    @property
    def line(self) -> str:
        return f"routes to {len(self.hops)} addresses of paths"

    def apply(self, kernel: Kernel) -> None:
        for address, vias in self.hops:
            kernel.add_route(self.node, address, vias)

    def read(self, kernel: Kernel) -> dict[str, tuple[str, ...]]:
        return dict(kernel.host_routes(self.node))


FIRST_TABLE = 1000  # of routes by which packets go in turn


@dataclass(frozen=True)
class PacketSpraying:
    """A router that sends packets over equal paths in turn, whatever connection they are of (`testbed.networks.spraying.Turns`)."""

    node: str
    ports: tuple[str, ...]  # where they arrive
    bit: int
    ways: tuple[tuple[tuple[str, str], ...], ...]  # next hops by prefix

    @property
    def where(self) -> str:
        return self.node

    @property
    def what(self) -> str:
        return "paths in turn"

    @property
    def asked(self) -> dict[str, Any]:
        names = self._names
        ways = {name: dict(way) for name, way in zip(names, self.ways, strict=True)}
        return {"ports": dict.fromkeys(self.ports, turns.asked(self.bit, names)), "ways": ways}

    @property
    def _names(self) -> list[str]:
        return [f"way{number}" for number in range(len(self.ways))]

    @property
    def line(self) -> str:
        return f"packets over {len(self.ways)} paths in turn"

    def apply(self, kernel: Kernel) -> None:
        for number, (name, way) in enumerate(zip(self._names, self.ways, strict=True)):
            kernel.add_way(self.node, name, FIRST_TABLE + number, dict(way))
        for port in self.ports:
            kernel.take_turns(self.node, port, self.bit, self._names)

    def read(self, kernel: Kernel) -> dict[str, Any]:
        return {
            "ports": {port: list(kernel.turns(self.node, port)) for port in self.ports},
            "ways": {name: dict(kernel.way(self.node, name)) for name in self._names},
        }


OFFLOADS = ("tso", "gso", "gro")


@dataclass(frozen=True)
class OffloadsOff:
    """TSO, GSO and GRO off: one packet is one frame (docs/fidelity.md)."""

    node: str
    device: str

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "offloads"

    @property
    def asked(self) -> dict[str, bool]:
        return dict.fromkeys(OFFLOADS, False)

    @property
    def line(self) -> str:
        return "TSO, GSO and GRO off"

    def apply(self, kernel: Kernel) -> None:
        kernel.set_offloads(self.node, self.device, on=False)

    def read(self, kernel: Kernel) -> dict[str, bool]:
        return kernel.offloads(self.node, self.device)


@dataclass(frozen=True)
class Register:
    """A congestion control made known to the kernel, as ``kind``."""

    cc: CongestionControl
    kind: str

    @property
    def where(self) -> str:
        return "kernel"

    @property
    def what(self) -> str:
        return f"congestion control {self.cc.spec}"

    @property
    def asked(self) -> dict[str, Any]:
        return {"kind": self.kind, "constants": self._constants}

    @property
    def _constants(self) -> dict[str, int]:
        return dict(self.cc.constants) if self.kind == "eBPF" else {}

    @property
    def line(self) -> str:
        return f"congestion control {self.cc.spec}: " + ("the kernel's own" if self.kind == "kernel" else self.kind)

    def apply(self, kernel: Kernel) -> None:
        kernel.register(self.cc)

    def read(self, kernel: Kernel) -> dict[str, Any]:
        held = kernel.constants(self.cc.spec)
        return {"kind": kernel.kind(self.cc.spec), "constants": {name: held.get(name) for name in self._constants}}


@dataclass(frozen=True)
class Default:
    """The congestion control of sockets that a program opens: its namespace's default."""

    node: str
    spec: str

    @property
    def where(self) -> str:
        return self.node

    @property
    def what(self) -> str:
        return "net.ipv4.tcp_congestion_control"

    @property
    def asked(self) -> str:
        return self.spec

    @property
    def line(self) -> str:
        return f"sockets of programs use {self.spec}"

    def apply(self, kernel: Kernel) -> None:
        kernel.allow(self.spec)
        kernel.set_sysctl(self.node, self.what, kernel.name(self.spec))

    def read(self, kernel: Kernel) -> str:
        found = kernel.sysctl(self.node, self.what)
        return self.spec if found == kernel.name(self.spec) else found


def apply_all(settings: Iterable[Setting], kernel: Kernel) -> list[ReadBack]:
    """Apply each setting and read it back; what was found.

    Raises `TestbedError` at the first one the kernel did not take.
    """
    record = []
    for setting in settings:
        try:
            setting.apply(kernel)
            found = setting.read(kernel)
        except TestbedError:
            raise
        except Exception as error:
            raise TestbedError(
                f"{setting.where}: {setting.what} could not be set to {setting.asked!r}: {error}"
            ) from error
        check(setting, found)
        record.append(ReadBack(setting.where, setting.what, found))
    return record


def check(setting: Setting, found: Any) -> None:
    """Raises `TestbedError` if the kernel holds something else than was asked for."""
    if not matches(setting.asked, found):
        raise TestbedError(
            f"{setting.where}: {setting.what} was set to {setting.asked!r} but the kernel holds "
            f"{found!r}; a result under other settings than those asked for would be wrong, so the run stops here."
        )
