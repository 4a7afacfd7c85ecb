"""The interface between settings and a kernel; `testbed.linux.network` implements it, and `testbed.linux.fake_kernel`
fakes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.core.runs.plan import CongestionControl
from testbed.linux.rtnetlink import Kind, Tc


@dataclass(frozen=True)
class Addressing:
    """Addresses of a node by device, MACs of its neighbours by address, and next hops by prefix.

    Addresses of single hosts (/32), which `settings.path_addresses` and `path_routes` add, are not included.
    """

    addresses: dict[str, str]
    neighbours: dict[str, str]
    routes: dict[str, tuple[str, ...]]


DEFAULT = "0.0.0.0/0"  # the prefix of a default route


def mac(link: int, end: int) -> str:
    """The address of an interface, which follows from its link's number and from which end (1, 2) it is."""
    return f"02:00:{link >> 8:02x}:{link & 255:02x}:00:{end:02x}"


class Kernel(Protocol):
    """A kernel as settings use it: a network in it (`testbed.linux.network`), or a fake (`testbed.linux.fake_kernel`)."""

    def sysctl(self, node: str, key: str) -> str: ...
    def set_sysctl(self, node: str, key: str, value: str) -> None: ...
    def device(self, node: str, device: str) -> Mapping[str, Any]:
        """Return ``mtu`` (bytes), ``state`` and ``gso_max_segs`` of an interface."""
        ...

    def set_device(self, node: str, device: str, **values: int) -> None: ...
    def offloads(self, node: str, device: str) -> dict[str, bool]:
        """Return for ``tso``, ``gso`` and ``gro`` of an interface whether they are on."""
        ...

    def set_offloads(self, node: str, device: str, *, on: bool) -> None: ...
    def queue(self, node: str, device: str, messages: Sequence[Tc], *, change: bool = False) -> None:
        """Add queueing disciplines, classes and filters, or change them."""
        ...

    def queues(self, node: str, device: str, parents: Iterable[int]) -> dict[Kind, Sequence[Tc]]:
        """Return the qdiscs, classes, and filters of an interface; filters only below these ``parents``."""
        ...

    def set_addressing(self, node: str, addressing: Addressing) -> None:
        """Set addresses, neighbours, and routes of a node; does nothing if the network was built with them."""
        ...

    def addressing(self, node: str) -> Addressing:
        """Return addresses, neighbours, and routes of a node."""
        ...

    def add_address(self, node: str, device: str, address: str) -> None: ...
    def addresses(self, node: str, device: str) -> Sequence[str]:
        """Return the addresses of single hosts (/32) of an interface."""
        ...

    def add_route(self, node: str, address: str, vias: Sequence[str]) -> None: ...
    def host_routes(self, node: str) -> Mapping[str, tuple[str, ...]]:
        """The equal next hops to each single address."""
        ...

    def led_through(self, node: str, device: str) -> str:
        """The device in between to which everything that arrives is led and that is up; empty: none."""
        ...

    def lead_through(self, node: str, device: str, between: str) -> None:
        """Let packets that arrive at ``device`` pass a new device first, and wait in its queue."""
        ...

    def add_way(self, node: str, between: str, table: int, routes: Mapping[str, str]) -> None:
        """Add a device that packets appear to come from, and next hops by prefix for such packets."""
        ...

    def way(self, node: str, between: str) -> Mapping[str, str]:
        """Return the next hops by prefix of a path; empty if its device is down or no rule leads to it."""
        ...

    def take_turns(self, node: str, device: str, bit: int, betweens: Sequence[str]) -> None:
        """Let what arrives at ``device`` seem to come from one of these, by the bits of its identification from ``bit`` on."""
        ...

    def turns(self, node: str, device: str) -> Sequence[str]:
        """A description of the turns, in the format of `testbed.linux.queues.turns.asked`."""
        ...

    def classify(self, node: str, device: str, name: str, constants: Mapping[str, int]) -> None:
        """Let the phantom queue mark what leaves there."""
        ...

    def classified(self, node: str, device: str, constants: Mapping[str, int]) -> dict[str, Any]: ...
    def register(self, cc: CongestionControl) -> None:
        """Make ``cc`` usable (`testbed.linux.loading.registry`)."""
        ...

    def kind(self, spec: str) -> str:
        """Return how the congestion control ``spec`` was registered: ``kernel``, ``module`` or ``eBPF``."""
        ...

    def constants(self, spec: str) -> Mapping[str, int]:
        """Return the constants of an eBPF program; those of modules differ between namespaces."""
        ...

    def name(self, spec: str) -> str:
        """Return the name by which sockets select the congestion control ``spec``."""
        ...

    def allow(self, spec: str) -> None:
        """Let a namespace have it as its default. The kernel grants this to algorithms that every user may use."""
        ...
