"""A trace: one training iteration of one job, as measured.

JSON with an integer ``version``. In version 1 all ranks do the same, in one group:

.. code-block:: json

    {"version": 1, "name": "resnet50", "model": "ResNet-50", "native_rate": "10gbit",
     "source": {"measured_by": "...", "when": "...", "on": "...", "notes": "..."},
     "operations": [
       {"id": "backward1", "kind": "compute", "duration": "107ms"},
       {"id": "bucket1", "kind": "all_reduce", "bytes": "8.2MB", "after": ["backward1"]}]}

Computes run one after the other, and so do collectives; the two kinds run in parallel. An operation also waits for
those named in ``after``; ``"bucket1@-1"`` is that of the previous iteration. `native_rate` is the link rate at which
the times were recorded. `Trace.scaled` keeps times and multiplies bytes by (rate / native rate), so that a job's duty
cycle stays constant.

Version 2 has process groups, roles of ranks, messages between ranks, uneven collectives and computes by work
(`testbed.traces.operations`). Collectives of different groups run in parallel (`testbed.traces.matching`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterator
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, Literal

import msgspec

from testbed import registry
from testbed.core.errors import RequestError
from testbed.core.input_files import MEGABYTE, FileError, MissingError, is_file, read_bytes
from testbed.core.text import command, did_you_mean, is_text, quoted, shown
from testbed.core.units import Duration, Rate, Share, Size, UnitError, decoded
from testbed.traces import collectives, devices, matching
from testbed.traces.cycles import Edge, longest_mean_s
from testbed.traces.devices import Bandwidth, ComputesOn, Device, Flops
from testbed.traces.matching import Matched
from testbed.traces.operations import Groups, Kind, Operation, Placement, Role
from testbed.traces.pipelining import EARLIER
from testbed.traces.wire_bytes import usual_bytes
from testbed.transports import Flow

__all__ = ["Groups", "Kind", "Operation", "Placement", "Role"]  # of `testbed.traces.operations`

VERSION = 1
VERSION_2 = 2
MOST_BYTES = 16 * MEGABYTE  # of a file
MOST_OPERATIONS = 20_000
MOST_QUANTILES = 101
LIBRARY = registry.folder("workloads", "traces")

# The algorithm of each kind of collective unless a job selects another.
ALGORITHMS: dict[str, str] = {
    "all_reduce": "ring", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all", "broadcast": "broadcast", "send_recv": "send_recv",
}  # fmt: skip


class TraceError(RequestError):
    """A trace that cannot be used; the message names the file and the field."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The origin of the numbers; ``kind`` labels their reliability."""

    kind: Literal[
        "recorded",  # on the hardware named in `on`
        "recorded, times scaled",  # the structure was recorded, compute times were scaled to published ones
        "derived from a measured trace",
        "derived from published numbers",
        "synthetic",
    ]
    measured_by: str = ""
    when: str = ""
    on: str = ""
    notes: str = ""


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """One iteration of one job; `load` and `synthetic` make valid ones."""

    version: int
    name: str
    model: str
    source: Source
    operations: tuple[Operation, ...] = ()  # of all ranks; empty where `roles` have them
    native_rate: Rate | None = None  # None: bytes hold at any rate (a synthetic job)
    assumptions: tuple[str, ...] = ()  # unmeasured properties, shown with all results
    noise: str = "0%"  # spread of the computing over the measured iterations: standard deviation ÷ mean
    groups: Groups = {}  # process groups by name: lists of ranks
    roles: tuple[Role, ...] = ()
    placement: Placement | None = None
    device: ComputesOn | None = None  # converts its work into time unless a run names another device

    @cached_property
    def ranks(self) -> int | None:
        """Return the number of ranks; None: as many as a job has workers."""
        return matching.ranks_of(self.groups, self.roles)

    @cached_property
    def all_roles(self) -> tuple[Role, ...]:
        """Return its roles; a single role for all ranks if operations are at the top level."""
        return self.roles or (Role(self.name, tuple(range(self.ranks or 0)), self.operations),)

    @cached_property
    def all_operations(self) -> tuple[Operation, ...]:
        """The operations of all roles, one role after the other."""
        return self.operations or tuple(op for role in self.roles for op in role.operations)

    @cached_property
    def alike(self) -> bool:
        """Return True if all ranks do the same in one group, so that any number of workers can replay it."""
        one_group = not self.groups or list(map(len, self.groups.values())) == [1]
        plain = not any(op.point_to_point or op.splits for op in self.all_operations)
        return (
            one_group
            and plain
            and len(self.all_roles) == 1
            and len(next(iter(self.groups.values()), ((),))[0]) == (self.ranks or 0)
        )

    @cached_property
    def one_list(self) -> Trace:
        """Return the trace in the form of version 1: one list, each operation after those that it waits for.

        Raises `TraceError` unless its ranks are `alike`.
        """
        if not self.alike:
            raise TraceError(
                f"trace {quoted(self.name)}: its ranks differ, exchange messages, compute by work, or have several groups. "
                "Ranks alike do the same in one group."
            )
        (role,) = self.all_roles
        waits = {op.id: [name for name in op.after if not name.endswith(EARLIER)] for op in role.operations}
        for computes in (True, False):
            for before, op in pairwise(op for op in role.operations if op.computes == computes):
                waits[op.id].append(before.id)
        try:
            places = {name: place for place, name in enumerate(TopologicalSorter(waits).static_order())}
        except CycleError as error:
            raise TraceError(
                f"trace {quoted(self.name)}: operations wait for each other: {' → '.join(error.args[1])}"
            ) from error
        operations = role.operations
        known: set[str] = set()
        for op in operations:
            if not known.issuperset(waits[op.id]):
                operations = tuple(sorted(operations, key=lambda op: places[op.id]))
                break
            known.add(op.id)
        return msgspec.structs.replace(self, operations=operations, roles=())

    @cached_property
    def matched(self) -> Matched:
        """Return the matched operations of all ranks, of a trace of version 2."""
        return matching.match(self.groups, self.all_roles)

    @cached_property
    def bytes_per_iteration(self) -> int:
        """Tensor bytes of all collectives, unscaled; of several roles those of all of them."""
        return sum(op.size for op in self.all_operations)

    @cached_property
    def overlaps(self) -> bool:
        """Return True if an iteration may begin before the previous one has ended."""
        return any(name.endswith(EARLIER) for op in self.all_operations for name in op.after)

    @cached_property
    def compute_s(self) -> float:
        return sum((op.duration or 0) for op in self.all_operations) / 1e9

    def scaled(self, rate_bps: int) -> Trace:
        """Return the iteration on a link of ``rate_bps``: times kept, bytes in proportion. Raises `TraceError`."""
        if self.native_rate is None:
            return self
        factor = rate_bps / self.native_rate
        if max(op.size for op in self.all_operations) * factor > Size.limit:
            raise TraceError(
                f"trace {quoted(self.name)}: its bytes, scaled from {self.native_rate} to {Rate(rate_bps)}, are too many to "
                "emulate. Check its native_rate."
            )
        scaled = self.mapped(lambda op: _scaled(op, factor))
        return msgspec.structs.replace(scaled, native_rate=Rate(rate_bps))

    def mapped(self, change: Callable[[Operation], Operation]) -> Trace:
        """Return the trace with every operation replaced by the result of a function."""
        operations = tuple(map(change, self.operations))
        roles = tuple(
            msgspec.structs.replace(role, operations=tuple(map(change, role.operations))) for role in self.roles
        )
        return msgspec.structs.replace(self, operations=operations, roles=roles)

    def computed_by(
        self, name: str | None, peak: Flops | None, mfu: float | None, memory: Bandwidth | None
    ) -> Device | None:
        """The requested device, or its own with another MFU; None: none is requested. Raises `RequestError`."""
        if mfu is None or (name, peak, memory) != (None, None, None):
            return devices.device(name, peak, mfu, memory)
        if self.device is None:
            raise RequestError(
                f"is a fraction of a peak, but trace {quoted(self.name)} names no device. Give --device or --peak",
                where="mfu",
            )
        return self.device.device(mfu)

    def timed(self, device: Device | None) -> Trace:
        """The same with work turned into time, by the trace's own device if no other one is given; raises `RequestError` if there is none."""
        work = next((op for op in self.all_operations if op.by_work), None)
        if work is None:
            return self
        if device is None and self.device is not None:
            device = self.device.device()
        if device is None:
            raise RequestError(
                f"trace {quoted(self.name)}: {quoted(work.id)} has work and no duration. A device turns it into time: give --device a100, "
                "or --peak 312tflops --mfu 40% --memory 2tb/s",
                where="device",
            )
        return self.mapped(
            lambda op: (
                op
                if not op.by_work
                else msgspec.structs.replace(
                    op, duration=device.takes(op.flops, op.memory_bytes), flops=None, memory_bytes=None
                )
            )
        )


FORWARD = 1 / 3  # of a training step's computing: the backward pass takes twice as long, and only it is overlapped


def _scaled(op: Operation, factor: float) -> Operation:
    if op.computes:
        return op
    splits = None if op.splits is None else tuple(Size(round(one * factor)) for one in op.splits)
    size = None if op.bytes is None else Size(sum(splits) if splits is not None else max(1, round(op.bytes * factor)))
    return msgspec.structs.replace(op, bytes=size, splits=splits)


def synthetic(compute: Duration, size: Size, kind: Kind = "send_recv", buckets: int = 1) -> Trace:
    """Return a trace in which every rank computes, then exchanges a tensor of ``size`` bytes by a collective of ``kind``.

    ``send_recv``: only rank 0 computes, and sends one way; a one-byte answer ends the iteration. ``buckets``: the
    number of equal parts of the tensor, each exchanged once its part of the backward pass has been computed, as DDP
    does.
    """
    if kind != "send_recv" or buckets > 1:
        return Trace(
            version=VERSION,
            name="synthetic",
            model=f"{compute} compute, {kind} of {size}" + (f" in {buckets} buckets" if buckets > 1 else ""),
            source=Source(kind="synthetic"),
            operations=tuple(_bucketed(int(compute), int(size), kind, buckets)),
        )
    return Trace(
        version=VERSION,
        name="synthetic",
        model=f"{compute} compute, {size} one way",
        source=Source(kind="synthetic"),
        operations=(
            Operation(id="compute", kind="compute", duration=compute, ranks=(0,)),
            Operation(id="exchange", kind="send_recv", bytes=size, after=("compute",)),
        ),
    )


def _bucketed(compute_ns: int, size: int, kind: Kind, buckets: int) -> Iterator[Operation]:
    forward = round(compute_ns * FORWARD) if buckets > 1 else 0
    for number in range(buckets):
        first, last = (at * (compute_ns - forward) // buckets for at in (number, number + 1))
        low, high = (at * size // buckets for at in (number, number + 1))
        duration = last - first + (forward if number == 0 else 0)
        yield Operation(id=f"compute{number}", kind="compute", duration=Duration(duration))
        yield Operation(id=f"exchange{number}", kind=kind, bytes=Size(high - low), after=(f"compute{number}",))


def names() -> list[str]:
    """The traces that come with the testbed."""
    return sorted(path.stem for path in LIBRARY.glob("*.json"))


def load(name: str) -> Trace:
    """Return a trace of the library by name, or of a file (``./mine.json``). Raises `TraceError`."""
    path = Path(name) if name.endswith(".json") else LIBRARY / f"{name}.json"
    try:
        return _loaded(path, read_bytes(path, MOST_BYTES))
    except MissingError as error:
        if is_file(name):
            raise TraceError(
                f"{shown(name, 200)} is not a trace, whose name ends in .json. For a profile or a table, "
                f"`{command('import', shown(name, 200), '-o', 'mine.json')}` makes a trace."
            ) from error
        hint = did_you_mean(name, names(), f"The library has {', '.join(names())}. Or name a file: ./mine.json.")
        raise TraceError(f"there is no trace {quoted(name)}. {hint}") from error
    except FileError as error:
        raise TraceError(str(error)) from error


@lru_cache(maxsize=16)  # a file is read once, for any number of jobs that replay it
def _loaded(path: Path, data: bytes) -> Trace:
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{shown(path, 200)} is not JSON: {error}") from error
    if not isinstance(raw, dict) or type(raw.get("version")) is not int or raw["version"] not in (VERSION, VERSION_2):
        found = raw.get("version") if isinstance(raw, dict) else None
        raise TraceError(
            f"{path} has version {shown(repr(found))}; this program reads traces of version {VERSION} and {VERSION_2}"
        )
    for operations in _lists(raw):
        if len(operations) > MOST_OPERATIONS:
            raise TraceError(
                f"{shown(path, 200)} has {len(operations):,} operations, but the limit is {MOST_OPERATIONS:,}. A trace is one iteration: import fewer steps"
            )
        if raw["version"] == VERSION_2:
            _write_units(operations)
    if raw["version"] == VERSION_2:
        raw = _DEFAULTS | raw
    try:
        trace = msgspec.convert(raw, Trace, dec_hook=decoded)
        _check(trace)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: {error}") from error
    return trace


# Fields that a hand-written trace of version 2 may omit.
_DEFAULTS = {"model": "", "source": {"kind": "synthetic"}}


def _lists(raw: dict[str, Any]) -> Iterator[list[Any]]:
    """The lists of operations of a trace that may be anything."""
    roles = raw.get("roles")
    for holder in (raw, *(roles if isinstance(roles, list) else ())):
        if isinstance(holder, dict) and isinstance(operations := holder.get("operations"), list):
            yield operations


def _write_units(operations: list[Any]) -> None:
    """Write bytes that are integers as text with a unit, which is how quantities are read."""
    for op in operations:
        if isinstance(op, dict):
            for field in ("bytes", "memory_bytes", "splits"):
                value = op.get(field)
                if field in op:
                    op[field] = [_with_unit(one) for one in value] if isinstance(value, list) else _with_unit(value)


def _with_unit(value: Any) -> Any:
    return f"{value}B" if type(value) is int else value


def save(trace: Trace, path: Path) -> None:
    """Write ``trace`` as JSON that `load` reads back to an equal one; the file is complete or absent."""
    _check(trace)
    data = msgspec.to_builtins(trace, enc_hook=lambda quantity: quantity.exact)
    operations, roles = data.pop("operations", []), data.pop("roles", [])
    name, lines = ("roles", map(_role, roles)) if roles else ("operations", map(_line, operations))
    text = json.dumps(data, indent=2, ensure_ascii=False).removesuffix("\n}")
    text += f',\n  "{name}": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}\n"
    if (length := len(text.encode())) > MOST_BYTES:
        raise TraceError(
            f"{shown(path, 200)}: the trace has {length:,} bytes as a file, but the limit is {MOST_BYTES:,}. "
            "A trace is one iteration: import fewer operations or micro-batches"
        )
    beside = path.with_name(f".{secrets.token_hex(8)}.new")
    with beside.open("x") as file:  # "x": neither through a link nor into a file that is there
        try:
            file.write(text)
            file.flush()
            beside.rename(path)
        finally:
            beside.unlink(missing_ok=True)  # exists only if one of these failed


def _line(operation: dict[str, Any]) -> str:
    return json.dumps(operation, ensure_ascii=False)


def _role(role: dict[str, Any]) -> str:
    head = _line({key: role[key] for key in ("name", "ranks")}).removesuffix("}")
    return f'{head}, "operations": [\n      ' + ",\n      ".join(map(_line, role["operations"])) + "]}"


def _check(trace: Trace) -> None:
    if trace.version == VERSION and (trace.groups or trace.roles or trace.placement or trace.device):
        raise ValueError(f"groups, roles, placement and device need version {VERSION_2}")
    if trace.device is not None:
        try:
            trace.device.device()
        except RequestError as error:
            raise ValueError(f"device: {error}") from error
    if trace.operations and trace.roles:
        raise ValueError("operations are both at the top level and in roles. Move them into roles, or leave roles out")
    if not trace.all_operations:
        raise ValueError("operations is empty: a trace needs at least one")
    if trace.native_rate == 0:
        raise ValueError(
            "native_rate: a link of 0 bit/s carries nothing: give the rate that the times hold for, or none"
        )
    names = (trace.name, *(role.name for role in trace.roles), *trace.groups, *(op.id for op in trace.all_operations))
    if (stray := next((one for one in names if not is_text(one)), None)) is not None:
        raise ValueError(f"{quoted(stray)} is no name")
    try:
        Share(trace.noise)
    except UnitError as error:
        raise ValueError(f"noise: {error}") from error
    for number, role in enumerate(trace.roles):
        _check_operations(role.operations, trace.version, f"roles[{number}].operations")
    if not trace.roles:
        _check_operations(trace.operations, trace.version, "operations")
    if not any(op.duration or op.size or op.by_work for op in trace.all_operations):
        raise ValueError("operations: none of them takes any time: a trace computes or sends something")
    if trace.version == VERSION_2:
        matching.check(trace.groups, trace.all_roles)
        for name in trace.placement.inside if trace.placement else ():
            if name not in trace.groups:
                raise ValueError(
                    f"placement: {quoted(name)} is not in groups. There are {', '.join(map(quoted, trace.groups)) or 'none'}"
                )


def _check_operations(operations: tuple[Operation, ...], version: int, where: str) -> None:
    if not operations:
        raise ValueError(f"{where} is empty: a role needs at least one")
    if len(operations) > MOST_OPERATIONS:
        raise ValueError(f"it has {len(operations):,} operations, and {MOST_OPERATIONS:,} is the most of one iteration")
    seen: set[str] = set()
    for index, op in enumerate(operations):
        if (
            wrong := _wrong(op, seen)
            or matching.wrong(op, version)
            or (_wrong_after(op, seen) if version == VERSION else None)
        ):
            raise ValueError(f"{where}[{index}] ({quoted(op.id)}): {wrong}")
        seen.add(op.id)
    for index, op in enumerate(operations):
        if version == VERSION and (
            stray := next((n for n in op.after if n.endswith(EARLIER) and n.removesuffix(EARLIER) not in seen), None)
        ):
            raise ValueError(
                f"{where}[{index}] ({quoted(op.id)}): after names {quoted(stray)}, and there is no such operation"
            )
        if op.id.endswith(EARLIER):
            raise ValueError(
                f"{where}[{index}] ({quoted(op.id)}): {EARLIER} at the end of a name means the iteration before"
            )


def _wrong(op: Operation, earlier: Collection[str]) -> str | None:
    """The error of one operation, given the ids of those before it."""
    if op.id in earlier:
        return "this id is used twice"
    if op.kind == "compute":
        if (op.duration is not None) == op.by_work or op.bytes is not None:
            return "a compute has a duration (or flops, memory_bytes) and no bytes"
        if op.flops is not None and not 0 <= op.flops < inf:
            return f"flops {op.flops:g} is no number of operations"
    elif op.duration is not None or op.by_work or not _has_bytes(op):
        return "a collective has bytes (more than none) and no duration"
    if op.algorithm is not None:
        fitting = [name for name in collectives.names() if op.kind == collectives.find(name).KIND]
        if op.algorithm not in fitting:
            allowed = ", ".join(fitting) or "none"
            return f"algorithm {quoted(op.algorithm)} does not carry out {op.kind}; there are: {allowed}"
    if op.layer is not None and not 0 <= op.layer < MOST_OPERATIONS:
        return f"layer {op.layer} is no place in a model; the first is 0"
    return _wrong_importance(op)


def _has_bytes(op: Operation) -> bool:
    """Whether it has bytes to exchange: more than zero, or others send it some in an uneven all-to-all."""
    if op.splits is not None and op.kind == "all_to_all":
        return True
    return (op.bytes is not None or op.splits is not None) and op.size > 0


def _wrong_after(op: Operation, earlier: Collection[str]) -> str | None:
    missing = next((name for name in op.after if name not in earlier and not name.endswith(EARLIER)), None)
    if missing is not None:  # an empty name is none, too
        return f"after names {quoted(missing)}, which is no earlier operation"
    return None


def _wrong_importance(op: Operation) -> str | None:
    if op.importance is None:
        return None
    if op.kind == "compute":
        return "a compute sends no packets that could have an importance"
    if isinstance(op.importance, float):
        inside = 0 <= op.importance <= 1
        return None if inside else f"importance {op.importance:g} is no share of its packets; from 0 to 1"
    given = op.importance
    if (
        not 2 <= len(given) <= MOST_QUANTILES
        or list(given) != sorted(given)
        or not all(0 <= one < inf for one in given)
    ):
        return (
            f"importance is a share of its packets, or 2 to {MOST_QUANTILES} magnitudes, from that of the least important packet to that of the most, "
            "each ÷ the median of the tensor's"
        )
    return None


def spans(
    trace: Trace, exchange_s: Callable[[Operation], float], *, at_once: bool = False
) -> dict[str, tuple[float, float]]:
    """Start and end of every operation in seconds, in isolation, if a collective takes ``exchange_s(operation)``.

    Collectives run one after the other, or ``at_once``. So do computes that have a rank in common; those of different ranks run side by side.
    Each operation starts after those it names.
    """
    times: dict[str, tuple[float, float]] = {}
    exchanged, computed = (
        0.0,
        dict[tuple[int, ...] | None, float](),
    )  # times at which streams are free; those of computes by ranks
    for op in trace.operations:
        named = [times[name][1] for name in op.after if not name.endswith(EARLIER)]
        if op.kind == "compute":
            free = (end for ranks, end in computed.items() if _have_in_common(ranks, op.ranks))
            start = max([0.0, *free, *named])
            end = computed[op.ranks] = start + (op.duration or 0) / 1e9
        else:
            start = max([exchanged, *named])
            end = start + exchange_s(op)
            exchanged = 0.0 if at_once else end
        times[op.id] = (start, end)
    return times


def _have_in_common(some: tuple[int, ...] | None, others: tuple[int, ...] | None) -> bool:
    """Whether a rank is among both; None: all of them."""
    return some is None or others is None or not set(some).isdisjoint(others)


def critical_path_s(trace: Trace, exchange_s: Callable[[Operation], float], *, at_once: bool = False) -> float:
    """Return the isolated iteration time in seconds; if iterations overlap, the shortest time between their starts.

    That is the longest mean of a cycle of operations that wait for each other. The link is one of them, since all data
    crosses it. Collectives that run ``at_once`` do not wait for each other. ``exchange_s``: duration of a collective in
    seconds.
    """
    if trace.overlaps:
        return _cycle_s(trace, exchange_s, at_once=at_once)
    return max(end for _, end in spans(trace, exchange_s, at_once=at_once).values())


def _cycle_s(trace: Trace, exchange_s: Callable[[Operation], float], *, at_once: bool) -> float:
    takes = [(op.duration or 0) / 1e9 if op.kind == "compute" else exchange_s(op) for op in trace.operations]
    places = {op.id: place for place, op in enumerate(trace.operations)}
    edges = [
        Edge(
            places[name.removesuffix(EARLIER)], place, takes[places[name.removesuffix(EARLIER)]], name.endswith(EARLIER)
        )
        for place, op in enumerate(trace.operations)
        for name in op.after
    ]
    computes = [place for place, op in enumerate(trace.operations) if op.kind == "compute"]
    edges += [Edge(one, other, takes[one]) for one, other in pairwise(computes)]
    edges += [Edge(computes[-1], computes[0], takes[computes[-1]], later=True)] if computes else []
    link = sum(seconds for op, seconds in zip(trace.operations, takes, strict=True) if op.kind != "compute")
    return max(0.0 if at_once else link, longest_mean_s(len(takes), edges))


MOST_BY_ROUNDS = (
    64  # maximum workers of a collective whose flows are listed, where a formula gives the bytes of each worker
)


def busiest_s(op: Operation, workers: int, rate_bps: float) -> float:
    """A collective between workers that each have a link of ``rate_bps``, payload alone: the busiest link decides."""
    if workers > MOST_BY_ROUNDS and op.algorithm in (None, ALGORITHMS[op.kind]):
        return usual_bytes(op.kind, op.size, workers) * 8 / rate_bps
    return rounds_s(rounds(op, workers), rate_bps)


def rounds_s(each: list[dict[Flow, int]], rate_bps: float) -> float:
    """Rounds one after the other, in each of which the busiest rank decides."""
    total = 0.0
    for flows in each:
        ends: dict[tuple[str, int], int] = {}
        for (source, target), size in flows.items():
            for end in (("out", source), ("in", target)):
                ends[end] = ends.get(end, 0) + size
        total += max(ends.values(), default=0) * 8 / rate_bps
    return total


def algorithm(op: Operation, collective: str | None) -> str:
    """The algorithm of ``op``: ``collective`` where that is of its kind, else the default."""
    if collective is not None and op.kind == collectives.find(collective).KIND:
        return collective
    return op.algorithm or ALGORITHMS[op.kind]


def rounds(op: Operation, workers: int, collective: str | None = None, channels: int = 1) -> list[dict[Flow, int]]:
    """Payload on each flow in each round of collective ``op``, over all channels."""
    result: list[dict[Flow, int]] = []
    module = collectives.find(algorithm(op, collective))
    for share in collectives.parts(channels, op.bytes or 0):
        for number, flows in enumerate(module.rounds(workers, share)):
            if number == len(result):
                result.append({})
            for flow, size in flows.items():
                result[number][flow] = result[number].get(flow, 0) + size
    return result
