"""Names of exchanges in NCCL's logs and profilers, and their byte counts.

NCCL counts the elements of one rank: of an all-gather the part that a rank contributes, of a reduce-scatter the part that it keeps, of an
all-to-all the part for one rank. An all-to-all of PyTorch is a batch of sends and receives.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from testbed.core.text import shown
from testbed.traces.collectives import uneven
from testbed.traces.process_groups import Group
from testbed.traces.repeating import Call
from testbed.traces.trace import Kind, TraceError

KINDS: dict[str, Kind] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "send": "send",
    "recv": "recv",
}
_OF_ONE_RANK: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_to_all")
_TYPES = {  # ncclDataType_t, by number
    0: "ncclInt8", 1: "ncclUint8", 2: "ncclInt32", 3: "ncclUint32", 4: "ncclInt64", 5: "ncclUint64",
    6: "ncclFloat16", 7: "ncclFloat32", 8: "ncclFloat64", 9: "ncclBfloat16", 10: "ncclFloat8e4m3", 11: "ncclFloat8e5m2",
}  # fmt: skip
_MOST_RANKS = 100_000
MOST_BYTES = 1 << 50


def kind_of(name: str) -> Kind | None:
    """The kind of NCCL's function (AllReduce, ncclAllReduce); None if it cannot be replayed (Reduce, Gather, Scatter)."""
    return KINDS.get(name.lower().removeprefix("nccl").replace("_", ""))


def element_bytes(type_: object) -> int | None:
    """Bytes of an element of this type, by number or name; None: it is unknown."""
    name = _TYPES.get(type_, "") if isinstance(type_, int) else type_ if isinstance(type_, str) else ""
    name = name.lower().removeprefix("nccl").removeprefix("b") if name else ""
    digits = {"8": 1, "16": 2, "32": 4, "64": 8}
    if name in ("char", "float8e4m3", "float8e5m2"):
        return 1
    for word, size in (("half", 2), ("double", 8)):
        if name == word:
            return size
    for word in ("int", "uint", "float"):
        if name.removeprefix(word) in digits:
            return digits[name.removeprefix(word)]
    return {"int": 4, "float": 4}.get(name)


def whole_bytes(kind: Kind, part: int, workers: int, where: str) -> int:
    """Bytes of the whole tensor where NCCL counted ``part``; raises `TraceError`."""
    if kind not in _OF_ONE_RANK:
        return part
    if not workers:
        raise TraceError(
            f"{where}: the whole size of its {kind} is unknown, because the file does not give the number of ranks. Give --ranks 8"
        )
    return part * workers


@dataclass(frozen=True, slots=True)
class Logged:
    """An exchange as NCCL records it, of ``rank`` of its communicator; ``batch``: what was called with it at once."""

    call: Call
    rank: int | None = None
    batch: Hashable = None


def calls_of(logged: Iterable[Logged]) -> tuple[list[Call], list[str]]:
    """The exchanges, batches of sends and receives with several ranks as all-to-alls, and what that assumes."""
    calls: list[Call] = []
    batches = 0
    for (group, messages, _), run in groupby(
        logged, key=lambda one: (one.call.group, one.call.kind in ("send", "recv"), one.batch)
    ):
        own = list(run)
        if not messages:
            calls += [one.call for one in own]
            continue
        for batch in _batches(own):
            together = all_to_all(batch, group)
            batches += together is not None
            calls += [together] if together is not None else [one.call for one in batch]
    said = [f"{batches} batches of sends and receives with several ranks are all-to-alls"] if batches else []
    return calls, said


def _batches(messages: Sequence[Logged]) -> Iterable[list[Logged]]:
    """Parts in which each message is with another rank, or goes in another direction."""
    seen: set[tuple[str, str]] = set()
    part: list[Logged] = []
    for one in messages:
        key = (one.call.kind, one.call.peer)
        if key in seen:
            yield part
            part, seen = [], set()
        seen.add(key)
        part.append(one)
    yield part


def all_to_all(batch: Sequence[Logged], group: Group) -> Call | None:
    """One all-to-all of these messages; None: they are messages of a pipeline, which has two neighbours at most."""
    sent = {one.call.peer: one.call.bytes for one in batch if one.call.kind == "send"}
    received = {one.call.peer: one.call.bytes for one in batch if one.call.kind == "recv"}
    own = next((str(one.rank) for one in batch if one.rank is not None), None)
    others = (sent.keys() | received.keys()) - {own}
    with_itself = own is not None and (own in sent or own in received)
    if not (len(others) > 2 or (with_itself and len(others) == group.workers - 1 > 0)):
        return None
    starts = [one.call.start_s for one in batch if one.call.start_s is not None]
    ends = [one.call.end_s for one in batch if one.call.end_s is not None]
    whole = Call(
        "all_to_all",
        sum(sent.values()) or sum(received.values()),
        group,
        start_s=min(starts, default=None),
        end_s=max(ends, default=None),
    )
    if not sent or not 0 < group.workers <= _MOST_RANKS:
        return whole
    even = (sum(sent.values()) - sent.get(own or "", 0)) // max(1, len(sent.keys() - {own}))
    parts = [sent.get(str(place), even if str(place) == own else 0) for place in range(group.workers)]
    return replace(whole, bytes=sum(parts), splits=tuple(parts) if uneven(parts) else ())


def about(skipped: dict[str, int]) -> list[str]:
    """The exchanges that cannot be replayed, in a sentence."""
    named = ", ".join(f"{count} {shown(name, 40)}" for name, count in list(skipped.items())[:12])
    return [f"left out, because there is no replay of it: {named}"] if named else []
