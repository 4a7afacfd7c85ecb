"""A fake kernel for tests: it records the settings applied to it, in order, and holds them as a kernel would.

The order of steps is data, and `Recording.spoil` replaces the answers of a kernel that rejects a setting.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.core import system_text
from testbed.core.netlink_attributes import attribute, attributes
from testbed.core.runs.plan import CongestionControl
from testbed.linux.kernel import Addressing
from testbed.linux.queues import tbf, turns
from testbed.linux.queues.rates import RATESPEC, ticks
from testbed.linux.rtnetlink import Kind, Tc
from testbed.linux.settings import OFFLOADS

Call = tuple[str, str, Any]  # operation, node, argument


@dataclass
class Recording:
    """``kinds``: as what each congestion control is registered."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    spoil: Callable[[Tc], Tc | None] = lambda message: message  # the message as the kernel keeps it; None: dropped
    _sysctls: dict[tuple[str, str], str] = field(default_factory=dict)
    _links: dict[str, dict[str, Any]] = field(default_factory=dict)
    _offloads: dict[str, bool] = field(default_factory=dict)
    _queues: dict[str, list[Tc]] = field(default_factory=dict)
    _classifiers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _through: dict[str, str] = field(default_factory=dict)
    _addressing: dict[str, Addressing] = field(default_factory=dict)
    _addresses: dict[str, list[str]] = field(default_factory=dict)
    _routes: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    _ways: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    _turns: dict[str, list[str]] = field(default_factory=dict)
    _registered: dict[str, str] = field(default_factory=dict)
    _constants: dict[str, dict[str, int]] = field(default_factory=dict)

    def sysctl(self, node: str, key: str) -> str:
        return self._sysctls[node, key]

    def set_sysctl(self, node: str, key: str, value: str) -> None:
        self.calls.append(("sysctl", node, f"{key}={value}"))
        self._sysctls[node, key] = " ".join(value.split())

    def device(self, node: str, device: str) -> dict[str, Any]:
        return {"mtu": 1500, "state": "up", "gso_max_segs": 65535} | self._links.get(device, {})

    def set_device(self, node: str, device: str, **values: int) -> None:
        self.calls.append(("link", device, values))
        self._links.setdefault(device, {}).update(values)

    def offloads(self, node: str, device: str) -> dict[str, bool]:
        return dict.fromkeys(OFFLOADS, self._offloads.get(device, True))

    def set_offloads(self, node: str, device: str, *, on: bool) -> None:
        self.calls.append(("offloads", device, on))
        self._offloads[device] = on

    def queue(self, node: str, device: str, messages: Sequence[Tc], *, change: bool = False) -> None:
        held = self._queues.setdefault(device, [])
        for message in messages:
            self.calls.append(("change" if change else message.what, device, message.kind))
            if message.what == "qdisc":  # replaces the previous one
                held[:] = [each for each in held if each.what != "qdisc" or each.parent != message.parent]
            if (kept := self.spoil(message)) is not None:
                held += _as_shown(kept)

    def queues(self, node: str, device: str, parents: Iterable[int]) -> dict[Kind, Sequence[Tc]]:
        of = list(parents)
        held = self._queues.get(device, [])
        return {
            "qdisc": [each for each in held if each.what == "qdisc"],
            "class": [each for each in held if each.what == "class"],
            "filter": [each for each in held if each.what == "filter" and each.parent in of],
        }

    def set_addressing(self, node: str, addressing: Addressing) -> None:
        self.calls.append(("addressing", node, addressing))
        self._addressing[node] = addressing

    def addressing(self, node: str) -> Addressing:
        return self._addressing[node]

    def add_address(self, node: str, device: str, address: str) -> None:
        self.calls.append(("address", device, address))
        self._addresses.setdefault(device, []).append(address)

    def addresses(self, node: str, device: str) -> Sequence[str]:
        return self._addresses[device]

    def add_route(self, node: str, address: str, vias: Sequence[str]) -> None:
        self.calls.append(("route", node, f"{address} via {' or '.join(vias)}"))
        self._routes.setdefault(node, {})[address] = tuple(vias)

    def host_routes(self, node: str) -> Mapping[str, tuple[str, ...]]:
        return self._routes[node]

    def lead_through(self, node: str, device: str, between: str) -> None:
        self.calls.append(("through", device, between))
        self._through[device] = between

    def led_through(self, _node: str, device: str) -> str:
        return self._through.get(device, "")

    def add_way(self, node: str, between: str, table: int, routes: Mapping[str, str]) -> None:
        self.calls.append(("way", node, between))
        self._ways[node, between] = routes

    def way(self, node: str, between: str) -> Mapping[str, str]:
        return self._ways[node, between]

    def take_turns(self, node: str, device: str, bit: int, betweens: Sequence[str]) -> None:
        self.calls.append(("turns", device, tuple(betweens)))
        self._turns[device] = turns.asked(bit, betweens)

    def turns(self, _node: str, device: str) -> Sequence[str]:
        return self._turns[device]

    def classify(self, node: str, device: str, name: str, constants: Mapping[str, int]) -> None:
        self.calls.append(("classifier", device, name))
        self._classifiers[device] = {"filter": name, **constants}

    def classified(self, node: str, device: str, constants: Mapping[str, int]) -> dict[str, Any]:
        return self._classifiers[device]

    def register(self, cc: CongestionControl) -> None:
        self.calls.append(("register", "kernel", cc.spec))
        self._registered[cc.spec] = self.kinds.get(cc.spec, "kernel")
        self._constants[cc.spec] = dict(cc.constants)

    def kind(self, spec: str) -> str:
        return self._registered[spec]

    def constants(self, spec: str) -> Mapping[str, int]:
        return self._constants[spec]

    def name(self, spec: str) -> str:
        return system_text.name_of(spec)

    def allow(self, spec: str) -> None:
        self.calls.append(("allow", spec, None))


def _as_shown(message: Tc) -> list[Tc]:
    """The messages as a kernel shows them: a token bucket reports its bucket as a time, and adds a FIFO."""
    if message.kind != tbf.Tbf.kind:
        return [message]
    fields = attributes(message.options)
    parms = fields[tbf.TCA_TBF_PARMS]
    (rate,) = (
        struct.unpack("=Q", fields[tbf.TCA_TBF_RATE64])
        if tbf.TCA_TBF_RATE64 in fields
        else RATESPEC.unpack(parms[:12])[-1:]
    )
    limit, _, mtu = tbf.REST.unpack_from(parms, 2 * RATESPEC.size)
    (burst,) = struct.unpack("=I", fields[tbf.TCA_TBF_BURST])
    options = attribute(tbf.TCA_TBF_PARMS, parms[: 2 * RATESPEC.size] + tbf.REST.pack(limit, ticks(burst, rate), mtu))
    if tbf.TCA_TBF_RATE64 in fields:
        options += attribute(tbf.TCA_TBF_RATE64, fields[tbf.TCA_TBF_RATE64])
    own = Tc("qdisc", "bfifo", 0, message.handle | 1, struct.pack("=I", limit))
    return [Tc("qdisc", message.kind, message.handle, message.parent, options), own]
