"""Settings that reach the kernel: each is a value that is applied, read back, and printed.

A set-up is a list of them. A mismatch between what was asked and what the kernel holds
stops the run. Nothing is undone: a setting ends with the namespace it lives in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from core.errors import TestbedError
from testbed.linux import netns
from testbed.linux.network import Host, Network, VethIntf


class Setting(Protocol):
    """One change in one node."""

    @property
    def where(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def asked(self) -> Any: ...
    def apply(self, network: Network) -> None: ...
    def read(self, network: Network) -> Any: ...


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
    def path(self) -> Path:
        return Path("/proc/sys", self.key.replace(".", "/"))

    def apply(self, network: Network) -> None:
        with netns.entered(network[self.node].namespace):
            self.path.write_text(self.value)

    def read(self, network: Network) -> str:
        with netns.entered(network[self.node].namespace):
            return " ".join(self.path.read_text().split())


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

    def apply(self, network: Network) -> None:
        interface(network, self.node, self.device).node.ip.link(
            "set", index=interface(network, self.node, self.device).index, mtu=self.value
        )

    def read(self, network: Network) -> list[Any]:
        end = interface(network, self.node, self.device)
        link = end.node.ip.get_links(end.index)[0]
        return [link.get("mtu"), link["state"]]


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

    def apply(self, network: Network) -> None:
        end = interface(network, self.node, self.device)
        end.node.ip.link("set", index=end.index, gso_max_segs=1)

    def read(self, network: Network) -> int:
        end = interface(network, self.node, self.device)
        return int(end.node.ip.get_links(end.index)[0].get("gso_max_segs"))


_SHORT = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
}


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
        return dict.fromkeys(_SHORT, False)

    def apply(self, network: Network) -> None:
        host: Host = network[self.node]
        with netns.entered(host.namespace):
            for flag in _SHORT.values():
                host.offloads(self.device).set_offload_flag(flag, False)

    def read(self, network: Network) -> dict[str, bool]:
        host: Host = network[self.node]
        return read_offloads(host, self.device)


def read_offloads(host: Host, device: str) -> dict[str, bool]:
    """Whether ``tso``, ``gso`` and ``gro`` are on."""
    flags = host.offloads(device).get_offload_flags()
    return {short: bool(flags[name]) for short, name in _SHORT.items()}


def interface(network: Network, node: str, device: str) -> VethIntf:
    """The interface ``device`` of ``node``."""
    end: VethIntf = network[node].nameToIntf[device]
    return end


def apply_all(settings: Iterable[Setting], network: Network) -> list[dict[str, Any]]:
    """Apply each setting and read it back; a record of what was asked and what was found.

    Raises `TestbedError` at the first one the kernel did not take.
    """
    record = []
    for setting in settings:
        try:
            setting.apply(network)
            found = setting.read(network)
        except TestbedError:
            raise
        except Exception as error:
            raise TestbedError(
                f"{setting.where}: {setting.what} could not be set to {setting.asked!r}: {error}"
            ) from error
        if found != setting.asked:
            raise TestbedError(
                f"{setting.where}: {setting.what} was set to {setting.asked!r} but the kernel holds "
                f"{found!r}; a result under other settings than those asked for would be wrong, so the run stops here."
            )
        record.append({"where": setting.where, "what": setting.what, "value": found})
    return record
