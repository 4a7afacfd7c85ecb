"""Workload text of SimAI (AICB) and of ASTRA-sim 1: one row for each layer, with its three computes and exchanges.

.. code-block:: text

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0
    2
    embedding -1 500 ALLREDUCE 1000 1 NONE 0 1 NONE 0 100
    layer -1 900 ALLREDUCE 1000 800 ALLREDUCE 1000 700 ALLREDUCE 4000 100

After its name and a number without a meaning, a row has computing (ns), kind and bytes of the exchange: forward, for the gradient of the input, for that of
the weights; then how long each exchange is processed. The loop is that of SimAI's ``Workload.cc``: all rows forward, then all
backward from the last. Exchanges forward and of the input's gradient block, those of the weights' gradient do not.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from testbed.core.text import quoted
from testbed.core.units import Duration, Size
from testbed.traces.importing import JobProfile, Profile, Request
from testbed.traces.json_stream import Source, brief
from testbed.traces.matching import MOST_STEPS
from testbed.traces.operations import Groups, Kind, Operation, Placement
from testbed.traces.process_groups import Found, Group, Job, about_servers, is_tensor_parallel, strided
from testbed.traces.trace import MOST_OPERATIONS, TraceError

TITLE = "workload text of SimAI or ASTRA-sim 1"
USES = frozenset({"group", "ranks"})

_TRANSFORMER = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
_READ = (*_TRANSFORMER, "DATA", "MICRO")
_OTHER = (
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_DLRM",
    "HYBRID_DLRM_ENHANCED",
    "HYBRID_CUSTOMIZED",
    "DISTRIBUTED_INFERENCE",
)
_KINDS: dict[str, Kind] = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all",
}  # fmt: skip
_SUFFIXES = {"_DP_EP": "dp_ep", "_EP": "ep"}  # of a kind: its group; without one, tensor or data parallel
_COLUMNS = 12
_MOST_ROWS = 200_000
_MOST_RANKS = 1 << 16


def recognises(head: bytes, path: Path) -> bool:
    first, _, rest = head.partition(b"\n")
    words = first.split()
    return (
        bool(words)
        and words[0].decode(errors="replace") in (*_READ, *_OTHER)
        and rest.split(b"\n")[0].strip().isdigit()
    )


def read(path: Path, request: Request) -> Profile:
    raise TraceError(f"{path}: a workload is of a whole job: import it by itself")


def read_ranks(paths: list[Path], request: Request) -> JobProfile:
    if len(paths) > 1:
        raise TraceError(
            f"{paths[1]}: a workload is of a whole job, and there are {len(paths)} files. Import each by itself"
        )
    (path,) = paths
    text = _text(path)
    header = _header(path, text[0] if text else "")
    rows = list(_rows(path, text))
    layout = _layout(path, header, rows, request)
    loop = _Loop(path, layout)
    loop.run(header, rows)
    groups = {name: lists for name, lists in layout.groups.items() if name in loop.used}
    operations = tuple(loop.operations)
    ranks = max((rank + 1 for lists in groups.values() for one in lists for rank in one), default=0)
    if ranks * len(operations) > MOST_STEPS:
        raise TraceError(
            f"{path}: {ranks} ranks with {len(operations):,} operations each are more than {MOST_STEPS:,}. Generate the workload for fewer micro-batches (ga) or ranks (all_gpus)"
        )
    if len(groups) < 2:
        operations = tuple(_unnamed(operations))
    inside = tuple(
        name for name, lists in groups.items() if len(groups) > 1 and is_tensor_parallel(Group(name, len(lists[0])))
    )
    said = [*layout.said, *_about(header, rows, loop), *about_servers(inside)]
    found = tuple(_found(name, lists, operations) for name, lists in groups.items())
    return JobProfile(Job(operations, groups, placement=Placement(inside) if inside else None), "SimAI workload" if header.of_simai else "ASTRA-sim 1 workload",
        groups=found or (_found("", (), operations),), rank=0, assumptions=tuple(said),
    )  # fmt: skip


@dataclass(frozen=True)
class _Header:
    policy: str
    tp: int = 0
    ep: int = 1
    pp: int = 1
    micro_batches: int = 1
    ranks: int = 0
    pp_bytes: int = 0
    checkpoints: frozenset[int] = frozenset()
    recomputed: frozenset[int] = frozenset()  # rows before which those since the last checkpoint are computed again

    @property
    def of_simai(self) -> bool:
        return self.ranks > 0


@dataclass(frozen=True)
class _Part:
    """Computing and an exchange."""

    compute_ns: int
    kind: Kind | None
    suffix: str  # of its group
    bytes: int


@dataclass(frozen=True)
class _Row:
    where: str
    forward: _Part
    input: _Part
    weights: _Part
    process_ns: int


@dataclass(frozen=True)
class _Layout:
    groups: Groups  # with several ranks
    alone: frozenset[str] = frozenset()  # those of one rank each: nothing to exchange
    said: tuple[str, ...] = ()


def _text(path: Path) -> list[str]:
    with Source(path) as source:
        try:
            lines = []
            for line in io.TextIOWrapper(io.BufferedReader(source), "utf-8"):
                source.progress()
                lines.append(line)
                if len(lines) > _MOST_ROWS:
                    raise TraceError(f"{path} has more than {_MOST_ROWS:,} lines, which no workload has")
            return lines
        except UnicodeDecodeError as error:
            raise TraceError(f"{path} is no text (UTF-8): {error.reason}") from error


def _header(path: Path, line: str) -> _Header:
    words = line.split()
    where = f"{path}, line 1"
    if not words or words[0] not in (*_READ, *_OTHER):
        raise TraceError(f"{where}: it has to begin with one of {', '.join(_READ)}, and it is {brief(line.strip())}")
    if words[0] in _OTHER:
        raise TraceError(
            f"{where}: {words[0]} cannot be imported: its exchanges take place in dimensions of ASTRA-sim's topology, or in a loop of its own. "
            f"There are {', '.join(_READ)}"
        )
    values: dict[str, list[str]] = {}
    key = ""
    for word in words[1:]:
        if word.endswith(":") or word == "pp_comm":
            key = word.rstrip(":")
            values[key] = []
        elif key:
            values[key].append(word)
        else:
            raise TraceError(f"{where}: {brief(word)} is no field such as 'all_gpus:'")

    def number(name: str, least: int, otherwise: int) -> int:
        if name not in values:
            return otherwise
        return _number(
            values[name][0] if values[name] else "", f"{where}: {name!r}", least, _MOST_RANKS if least else 10**15
        )

    def layers(name: str) -> frozenset[int]:
        numbers = [_number(one, f"{where}: {name!r}", 0, _MOST_ROWS) for one in values.get(name, ["0"])]
        if not numbers or len(numbers) != numbers[0] + 1:
            raise TraceError(f"{where}: {name!r} has to be a count and as many rows: {brief(' '.join(values[name]))}")
        return frozenset(numbers[1:])

    return _Header(
        words[0], number("model_parallel_NPU_group", 1, 0), number("ep", 1, 1), number("pp", 1, 1), number("ga", 1, 1),
        number("all_gpus", 1, 0), number("pp_comm", 0, 0), layers("checkpoints"), layers("checkpoint_initiates"),
    )  # fmt: skip


def _number(text: str, where: str, least: int, most: int) -> int:
    try:
        value = float(text) if "." in text else int(text)
    except ValueError as error:
        raise TraceError(f"{where} is {brief(text)}, which is not a number") from error
    if not least <= value <= most or value != int(value):
        raise TraceError(f"{where} is {brief(text)}; it has to be a whole number from {least} to {most}")
    return int(value)


def _rows(path: Path, lines: list[str]) -> Iterator[_Row]:
    count = _number(lines[1].strip() if len(lines) > 1 else "", f"{path}, line 2: the number of rows", 1, _MOST_ROWS)
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line.strip()]
    if len(rows) != count:
        raise TraceError(f"{path}, line 2: it says {count} rows, and there are {len(rows)}. Is the file complete?")
    for number, words in rows:
        where = f"{path}, line {number} ({quoted(words[0])})"
        if len(words) != _COLUMNS:
            raise TraceError(
                f"{where}: it has {len(words)} columns and needs {_COLUMNS}: a name, a number, three times computing, kind and bytes, and a processing time"
            )
        forward, input, weights = (_part(words[at : at + 3], where) for at in (2, 5, 8))
        yield _Row(
            where, forward, input, weights, _number(words[11], f"{where}: the processing time", 0, Duration.limit)
        )


def _part(words: list[str], where: str) -> _Part:
    compute = _number(words[0], f"{where}: a compute time", 0, Duration.limit)
    size = _number(words[2], f"{where}: a size", 0, Size.limit)
    name = words[1]
    if name == "NONE":
        return _Part(compute, None, "", 0)
    suffix = next((one for one in _SUFFIXES if name.endswith(one)), "")
    kind = _KINDS.get(name.removesuffix(suffix) if suffix else name)
    if kind is None:
        known = ", ".join([*_KINDS, "NONE"])
        raise TraceError(
            f"{where}: the kind {brief(name)} cannot be imported. There are {known}, and those with {' or '.join(_SUFFIXES)}"
        )
    return _Part(compute, kind if size else None, suffix, size)


def _layout(path: Path, header: _Header, rows: list[_Row], request: Request) -> _Layout:
    """The process groups as SimAI makes them (``MockNcclGroup.cc``): tensor parallel ranks are neighbours, expert parallel ones come next."""
    ranks = header.ranks or request.ranks or 0
    if header.ranks and request.ranks not in (None, header.ranks):
        raise TraceError(f"{path}: --ranks {request.ranks} does not fit 'all_gpus: {header.ranks}'")
    if header.policy not in _TRANSFORMER:
        if ranks == 1:
            raise TraceError(f"{path}: a job of one rank exchanges nothing. Give --ranks 2 or more")
        return _Layout({"dp": (tuple(range(ranks)),)} if ranks else {})
    if not ranks or not header.tp:
        missing = (
            "'all_gpus:', the number of ranks. Give --ranks N"
            if header.tp
            else "'model_parallel_NPU_group:', the ranks of a tensor-parallel group"
        )
        raise TraceError(f"{path}, line 1: it lacks {missing}")
    if ranks % (header.tp * header.pp) or (ranks // header.tp // header.pp) % header.ep:
        raise TraceError(
            f"{path}, line 1: {ranks} ranks are no whole number of tensor ({header.tp}) × pipeline ({header.pp}) parallel groups, whose data-parallel ranks are a "
            f"multiple of the expert-parallel ones ({header.ep})"
        )
    stage = ranks // header.pp
    tp, ep = header.tp, header.ep
    sizes = {
        "tp": (1, tp),
        "dp": (tp, stage // tp),
        "ep": (tp, ep),
        "dp_ep": (tp * ep, stage // tp // ep),
    }  # stride, ranks
    groups = {name: strided(stage, stride, size) for name, (stride, size) in sizes.items() if size > 1}
    said = []
    if header.pp > 1:
        said.append(
            f"the file has the rows of one of {header.pp} pipeline stages, and {stage} of its {ranks} ranks are imported: messages between stages "
            f"({Size(header.pp_bytes)} each) and the pipeline's bubble are left out"
        )
    alone = frozenset(name for name, (_, size) in sizes.items() if size == 1)
    return _Layout(groups, alone, tuple(said))


@dataclass
class _Loop:
    """One pass over the rows, as operations."""

    path: Path
    layout: _Layout
    operations: list[Operation] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    lonely: Counter[str] = field(default_factory=Counter)  # exchanges in groups of one rank
    counts: Counter[str] = field(default_factory=Counter)
    computed_ns: int = 0  # since the last operation
    awaited: tuple[str, ...] = ()  # by the next compute
    computed: str = ""  # the last compute

    def run(self, header: _Header, rows: list[_Row]) -> None:
        if header.policy == "MICRO":
            for row in rows[:1]:
                self.exchange(row.weights, "dp", blocking=False)
            return self.end()
        data_parallel = header.policy == "DATA"
        for row in rows:
            self.part(row.forward, "" if data_parallel else "tp")
        for place in reversed(range(len(rows))):
            row = rows[place]
            if data_parallel:
                self.part(row.weights, "dp", blocking=False)
                self.part(row.input, "")
                continue
            if place in header.recomputed:
                for other in rows[max((one for one in header.checkpoints if one <= place), default=0) : place]:
                    self.part(other.forward, "tp")
            self.part(row.input, "tp")
            self.part(row.weights, "dp", blocking=False)
        return self.end()

    def part(self, part: _Part, group: str, *, blocking: bool = True) -> None:
        """``group``: that of a kind without a suffix; "": nothing is exchanged in this loop."""
        self.computed_ns += part.compute_ns
        if group:
            self.exchange(part, group, blocking=blocking)

    def exchange(self, part: _Part, group: str, *, blocking: bool) -> None:
        if part.kind is None:
            return
        name = _SUFFIXES.get(part.suffix, group)
        if name in self.layout.alone:
            self.lonely[name] += 1
            return
        if part.suffix and name not in self.layout.groups:
            raise TraceError(
                f"{self.path}: it has exchanges {quoted(part.suffix)}, and its first line makes no such group. Those of {_TRANSFORMER[1]} do ('ep: 8')"
            )
        self.compute()
        self.used.add(name)
        after = tuple(dict.fromkeys((*self.awaited, *([self.computed] if self.computed else []))))
        op = self.add(
            Operation(id=self.name(part.kind), kind=part.kind, bytes=Size(part.bytes), group=name, after=after)
        )
        if blocking:
            self.awaited = (op.id,)

    def compute(self) -> None:
        if self.computed_ns:
            if self.computed_ns > Duration.limit:
                raise TraceError(
                    f"{self.path}: computing of {self.computed_ns / 1e9:g} s without an exchange is implausible. Check the file"
                )
            length = Duration(self.computed_ns)
            self.computed = self.add(
                Operation(id=self.name("compute"), kind="compute", duration=length, after=self.awaited)
            ).id
            self.computed_ns, self.awaited = 0, ()

    def end(self) -> None:
        self.compute()
        if not self.used:
            raise TraceError(
                f"{self.path}: no row exchanges anything between several ranks: there is nothing to replay"
            )
        if len(self.operations) > MOST_OPERATIONS:
            raise TraceError(
                f"{self.path}: its rows are {len(self.operations):,} operations, and {MOST_OPERATIONS:,} is the most of an iteration. Generate fewer micro-batches or layers"
            )

    def name(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"{kind}{self.counts[kind]}"

    def add(self, op: Operation) -> Operation:
        self.operations.append(op)
        return op


def _unnamed(operations: tuple[Operation, ...]) -> Iterator[Operation]:
    for op in operations:
        yield msgspec.structs.replace(op, group=None)


def _found(name: str, lists: tuple[tuple[int, ...], ...], operations: tuple[Operation, ...]) -> Found:
    own = [op for op in operations if not op.computes and op.group in (name, None)]
    ranks = lists[0] if lists else ()
    kinds = tuple(Counter(str(op.kind) for op in own).most_common())
    return Found(Group(name, len(ranks), ranks=ranks), kinds, sum(op.size for op in own), chosen=True)


def _about(header: _Header, rows: list[_Row], loop: _Loop) -> Iterator[str]:
    yield "computing is in ns, and sizes are bytes of the whole tensor (of an all-gather the output), as SimAI has them"
    if header.policy != "MICRO":
        yield "an iteration ends when all of its exchanges have: SimAI's next forward pass begins before, and each layer waits for its own"
    if header.policy in _TRANSFORMER:
        yield "exchanges without _EP or _DP_EP are tensor parallel forward and for the input's gradient, and data parallel for that of the weights"
    if header.micro_batches > 1:
        yield f"the rows have {header.micro_batches} micro-batches (ga): all go forward, then all backward, as SimAI's loop does"
    if longest := max(row.process_ns for row in rows):
        yield f"the processing after each exchange ({Duration(longest)} at most) is left out"
    for name, count in loop.lonely.items():
        yield f"{count} exchanges of group {quoted(name)} are left out: it has one rank"
