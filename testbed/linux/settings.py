"""Settings of a kernel: each is a value that is applied, read back, and printed.

A set-up is a list of settings (`testbed.linux.setup_steps`). A mismatch between the requested value and the kernel's
value stops the run. A value that the kernel cannot report is recorded as unknown. Settings are not undone, because they
end with their namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from testbed.core.errors import TestbedError
from testbed.core.runs.manifest import ReadBack
from testbed.core.runs.plan import CongestionControl, EcnThreshold
from testbed.core.units import rate_text
from testbed.linux.kernel import Addressing, Kernel
from testbed.linux.queues import turns
from testbed.linux.queues.rates import U32
from testbed.linux.queues.setting import Queues, marking
from testbed.linux.queues.tree import matches


class Change(Protocol):
    """A change that is applied and read back: a `Setting`, or a tree of queues."""

    @property
    def where(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def asked(self) -> Any: ...
    @property
    def line(self) -> str:
        """A description without the place."""
        ...

    def apply(self, kernel: Kernel) -> None: ...
    def read(self, kernel: Kernel) -> Any: ...


@dataclass(frozen=True)
class Setting:
    """One change in one place. Settings are equal if place and requested value are equal."""

    where: str
    what: str
    asked: Any
    line: str  # a description without the place
    apply: Callable[[Kernel], None] = field(compare=False, repr=False)
    read: Callable[[Kernel], Any] = field(compare=False, repr=False)


KERNEL = "kernel"  # place of a setting that applies to all namespaces
ADDRESSES, MTU = "addresses, neighbours and routes", "mtu, up"
DEFAULT_CC = "net.ipv4.tcp_congestion_control"
OFFLOADS = ("tso", "gso", "gro")
PHANTOM = "phantom"
FIRST_TABLE = 1000  # first routing table for packet spraying


def addressed(node: str, addressing: Addressing) -> Setting:
    """Return the setting of a node's addresses and routes; the manifest has their numbers, since a fat tree has
    thousands of routes."""

    def counts(found: Addressing) -> dict[str, Any]:
        kinds = (kind.name for kind in fields(Addressing))
        pairs = [(kind, getattr(addressing, kind), getattr(found, kind)) for kind in kinds]
        counted: dict[str, Any] = {kind: len(held) for kind, _, held in pairs}
        return counted | {"wrong": [line for _, wanted, held in pairs for line in unlike(wanted, held)][:5]}

    return Setting(
        node, ADDRESSES, counts(addressing), "addresses, neighbours, and shortest routes of the topology",
        lambda kernel: kernel.set_addressing(node, addressing),
        lambda kernel: counts(kernel.addressing(node)),
    )  # fmt: skip


def unlike(wanted: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key that only one of the mappings has, or whose values differ."""
    for key in sorted(wanted.keys() | held.keys()):
        if wanted.get(key) != held.get(key):
            yield f"{key}: {held.get(key, 'none')}, not {wanted.get(key, 'there')}"


def sysctl(node: str, key: str, value: str) -> Setting:
    """A namespaced sysctl (``net.ipv4.…``)."""
    return Setting(
        node, key, value, f"{key} = {value}",
        lambda kernel: kernel.set_sysctl(node, key, value),
        lambda kernel: kernel.sysctl(node, key),
    )  # fmt: skip


def mtu(node: str, device: str, size: int) -> Setting:
    """An interface's MTU in bytes, and its address and state along with it."""

    def read(kernel: Kernel) -> list[Any]:
        link = kernel.device(node, device)
        return [link["mtu"], link["state"]]

    return Setting(
        device, MTU, [size, "up"], f"MTU {size}", lambda kernel: kernel.set_device(node, device, mtu=size), read
    )


def frame_by_frame(node: str, device: str) -> Setting:
    """Return the setting by which TCP sends single frames; otherwise it paces bunches of up to 64 kB, segmented below
    it."""
    return Setting(
        device, "gso_max_segs", 1, "TCP sends frame by frame (gso_max_segs 1)",
        lambda kernel: kernel.set_device(node, device, gso_max_segs=1),
        lambda kernel: int(kernel.device(node, device)["gso_max_segs"]),
    )  # fmt: skip


def path_addresses(node: str, device: str, asked: tuple[str, ...]) -> Setting:
    """The addresses of a host by which a sender chooses a path to it (`testbed.networks.spraying`)."""

    def apply(kernel: Kernel) -> None:
        for address in asked:
            kernel.add_address(node, device, address)

    return Setting(
        device, "addresses of paths", asked, f"{len(asked)} addresses, one per path", apply,
        lambda kernel: tuple(kernel.addresses(node, device)),
    )  # fmt: skip


def path_routes(node: str, hops: Mapping[str, tuple[str, ...]]) -> Setting:
    """Routes of a router: the next hop to each address, or several over which it hashes."""

    def apply(kernel: Kernel) -> None:
        for address, vias in hops.items():
            kernel.add_route(node, address, vias)

    return Setting(
        node, "routes of paths", dict(hops), f"routes to {len(hops)} path addresses", apply,
        lambda kernel: dict(kernel.host_routes(node)),
    )  # fmt: skip


def packet_spraying(node: str, ports: tuple[str, ...], bit: int, ways: Iterable[Mapping[str, str]]) -> Setting:
    """Return the setting of a router that sprays packets over equal-cost paths (`testbed.networks.spraying.Turns`).

    Packets arrive at ``ports``; each of the ``ways`` has next hops by prefix.
    """
    by_name = {f"way{number}": dict(way) for number, way in enumerate(ways)}
    names = list(by_name)

    def apply(kernel: Kernel) -> None:
        for number, (name, way) in enumerate(by_name.items()):
            kernel.add_way(node, name, FIRST_TABLE + number, way)
        for port in ports:
            kernel.take_turns(node, port, bit, names)

    def read(kernel: Kernel) -> dict[str, Any]:
        return {
            "ports": {port: list(kernel.turns(node, port)) for port in ports},
            "ways": {name: dict(kernel.way(node, name)) for name in names},
        }

    asked = {"ports": dict.fromkeys(ports, turns.asked(bit, names)), "ways": by_name}
    return Setting(node, "paths in turn", asked, f"packet spraying over {len(names)} paths", apply, read)


def offloads_off(node: str, device: str) -> Setting:
    """TSO, GSO, and GRO off: one packet is one frame (docs/explanation/statistics.md)."""
    return Setting(
        device, "offloads", dict.fromkeys(OFFLOADS, False), "TSO, GSO, and GRO off",
        lambda kernel: kernel.set_offloads(node, device, on=False),
        lambda kernel: kernel.offloads(node, device),
    )  # fmt: skip


def behind(device: str, queues: Queues) -> Setting:
    """Delay and loss behind a shaper: packets that arrive at ``device`` pass an ``ifb`` before the node receives them.

    One interface cannot shape and delay: packets that wait in netem would not count as the queue.
    """
    node, between = queues.node, queues.device

    def apply(kernel: Kernel) -> None:
        kernel.lead_through(node, device, between)
        queues.apply(kernel)

    return Setting(
        device, "netem behind the shaper", {**queues.asked, "through": between}, f"{queues.line}, behind the shaper", apply,
        lambda kernel: {**queues.read(kernel), "through": kernel.led_through(node, device)},
    )  # fmt: skip


def phantom_queue(
    node: str, device: str, rate_bps: int, burst_bytes: int, buffer_bytes: int, threshold: EcnThreshold
) -> Setting:
    """Marking where the kernel has no RED: a phantom queue in eBPF, in front of the shaper with this rate, bucket and buffer.

    A classifier at the bottleneck's egress (`testbed.linux.loading.classifier`) computes how long the queue behind it is at this
    instant and sets CE by RED's rule (kernel/bpf/phantom.bpf.c). It ends with the interface it hangs on.
    """
    constants = {
        "rate_bps": rate_bps, "burst_bytes": burst_bytes, "limit_bytes": buffer_bytes, "min_bytes": threshold.min_bytes,
        "max_bytes": threshold.max_bytes, "probability": round(threshold.probability * U32),
    }  # fmt: skip
    marks = marking(threshold.min_bytes, threshold.max_bytes, threshold.probability)
    line = f"phantom queue (eBPF) of {rate_text(rate_bps)}: {marks}"
    return Setting(
        device, "phantom queue", {"filter": PHANTOM, **constants}, line,
        lambda kernel: kernel.classify(node, device, PHANTOM, constants),
        lambda kernel: kernel.classified(node, device, constants),
    )  # fmt: skip


def register(cc: CongestionControl, kind: str) -> Setting:
    """A congestion control made known to the kernel, as ``kind``."""
    constants = {} if kind == "module" else dict(cc.constants)

    def read(kernel: Kernel) -> dict[str, Any]:
        held = kernel.constants(cc.spec)
        return {"kind": kernel.kind(cc.spec), "constants": {name: held.get(name) for name in constants}}

    what = f"congestion control {cc.spec}"
    line = f"{what}: " + ("built into the kernel" if kind == "kernel" else kind)
    asked = {"kind": kind, "constants": constants}
    return Setting(KERNEL, what, asked, line, lambda kernel: kernel.register(cc), read)


def default(node: str, spec: str) -> Setting:
    """The congestion control of sockets that a program opens: its namespace's default."""

    def apply(kernel: Kernel) -> None:
        kernel.allow(spec)
        kernel.set_sysctl(node, DEFAULT_CC, kernel.name(spec))

    def read(kernel: Kernel) -> str:
        found = kernel.sysctl(node, DEFAULT_CC)
        return spec if found == kernel.name(spec) else found

    return Setting(node, DEFAULT_CC, spec, f"default congestion control of programs: {spec}", apply, read)


def apply_all(settings: Iterable[Change], kernel: Kernel) -> list[ReadBack]:
    """Apply each setting, read it back, and return the values. Raises `TestbedError` at the first mismatch."""
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


def check(setting: Change, found: Any) -> None:
    """Raise `TestbedError` if the kernel holds another value than requested."""
    if not matches(setting.asked, found):
        raise TestbedError(
            f"{setting.where}: {setting.what} was set to {setting.asked!r}, but the kernel holds "
            f"{found!r}. The results would be wrong, so the run was stopped. Try --on uml."
        )
