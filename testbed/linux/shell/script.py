"""A Mininet script in a network that is there already: ``Mininet(…)`` gives it, and ``CLI(net)`` is the shell's."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mininet.log import output
from mininet.topo import Topo

from testbed.core.errors import RequestError
from testbed.linux.network import VethLink
from testbed.linux.shell.console import Console
from testbed.linux.shell.node import Host, Network
from testbed.networks.mininet_script import MininetTopo, check_options, stand_ins
from testbed.networks.routed import RoutedTopo


class Driven:
    """The ``net`` of a script: the network of ``console``, which the script neither builds nor ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._network: Network = console.mn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __getitem__(self, name: str) -> Host:
        node: Host = self._network[name]
        return node

    def __contains__(self, name: str) -> bool:
        return name in self._network

    def __iter__(self) -> Any:
        return iter(self._network)

    def __len__(self) -> int:
        return len(self._network)

    @property
    def hosts(self) -> list[Host]:
        return [node for node in self._network.hosts if not node.forwards]

    @property
    def switches(self) -> list[Host]:
        return [node for node in self._network.hosts if node.forwards]

    def build(self) -> None:
        """Do nothing: the network is built."""

    start = stop = build

    def addHost(self, name: str, *_arguments: Any, **_options: Any) -> Host:
        if name not in self._network:
            raise _other(f"has a node {name}, which the network of this run lacks")
        return self[name]

    def addSwitch(self, name: str, *_arguments: Any, **_options: Any) -> Host:
        return self.addHost(name)

    def addController(self, *_arguments: Any, **_options: Any) -> SimpleNamespace:
        """Do nothing: routes need no controller."""
        return SimpleNamespace(start=lambda: None, stop=lambda: None)

    def addLink(self, node1: Any, node2: Any, *_arguments: Any, **_options: Any) -> VethLink:
        ends = {str(node1), str(node2)}
        for link in self._network.links:
            if {link.intf1.node.name, link.intf2.node.name} == ends:
                return link  # type: ignore[no-any-return]
        raise _other(f"has a link {node1}-{node2}, which the network of this run lacks")

    def addNAT(self, *_arguments: Any, **_options: Any) -> None:
        raise RequestError("addNAT: the network has no route to the Internet. Leave it out.")

    def pingAll(self, timeout: str | None = None) -> float:
        output("*** Ping: testing ping reachability\n")
        return float(self._network.ping(self.hosts, timeout))

    def iperf(self, hosts: Any = None, **options: Any) -> list[str]:
        return self._network.iperf(hosts or (self.hosts[0], self.hosts[-1]), **options)

    def interact(self) -> None:
        self._console.converse()


def _other(what: str) -> RequestError:
    return RequestError(f"the script {what}. Give --topo the network of the script.")


def play(path: Path, console: Console) -> bool:
    """Execute a script; whether it came to its end. An error is printed."""

    def mininet(topo: Topo | None = None, **options: Any) -> Driven:
        check_options(options)
        driven = Driven(console)
        if topo is not None and _described(topo) != _described(console.mn.topo):
            raise _other("builds another network than this run")
        return driven

    def cli(_net: Driven, script: str | None = None, **_options: Any) -> None:
        if script is None:
            console.converse()
        else:
            console.do_source(script)

    others = {"mininet.net.Mininet": mininet, "mininet.cli.CLI": cli, "mininet.clean.cleanup": lambda *_arguments: None}
    try:
        with stand_ins(path, others):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        return not end.code
    except RequestError as error:
        console.link.write(f"{path.name}: {error}\n")
        return False
    except BaseException as error:
        error.__traceback__ = _own(error, path)
        console.link.write("".join(traceback.format_exception(error)))
        return False
    return True


def _own(error: BaseException, path: Path) -> Any:
    """A traceback from the script's first line on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(path):
        frames = frames.tb_next
    return frames or error.__traceback__


def _described(topo: Topo) -> object:
    made = topo if isinstance(topo, RoutedTopo) else MininetTopo(topo)
    return made.described() if isinstance(made, MininetTopo) else (made.nodes(), made.links(sort=True))
