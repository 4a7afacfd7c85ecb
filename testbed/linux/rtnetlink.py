"""rtnetlink as bytes: attributes, traffic-control messages, and a socket for requests; standard library only."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux import netns

Kind = Literal["qdisc", "class", "filter"]

RTM_GETROUTE = 26
NEW = {"qdisc": 36, "class": 40, "filter": 44}
GET = {"qdisc": 38, "class": 42, "filter": 46}
NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL, NLM_F_CREATE, NLM_F_DUMP = 0x1, 0x4, 0x200, 0x400, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
TCA_KIND, TCA_OPTIONS, TCA_DUMP_INVISIBLE = 1, 2, 10
TC_H_ROOT = 0xFFFFFFFF
OURS = 0x3FF << 22
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
TCMSG = struct.Struct("=BxxxiIII")  # struct tcmsg: family, interface, handle, parent, info
# struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags
RTMSG = struct.Struct("=BBBBBBBBI")
RTA_DST, RTA_SRC, RTA_IIF, RTA_OIF, RTA_GATEWAY, RTA_MULTIPATH = 1, 2, 3, 4, 5, 9
RTA_IP_PROTO, RTA_SPORT, RTA_DPORT = 27, 28, 29
RTNEXTHOP = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, weight - 1, interface
MAIN_TABLE, RTPROT_KERNEL = 254, 2


def handle(major: int, minor: int = 0) -> int:
    """``10:2`` of tc is ``handle(0x10, 2)``."""
    return major << 16 | minor


@dataclass(frozen=True)
class Tc:
    """A queueing discipline, class or filter at one interface, as sent to the kernel or as reported by it."""

    what: Kind
    kind: str  # "tbf", "u32", …
    handle: int
    parent: int
    options: bytes
    info: int = 0  # of a filter: priority and protocol

    def packed(self, index: int) -> bytes:
        encoded = attribute(TCA_KIND, self.kind.encode() + b"\0") + attribute(TCA_OPTIONS, self.options)
        return TCMSG.pack(socket.AF_UNSPEC, index, self.handle, self.parent, self.info) + encoded


class Socket:
    """A socket in one network namespace; questions and answers one after the other."""

    def __init__(self, namespace: int) -> None:
        with netns.entered(namespace):
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        # An explicit port number: the kernel would choose a random one if another socket of this process had the first.
        self.socket.bind((OURS | os.getpid(), 0))

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def ask(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        """The payloads of all answers; raises `OSError` if the kernel refuses."""
        self.socket.send(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, 1, 0) + body)
        while True:
            data = self.socket.recv(1 << 18)
            while data:
                length, answered, multi, _, _ = HEADER.unpack_from(data)
                payload, data = data[HEADER.size : length], data[(length + 3) & ~3 :]
                if answered == NLMSG_ERROR:
                    (code,) = struct.unpack_from("=i", payload)
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    return
                if answered == NLMSG_DONE:
                    return
                yield payload
                if not (multi & 2 or flags & NLM_F_ACK):
                    return

    def add(self, index: int, message: Tc) -> None:
        """Raises `OSError` where the kernel has no such thing (ENOENT), or does not take it."""
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
        list(self.ask(NEW[message.what], flags, message.packed(index)))

    def change(self, index: int, message: Tc) -> None:
        list(self.ask(NEW[message.what], NLM_F_ACK, message.packed(index)))

    def shown(self, index: int, what: Kind, parent: int = 0) -> list[Tc]:
        """Return the qdiscs, classes, or filters of one interface, including queues that the kernel created by itself."""
        body = TCMSG.pack(socket.AF_UNSPEC, index, 0, parent, 0)
        if what == "qdisc":
            body += attribute(TCA_DUMP_INVISIBLE, b"")
        found = []
        for payload in self.ask(GET[what], NLM_F_DUMP, body):
            _, where, own, above, info = TCMSG.unpack_from(payload)
            fields = attributes(payload[TCMSG.size :])
            if where == index:
                kind = fields.get(TCA_KIND, b"").rstrip(b"\0").decode()
                found.append(Tc(what, kind, own, above, fields.get(TCA_OPTIONS, b""), info))
        return found

    def routes(self) -> dict[str, tuple[str, ...]]:
        """Return the next hops of each IPv4 prefix (``0.0.0.0/0``: the default), except those that the kernel added by
        itself.

        A hop with a weight above 1 among several includes its weight: ``10.0.0.1 x 2``.
        """
        found = {}
        for payload in self.ask(RTM_GETROUTE, NLM_F_DUMP, RTMSG.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)):
            _, length, _, _, table, protocol, _, _, _ = RTMSG.unpack_from(payload)
            fields = attributes(payload[RTMSG.size :])
            if table == MAIN_TABLE and protocol != RTPROT_KERNEL:
                hops = tuple(_hops(fields[RTA_MULTIPATH])) if RTA_MULTIPATH in fields else (_via(fields),)
                found[f"{_address(fields.get(RTA_DST, bytes(4)))}/{length}"] = hops
        return found


def _address(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET, packed)


def _via(fields: dict[int, bytes]) -> str:
    return _address(fields[RTA_GATEWAY]) if RTA_GATEWAY in fields else "its own link"


def _hops(data: bytes) -> Iterator[str]:
    while len(data) >= RTNEXTHOP.size:
        length, _, more, _ = RTNEXTHOP.unpack_from(data)
        yield _via(attributes(data[RTNEXTHOP.size : length])) + (f" x {more + 1}" if more else "")
        data = data[(length + 3) & ~3 :]
