"""The trace of a transformer in training: pipeline stages, micro-batches in their order, gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from testbed.core.errors import RequestError
from testbed.core.text import count
from testbed.core.units import Size
from testbed.traces import model_files
from testbed.traces.collectives import parts
from testbed.traces.layout import BYTES, Layout, wrong
from testbed.traces.matching import MOST_STEPS
from testbed.traces.model_files import Transformer
from testbed.traces.model_layers import ACTIVATION, Block, Exchange, Item, Layers, Work, parameters
from testbed.traces.operations import Kind, Operation, Placement, Role
from testbed.traces.trace import MOST_OPERATIONS, VERSION_2, Source, Trace

OPTIMIZER = 26  # memory bytes per parameter without its gradient: Adam reads and writes three fp32 numbers and writes one of 16 bits
USUAL_DETAIL = 100_000  # operations of all ranks up to which each layer's exchanges stay separate


def trace(name: str, model: Transformer, layout: Layout) -> Trace:
    """Return one iteration of the model. Raises `RequestError`."""
    sequence = layout.sequence or model.tokens
    _check(model, layout, sequence)
    job = _Job(model, layout, sequence)
    chunks: list[_Chunk] = []
    for own in _parts(job.blocks(), layout.pp * layout.virtual_stages):
        chunks.append(_Chunk(tuple(own), chunks[-1].blocks[-1].message if chunks else 0))
    stages = [_Stage(job, number, tuple(chunks[number :: layout.pp])) for number in range(layout.pp)]
    joined = layout.detail == "stage" or (
        layout.detail == "auto" and layout.of_stage * sum(one.count(joined=False) for one in stages) > USUAL_DETAIL
    )
    _check_count([one.count(joined=joined) for one in stages], layout)
    ties = tuple(one.number for one in stages if one.table)
    tied = ties if len(ties) > 1 else ()
    lists = [one.operations(joined=joined, tied=bool(tied) and one.table > 0) for one in stages]
    roles = tuple(
        Role(f"stage {number}", tuple(range(number * layout.of_stage, (number + 1) * layout.of_stage)), own)
        for number, own in enumerate(lists)
    )
    return Trace(
        version=VERSION_2,
        name=name,
        model=f"{model.title}, {model_files.rounded(parameters(model))} parameters: {layout}; {count(layout.batches, 'micro-batch', 'micro-batches')} of "
        f"{job.batch} × {sequence} tokens",
        source=Source(
            kind="derived from published numbers", measured_by=f"dimensions: {model.source}" if model.source else ""
        ),
        operations=lists[0] if len(roles) == 1 else (),
        roles=roles if len(roles) > 1 else (),
        groups=layout.groups(ties=tied),
        placement=Placement(("tp",)) if layout.tp > 1 else None,
        device=layout.computes_on,
        assumptions=tuple(_assumptions(job, joined=joined)),
    )


def _check(model: Transformer, layout: Layout, sequence: int) -> None:
    layout.check()
    for what, size in (("heads", model.heads), ("kv_heads", model.key_heads), ("ffn", model.ffn)):
        if size % layout.tp:
            raise wrong("tp", f"{layout.tp} does not divide {what} ({size}). Give a divisor of it")
    layers = model.layers + model.encoder_layers
    if layout.pp > layers:
        raise wrong("pp", f"{layout.pp} stages, and the model has {layers} layers. Give as many at most")
    if layout.pp * layout.virtual_stages > layers:
        raise wrong(
            "virtual-stages",
            f"{layout.pp} stages of {layout.virtual_stages} parts, and the model has {layers} layers. Give {layers // layout.pp} at most",
        )
    if layout.ep > 1 and not model.experts:
        raise wrong("ep", f"{model.title} is a dense model, without experts to spread. Leave --ep out")
    if layout.ep > 1 and model.experts % layout.ep:
        raise wrong("ep", f"{layout.ep} does not divide experts ({model.experts}). Give a divisor of it")
    if model.image and layout.sequence is not None:
        raise wrong("sequence", f"an image has {model.tokens} tokens. Leave it out")
    if model.positions and sequence > model.positions:
        raise wrong(
            "sequence", f"{sequence} tokens, and the model has {model.positions} positions. Give as many at most"
        )
    if layout.cp > 1 and (model.encoder_layers or model.image):
        raise wrong("cp", "context parallelism is for decoders of text. Leave it out")
    if sequence % layout.cp:
        raise wrong("cp", f"{layout.cp} does not divide the sequence ({sequence} tokens). Give a divisor of it")
    if layout.sequence_parallel and sequence // layout.cp % layout.tp:
        raise wrong(
            "sequence-parallel",
            f"tp ({layout.tp}) does not divide the sequence ({sequence // layout.cp} tokens of a rank)",
        )


def _check_count(counts: Sequence[int], layout: Layout) -> None:
    if max(counts) > MOST_OPERATIONS or sum(counts) * layout.of_stage > MOST_STEPS:
        hint = "" if layout.detail == "stage" else ", or --detail stage"
        raise wrong(
            "micro-batches",
            f"a rank has {max(counts):,} operations, all ranks {sum(counts) * layout.of_stage:,}. {MOST_OPERATIONS:,} and {MOST_STEPS:,} are the most. "
            f"Give fewer --micro-batches or replicas (--dp){hint}",
        )


def _parts(blocks: Iterable[Block], count: int) -> Iterator[list[Block]]:
    """Split layers into ``count`` equal parts; an embedding joins the layer after it, the head the last one."""
    units: list[list[Block]] = []
    waiting: list[Block] = []
    for block in blocks:
        waiting.append(block)
        if block.is_layer:
            units.append(waiting)
            waiting = []
    units[-1] += waiting
    first = 0
    for size in parts(count, len(units)):
        yield [block for unit in units[first : first + size] for block in unit]
        first += size


def _assumptions(job: _Job, *, joined: bool) -> Iterator[str]:
    layout, model = job.layout, job.model
    yield f"gradients are exchanged as {layout.gradients or model.gradients}, activations and parameters as bf16"
    if layout.sharers > 1 and layout.zero != "3":
        which = "each" if layout.zero == "2" else "the last"
        yield f"replicas exchange a layer's gradients as soon as {which} micro-batch has computed them"
    if layout.zero == "3":
        yield "parameters are gathered one layer ahead, in the forward and in the backward pass of each micro-batch"
    if layout.tp > 1:
        yield "computing waits for tensor-parallel exchanges"
        if joined:
            yield "those of a micro-batch and stage are one operation of as many bytes"
    if layout.pp > 1:
        yield "computing goes on while activations are sent"
    if layout.virtual_stages > 1:
        yield f"each pipeline stage has {layout.virtual_stages} parts of the layers, interleaved as in Megatron-LM"
    if model.experts:
        yield "tokens are routed evenly to all experts"
    yield "left out: exchanges of single numbers (loss, norm of the gradients) and, under sequence parallelism, gradients of norms among tensor-parallel ranks"


@dataclass(frozen=True)
class _Job:
    model: Transformer
    layout: Layout
    sequence: int

    @property
    def batch(self) -> int:
        return self.layout.micro_batch_size or self.model.micro_batch_size

    @cached_property
    def layers(self) -> Layers:
        lay = self.layout
        return Layers(self.model, lay.tp, lay.cp, lay.ep, lay.sequence_parallel, self.batch, self.sequence)

    def blocks(self) -> Iterator[Block]:
        """Front to back."""
        for block in self.layers.blocks():
            again = self.layout.recompute and block.is_layer
            yield replace(block, backward=(*block.forward, *block.backward)) if again else block

    @property
    def gradient(self) -> int:
        """Bytes of one."""
        return BYTES[self.layout.gradients or self.model.gradients]

    def shared(self, block: Block, table: int) -> list[tuple[str, int]]:
        """Groups that have this block's parameters in common, and how many."""
        lay = self.layout
        dense, experts = block.dense + table, block.experts
        if lay.ep == 1:
            dense, experts = dense + experts, 0
        found = [("dp", dense)] if lay.sharers > 1 else []
        return found + ([("edp", experts)] if experts and lay.sharers > lay.ep else [])


@dataclass(frozen=True)
class _Chunk:
    """Blocks that follow each other on one pipeline stage."""

    blocks: tuple[Block, ...]
    before: int  # bytes of a message from the chunk in front of it

    @property
    def behind(self) -> int:
        """Bytes of a message to the chunk behind it."""
        return self.blocks[-1].message


@dataclass(frozen=True)
class _Stage:
    """The operations of the ranks of one pipeline stage."""

    job: _Job
    number: int
    chunks: tuple[_Chunk, ...]  # several: virtual stages, between which lie those of other stages

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for chunk in self.chunks for block in chunk.blocks)

    def places(self, chunk: int) -> range:
        """Of a chunk's blocks among `blocks`."""
        first = sum(len(one.blocks) for one in self.chunks[:chunk])
        return range(first, first + len(self.chunks[chunk].blocks))

    @property
    def table(self) -> int:
        """Parameters of the embedding that it holds, and that other blocks share."""
        return max(block.table for block in self.blocks)

    @cached_property
    def _table_of(self) -> int:
        """The block whose backward pass ends the table's gradient: the first one that uses it."""
        return next((at for at, block in enumerate(self.blocks) if block.table), -1)

    @property
    def parameters(self) -> int:
        return sum(block.dense + block.experts for block in self.blocks) + self.table

    def shared(self, at: int) -> list[tuple[str, int]]:
        return self.job.shared(self.blocks[at], self.table if at == self._table_of else 0)

    def passes(self) -> Iterator[tuple[bool, int, int]]:
        """Forward and backward passes of micro-batches through a chunk, in the order in which this stage computes them.

        With several chunks as Megatron-LM interleaves them: each computes as many micro-batches as there are stages, then the next chunk does.
        """
        lay, several = self.job.layout, len(self.chunks)
        count, behind = lay.batches * several, lay.pp - 1 - self.number
        ahead = behind if several == 1 else 2 * behind + (several - 1) * lay.pp
        ahead = count if lay.schedule == "gpipe" else min(ahead, count)

        def turn(number: int, *, forward: bool) -> tuple[bool, int, int]:
            group, place = divmod(number, lay.pp * several)
            chunk, batch = divmod(place, lay.pp)
            return forward, group * lay.pp + batch, chunk if forward else several - 1 - chunk

        for number in range(ahead):
            yield turn(number, forward=True)
        for number in range(count - ahead):
            yield turn(ahead + number, forward=True)
            yield turn(number, forward=False)
        for number in range(count - ahead, count):
            yield turn(number, forward=False)

    def count(self, *, joined: bool) -> int:
        """How many operations it has, computed; at most."""
        lay = self.job.layout
        batches = lay.batches
        every = [len(block.forward) + len(block.backward) for block in self.blocks]
        messages = 4 * len(self.chunks)
        if joined and lay.zero != "2":
            kept = [
                sum(isinstance(item, Exchange) and item.group != "tp" for item in (*block.forward, *block.backward))
                for block in self.blocks
            ]
            each = sum(5 * one for one in kept) + 10
            return batches * len(self.chunks) * each + sum(every) + 4 * len(self.blocks) + messages * batches + 2
        gathers = 4 * len(self.blocks) * (batches if lay.zero in ("2", "3") else 1)
        return batches * (sum(every) + messages) + gathers + 2

    def operations(self, *, joined: bool, tied: bool) -> tuple[Operation, ...]:
        return _Writer(self, joined).write(tied=tied)


@dataclass
class _Writer:
    """The operations of one rank; all computes and their dependencies are one chain."""

    stage: _Stage
    joined: bool
    made: list[Operation] = field(default_factory=list)
    tail: str | None = None  # last of the chain
    synced: list[str] = field(default_factory=list)  # exchanges of gradients, for which the optimizer waits

    @property
    def job(self) -> _Job:
        return self.stage.job

    def write(self, *, tied: bool) -> tuple[Operation, ...]:
        layout = self.job.layout
        if layout.zero == "3":
            self._fully_sharded()
        else:
            for forward, batch, chunk in self.stage.passes():
                self._pass(forward, batch, chunk)
        if tied:
            size = _size(self.stage.table * self.job.gradient)
            after = tuple(self.synced[-1:]) or self._after()
            self._add("embedding/gradients", "all_reduce", "embedding", size, after)
            self.synced.append("embedding/gradients")
        memory = (
            self.stage.parameters * (OPTIMIZER + self.job.gradient) // (1 if layout.zero == "0" else layout.sharers)
        )
        self._chain("optimizer", [Work(0, max(1, memory))], tuple(self.synced))
        if layout.zero in ("1", "2"):
            for at, block in enumerate(self.stage.blocks):
                for group, own in self.stage.shared(at):
                    self._add(
                        f"{block.name}/{group} parameters", "all_gather", group, _size(own * ACTIVATION), self._after()
                    )
        return tuple(self.made)

    def _pass(self, forward: bool, batch: int, chunk: int) -> None:
        stage, layout = self.stage, self.job.layout
        name = f"{'forward' if forward else 'backward'} {batch}"
        if len(stage.chunks) > 1:
            name += f" part {chunk}"
        of_all = chunk * layout.pp + stage.number
        front, back = of_all == 0, of_all == layout.pp * len(stage.chunks) - 1
        waits: tuple[str, ...] = ()
        if not (front if forward else back):
            self._message(f"{name}/receive", "recv", batch, chunk, (), to_back=not forward, forward=forward)
            waits = (f"{name}/receive",)
        ends = not forward and layout.sharers > 1 and (layout.zero == "2" or batch == layout.batches - 1)
        order = stage.places(chunk) if forward else reversed(stage.places(chunk))
        if self.joined and not ends:
            blocks = [stage.blocks[at] for at in order]
            items = [item for block in blocks for item in (block.forward if forward else block.backward)]
            self._chain(name, _joined(items), waits)
        else:
            for at in order:
                block = stage.blocks[at]
                items = list(block.forward if forward else block.backward)
                self._chain(f"{name}/{block.name}", _joined(items) if self.joined else items, waits)
                waits = ()
                if ends:
                    self._gradients(at, f"{name}/{block.name}/" if layout.zero == "2" else f"{block.name}/")
        if not (back if forward else front):
            self._message(f"{name}/send", "send", batch, chunk, self._after(), to_back=forward, forward=forward)

    def _gradients(self, at: int, where: str) -> None:
        kind: Kind = "all_reduce" if self.job.layout.zero == "0" else "reduce_scatter"
        for group, own in self.stage.shared(at):
            self._add(f"{where}{group} gradients", kind, group, _size(own * self.job.gradient), self._after())
            self.synced.append(f"{where}{group} gradients")

    def _fully_sharded(self) -> None:
        """Each block's parameters are gathered while the block before it is computed, and its gradients are scattered behind it."""
        stage = self.stage
        passes = [
            (forward, batch, at)
            for forward, batch, chunk in stage.passes()
            for at in (stage.places(chunk) if forward else reversed(stage.places(chunk)))
        ]
        gathered: list[tuple[str, ...]] = []
        tails: list[tuple[str, ...]] = [()]
        for number, (forward, batch, at) in enumerate(passes):
            if number == 0:
                gathered.append(self._gathered(*passes[0], ()))
            if number + 1 < len(passes):
                gathered.append(self._gathered(*passes[number + 1], tails[-1]))
            block = stage.blocks[at]
            where = f"{'forward' if forward else 'backward'} {batch}/{block.name}"
            items = list(block.forward if forward else block.backward)
            self._chain(where, _joined(items) if self.joined else items, gathered[number])
            tails.append(self._after())
            if not forward:
                self._gradients(at, f"{where}/")

    def _gathered(self, forward: bool, batch: int, at: int, after: tuple[str, ...]) -> tuple[str, ...]:
        where = f"{'forward' if forward else 'backward'} {batch}/{self.stage.blocks[at].name}"
        names = []
        for group, own in self.stage.shared(at):
            names.append(f"{where}/{group} parameters")
            self._add(names[-1], "all_gather", group, _size(own * ACTIVATION), after)
        return tuple(names)

    def _after(self) -> tuple[str, ...]:
        return (self.tail,) if self.tail is not None else ()

    def _chain(self, name: str, items: Sequence[Item], waits: tuple[str, ...]) -> None:
        """One after the other, behind what this rank has computed."""
        numbers: dict[str, int] = {}
        for item in items:
            what = "compute" if isinstance(item, Work) else item.group
            number = numbers[what] = numbers.get(what, -1) + 1
            several = sum(("compute" if isinstance(one, Work) else one.group) == what for one in items) > 1
            identity = name if len(items) == 1 else f"{name}/{what}{number if several else ''}"
            after = tuple(dict.fromkeys((*self._after(), *waits)))
            if isinstance(item, Work):
                self.made.append(Operation(
                    id=identity, kind="compute", flops=float(item.flops) if item.flops else None, memory_bytes=_size(item.memory), after=after
                ))  # fmt: skip
            else:
                self._add(identity, item.kind, item.group, _size(item.bytes), after)
            self.tail, waits = identity, ()

    def _add(self, name: str, kind: Kind, group: str, size: Size, after: tuple[str, ...]) -> None:
        self.made.append(Operation(id=name, kind=kind, group=group, bytes=size, after=after))

    def _message(
        self, name: str, kind: Kind, batch: int, chunk: int, after: tuple[str, ...], *, to_back: bool, forward: bool
    ) -> None:
        """One to or from the chunk behind (``to_back``) or in front, activations (``forward``) or their gradients.

        Behind the last stage's chunk comes the first stage's next one. Then messages of both directions share a pair of ranks, and have tags.
        """
        stage, own, pp = self.stage, self.stage.chunks[chunk], self.job.layout.pp
        if to_back:
            peer = "+1" if stage.number < pp - 1 else f"-{pp - 1}"
        else:
            peer = "-1" if stage.number > 0 else f"+{pp - 1}"
        boundary = chunk * pp + stage.number + to_back
        several = len(stage.chunks)
        tag = 1 + 2 * (batch * pp * several + boundary) + forward if several > 1 else 0
        size = _size(own.behind if to_back else own.before)
        self.made.append(Operation(id=name, kind=kind, group="pp", peer=peer, bytes=size, tag=tag, after=after))


def _joined(items: Sequence[Item]) -> list[Item]:
    """Computing and tensor-parallel exchanges between two other exchanges as one of each kind."""
    found: list[Item] = []
    work, sizes = Work(0, 0), dict[Kind, int]()

    def flush() -> None:
        nonlocal work
        if work.flops or work.memory:
            found.append(work)
        found.extend(Exchange(kind, "tp", size) for kind, size in sizes.items())
        work = Work(0, 0)
        sizes.clear()

    for item in items:
        if isinstance(item, Work):
            work = Work(work.flops + item.flops, work.memory + item.memory)
        elif item.group == "tp":
            sizes[item.kind] = sizes.get(item.kind, 0) + item.bytes
        else:
            flush()
            found.append(item)
    flush()
    return found


def _size(size: int) -> Size:
    if size > Size.limit:
        raise RequestError(
            f"an operation has {size:,} bytes, too many to emulate. Give smaller dimensions", where="model"
        )
    return Size(size)
