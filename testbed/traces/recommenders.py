"""The trace of a recommendation model in training (DLRM, arXiv 1906.00091): embeddings by all-to-all, perceptrons by all-reduce.

Each rank holds its part of the embedding tables and looks up what all ranks need of them. The perceptrons are on every rank.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

from testbed.core.units import Size
from testbed.traces import model_files
from testbed.traces.layout import BYTES, Layout, wrong
from testbed.traces.model_files import Recommender
from testbed.traces.model_layers import ACTIVATION
from testbed.traces.operations import Operation
from testbed.traces.trace import VERSION_2, Source, Trace

ROW = 4  # bytes of a number in an embedding table: fp32
_MEANS = ("dp", "micro_batches", "micro_batch_size", "gradients", "device", "peak", "mfu", "memory")


def perceptrons(model: Recommender) -> tuple[int, int]:
    """Parameters of the bottom one and of the top one, with biases."""
    vectors = model.tables + 1
    interactions = vectors * (vectors - 1) // 2 + model.dimension
    widths = ((model.dense_features, *model.bottom), (interactions, *model.top))
    bottom, top = (sum(a * b + b for a, b in pairwise(one)) for one in widths)
    return bottom, top


def parameters(model: Recommender) -> int:
    """Return the number of parameters of the model."""
    return model.rows * model.dimension + sum(perceptrons(model))


def trace(name: str, model: Recommender, layout: Layout) -> Trace:
    """Return one iteration of the model. Raises `RequestError`."""
    usual = Layout()
    for one in fields(Layout):
        if one.name not in _MEANS and getattr(layout, one.name) != getattr(usual, one.name):
            raise wrong(
                one.name.replace("_", "-"),
                f"means nothing for {model.title}, whose ranks are all replicas. Leave it out",
            )
    if layout.batches > 1:
        raise wrong("micro-batches", f"{model.title} has one for an iteration. Leave it out")
    layout.check()
    batch = layout.micro_batch_size or model.micro_batch_size
    gradient = BYTES[layout.gradients or model.gradients]
    bottom, top = perceptrons(model)
    looked_up = batch * model.tables * model.dimension

    def compute(identity: str, weights: int, share: int, *after: str) -> Operation:
        """Of one perceptron: a forward pass has a share of 1, a backward pass of 2."""
        return Operation(
            id=identity,
            kind="compute",
            flops=float(2 * share * batch * weights),
            memory_bytes=Size(share * weights * ROW),
            after=after,
        )

    def of_tables(identity: str, share: int, *after: str) -> Operation:
        """Rows that are read, or read and written."""
        return Operation(id=identity, kind="compute", memory_bytes=Size(share * looked_up * ROW), after=after)

    def exchange(identity: str, after: str) -> Operation:
        return Operation(id=identity, kind="all_to_all", group="mp", bytes=Size(looked_up * ACTIVATION), after=(after,))

    def gradients(which: str, weights: int) -> Operation:
        return Operation(
            id=f"{which} gradients",
            kind="all_reduce",
            group="dp",
            bytes=Size(weights * gradient),
            after=(f"{which} backward",),
        )

    operations = (
        of_tables("lookup", 1),
        exchange("embeddings", "lookup"),
        compute("bottom forward", bottom, 1),
        compute("top forward", top, 1, "embeddings"),
        compute("top backward", top, 2),
        exchange("embedding gradients", "top backward"),
        gradients("top", top),
        compute("bottom backward", bottom, 2),
        gradients("bottom", bottom),
        of_tables("update of tables", 2, "embedding gradients"),
        compute("optimizer", bottom + top, 1, "top gradients", "bottom gradients"),
    )
    every = (tuple(range(layout.ranks)),)
    return Trace(
        version=VERSION_2,
        name=name,
        model=f"{model.title}, {model_files.rounded(parameters(model))} parameters: dp {layout.replicas}; {batch} samples of each rank",
        source=Source(
            kind="derived from published numbers", measured_by=f"dimensions: {model.source}" if model.source else ""
        ),
        operations=operations,
        groups={"mp": every, "dp": every},
        device=layout.computes_on,
        assumptions=(
            f"gradients of the perceptrons are exchanged as {layout.gradients or model.gradients}, embeddings as bf16",
            "embedding tables are spread evenly over all ranks, and looked up once for each sample",
        ),
    )
