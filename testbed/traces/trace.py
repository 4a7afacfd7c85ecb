"""A trace: one training iteration of one job, as measured.

JSON with an integer ``version``; this is version 1:

.. code-block:: json

    {"version": 1, "name": "resnet50", "model": "ResNet-50", "native_rate": "10gbit",
     "source": {"measured_by": "...", "when": "...", "on": "...", "notes": "..."},
     "operations": [
       {"id": "backward1", "kind": "compute", "duration": "107ms"},
       {"id": "bucket1", "kind": "all_reduce", "bytes": "8.2MB", "after": ["backward1"]}]}

Computes run one after the other, collectives too, the two kinds side by side; an
operation also waits for the ones named in ``after``; ``"bucket1@-1"`` is that of the iteration before. `native_rate` is the link rate for
which the times hold. Scaling rule: times are kept, bytes are multiplied by (emulated
rate / native rate), so that a job's duty stays what it was.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Literal

import msgspec

from testbed import registry
from testbed.core.errors import RequestError
from testbed.core.input_files import MEGABYTE, FileError, MissingError, is_file, read_bytes
from testbed.core.text import is_text, quoted, shown
from testbed.core.units import Duration, Rate, Share, Size, UnitError, decoded
from testbed.traces import collectives
from testbed.traces.cycles import Edge, longest_mean_s
from testbed.traces.pipelining import EARLIER
from testbed.transports import Flow

VERSION = 1
MOST_BYTES = 16 * MEGABYTE  # of a file
MOST_OPERATIONS = 20_000
MOST_QUANTILES = 101
LIBRARY = registry.folder("workloads", "traces")

Kind = Literal["compute", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
# How a kind of collective is carried out unless a job says otherwise.
ALGORITHMS: dict[str, str] = {
    "all_reduce": "ring", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all", "broadcast": "broadcast", "send_recv": "send_recv",
}  # fmt: skip


class TraceError(RequestError):
    """A trace that cannot be used; the message names the file and the field."""


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A span of computing (`duration`) or a collective over a tensor of `bytes`."""

    id: str
    kind: Kind
    duration: Duration | None = None
    bytes: Size | None = None
    after: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None  # which workers compute; None: all
    algorithm: str | None = None  # how a collective is carried out, if not as usual (ALGORITHMS)
    layer: int | None = (
        None  # of the model, from the front (0): what is sent first where several messages are in flight
    )
    importance: float | tuple[float, ...] | None = (
        None  # of its packets, where a transport asks which matter (`testbed.transports.tags`)
    )


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the numbers come from; ``kind`` labels how sure they are."""

    kind: Literal[
        "recorded",  # by us or by the user, on the hardware named in `on`
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
    operations: tuple[Operation, ...]
    native_rate: Rate | None = None  # None: bytes hold at any rate (a synthetic job)
    assumptions: tuple[str, ...] = ()  # what is not measured; shown wherever results are
    noise: str = "0%"  # spread of the computing over the measured iterations: standard deviation ÷ mean

    @cached_property
    def bytes_per_iteration(self) -> int:
        """Tensor bytes of all collectives, unscaled."""
        return sum(op.bytes or 0 for op in self.operations)

    @cached_property
    def overlaps(self) -> bool:
        """Whether an iteration may begin before the last one has ended."""
        return any(name.endswith(EARLIER) for op in self.operations for name in op.after)

    @cached_property
    def compute_s(self) -> float:
        return sum((op.duration or 0) for op in self.operations) / 1e9

    def scaled(self, rate_bps: int) -> Trace:
        """The same iteration on a link of ``rate_bps``: times kept, bytes in proportion; raises `TraceError`."""
        if self.native_rate is None:
            return self
        factor = rate_bps / self.native_rate
        if max(op.bytes or 0 for op in self.operations) * factor > Size.limit:
            raise TraceError(
                f"trace {quoted(self.name)}: its bytes, scaled from {self.native_rate} to {Rate(rate_bps)}, are beyond anything "
                "this can emulate; is its native_rate right?"
            )
        operations = tuple(
            op if op.bytes is None else msgspec.structs.replace(op, bytes=Size(max(1, round(op.bytes * factor))))
            for op in self.operations
        )
        return msgspec.structs.replace(self, operations=operations, native_rate=Rate(rate_bps))


FORWARD = 1 / 3  # of a training step's computing: the backward pass takes twice as long, and only it is overlapped


def synthetic(compute: Duration, size: Size, kind: Kind = "send_recv", buckets: int = 1) -> Trace:
    """Every rank computes, then a collective of this kind exchanges a tensor of ``size`` bytes.

    ``send_recv``: rank 0 alone computes, and sends one way; a one-byte answer ends the iteration. ``buckets``: the tensor
    in so many parts, each exchanged as soon as its part of the backward pass has been computed, as DDP does it.
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
    """A trace of the library by name, or of a file (``./mine.json``); raises `TraceError`."""
    path = Path(name) if name.endswith(".json") else LIBRARY / f"{name}.json"
    try:
        return _loaded(path, read_bytes(path, MOST_BYTES))
    except MissingError as error:
        if is_file(name):
            raise TraceError(
                f"{shown(name, 200)} is no trace: the name of one ends in .json. Of a profile or a table "
                f"python -m testbed import {shown(name, 200)} -o mine.json makes one"
            ) from error
        raise TraceError(
            f"there is no trace {quoted(name)}; the library has {', '.join(names())}, or name a file: ./mine.json"
        ) from error
    except FileError as error:
        raise TraceError(str(error)) from error


@lru_cache(maxsize=16)  # what is in a file is read once, by how many jobs it is replayed
def _loaded(path: Path, data: bytes) -> Trace:
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{shown(path, 200)} is not JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("version") != VERSION:
        found = raw.get("version") if isinstance(raw, dict) else None
        raise TraceError(f"{path} has version {shown(repr(found))}; this program reads traces of version {VERSION}")
    operations = raw.get("operations")
    if isinstance(operations, list) and len(operations) > MOST_OPERATIONS:
        raise TraceError(
            f"{shown(path, 200)} has {len(operations):,} operations, and {MOST_OPERATIONS:,} is the most: a trace is one iteration"
        )
    try:
        trace = msgspec.convert(raw, Trace, dec_hook=decoded)
        _check(trace)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: {error}") from error
    return trace


def save(trace: Trace, path: Path) -> None:
    """Write ``trace`` as JSON that `load` reads back to an equal one; complete or not at all."""
    _check(trace)
    data = msgspec.to_builtins(trace, enc_hook=lambda quantity: quantity.exact)
    operations = ",\n    ".join(json.dumps(op, ensure_ascii=False) for op in data.pop("operations"))
    head = json.dumps(data, indent=2, ensure_ascii=False).removesuffix("\n}")
    beside = path.with_name(f".{secrets.token_hex(8)}.new")
    with beside.open("x") as file:  # "x": neither through a link nor into a file that is there
        try:
            file.write(f'{head},\n  "operations": [\n    {operations}\n  ]\n}}\n')
            file.flush()
            beside.rename(path)
        finally:
            beside.unlink(missing_ok=True)  # there only if one of these failed


def _check(trace: Trace) -> None:
    seen: set[str] = set()
    if not trace.operations:
        raise ValueError("operations is empty: a trace needs at least one")
    if len(trace.operations) > MOST_OPERATIONS:
        raise ValueError(
            f"it has {len(trace.operations):,} operations, and {MOST_OPERATIONS:,} is the most of one iteration"
        )
    if trace.native_rate == 0:
        raise ValueError(
            "native_rate: a link of 0 bit/s carries nothing: give the rate that the times hold for, or none"
        )
    if (
        stray := next((one for one in (trace.name, *(op.id for op in trace.operations)) if not is_text(one)), None)
    ) is not None:
        raise ValueError(f"{quoted(stray)} is no name")
    try:
        Share(trace.noise)
    except UnitError as error:
        raise ValueError(f"noise: {error}") from error
    for index, op in enumerate(trace.operations):
        if wrong := _wrong(op, seen):
            raise ValueError(f"operations[{index}] ({quoted(op.id)}): {wrong}")
        seen.add(op.id)
    for index, op in enumerate(trace.operations):
        if stray := next((n for n in op.after if n.endswith(EARLIER) and n.removesuffix(EARLIER) not in seen), None):
            raise ValueError(
                f"operations[{index}] ({quoted(op.id)}): after names {quoted(stray)}, and there is no such operation"
            )
        if op.id.endswith(EARLIER):
            raise ValueError(
                f"operations[{index}] ({quoted(op.id)}): {EARLIER} at the end of a name means the iteration before"
            )
    if not any(op.duration or op.bytes for op in trace.operations):
        raise ValueError("operations: none of them takes any time: a trace computes or sends something")


def _wrong(op: Operation, earlier: Collection[str]) -> str | None:
    """What is wrong with one operation, given the ids of those before it."""
    if op.id in earlier:
        return "this id is used twice"
    if op.kind == "compute":
        if op.duration is None or op.bytes is not None:
            return "a compute has a duration and no bytes"
    elif op.bytes is None or op.duration is not None or op.bytes == 0:
        return "a collective has bytes (more than none) and no duration"
    if op.algorithm is not None:
        fitting = [name for name in collectives.names() if op.kind == collectives.find(name).KIND]
        if op.algorithm not in fitting:
            allowed = ", ".join(fitting) or "none"
            return f"algorithm {quoted(op.algorithm)} does not carry out {op.kind}; there are: {allowed}"
    if op.layer is not None and not 0 <= op.layer < MOST_OPERATIONS:
        return f"layer {op.layer} is no place in a model; the first is 0"
    if (wrong := _wrong_importance(op)) is not None:
        return wrong
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
    exchanged, computed = 0.0, dict[tuple[int, ...] | None, float]()  # when a stream is free, computes' by ranks
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
    """How long one iteration takes alone; if iterations overlap, how long after each other they can begin at best.

    That is the longest mean of a cycle of operations that wait for each other, the link being one of them: all that is sent crosses it.
    Collectives that run ``at_once`` do not wait for each other.
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


def busiest_s(op: Operation, workers: int, rate_bps: float) -> float:
    """A collective between workers that each have a link of ``rate_bps``, payload alone: the busiest link decides."""
    total = 0.0
    for flows in rounds(op, workers):
        ends: dict[tuple[str, int], int] = {}
        for (source, target), size in flows.items():
            for end in (("out", source), ("in", target)):
                ends[end] = ends.get(end, 0) + size
        total += max(ends.values(), default=0) * 8 / rate_bps
    return total


def algorithm(op: Operation, collective: str | None) -> str:
    """How ``op`` is carried out: by ``collective`` where that is of its kind, else as usual."""
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
