"""The network of an existing Mininet script, as a `RoutedTopo`.

A script has a `Topo`, or builds its network step by step (``net.addHost``). Switches become routers, so that a script needs
no controller. Hosts keep the addresses that Mininet would give them. What cannot be honoured is refused.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from testbed.core.errors import RequestError
from testbed.core.text import quoted
from testbed.networks.routed import RoutedTopo

LINKS_FROM, ADDRESSES_FROM = int(IPv4Address("10.64.0.0")), int(IPv4Address("10.0.0.0"))
OWN_LIBRARY = "mininet."
SWITCH = {
    "dpid",
    "protocols",
    "failMode",
    "stp",
    "datapath",
    "batch",
    "inband",
    "listenPort",
    "reconnectms",
    "verbose",
}  # of a control plane
SHAPERS = {"use_htb", "use_tbf", "use_hfsc", "fast", "txo", "rxo"}
IN_PLACE_OF = {
    "mac": "MAC addresses follow from the links here. Leave it out.",
    "cpu": "hosts have no share of the processor here. Leave it out.",
    "cores": "hosts have no share of the processor here. Leave it out.",
    "sched": "hosts have no share of the processor here. Leave it out.",
    "defaultRoute": "routes follow from the links here. Leave it out.",
    "inNamespace": "every node is a network namespace here. Leave it out.",
    "enable_ecn": "give --ecn, which marks at every bottleneck.",
    "enable_red": "give --queue, such as --queue codel.",
    "latency_ms": "give max_queue_size=PACKETS, or --buffer TIME.",
    "speedup": "every direction of a link has its bw here. Leave it out.",
    "gro": "offloads are off here, so that a packet is a frame. Leave it out.",
    "intfName1": "interfaces are called NODE-ethN here. Leave it out.",
    "intfName2": "interfaces are called NODE-ethN here. Leave it out.",
}  # fmt: skip


class ScriptError(RequestError):
    """The network of a Mininet script cannot be built here."""


class MininetTopo(RoutedTopo):
    """``source`` with routers for its switches; ``alias``: the address of each host in Mininet."""

    first_subnet = LINKS_FROM

    def __init__(self, source: Topo) -> None:
        self.source = source
        super().__init__()

    def wire(self) -> None:
        if self.nics > 1:
            raise ScriptError("--nics: hosts of a Mininet script have one interface each.")
        for name in self.source.switches():
            _allow(f"switch {name}", self.source.nodeInfo(name), SWITCH | {"isSwitch"})
            self.router(name)
        used: dict[str, str] = {}
        for number, name in enumerate(self.source.hosts(), 1):
            options = self.source.nodeInfo(name)
            _allow(f"host {name}", options, {"ip"}, {"Host", "Node", "CPULimitedHost"})
            address = _address(name, options.get("ip"), number)
            if (other := used.setdefault(address, name)) != name:
                raise ScriptError(f"host {name}: its address {address} is that of {other}, too.")
            self.aliases[self.addHost(name, alias=address)] = address
        for a, b, info in self.source.links(sort=True, withInfo=True):
            self.link(a, b, **_link(f"link {a}-{b}", info))
        for name in self.source.hosts():
            if not self.source.ports.get(name):
                raise ScriptError(f"host {name} has no link. Leave it out, or add one.")
        if not any(info["bottleneck"] for _, _, info in self.links(withInfo=True)):
            raise ScriptError(
                "no link has a bw, and jobs have nothing to share. Give one to each link that they share: "
                "addLink('s1', 's2', bw=100)."
            )

    def described(self) -> tuple[Any, ...]:
        """A key that is equal for two scripts with the same network."""
        links = sorted((a, b, str(sorted(info.items()))) for a, b, info in self.links(withInfo=True))
        return tuple(self.nodes()), tuple(sorted(self.aliases.items())), tuple(links)


def _allow(what: str, options: Mapping[str, Any], known: set[str], classes: set[str] | None = None) -> None:
    """Raise `ScriptError` for an option that the testbed does not support."""
    cls = options.get("cls")
    if cls is not None and not _is_of_mininet(cls, classes):
        raise ScriptError(
            f"{what}: its class {getattr(cls, '__name__', cls)} is not executed here. Leave out cls; "
            "use addSwitch for a node that forwards, and addHost for any other."
        )
    for key, value in options.items():
        if key in known or key == "cls" or value is None or value is False or value in ({}, 0, "", -1):
            continue
        if key == "inNamespace" and value:
            continue
        raise ScriptError(
            f"{what}: {key}={value!r}: {IN_PLACE_OF.get(key, 'nothing here honours that. Leave it out.')}"
        )


def _is_of_mininet(cls: Any, names: set[str] | None) -> bool:
    own = str(getattr(cls, "__module__", "")).startswith(OWN_LIBRARY)
    return own and (names is None or getattr(cls, "__name__", "") in names)


def _address(host: str, text: str | None, number: int) -> str:
    """A host's address in Mininet, where the first host has 10.0.0.1."""
    try:
        address = IPv4Interface(text).ip if text else IPv4Address(ADDRESSES_FROM + number)
    except ValueError as error:
        raise ScriptError(f"host {host}: ip={text!r} is no IPv4 address: {error}.") from error
    if LINKS_FROM <= int(address) < ADDRESSES_FROM + (1 << 24):
        raise ScriptError(
            f"host {host}: ip={text!r}: links have the addresses from 10.64.0.0 on here. Use 10.0.0.0 to 10.63.255.255, "
            "172.16.0.0/12 or 192.168.0.0/16."
        )
    return str(address)


def _link(what: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `RoutedTopo.link` for Mininet's of a `TCLink`."""
    known = {
        "node1",
        "node2",
        "port1",
        "port2",
        "bw",
        "delay",
        "jitter",
        "loss",
        "max_queue_size",
        "params1",
        "params2",
        "addr1",
        "addr2",
    }
    for side in ("params1", "params2"):
        _allow(what, {key: value for key, value in (info.get(side) or {}).items() if key != "ip"}, set())
    _allow(what, info, known | SHAPERS, {"Link", "TCLink", "TCULink", "OVSLink"})
    settings: dict[str, Any] = {"port1": info["port1"], "port2": info["port2"]}
    if info.get("bw") is not None:
        settings |= {"bottleneck": True, "rate": f"{_number(what, info, 'bw'):g}mbit"}
    if info.get("max_queue_size") is not None:
        if "rate" not in settings:
            raise ScriptError(f"{what}: max_queue_size without bw: only a link with a rate has a queue. Give bw, too.")
        settings["buffer"] = f"{int(_number(what, info, 'max_queue_size'))}p"
    for key in ("delay", "jitter"):
        if info.get(key) is not None:
            text = str(info[key])
            settings[key] = f"{text}us" if text.replace(".", "", 1).isdigit() else text  # tc's unit of a bare number
    if info.get("loss"):
        settings["loss"] = f"{_number(what, info, 'loss'):g}%"
    return settings


def _number(what: str, info: Mapping[str, Any], key: str) -> float:
    try:
        return float(info[key])
    except (TypeError, ValueError) as error:
        raise ScriptError(f"{what}: {key}={info[key]!r} is no number.") from error


def routed(factory: Callable[..., Topo]) -> Callable[..., Topo]:
    """``factory``, whose plain `Topo` becomes a `MininetTopo`."""
    if isinstance(factory, type) and issubclass(factory, RoutedTopo):
        return factory

    def made(*arguments: int) -> Topo:
        topo = factory(*arguments)
        return MininetTopo(topo) if isinstance(topo, Topo) and not isinstance(topo, RoutedTopo) else topo

    return made


def is_script(path: Path) -> bool:
    """Return True if a file uses Mininet and has no ``topos``, Mininet's table of topologies."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    targets = {getattr(name, "id", "") for node in body for name in _targets(node)}
    modules = {
        name for node in body if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }  # fmt: skip
    return "topos" not in targets and any(name.partition(".")[0] == "mininet" for name in modules)


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def find(path: Path) -> Callable[..., Topo]:
    """The factory of a script's network: without arguments the one that the script itself makes, else its only `Topo` class.

    The script is executed up to the point where it builds its network. Raises `ScriptError`.
    """

    def made(*arguments: int) -> Topo:
        recorded, failure = (None, None) if arguments else _recorded(path)
        if recorded is None:
            recorded = _only_class(path, failure)(*arguments)
        return recorded if isinstance(recorded, RoutedTopo) else MininetTopo(recorded)

    return made


def _only_class(path: Path, failure: str | None) -> Callable[..., Topo]:
    with _without_machine(path, Recorder):
        try:
            found = runpy.run_path(str(path), run_name="topology")
        except RequestError:
            raise
        except BaseException as error:
            raise ScriptError(f"it cannot be executed: {type(error).__name__}: {error}.") from error
    classes = [
        value for value in found.values()
        if isinstance(value, type) and issubclass(value, Topo) and value.__module__ == "topology"
    ]  # fmt: skip
    if len(classes) != 1:
        names = ", ".join(cls.__name__ for cls in classes) or "none"
        why = f" Executed as a script, it ended with: {failure}." if failure else ""
        raise ScriptError(
            f"it builds no network (`Mininet(…)`), and has not one Topo class but {names}.{why} "
            "Add a line: topos = {'mine': MyTopo}."
        )
    return classes[0]


class BuiltError(BaseException):
    """A script is about to build its network: there is no need to go on."""


class Recorder:
    """A replacement of `mininet.net.Mininet` that records the network of a script."""

    found: Topo | None = None

    def __init__(self, topo: Topo | None = None, **options: Any) -> None:
        check_options(options)
        if topo is not None:
            self._end(topo)
        self.topo = Topo()
        self.hosts = 0
        self.controllers: list[Any] = []

    @classmethod
    def _end(cls, topo: Topo) -> None:
        Recorder.found = topo
        raise BuiltError

    def addHost(self, name: str, cls: Any = None, **options: Any) -> str:
        self.hosts += 1
        options.setdefault("ip", str(IPv4Address(ADDRESSES_FROM + self.hosts)))
        return str(self.topo.addHost(name, cls=cls, **options))

    def addSwitch(self, name: str, cls: Any = None, **options: Any) -> str:
        return str(self.topo.addSwitch(name, cls=cls, **options))

    def addController(self, *_arguments: Any, **_options: Any) -> None:
        """Do nothing: routes need no controller."""

    def addLink(
        self, node1: Any, node2: Any, port1: Any = None, port2: Any = None, cls: Any = None, **options: Any
    ) -> None:
        self.topo.addLink(str(node1), str(node2), port1, port2, cls=cls, **options)

    def build(self) -> None:
        self._end(self.topo)

    start = build

    def addNAT(self, *_arguments: Any, **_options: Any) -> None:
        raise ScriptError("addNAT: the network has no route to the Internet. Leave it out.")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `ScriptError` for options of ``Mininet(…)`` that the testbed does not support."""
    base = options.get("ipBase")
    if base is not None and IPv4Interface(base).network.network_address != IPv4Address(ADDRESSES_FROM):
        raise ScriptError(f"Mininet(ipBase={base!r}): give each host its own address: addHost('h1', ip='…').")
    for kind in ("host", "switch", "link", "intf"):
        if (cls := options.get(kind)) is not None and not _is_of_mininet(cls, None):
            raise ScriptError(f"Mininet({kind}={getattr(cls, '__name__', cls)}) is not executed here. Leave it out.")


def _recorded(path: Path) -> tuple[Topo | None, str | None]:
    """The network that a script builds; or how it ended before it built one."""
    Recorder.found, failure = None, None
    with _without_machine(path, Recorder):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except ScriptError:
            if Recorder.found is None:
                raise
        except BaseException as error:  # also its exit, and any exception that a `finally` made of `BuiltError`
            failure = f"{type(error).__name__}: {error}"
    return Recorder.found, failure


@contextlib.contextmanager
def _without_machine(path: Path, network: type) -> Iterator[None]:
    """Inside, a script can build no network and run no command."""
    from unittest import mock  # here: asyncio comes with it, and few experiments have a script

    def refused(*arguments: Any, **_options: Any) -> Any:
        raise ScriptError(
            f"it runs a command before it builds its network: {quoted(arguments[0] if arguments else '')}. "
            "Remove it. Nothing of earlier runs is left here."
        )

    with (
        stand_ins(path, {"mininet.net.Mininet": network, "mininet.clean.cleanup": lambda *_arguments: None}),
        mock.patch.object(os, "system", refused),
        mock.patch.object(subprocess, "Popen", refused),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield


@contextlib.contextmanager
def stand_ins(path: Path, others: Mapping[str, Any]) -> Iterator[None]:
    """Replace Mininet's modules by ``others`` while a script at ``path`` runs, with its arguments and folder as if
    started directly."""
    from unittest import mock

    with contextlib.ExitStack() as stack:
        for name, other in others.items():
            module, _, attribute = name.rpartition(".")
            stack.enter_context(mock.patch.object(importlib.import_module(module), attribute, other))
        stack.enter_context(mock.patch.object(sys, "argv", [str(path)]))
        stack.enter_context(mock.patch.object(sys, "path", [str(path.resolve().parent), *sys.path]))
        yield
