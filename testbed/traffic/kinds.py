"""Kinds of background traffic and their options: ``poisson:load=0.3,sizes=websearch``.

Every kind has ``sources`` and ``targets``: host names, separated by ``+``. By default, every host on the left of the
first bottleneck sends to every host on its right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.core import options, system_text
from testbed.core.errors import RequestError
from testbed.core.options import Boolean, Bytes, Integer, Name, Number, OneOf, Seconds, option
from testbed.core.text import closest, quoted


@dataclass(frozen=True)
class Source:
    """Options of every kind."""

    sources: str = option("", "hosts that send: l1+l2", Name())
    targets: str = option("", "hosts that receive: r1+r2", Name())
    start: float = option(0.0, "start after the first iteration begins: 2s", Seconds())
    stop: float = option(0.0, "end: 10s; 0s: with the run", Seconds())


@dataclass(frozen=True)
class Flows(Source):
    """Options of the kinds that are made of TCP flows."""

    congestion: str = option("cubic", "congestion control of the kernel", Name())
    priority: str = option("0", "class selector, 0 (lowest) to 7, or by-size: 2 up to 100 kB, 1 up to 1 MB, else 0", OneOf(*"01234567", "by-size"))  # fmt: skip


@dataclass(frozen=True)
class Long(Flows):
    """Flows that send for as long as the run lasts."""

    flows: int = option(1, "number of flows, between the hosts in turn", Integer(1, 1000))


@dataclass(frozen=True)
class Poisson(Flows):
    """Flows that begin at random times (a Poisson process), between random hosts."""

    load: float = option(0.3, "offered share of the bottleneck's rate", Number(0.001, 2))
    sizes: str = option("websearch", "flow sizes: websearch, datamining, rpc, or a CSV file of bytes,share", Name())


@dataclass(frozen=True)
class Incast(Flows):
    """Bursts of flows to one target, at regular times."""

    bytes: int = option(64_000, "size of each flow", Bytes(1))
    every: float = option(0.1, "time between two bursts", Seconds())
    degree: int = option(8, "flows of a burst, from the sources in turn", Integer(1, 1000))


@dataclass(frozen=True)
class Storage(Flows):
    """Blocks that are written at random times, each by a separate connection."""

    bytes: int = option(4_000_000, "size of a block", Bytes(1))
    rate: float = option(10.0, "blocks a second", Number(0.001, 1e6))


@dataclass(frozen=True)
class Checkpoint(Flows):
    """Every source writes a checkpoint to a target, all at the same time."""

    bytes: int = option(100_000_000, "size of a checkpoint", Bytes(1))
    every: float = option(10.0, "time between two checkpoints", Seconds())


@dataclass(frozen=True)
class Inference(Flows):
    """Requests at random times, each with a response: the latency counts."""

    request: int = option(2_000, "size of a request", Bytes(1))
    response: int = option(20_000, "size of a response", Bytes(1))
    rate: float = option(100.0, "requests a second", Number(0.001, 1e6))


@dataclass(frozen=True)
class Iperf3(Source):
    """`iperf3` between the first source and the first target."""

    seconds: int = option(5, "how long it sends", Integer(1, 86_400))
    parallel: int = option(1, "parallel streams", Integer(1, 128))
    congestion: str = option("cubic", "congestion control of the kernel, for TCP", Name())
    udp: bool = option(False, "UDP in place of TCP", Boolean())


@dataclass(frozen=True)
class Command(Source):
    """A program on the first source; ``{target}`` in its words is the address of the first target."""

    command: str = option("", "the program and its words, without commas", Name())


KINDS: dict[str, type[Source]] = {
    "long": Long, "poisson": Poisson, "incast": Incast, "storage": Storage, "checkpoint": Checkpoint,
    "inference": Inference, "iperf3": Iperf3, "cmd": Command,
}  # fmt: skip


def parse(text: str) -> tuple[str, str, Source]:
    """Kind, label and options of ``kind:option=value,…``; raises `RequestError`."""
    part = system_text.part(text)
    kind = KINDS.get(part.name)
    if kind is None:
        near = closest(part.name, list(KINDS))
        raise RequestError(
            f"{quoted(part.name)} is no kind of traffic. "
            + (f"Did you mean {near}?" if near else f"There are {', '.join(KINDS)}.")
        )
    label = next((value for key, value in part.options if key == "label"), part.name)
    own = system_text.Part(part.name, tuple(pair for pair in part.options if pair[0] != "label"))
    values: dict[str, Any] = options.read(options.declared(kind), own)
    if kind is Command and not values.get("command"):
        raise RequestError('cmd needs command="PROGRAM WORDS…"')
    return part.name, label, kind(**values)
