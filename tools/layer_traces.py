"""Make traces of models layer by layer, from their published shapes: ``python tools/layer_traces.py``.

It writes ``workloads/traces/*-layers.json`` and ``*-fsdp.json``, which priorities need. In the forward pass every layer
waits for its parameters. The backward pass goes from the last layer to the first. An all-reduce of each layer's gradients
starts as soon as they are available. Parameters follow from the shapes and add up to the published totals. Times are
arithmetic operations ÷ an assumed rate, and are labelled as assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.units import Duration, Rate, Size
from testbed.traces.trace import LIBRARY, VERSION, Operation, Source, Trace, save

FLOPS = 10e12  # assumed
NATIVE_RATE = Rate(25 * 10**9)
BYTES = 4


@dataclass(frozen=True)
class Layer:
    """Parameters, and multiply-accumulates of one sample."""

    parameters: int
    macs: int


def _conv(size: int, kernel: int, inside: int, outside: int, more: int = 1) -> Layer:
    """``more``: parameters besides its weights, per channel (1: a bias; 2: batch normalisation)."""
    weights = kernel * kernel * inside * outside
    return Layer(weights + more * outside, weights * size * size)


def _dense(inside: int, outside: int) -> Layer:
    return Layer(inside * outside + outside, inside * outside)


def _together(*layers: Layer) -> Layer:
    return Layer(sum(one.parameters for one in layers), sum(one.macs for one in layers))


def vgg16() -> list[Layer]:
    """Simonyan and Zisserman, ICLR 2015, configuration D."""
    shapes = [(224, 3, 64), (224, 64, 64), (112, 64, 128), (112, 128, 128), (56, 128, 256), (56, 256, 256), (56, 256, 256),
              (28, 256, 512), (28, 512, 512), (28, 512, 512), (14, 512, 512), (14, 512, 512), (14, 512, 512)]  # fmt: skip
    convolutions = [_conv(size, 3, inside, outside) for size, inside, outside in shapes]
    return [*convolutions, _dense(25_088, 4096), _dense(4096, 4096), _dense(4096, 1000)]


def resnet50() -> list[Layer]:
    """He et al., CVPR 2016; a layer is a bottleneck of three convolutions."""
    layers = [_conv(112, 7, 3, 64, 2)]
    inside = 64
    for blocks, width, size in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            before = size * 2 if block == 0 and width > 64 else size
            parts = [
                _conv(before, 1, inside, width, 2), _conv(size, 3, width, width, 2), _conv(size, 1, width, 4 * width, 2),
            ]  # fmt: skip
            if block == 0:
                parts.append(_conv(size, 1, inside, 4 * width, 2))
            layers.append(_together(*parts))
            inside = 4 * width
    return [*layers, _dense(2048, 1000)]


def googlenet() -> list[Layer]:
    """Szegedy et al., CVPR 2015, table 1, without its auxiliary classifiers; a layer is an inception module."""
    modules = [(28, 192, 64, 96, 128, 16, 32, 32), (28, 256, 128, 128, 192, 32, 96, 64), (14, 480, 192, 96, 208, 16, 48, 64),
               (14, 512, 160, 112, 224, 24, 64, 64), (14, 512, 128, 128, 256, 24, 64, 64), (14, 512, 112, 144, 288, 32, 64, 64),
               (14, 528, 256, 160, 320, 32, 128, 128), (7, 832, 256, 160, 320, 32, 128, 128), (7, 832, 384, 192, 384, 48, 128, 128)]  # fmt: skip
    stem = [_conv(112, 7, 3, 64), _together(_conv(56, 1, 64, 64), _conv(56, 3, 64, 192))]
    inception = [
        _together(
            _conv(size, 1, inside, one), _conv(size, 1, inside, to3), _conv(size, 3, to3, three),
            _conv(size, 1, inside, to5), _conv(size, 5, to5, five), _conv(size, 1, inside, pool),
        )
        for size, inside, one, to3, three, to5, five, pool in modules
    ]  # fmt: skip
    return [*stem, *inception, _dense(1024, 1000)]


def t5() -> list[Layer]:
    """Raffel et al., JMLR 2020, base: 12 + 12 blocks of width 768, 128 tokens in and out; attention's products are left out."""
    width, inner, vocabulary, tokens = 768, 3072, 32_128, 128
    attention, feed_forward, buckets = 4 * width * width, 2 * width * inner, 32 * 12
    front = Layer(vocabulary * width + 2 * width + 2 * buckets, vocabulary * width * tokens)
    encoder = Layer(attention + feed_forward + 2 * width, (attention + feed_forward) * tokens)
    decoder = Layer(2 * attention + feed_forward + 3 * width, (2 * attention + feed_forward) * tokens)
    return [front, *[encoder] * 12, *[decoder] * 12]


MODELS = {
    "vgg16": ("VGG16", vgg16(), 32, 138_357_544),
    "resnet50": ("ResNet-50", resnet50(), 32, 25_557_032),
    "googlenet": ("GoogLeNet", googlenet(), 32, 6_998_552),
    "t5": ("T5-base", t5(), 10, 222_903_552),
}


def trace(name: str) -> Trace:
    """Data parallel: an all-reduce a layer."""
    _, layers, *_ = MODELS[name]
    forward_ns = _forward_ns(name)
    operations = [
        Operation(id=f"forward{k}", kind="compute", duration=Duration(took), after=(f"gradient{k}@-1",), layer=k)
        for k, took in enumerate(forward_ns)
    ]
    for k, layer in reversed(list(enumerate(layers))):
        operations += [
            Operation(id=f"backward{k}", kind="compute", duration=Duration(2 * forward_ns[k]), layer=k),
            Operation(id=f"gradient{k}", kind="all_reduce", bytes=Size(BYTES * layer.parameters), after=(f"backward{k}",), layer=k),
        ]  # fmt: skip
    return _written(name, "layers", "data parallel", operations)


def sharded(name: str) -> Trace:
    """Fully sharded (FSDP): every layer's parameters are gathered before its forward and its backward pass, and its gradients scattered."""
    _, layers, *_ = MODELS[name]
    forward_ns, sizes = _forward_ns(name), [Size(BYTES * layer.parameters) for layer in layers]
    operations = []
    for k, took in enumerate(forward_ns):
        operations += [
            Operation(id=f"gather{k}", kind="all_gather", bytes=sizes[k], after=(f"scatter{k}@-1",), layer=k),
            Operation(id=f"forward{k}", kind="compute", duration=Duration(took), after=(f"gather{k}",), layer=k),
        ]
    for k in reversed(range(len(layers))):
        operations += [
            Operation(id=f"again{k}", kind="all_gather", bytes=sizes[k], after=(f"forward{k}",), layer=k),
            Operation(id=f"backward{k}", kind="compute", duration=Duration(2 * forward_ns[k]), after=(f"again{k}",), layer=k),
            Operation(id=f"scatter{k}", kind="reduce_scatter", bytes=sizes[k], after=(f"backward{k}",), layer=k),
        ]  # fmt: skip
    return _written(name, "fsdp", "fully sharded", operations)


def _forward_ns(name: str) -> list[int]:
    _, layers, batch, _ = MODELS[name]
    return [round(2 * layer.macs * batch / FLOPS * 1e9) for layer in layers]


def _written(name: str, ending: str, how: str, operations: list[Operation]) -> Trace:
    title, _, batch, _ = MODELS[name]
    return Trace(
        version=VERSION, name=f"{name}-{ending}", model=f"{title}, layer by layer, {how}, fp32, batch {batch}",
        source=Source(
            kind="derived from published numbers", measured_by="not measured: the model's authors publish the shapes of its layers",
            on="no hardware", notes="Written by tools/layer_traces.py, whose parameters add up to the published totals.",
        ),
        native_rate=NATIVE_RATE, operations=tuple(operations),
        assumptions=(
            f"no time is measured: computing is arithmetic operations ÷ {FLOPS / 1e12:g} TFLOP/s, the backward pass twice the forward pass",
            f"native_rate is an assumption: {NATIVE_RATE}, the interfaces of MLT's testbed",
        ),
    )  # fmt: skip


if __name__ == "__main__":
    for each in MODELS:
        save(trace(each), LIBRARY / f"{each}-layers.json")
        save(sharded(each), LIBRARY / f"{each}-fsdp.json")
