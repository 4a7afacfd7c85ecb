"""A trace: one training iteration of one job, as measured.

JSON with an integer ``version``; this is version 1:

.. code-block:: json

    {"version": 1, "name": "resnet50", "model": "ResNet-50", "native_rate": "10gbit",
     "source": {"measured_by": "...", "when": "...", "on": "...", "notes": "..."},
     "operations": [
       {"id": "backward1", "kind": "compute", "duration": "107ms"},
       {"id": "bucket1", "kind": "all_reduce", "bytes": "8.2MB", "after": ["backward1"]}]}

Computes run one after the other, collectives too, the two kinds side by side; an
operation also waits for the ones named in ``after``. `native_rate` is the link rate for
which the times hold. Scaling rule: times are kept, bytes are multiplied by (emulated
rate / native rate), so that a job's duty stays what it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from workloads import collectives
from workloads.units import Duration, Quantity, Rate, Size, UnitError, parse_fraction

VERSION = 1
LIBRARY = Path(__file__).parent / "library"

Kind = Literal["compute", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
# How a kind of collective is carried out unless a job says otherwise.
ALGORITHMS: dict[str, str] = {"all_reduce": "ring", "send_recv": "send_recv"}


class TraceError(ValueError):
    """A trace that cannot be used; the message names the file and the field."""


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A span of computing (`duration`) or a collective over a tensor of `bytes`."""

    id: str
    kind: Kind
    duration: Duration | None = None
    bytes: Size | None = None
    after: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None  # which workers compute; None: all


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
    def compute_s(self) -> float:
        return sum((op.duration or 0) for op in self.operations) / 1e9

    def scaled(self, rate_bps: int) -> Trace:
        """The same iteration on a link of ``rate_bps``: times kept, bytes in proportion."""
        if self.native_rate is None:
            return self
        factor = rate_bps / self.native_rate
        operations = tuple(
            op if op.bytes is None else msgspec.structs.replace(op, bytes=Size(max(1, round(op.bytes * factor))))
            for op in self.operations
        )
        return msgspec.structs.replace(self, operations=operations, native_rate=Rate(rate_bps))


def synthetic(compute: Duration, size: Size) -> Trace:
    """Rank 0 computes, then sends ``size`` bytes one way; a one-byte answer ends the iteration."""
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


def names() -> list[str]:
    """The traces that come with the testbed."""
    return sorted(path.stem for path in LIBRARY.glob("*.json"))


def load(name: str) -> Trace:
    """A trace of the library by name, or of a file (``./mine.json``); raises `TraceError`."""
    path = Path(name) if name.endswith(".json") else LIBRARY / f"{name}.json"
    if not path.is_file():
        raise TraceError(
            f"there is no trace {name!r}; the library has {', '.join(names())}, or name a file: ./mine.json"
        )
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} is not JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("version") != VERSION:
        found = raw.get("version") if isinstance(raw, dict) else None
        raise TraceError(f"{path} has version {found!r}; this program reads traces of version {VERSION}")
    try:
        trace = msgspec.convert(raw, Trace, dec_hook=decode_quantity)
        _check(trace)
    except (msgspec.ValidationError, ValueError) as error:
        raise TraceError(f"{path}: {error}") from error
    return trace


def save(trace: Trace, path: Path) -> None:
    """Write ``trace`` as JSON that `load` reads back to an equal one; complete or not at all."""
    _check(trace)
    data = msgspec.to_builtins(trace, enc_hook=lambda quantity: quantity.exact)
    operations = ",\n    ".join(json.dumps(op, ensure_ascii=False) for op in data.pop("operations"))
    head = json.dumps(data, indent=2, ensure_ascii=False).removesuffix("\n}")
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(f'{head},\n  "operations": [\n    {operations}\n  ]\n}}\n')
    beside.rename(path)


def decode_quantity(kind: type, value: Any) -> Any:
    """msgspec's hook for `Rate`, `Size` and `Duration` given as text."""
    if issubclass(kind, Quantity):
        if not isinstance(value, str):
            raise ValueError(f"a {kind.noun} needs a unit: write {value!r} as text, such as {kind.examples}")
        return kind.parse(value)
    raise NotImplementedError(kind)


def _check(trace: Trace) -> None:
    seen: set[str] = set()
    if not trace.operations:
        raise ValueError("operations is empty: a trace needs at least one")
    try:
        parse_fraction(trace.noise)
    except UnitError as error:
        raise ValueError(f"noise: {error}") from error
    for index, op in enumerate(trace.operations):
        where = f"operations[{index}] ({op.id!r})"
        if op.id in seen:
            raise ValueError(f"{where}: this id is used twice")
        if op.kind == "compute":
            if op.duration is None or op.bytes is not None:
                raise ValueError(f"{where}: a compute has a duration and no bytes")
        elif op.bytes is None or op.duration is not None or op.bytes == 0:
            raise ValueError(f"{where}: a collective has bytes (more than none) and no duration")
        elif op.kind not in ALGORITHMS:
            raise ValueError(f"{where}: {op.kind} cannot be replayed yet; {', '.join(ALGORITHMS)} can")
        for name in op.after:
            if name not in seen:
                raise ValueError(f"{where}: after names {name!r}, which is no earlier operation")
        seen.add(op.id)


def critical_path_s(trace: Trace, exchange_s: Callable[[Operation], float]) -> float:
    """How long one iteration takes alone, if a collective takes ``exchange_s(operation)``.

    Two serial streams, computes and collectives, each operation after those it names.
    """
    finished: dict[str, float] = {}
    free = {True: 0.0, False: 0.0}
    for op in trace.operations:
        computing = op.kind == "compute"
        start = max([free[computing], *(finished[name] for name in op.after)])
        length = (op.duration or 0) / 1e9 if computing else exchange_s(op)
        finished[op.id] = free[computing] = start + length
    return max(finished.values())


def payload_bytes(op: Operation, workers: int) -> dict[tuple[int, int], int]:
    """Payload each flow (source rank, target rank) carries in collective ``op``."""
    algorithm = collectives.find(ALGORITHMS[op.kind])
    return {flow: algorithm.volume(workers, op.bytes or 0, flow) for flow in algorithm.flows(workers)}
