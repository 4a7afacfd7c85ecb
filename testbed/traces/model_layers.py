"""The computes and exchanges of one rank in each layer of a transformer, from its dimensions (docs/reference/model-jobs.md has the formulas).

Matrices are split among the ranks of a tensor-parallel group as in Megatron-LM (arXiv 1909.08053), activations too under sequence
parallelism (arXiv 2205.05198). Experts are spread over the ranks of an expert-parallel group, and tokens go there by all-to-all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from testbed.traces.model_files import Transformer
from testbed.traces.operations import Kind

ACTIVATION = 2  # bytes of a number: bf16
WEIGHT = 2


@dataclass(frozen=True)
class Work:
    """Computing of one rank."""

    flops: float
    memory: int  # bytes to and from memory


@dataclass(frozen=True)
class Exchange:
    """A collective of one rank's group."""

    kind: Kind
    group: str
    bytes: int


Item = Work | Exchange


@dataclass(frozen=True)
class Block:
    """A layer, the embedding, or the head: the work of a rank on one micro-batch, in order."""

    name: str
    forward: tuple[Item, ...]
    backward: tuple[Item, ...]
    message: int = 0  # bytes of activations for the next block; gradients of the same size return
    dense: int = 0  # parameters of this rank with gradients that all replicas exchange
    experts: int = 0  # of its experts
    table: int = 0  # of the embedding, where the head or another stack shares it
    is_layer: bool = True


@dataclass(frozen=True)
class _Part:
    """A block is made of these: attention, a feed-forward network."""

    forward: tuple[Item, ...]
    backward: tuple[Item, ...]
    dense: int
    experts: int = 0


@dataclass(frozen=True)
class Layers:
    """A model as one rank has it."""

    model: Transformer
    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    batch: int = 1  # samples of a micro-batch
    sequence: int = 1  # tokens of a sample

    @cached_property
    def tokens(self) -> int:
        """Return the tokens of a micro-batch on this rank."""
        return self.batch * self.sequence // self.cp

    @cached_property
    def activation(self) -> int:
        """Bytes of a micro-batch between two layers."""
        return self.tokens * self.model.hidden * ACTIVATION

    @cached_property
    def message(self) -> int:
        """Bytes of it that one rank holds there."""
        return self.activation // self.tp if self.sequence_parallel else self.activation

    @cached_property
    def norm(self) -> int:
        return self.model.hidden * (2 if self.model.norm == "layer" else 1)

    @cached_property
    def table(self) -> int:
        """The embedding's parameters: rows of the vocabulary are split."""
        return -(-self.model.vocabulary // self.tp) * self.model.hidden

    def blocks(self) -> Iterator[Block]:
        """Return the blocks of the model, front to back."""
        model = self.model
        if model.encoder_layers:
            yield self._embedding("encoder embedding")
            layer = self._block("", [self._attention(), self._network()], self.message)
            for number in range(model.encoder_layers):
                last = number == model.encoder_layers - 1
                yield replace(layer, name=f"encoder {number}", dense=layer.dense + (self.norm if last else 0))
        yield self._embedding("embedding")
        parts = [self._attention(), *([self._cross_attention()] if model.encoder_layers else []), self._network()]
        layer = self._block("", parts, self.message * (2 if model.encoder_layers else 1))
        for number in range(model.layers):
            yield replace(layer, name=f"layer {number}")
        yield self._head()

    def _block(self, name: str, parts: list[_Part], message: int) -> Block:
        return Block(
            name,
            tuple(item for part in parts for item in part.forward),
            tuple(item for part in reversed(parts) for item in part.backward),
            message,
            sum(part.dense for part in parts),
            sum(part.experts for part in parts),
        )

    def _embedding(self, name: str) -> Block:
        model = self.model
        width = model.hidden
        biases = model.relative_positions * model.heads // self.tp
        if model.image:
            pixels = 3 * model.patch**2
            work = Work(2 * self.tokens * pixels * width, pixels * width * WEIGHT)
            own = pixels * width + width + width + self.model.tokens * width  # matrix, bias, class token, positions
            return Block(name, (work,), (_twice(work),), dense=own, is_layer=False)
        work = Work(0, self.activation)
        own, table = model.positions * width + biases, self.table
        if not model.tied:
            own, table = own + table, 0
        backward: tuple[Item, ...] = (_twice(work),)
        if self.sequence_parallel:
            backward = (self._gather(self.activation), *backward)
        return Block(name, (work, *self._reduced(self.activation)), backward, dense=own, table=table, is_layer=False)

    def _head(self) -> Block:
        model = self.model
        if model.image:
            work = Work(2 * self.batch * model.hidden * model.classes, model.hidden * model.classes * WEIGHT)
            own = model.hidden * model.classes + model.classes + self.norm
            return Block("head", (work,), (_twice(work),), dense=own, is_layer=False)
        work = Work(2 * self.tokens * self.table, self.table * WEIGHT)
        own, table = (self.norm, self.table) if model.tied else (self.norm + self.table, 0)
        forward, backward = self._by_columns((work,), self.activation)
        return Block("head", forward, backward, dense=own, table=table, is_layer=False)

    def _by_columns(self, work: tuple[Item, ...], size: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        """A matrix split by columns: its input is gathered, and the gradient of that is summed."""
        gather = (self._gather(size),) if self.sequence_parallel else ()
        return (*gather, *work), (*gather, *_backward(work), *self._reduced(size))

    def _gather(self, size: int) -> Exchange:
        return Exchange("all_gather", "tp", size)

    def _reduced(self, size: int) -> tuple[Exchange, ...]:
        """The sum of partial results."""
        if self.tp == 1:
            return ()
        return (Exchange("reduce_scatter" if self.sequence_parallel else "all_reduce", "tp", size),)

    def _split(
        self, work: tuple[Item, ...], sizes: tuple[int, ...], out: int
    ) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        """Matrices split by columns, then by rows: inputs of ``sizes`` are gathered, outputs of ``out`` bytes summed; and the reverse."""
        gathers = tuple(self._gather(size) for size in sizes) if self.sequence_parallel else ()
        gradient = (self._gather(out),) if self.sequence_parallel else ()
        summed = tuple(one for size in sizes for one in self._reduced(size))
        return (*gathers, *work, *self._reduced(out)), (*gradient, *gathers, *_backward(work), *summed)

    def _attention(self) -> _Part:
        """Return self-attention; context parallelism gathers keys and values of the other parts (arXiv 2407.21783)."""
        model = self.model
        wide, narrow = model.heads * model.head_width, model.key_heads * model.head_width
        project = model.hidden * (wide + 2 * narrow) // self.tp
        out = wide * model.hidden // self.tp
        first = Work(2 * self.tokens * project, project * WEIGHT)
        second = Work(2 * self.tokens * out + 4 * self.tokens * self.sequence * wide / self.tp, out * WEIGHT)
        keys = self.batch * self.sequence * 2 * narrow // self.tp * ACTIVATION
        work: tuple[Item, ...] = (
            (first, Exchange("all_gather", "cp", keys), second)
            if self.cp > 1
            else (Work(first.flops + second.flops, first.memory + second.memory),)
        )
        forward, backward = self._split(work, (self.activation,), self.activation)
        biases = (wide + 2 * narrow) // self.tp + model.hidden if model.biases else 0
        return _Part(forward, backward, project + out + biases + self.norm)

    def _cross_attention(self) -> _Part:
        """Of the decoder with the encoder's output, which is as long."""
        model = self.model
        wide, narrow = model.heads * model.head_width, model.key_heads * model.head_width
        weights = model.hidden * 2 * (wide + narrow) // self.tp
        work = Work(2 * self.tokens * weights + 4 * self.tokens * self.sequence * wide / self.tp, weights * WEIGHT)
        forward, backward = self._split((work,), (self.activation, self.activation), self.activation)
        biases = (wide + 2 * narrow) // self.tp + model.hidden if model.biases else 0
        return _Part(forward, backward, weights + biases + self.norm)

    def _network(self) -> _Part:
        model = self.model
        weights = model.hidden * model.ffn * (3 if model.gated else 2) // self.tp
        biases = model.ffn * (2 if model.gated else 1) // self.tp + model.hidden if model.biases else 0
        if not model.experts:
            work = Work(2 * self.tokens * weights, weights * WEIGHT)
            forward, backward = self._split((work,), (self.activation,), self.activation)
            return _Part(forward, backward, weights + biases + self.norm)
        router = model.hidden * model.experts
        local = model.experts // self.ep
        chosen = self.activation * model.experts_per_token  # of all tokens, each at each of its experts
        route = Work(2 * self.message // ACTIVATION * model.experts, router * WEIGHT)
        work = Work(2 * self.tokens * model.experts_per_token * weights, local * weights * WEIGHT)
        held = chosen // self.tp if self.sequence_parallel else chosen
        moved = (Exchange("all_to_all", "ep", held),) if self.ep > 1 else ()
        if self.sequence_parallel:  # each rank routes its own part of the sequence
            gather, scatter = self._gather(chosen), self._reduced(chosen)
            forward = (*moved, gather, work, *scatter, *moved)
            backward = (*moved, gather, _twice(work), *scatter, *moved)
        else:
            forward = (*moved, work, *moved, *self._reduced(self.activation))
            backward = (*moved, _twice(work), *moved, *self._reduced(self.activation))
        return _Part((route, *forward), (*backward, _twice(route)), router + self.norm, local * (weights + biases))


def _twice(work: Work) -> Work:
    """The backward pass: gradients of the input, and of the weights."""
    return Work(2 * work.flops, 2 * work.memory)


def _backward(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the backward pass: twice the work, and each gathered tensor is gathered again and its gradient summed."""
    found: list[Item] = []
    for item in reversed(items):
        if isinstance(item, Work):
            found.append(_twice(item))
        else:
            found += [item, replace(item, kind="reduce_scatter")]
    return tuple(found)


def parameters(model: Transformer) -> int:
    """Return the number of parameters of the model."""
    tables: list[int] = []
    own = 0
    for block in Layers(model, sequence=model.tokens).blocks():
        own += block.dense + block.experts
        tables.append(block.table)
    return own + max(tables)
