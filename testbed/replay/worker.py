"""Replay the operations of one worker of one job, iteration after iteration, inside a host.

Started by the testbed as ``python -m testbed.replay.worker`` in the host's network namespace.
It exchanges lines of JSON; standard library only, unless it trains a model.

=====================  ====================================================================
reads                  writes
=====================  ====================================================================
the job (`WorkerJob`)  ``{"listening": true}``
``{"connect_ns": t}``  at t ``{"flows": [{"source", "target", "saddr", "sport", "daddr", "dport"}]}``
``{"start_ns": t,      waits for t from w on; then one line per iteration, until killed:
"wait_from_ns": w}``   ``[iteration, start, comm_start, end, bytes_sent, late, operations]``,
                       in ns after t; operations: ``[[id, start, end]]`` of its collectives; then, if
                       there is any of it, ``{"messages": how they ended, "datagrams": those so
                       far, "windows": TCP's state of each flow, "accuracy", "replica_divergence": of the
                       model that it trains}``; ``"offset_ns"``, if given, replaces the job's. Where links are held exclusively, in between
                       ``{"asks": true}`` and ``{"asks": false}`` around an exchange
``{"granted": 1}``     then goes on with the exchange that it has asked for
=====================  ====================================================================

Two streams run side by side, as on a GPU: computes in their order, collectives in theirs;
each operation also waits for the ones it names. Computing is sleeping until an absolute
deadline of the monotonic clock, since burnt CPU would be taken from the emulated network.

Where a job's iterations begin on a grid, rank 0 decides and sends its decision to the others over pipes, a separate
management network: workers end an iteration at slightly different instants, and each separately could
decide differently.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any

from testbed import transports
from testbed.core.clock import punctual, sleep_until
from testbed.core.grid import Grid
from testbed.replay import exchange, flows, training, uneven
from testbed.replay.bands import Bands, ByBand
from testbed.replay.exchange import Content, Link
from testbed.replay.inside import Inside
from testbed.replay.messages import Messages
from testbed.replay.operation import Operation
from testbed.replay.sending import Window
from testbed.traces import collectives, noise
from testbed.traces.pipelining import EARLIER, Iteration, Overlapping
from testbed.transports import Connected, Connection, Datagrams, Delivery, Flow, Message, Place, Transport

Ended = Callable[[Link, Message, bool, Delivery], None]
SEND_BYTES, LEAST_SEND_BYTES = 106_496, 16_384  # bytes of a send buffer if no queue follows, and its minimum


@dataclass(frozen=True)
class WorkerJob:
    """The configuration of one worker; times in ns, sizes in bytes."""

    job: int
    rank: int
    addresses: list[str]
    port: int
    transport: str  # as typed
    congestion_control: str
    mark: int  # mark of its sockets, which identifies them; 0: none
    operations: list[Operation]
    channels: int  # connections per flow, each of which carries its share of every tensor
    offset_ns: int
    noise: str
    seed: str
    virtual_time: bool
    grid: list[int] | None  # period and phase of the slots in which its iterations begin
    lines: list[int]  # file descriptors of pipes to the other ranks (rank 0), or from rank 0
    bands: list[int]  # bytes left (in a window: of a tensor) at which packets move up a band; empty: none
    bytes: int  # that this worker sends in an iteration, if there are bands
    falls: bool = False  # they are bytes sent, at which its packets move down
    mtu: int = 1500
    queue_bytes: int | None = None  # capacity of the host's egress queue
    each_message: bool = False  # has its own row
    windows: bool = False  # it reports TCP's state of each flow when an iteration ends
    exclusive: bool = False  # it requests the links before it communicates, and releases them after
    iterations: int | None = None  # number of iterations after which it waits to be ended; None: endless
    counters: int | None = None  # descriptor of a file in memory with a transport's counters, which the sampler reads
    window: int | None = None  # credit in bytes; None: one exchange at a time
    partition: int | None = None  # largest part of a message, in bytes
    trains: str | None = None  # content of its messages, as typed; None: bytes without content
    replicas: int | None = None  # a file in memory for the parameters of all ranks in a ring
    paths: list[list[str]] = field(default_factory=list)  # more addresses of all ranks, one for each path there
    groups: list[list[list[int]]] = field(default_factory=list)  # flows of each; empty: all ranks are one group
    inside: int | None = None  # a socket for exchanges inside the server
    inside_name: str = ""  # prefix of the names of such sockets


def main() -> None:
    punctual()
    job = _job(json.loads(sys.stdin.readline()))
    bands = Bands(job.bands, job.bytes, falls=job.falls) if job.bands and job.window is None else None
    transport = transports.parse(job.transport)
    listening = [transport.listen(place) for place in _places(job, _place(job, bands))]
    inside = None if job.inside is None else Inside(job.rank, job.inside_name, job.inside)
    _say({"listening": True})
    sleep_until(_read_command()["connect_ns"])
    connected = [one.connect() for one in listening]
    _say({"flows": [asdict(each) for each in _connections(connected)]})
    command = _read_command()
    sleep_until(command["wait_from_ns"])
    job = replace(job, offset_ns=command.get("offset_ns", job.offset_ns))
    exchanging = _Exchanges(job, transport, connected, inside)
    if job.window is not None or any(name.endswith(EARLIER) for op in job.operations for name in op.after):
        _overlap(exchanging, command["start_ns"])
    else:
        _iterate(exchanging, bands, command["start_ns"])
    _read_command()  # its connections stay open until it is ended


def _job(description: dict[str, Any]) -> WorkerJob:
    return WorkerJob(**description | {"operations": [Operation(**each) for each in description["operations"]]})


def _place(job: WorkerJob, bands: Bands | None) -> Place:
    return Place(
        rank=job.rank,
        addresses=job.addresses,
        port=job.port,
        flows=[]
        if job.groups
        else list(
            dict.fromkeys(
                flow for op in job.operations if not op.computes for flow in flows.flows(op, len(job.addresses))
            )
        ),
        channels=job.channels,
        in_flight=job.window is not None,
        levels=1 if job.window is None else job.channels,
        congestion_control=job.congestion_control,
        mark=job.mark,
        copying=not job.virtual_time,
        discards=job.trains is None,
        bands=bands,
        seed=f"{job.seed} {job.rank}".encode() if job.virtual_time else b"",
        mtu=job.mtu,
        send_bytes=SEND_BYTES if job.queue_bytes is None else max(LEAST_SEND_BYTES, job.queue_bytes // 2),
        counters=job.counters,
        paths=job.paths,
    )


def _places(job: WorkerJob, place: Place) -> list[Place]:
    """Each group has separate connections, and ports: one for each connection, or for each rank that sends datagrams."""
    if not job.groups:
        return [place]
    places, port, datagrams = list[Place](), job.port, transports.parse(job.transport).datagrams
    for number, group in enumerate(job.groups):
        flows = [(a, b) for a, b in group]
        places.append(replace(place, flows=flows, port=port, same_host=True, first_counter=number * job.channels))
        port += max(len(group), len(job.addresses) if datagrams else 0) * job.channels
    return places


def _connections(connected: Sequence[Connected]) -> Iterator[Connection]:
    """The connections that begin here; a flow of several groups continues the count of its channels."""
    seen: Counter[Flow] = Counter()
    for one in connected:
        own = one.connections()
        for each in own:
            yield replace(each, channel=each.channel + seen[each.source, each.target])
        seen.update((each.source, each.target) for each in own)


def _say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _read_command() -> dict[str, int]:
    if not (line := sys.stdin.readline()):
        raise SystemExit("the testbed is gone")
    return dict(json.loads(line))


class _Iteration:
    """Which operations of the current iteration are done, and when the waiting ones may go."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.done: dict[str, int] = {}
        self.failure: BaseException | None = None

    def wait(self, names: Collection[str]) -> int:
        """Block until all are done; the time of the last one, or 0 for none."""
        with self.changed:
            while not all(name in self.done for name in names):
                if self.failure:
                    raise SystemExit(f"communication failed: {self.failure}")
                self.changed.wait()
            return max((self.done[name] for name in names), default=0)

    def finish(self, name: str, when: int) -> None:
        with self.changed:
            self.done[name] = when
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failure = error
            self.changed.notify_all()


class _Exchanges:
    """How this worker executes its collectives."""

    def __init__(
        self, job: WorkerJob, transport: Transport, connected: Sequence[Connected], inside: Inside | None = None
    ) -> None:
        self.job, self.transport, self.connected, self.inside = job, transport, connected, inside
        self.round = 0
        self.messages = Messages(full=job.each_message)
        self.flows = {
            op.id: flows.flows(op, len(job.addresses))
            for op in job.operations
            if not op.computes and op.inside_ns is None
        }
        self.numbers = {
            op.id: number if op.members is None else op.exchange for number, op in enumerate(job.operations)
        }
        self.layers = 1 + max((op.layer for op in job.operations), default=0)
        self.window = None if job.window is None else Window(job.window)
        self.banded = self.window is not None and bool(job.bands)  # by message
        self.content: Content | None = None
        if job.trains is not None:
            self.content = self._learns(training.parse(job.trains))

    def _learns(self, what: training.Learning) -> Content:
        from testbed.replay.training import parameter_server_training, ring_training  # noqa: PLC0415  # with NumPy, which no replay needs

        job, ranks = self.job, len(self.job.addresses)
        if job.replicas is None:
            return parameter_server_training.content(what, job.rank, ranks, job.seed)
        resync = self.transport.options.sync_every
        return ring_training.Replica(what, job.rank, ranks, job.seed, shared=job.replicas, resync=resync)

    def carry_out(self, op: Operation) -> None:
        """One collective of this round, its tensor spread over the channels."""
        self.carry_out_of(self.round, op, self.ended)

    def carry_out_of(self, round_: int, op: Operation, ended: Ended | None) -> None:
        """One collective of any round: over the channels, or in a window over that of its layer's priority, or its messages'."""
        if op.members is not None:
            self._carry_out_in_group(round_, op, op.members, ended)
            return
        run, n = collectives.find(op.algorithm).run, len(self.job.addresses)
        levels = self.job.channels
        if self.window is None:
            used = list(range(levels))
        else:  # with priority queues each message chooses separately
            used = [0 if self.banded else levels - 1 - op.layer * levels // self.layers]
        channels = [self._links(channel, op, round_, ended) for channel in used]
        if len(channels) == 1:
            run(self.job.rank, n, op.bytes, channels[0])
            return
        shares = zip(collectives.parts(len(channels), op.bytes), channels, strict=True)
        exchange.together(
            *(lambda size=size, links=links: run(self.job.rank, n, size, links) for size, links in shares if size)
        )

    def _carry_out_in_group(self, round_: int, op: Operation, members: Sequence[int], ended: Ended | None) -> None:
        """One exchange of a group, whose ranks count from 0 on there."""
        if op.inside_ns is not None:
            assert self.inside is not None
            self.inside.carry_out(round_, op)
            return
        rank, n, channels = members.index(self.job.rank), len(members), self.job.channels
        places = {member: place for place, member in enumerate(members)}

        def part(channel: int, size: int) -> None:
            links = {(places[a], places[b]): link for (a, b), link in self._links(channel, op, round_, ended).items()}
            if kind := flows.kind_of(op):
                uneven.run(kind, rank, n, size, uneven.share(op.rows, channel, channels), links)
            else:
                collectives.find(op.algorithm).run(rank, n, size, links)

        sizes = collectives.parts(channels, op.bytes)
        if channels == 1:
            part(0, sizes[0])
            return
        exchange.together(
            *(
                lambda channel=channel, size=size: part(channel, size)
                for channel, size in enumerate(sizes)
                if size or op.rows
            )
        )

    @property
    def ended(self) -> Ended | None:
        """Where it is noted how a message ended."""
        heard = self.messages.add
        return (lambda link, *how: heard(link.peer, *how)) if self.transport.lossy else None

    def report_iteration(self, messages: Messages, start_ns: int, *, windows: bool = False) -> list[dict[str, Any]]:
        """Report fields of an iteration in addition to its times: none for a replay over TCP."""
        found: dict[str, Any] = {}
        if self.transport.lossy:
            found["messages"] = messages.to_rows(start_ns)
        if counted := [own for one in self.connected if (own := one.datagrams()) is not None]:
            found["datagrams"] = asdict(reduce(Datagrams.with_others, counted))
        if windows:
            found["windows"] = [each for one in self.connected for each in one.windows()]
        if self.content and (look := self.content.evaluate()) is not None:
            found |= asdict(look)
        return [found] if found else []

    def sent(self) -> int:
        """Payload bytes handed over so far."""
        return sum(one.sent() for one in self.connected)

    def _links(self, channel: int, op: Operation, round_: int, ended: Ended | None) -> dict[Flow, Link]:
        own, number, rank = self.flows[op.id], self.numbers[op.id], self.job.rank
        banded = None
        if self.banded:
            levels = [self.connected[op.group].endpoint(level, own) for level in range(self.job.channels)]
            banded = ByBand(levels, self.job.bands, self.job.falls)
        endpoint = banded or self.connected[op.group].endpoint(channel, own)
        return {
            flow: Link(
                endpoint,
                flow[1] if flow[0] == rank else flow[0],
                round_,
                number,
                self.transport.close,
                ended,
                window=self.window,
                priority=(round_, op.layer),
                band=banded.band if banded else None,
                partition=self.job.partition,
                layer=op.layer,
                layers=self.layers,
                importance=tuple(op.importance),
                content=self.content,
            )
            for flow in own
            if rank in flow
        }


def _iterate(exchanging: _Exchanges, bands: Bands | None, start_ns: int) -> None:
    job = exchanging.job
    own_operations = {op.id: op for op in job.operations if op.ranks is None or job.rank in op.ranks}
    # An operation waits only for operations of this rank.
    waiting = [
        replace(op, after=tuple(name for name in op.after if name in own_operations)) for op in own_operations.values()
    ]
    computes = [op for op in waiting if op.computes]
    exchanges = [op for op in waiting if not op.computes]
    written = exchanging.sent()
    varies, draw = noise.Noise(job.noise), random.Random(job.seed)
    pace = _Pace(job, start_ns)
    end = start_ns + job.offset_ns
    index = 0
    while index != job.iterations:
        begun = pace.begin(end)
        sleep_until(begun)
        if bands:
            bands.begin()
        exchanging.round = index
        exchanging.messages = Messages(full=job.each_message)
        factor = noise.factor(varies, draw, job.rank, len(job.addresses))
        state = _Iteration()
        timeline: list[tuple[str, int, int]] = []
        streams = [
            threading.Thread(target=_communicate, args=(exchanging, own, state, timeline), daemon=True)
            for own in _streams(exchanges)
        ]
        for stream in streams:
            stream.start()
        late = _compute(computes, state, begun, factor)
        end = state.wait(own_operations)
        for stream in streams:
            stream.join()
        if len(streams) > 1:
            timeline.sort(key=lambda one: (one[1], one[0]))
        before, written = written, exchanging.sent()
        sent = written - before
        _say([
            index, begun - start_ns, (timeline[0][1] if timeline else end) - start_ns, end - start_ns, sent, late,
            [[name, at - start_ns, until - start_ns] for name, at, until in timeline],
            *exchanging.report_iteration(exchanging.messages, start_ns, windows=job.windows),
        ])  # fmt: skip
        index += 1


def _streams(exchanges: list[Operation]) -> list[list[Operation]]:
    """Exchanges that follow each other: all of them, or those of each group, and to or from each peer."""
    if not exchanges or exchanges[0].members is None:
        return [exchanges] if exchanges else []
    found: dict[tuple[int, ...], list[Operation]] = {}
    for op in sorted(exchanges, key=lambda op: op.exchange):
        found.setdefault(op.stream, []).append(op)
    return list(found.values())


def _overlap(exchanging: _Exchanges, start_ns: int) -> None:
    """Iterations whose exchanges are in flight together, or that begin before the last one has ended."""
    job = exchanging.job
    own_operations = {op.id: op for op in job.operations if op.ranks is None or job.rank in op.ranks}
    varies, draw = noise.Noise(job.noise), random.Random(job.seed)
    exchanges = [op for op in own_operations.values() if not op.computes]
    streams = _streams(exchanges)
    heard: dict[int, Messages] = {}
    sent: Counter[int] = Counter()
    lock = threading.Lock()

    def ended(link: Link, message: Message, sends: bool, delivery: Delivery) -> None:
        with lock:
            sent[message.round] += message.bytes * sends
            messages = heard.setdefault(message.round, Messages(full=job.each_message))
        if exchanging.transport.lossy:
            messages.add(link.peer, message, sends, delivery)

    def tell(iteration: Iteration) -> None:
        if len(streams) > 1:
            iteration.timeline.sort(key=lambda one: (one[1], one[0]))
        times = [
            iteration.begun,
            min((begun for _, begun, _ in iteration.timeline), default=iteration.end),
            iteration.end,
        ]
        with lock:
            bytes_, messages = sent.pop(iteration.number, 0), heard.pop(iteration.number, Messages())
        _say([
            iteration.number, *(at - start_ns for at in times), bytes_, iteration.late,
            [[name, at - start_ns, until - start_ns] for name, at, until in iteration.timeline],
            *exchanging.report_iteration(messages, start_ns),
        ])  # fmt: skip

    Overlapping(
        [op for op in own_operations.values() if op.computes], exchanges,
        lambda number, name: exchanging.carry_out_of(number, own_operations[name], ended), tell,
        lambda: noise.factor(varies, draw, job.rank, len(job.addresses)), at_once=job.window is not None,
        streams=streams,
    ).run(start_ns + job.offset_ns)  # fmt: skip


class _Pace:
    """When the next iteration begins: at once, or where the job's grid has a slot."""

    def __init__(self, job: WorkerJob, start_ns: int) -> None:
        self.grid = Grid(job.grid[0], start_ns + job.grid[1]) if job.grid else None
        self.leads, self.lines = job.rank == 0, job.lines
        self.placed = False  # the first iteration begins on a slot, however near it already is

    def begin(self, now_ns: int) -> int:
        """The instant at which the iteration begins that could begin at ``now_ns``."""
        if self.grid is None:
            return now_ns
        if self.leads:
            at = self.grid.begin_ns(now_ns) if self.placed else self.grid.next_ns(now_ns)
            self.placed = True
            for line in self.lines:
                os.write(line, at.to_bytes(8, "little"))
            return at
        decision = os.read(self.lines[0], 8)
        if not decision:
            raise SystemExit("rank 0 is gone")
        return max(now_ns, int.from_bytes(decision, "little"))


def _compute(computes: list[Operation], state: _Iteration, begun: int, factor: float) -> int:
    """Compute one after the other; how late the latest ended, in ns."""
    free, late = begun, 0
    for op in computes:
        deadline = max(free, state.wait(op.after)) + int(op.duration_ns * factor)
        sleep_until(deadline)
        now = time.monotonic_ns()
        late = max(late, now - deadline)
        free = deadline
        state.finish(op.id, now)
    return late


def _communicate(
    exchanging: _Exchanges,
    exchanges: list[Operation],
    state: _Iteration,
    timeline: list[tuple[str, int, int]],
) -> None:
    try:
        for op in exchanges:
            state.wait(op.after)
            if exchanging.job.exclusive:
                _say({"asks": True})
                _read_command()
            begun = time.monotonic_ns()
            exchanging.carry_out(op)
            ended = time.monotonic_ns()
            if exchanging.job.exclusive:
                _say({"asks": False})
            timeline.append((op.id, begun, ended))
            state.finish(op.id, ended)
    except BaseException as error:
        state.fail(error)


if __name__ == "__main__":
    main()
