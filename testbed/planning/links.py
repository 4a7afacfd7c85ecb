"""A spec's network: its topology, which links are shaped, which delay or lose, what happens to them, what its hosts send by."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from mininet.topo import Topo

from testbed import networks, queues, registry
from testbed.core import system_text
from testbed.core.errors import RequestError, within
from testbed.core.runs.plan import EcnThreshold, Link, LinkEvent, QueueDiscipline, Sender, Wire
from testbed.core.text import did_you_mean, quoted, shown
from testbed.core.units import Duration, Share, UnitError, decoded
from testbed.models.frames import frame
from testbed.networks.mininet_script import ScriptError
from testbed.networks.routed import RoutedTopo, TooManyError, at_most, has_choice, path, with_nics
from testbed.planning import rate_trace
from testbed.spec import LinkSpec, Spec, limits
from testbed.spec.relative_quantities import Loss, PriorityQueues

SMALL_QUEUE_BYTES = 1 << 20  # of a socket without TCP, if a host is not notified (Linux 4.15 to 6.13)
NOTHING = LinkSpec(delay=Duration(0), jitter=Duration(0), loss=Loss("0%"), corrupt=Share("0%"))
# What a link of a topology has beside its settings.
_NO_SETTINGS = {"bottleneck", "node1", "node2", "port1", "port2", "params1", "params2"}
_SHAPED, _PLAIN = ("rate", "rate_trace", "buffer", "ecn", "queue"), ("delay", "jitter", "loss", "corrupt")


@dataclass(frozen=True)
class Network:
    """The network settings that all runs of an experiment share."""

    topo: RoutedTopo
    topology_args: tuple[int, ...]
    link: Link  # settings of every bottleneck in the experiment
    bottlenecks: dict[str, Link]
    wires: dict[str, Wire]
    events: tuple[LinkEvent, ...]
    sender: Sender
    nics: tuple[str, ...]
    multipath: bool

    @cached_property
    def limited(self) -> dict[str, Link]:
        """Return every direction with a limited rate: bottlenecks, and NICs of hosts as links."""
        if self.sender.nic_bps is None:
            return self.bottlenecks
        nic = Link(self.sender.nic_bps, self.sender.queue_bytes, self.link.mtu, acks_first=False)
        return {**self.bottlenecks, **dict.fromkeys(self.nics, nic)}


def network(spec: Spec) -> Network:
    """The network of an experiment; raises `RequestError`."""
    general, sends = link(spec, LinkSpec()), sender(spec)
    topo, args = load_topology(spec)
    multipath = has_choice(topo)
    bottlenecks, wires = bottlenecks_and_wires(spec, topo)
    return Network(
        topo,
        args,
        general,
        bottlenecks,
        wires,
        events(spec, topo, bottlenecks),
        sends,
        nics(sends, topo, bottlenecks),
        multipath,
    )


def load_topology(spec: Spec) -> tuple[RoutedTopo, tuple[int, ...]]:
    """The spec's network, with the arguments its class was given; raises `RequestError`."""
    name, *words = spec.topo.split(",")
    try:
        args = tuple(int(word) for word in words)
    except ValueError as error:
        raise RequestError(
            f"topo: {quoted(spec.topo)}: the arguments of a topology must be whole numbers, as in dumbbell,4."
        ) from error
    cls = networks.find(name)
    most = limits.limits_for(spec.on)
    try:
        with at_most(most.hosts, most.links), with_nics(spec.nics):
            if not args and hasattr(cls, "sized"):
                topo = cls.sized(spec.jobs, max(job.workers or 0 for job in spec.all_jobs))
                args = tuple(topo.arguments)
            else:
                topo = cls(*args)
    except TooManyError as error:
        raise limits.TooLargeError(f"topo: {shown(spec.topo)}: {error} that can be {most.done}") from error
    except ScriptError as error:
        raise ScriptError(f"topo: {shown(spec.topo)}: {error}") from error
    except Exception as error:
        raise RequestError(f"topo: {networks.failure(spec.topo, error)}") from error
    if not isinstance(topo, RoutedTopo):
        raise RequestError(
            f"topo: {spec.topo} does not inherit from RoutedTopo, so its nodes have no routes. Derive it from "
            "testbed.networks.routed.RoutedTopo, as in examples/two_sites.py (docs/reference/topologies.md)."
        )
    return topo, args


def bottlenecks_and_wires(spec: Spec, topo: Topo) -> tuple[dict[str, Link], dict[str, Wire]]:
    """The directions that are shaped and those that delay or lose, by name."""
    bottlenecks: dict[str, Link] = {}
    wires: dict[str, Wire] = {}
    everywhere = LinkSpec(delay=spec.delay, jitter=spec.jitter, loss=spec.loss, corrupt=spec.corrupt)
    routers = {node for node in topo.nodes() if topo.nodeInfo(node).get("cls") is not None}
    there = {name for a, b in topo.links() for name in (f"{a}-{b}", f"{b}-{a}")}
    if strangers := sorted(set(spec.link) - there):
        raise RequestError(
            f"link: there is no link {quoted(strangers[0])} in {spec.topo}. Give one of {', '.join(sorted(there))}"
        )
    for a, b in topo.links():
        if {f"{a}-{b}", f"{b}-{a}"} <= set(spec.link):
            raise RequestError(
                f"link.{a}-{b}, link.{b}-{a}: these are the two directions of one link. Give only one of them."
            )
    for a, b, info in topo.links(sort=True, withInfo=True):
        shaped = bool(info.get("bottleneck"))
        with within(f"topo: link {a}-{b}"):
            own = _of_topology(info)
        for name in (f"{a}-{b}", f"{b}-{a}"):
            own = spec.link[name].beside(own) if name in spec.link else own
        if stray := [key for key in _SHAPED if getattr(own, key) is not None and not shaped]:
            raise RequestError(
                f"topo: link {a}-{b} sets {', '.join(stray)}, which only a bottleneck has. Add bottleneck=True, or leave it out."
            )
        if shaped:
            with within(f"topo: link {a}-{b}"):
                bottlenecks[f"{a}-{b}"] = bottlenecks[f"{b}-{a}"] = link(spec, own)
        for here, there in ((a, b), (b, a)):
            # A setting of the experiment for every path acts once, on its last hop; a setting of a link acts in both its directions.
            settings = own if _holds_both_directions(spec, here, there) else LinkSpec()
            last = here in routers and there not in routers
            if last or any(getattr(settings, key) is not None for key in _PLAIN):
                with within(f"topo: link {a}-{b}"):
                    wire = _wire(settings.beside(everywhere if last else NOTHING))
                if wire != Wire(0, 0, 0.0, 0.0):
                    wires[f"{here}-{there}"] = wire
    if not bottlenecks:
        raise RequestError(f"topo: {spec.topo} has no bottleneck. Mark a link with link(…, bottleneck=True).")
    return bottlenecks, wires


def _of_topology(info: dict[str, Any]) -> LinkSpec:
    """The settings of a link in a topology file; raises `UnitError`."""
    known = (*_SHAPED, *_PLAIN)
    if strangers := sorted(set(info) - _NO_SETTINGS - set(known)):
        hint = did_you_mean(strangers[0], known, f"Give one of {', '.join(known)}.")
        raise UnitError(f"a link has no setting {quoted(strangers[0])}. {hint}")
    texts = {key: str(info[key]) for key in known if key in info}
    try:
        return msgspec.convert(texts, LinkSpec, dec_hook=decoded)
    except msgspec.ValidationError as error:
        raise UnitError(str(error).partition(" - at `$")[0]) from error


def _holds_both_directions(spec: Spec, here: str, there: str) -> bool:
    """Whether the link's own settings apply to this direction as well."""
    back = spec.link.get(f"{there}-{here}")
    return back is None or not back.oneway


def sender(spec: Spec) -> Sender:
    """The interface of a host towards the network: its rate and queue; raises `UnitError`."""
    rate_bps = int(spec.rate)
    nic_bps = spec.nic.or_none(rate_bps)
    waiting = spec.host_queue.bytes(nic_bps or rate_bps, spec.mtu)
    small = None
    if spec.represents_rate is not None:
        small = max(2 * frame(spec.mtu), SMALL_QUEUE_BYTES * rate_bps // int(spec.represents_rate))
    return Sender(
        nic_bps,
        "fq" if waiting is None else "fifo",
        waiting or 0,
        None if spec.sndbuf is None else int(spec.sndbuf),
        bool(spec.slow_start_after_idle),
        small,
    )


def nics(sender: Sender, topo: Topo, bottlenecks: dict[str, Link]) -> tuple[str, ...]:
    """The directions that leave a host by an interface with its own rate."""
    if sender.nic_bps is None:
        return ()
    directions = [way for a, b in topo.links(sort=True) for way in ((a, b), (b, a))]
    return tuple(f"{a}-{b}" for a, b in directions if not topo.isRouter(a) and f"{a}-{b}" not in bottlenecks)


def events(spec: Spec, topo: Topo, bottlenecks: dict[str, Link]) -> tuple[LinkEvent, ...]:
    """The events of links, in order; raises `RequestError`."""
    found: list[LinkEvent] = []
    for number, wanted in enumerate(spec.event):
        where = f"event.{number}"
        if wanted.link not in bottlenecks:
            raise RequestError(
                f"{where}: link: there is no bottleneck {quoted(wanted.link)}. Give one of {', '.join(sorted(bottlenecks))}."
            )
        back = next(f"{b}-{a}" for x, y in topo.links() for a, b in ((x, y), (y, x)) if f"{a}-{b}" == wanted.link)
        if twin := next((event for event in found if event.link == wanted.link and event.at_ns == wanted.at), None):
            raise RequestError(f"{where}: {twin.link} has another event at {wanted.at}. Give this one another time.")
        if (wanted.rate is None) == (wanted.state is None):
            raise RequestError(f"{where}: give either a rate or a state (up, down).")
        if bottlenecks[wanted.link].trace is not None and wanted.rate is not None:
            raise RequestError(f"{where}: rate: {wanted.link} follows a rate_trace. Leave out the rate or the trace.")
        with within(f"{where}: rate"):
            rate_bps = None if wanted.rate is None else wanted.rate.resolve(bottlenecks[wanted.link].rate_bps)
        found += [
            LinkEvent(int(wanted.at), name, rate_bps, None if wanted.state is None else wanted.state == "up")
            for name in (wanted.link, back)
        ]  # fmt: skip
    return tuple(sorted(found, key=lambda event: event.at_ns))


def link(spec: Spec, own: LinkSpec) -> Link:
    """Return a bottleneck with the settings of the spec, overridden by ``own``. Raises `UnitError`."""
    if own.rate is not None and own.rate_trace is not None:
        raise UnitError("both rate and rate_trace are given. Leave out one of them")
    name = own.rate_trace or (spec.rate_trace if own.rate is None else None)
    trace = None if name is None else rate_trace.read(name, spec.mtu)
    rate = int(spec.rate) if own.rate is None else own.rate.resolve(int(spec.rate))
    rate = rate if trace is None else max(trace.rates_bps)
    buffer = (own.buffer or spec.buffer).bytes(rate, spec.mtu)
    if buffer < 2 * frame(spec.mtu):
        raise UnitError(
            f"its buffer of {buffer} bytes does not hold two frames of {frame(spec.mtu)} bytes. Give a larger buffer"
        )
    marks, queue = own.ecn or spec.ecn, own.queue or spec.queue
    acks_first = spec.ack_priority == "on"
    if queue == queues.FIFO:
        return Link(rate, buffer, spec.mtu, acks_first, marks.resolve(rate, buffer, spec.mtu), trace=trace)
    if system_text.name_of(queue) == queues.FIFO:
        raise UnitError(f"queue: {quoted(queue)}: fifo has no options. Give its size as --buffer, its marks as --ecn.")
    if marks not in ("on", "off"):
        raise UnitError(
            f"ecn: {quoted(marks)} sets the marking threshold of a FIFO queue, but {quoted(queue)} marks by its own rule. "
            "Give --ecn on or --ecn off."
        )
    name = system_text.name_of(queue)
    if registry.is_file_name(name):
        name = str(Path(name).resolve())
    with within("queue"):
        can_mark = bool(queues.find(name).MARKS)
    whole = queues.Buffer(buffer, frame(spec.mtu), marks == "on" and can_mark)
    discipline = QueueDiscipline(queue, name, tuple(queues.parameters(queue, whole).items()), whole.marks)
    return Link(rate, buffer, spec.mtu, acks_first, queue=discipline, trace=trace)


def banded(bottlenecks: dict[str, Link], asked: PriorityQueues, scheduled: int) -> dict[str, Link]:
    """Return bottlenecks with the requested priority queues, or those of a flow scheduler.

    Raises `RequestError` for both.
    """
    if asked.apart:
        if scheduled > 1:
            raise RequestError(
                f"priority_queues: {asked}: the flow scheduler sets its own priority queues. Leave out one of them."
            )
        return {name: _banded(link, asked) for name, link in bottlenecks.items()}
    return {name: msgspec.structs.replace(link, bands=scheduled) for name, link in bottlenecks.items()}


def _banded(link: Link, asked: PriorityQueues) -> Link:
    """Return a bottleneck with priority queues for data below one for control.

    With selective dropping, higher queues have smaller thresholds. The lowest has the link's own threshold, and queue k
    above it the fraction 1 − k ÷ ``asked.data`` of it, because MLT drops first what is served first (section 3, which
    gives no numbers). With ``asked.solved``, the program of MLT's appendix gives the thresholds.
    """
    threshold = link.ecn_threshold if asked.drops else None
    selective = (
        ()
        if threshold is None
        else _solved(link, asked.data)
        if asked.solved
        else _in_proportion(link, threshold, asked.data)
    )
    return msgspec.structs.replace(link, bands=asked.data, control=True, selective=selective)


def _in_proportion(link: Link, threshold: EcnThreshold, bands: int) -> tuple[EcnThreshold, ...]:
    least = 2 * frame(link.mtu)
    return tuple(
        EcnThreshold(
            max(least, threshold.min_bytes * k // bands),
            max(least, threshold.max_bytes * k // bands),
            threshold.probability,
        )
        for k in range(1, bands + 1)
    )


def _solved(link: Link, bands: int) -> tuple[EcnThreshold, ...]:
    """Return the solved thresholds.

    Each queue drops every packet above its threshold, and its limit is that of the port.
    """
    from testbed.models import thresholds  # noqa: PLC0415  # importing SciPy takes long, and few runs need it

    size = frame(link.mtu)
    try:
        found = thresholds.solve(bands, link.buffer_bytes // size)
    except ValueError as error:
        raise RequestError(f"priority_queues: {error}. Give a larger --buffer, or fewer priority queues.") from error
    return tuple(EcnThreshold(at, at, 1.0) for one in found for at in [max(2 * size, int(one.droppable * size))])


def _wire(settings: LinkSpec) -> Wire:
    """A link from a complete description; raises `UnitError`."""
    assert (
        settings.delay is not None
        and settings.jitter is not None
        and settings.loss is not None
        and settings.corrupt is not None
    )
    if settings.jitter > settings.delay:
        raise UnitError(f"the jitter {settings.jitter} is larger than the delay {settings.delay}. Give less jitter")
    if settings.corrupt.value == 1:
        raise UnitError(f"corrupt: {quoted(settings.corrupt)} is not between 0% and 100%")
    return Wire(
        int(settings.delay), int(settings.jitter), settings.loss.value, settings.corrupt.value, settings.loss.burst
    )


def base_rtt_s(network: Network, first: str, last: str) -> float:
    """Serialisation of a small frame at each bottleneck and host, and every delay, there and back."""
    nodes = path(network.topo, first, last)
    nic_bps = network.sender.nic_bps
    total = 0.0
    for a, b in [*itertools.pairwise(nodes), *itertools.pairwise(nodes[::-1])]:
        if link := network.bottlenecks.get(f"{a}-{b}"):
            total += 60 * 8 / link.rate_bps
        elif nic_bps is not None and not network.topo.isRouter(a):
            total += 60 * 8 / nic_bps
        if wire := network.wires.get(f"{a}-{b}"):
            total += wire.delay_ns / 1e9
    return total
