"""What `test_spraying` does inside a user-mode Linux (`Uml.call`): it answers in JSON."""

from __future__ import annotations

import json
import sys

import msgspec

from testbed.linux import features, setup_steps
from testbed.linux.network import Network, build, link_name
from testbed.linux.participants.timeline import Machine
from testbed.linux.settings import apply_all
from testbed.networks import spraying
from tests.support.runs import one_plan

SPINES, DATAGRAMS, FLOWS, BYTES, PORT = 4, 800, 8, 1000, 7400
SEND = f"""
import socket, sys, time
addresses = sys.argv[2:]
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sys.argv[1]))]
for number, sock in enumerate(socks):
    sock.bind(("", {PORT} + number))
for number in range({DATAGRAMS}):
    socks[number % len(socks)].sendto(bytes({BYTES}), (addresses[number % len(addresses)], {PORT}))
    time.sleep(0.0005)
"""


def spread(machine: Machine) -> bytes:
    """Bytes on each uplink of the sender's leaf: one socket that goes round the paths; eight whose flows are hashed."""
    plan = one_plan(topo=f"leafspine,2,{SPINES},2", jobs=1, compute="5ms", bytes="100kB", system=["reno"])
    topo = setup_steps.topology(plan)
    network = build(topo, machine.modules)
    steps = setup_steps.changes(msgspec.structs.replace(plan, paths=SPINES), features.running())
    apply_all(setup_steps.settings(steps, "network"), network)
    paths = [spraying.address(topo, "h3", path) for path in range(SPINES)]
    told = {
        "sprayed": _sent(network, 1, paths),
        "hashed": _sent(network, FLOWS, [str(network["h3"].IP())]),
    }
    return json.dumps(told).encode()


def _sent(network: Network, sockets: int, addresses: list[str]) -> list[int]:
    before = _uplinks(network)
    said = network["h1"].cmd(sys.executable, "-c", SEND, str(sockets), *addresses)
    assert not said, said
    return [now - then for now, then in zip(_uplinks(network), before, strict=True)]


def _uplinks(network: Network) -> list[int]:
    ends = sorted((link_name(end), end) for end in network.ends(bottleneck=True) if end.node.name == "l1")
    return [int(end.node.ip.get_links(end.index)[0].get("stats64")["tx_bytes"]) for _, end in ends]
