"""Record the library's traces of VGG, BERT and GPT-2 anew: ``python -m tools.record_library [NAME ...]``.

Each model takes a few real data-parallel steps on this machine's CPU (one rank). They give the buckets, and the order and
share of computing between them. A CPU's times are not representative. They are multiplied by one factor, so that a step
computes as long as published for the GPU and batch size named in `JOBS`. Needs PyTorch and transformers; GPT-2 XL needs
17 GB of memory and about ten minutes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from transformers import BertConfig, BertForPreTraining, GPT2Config, GPT2LMHeadModel

from testbed.core.units import Duration, Rate
from testbed.replay.ddp.models import vgg16, vgg19
from testbed.traces.recorder import Recorder
from testbed.traces.recording import Origin, Sample
from testbed.traces.trace import LIBRARY, Source, Trace, critical_path_s, save
from testbed.traces.trace_builder import Description, trace_from

WARM_UP = 3  # the first has other buckets
STEPS = 5
NATIVE_RATE = Rate.parse("50gbit")
# A model, and the loss of a batch as a function of that model, once wrapped.
Workload = tuple[Any, Callable[[Any], Any]]


@dataclass(frozen=True)
class Recipe:
    """``step_s`` is the computing of a step on the GPU, as ``published`` has it."""

    model: str
    build: Callable[[], Workload]
    batch: str  # on the CPU
    step_s: float
    published: str
    assumptions: tuple[str, ...] = ()


def _images(model: Callable[[], Any], batch: int = 8) -> Workload:
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    return model(), lambda run: torch.nn.functional.cross_entropy(run(images), labels)


def _bert(batch: int = 8, length: int = 128) -> Workload:
    tokens, order = torch.randint(30000, (batch, length)), torch.randint(2, (batch,))
    model = BertForPreTraining(BertConfig())
    return model, lambda run: run(input_ids=tokens, labels=tokens, next_sentence_label=order).loss


def _gpt2(length: int, **size: int) -> Workload:
    tokens = torch.randint(50000, (1, length))
    return GPT2LMHeadModel(GPT2Config(**size)), lambda run: run(input_ids=tokens, labels=tokens).loss


def _gpt2_xl_step_s() -> float:
    """16 sequences of 1024 tokens at 60.15 % of an A100's 312 TFLOP/s; FLOPs as that source counts them."""
    layers, width, length, parameters = 48, 1600, 1024, 1_557_611_200
    per_token = 6 * parameters + 12 * layers * width * length
    return 16 * length * per_token / (0.6015 * 312e12)


JOBS = {
    "vgg16": Recipe(
        "VGG-16, data parallel, batch size 32 per GPU, fp32",
        lambda: _images(vgg16),
        "8 images of 224 x 224",
        32 / 144,
        "144 images/s on one NVIDIA P100, batch size 32, fp32, synthetic data: TensorFlow's benchmarks of May 2017, "
        "github.com/tensorflow/tensorflow, tensorflow/docs_src/performance/benchmarks.md",
    ),
    "vgg19": Recipe(
        "VGG-19, data parallel, batch size 32 per GPU, fp32",
        lambda: _images(vgg19),
        "8 images of 224 x 224",
        32 / 108.83,
        "108.83 images/s on one NVIDIA RTX 2080, batch size 32 (tf_cnn_benchmarks, October 2018): "
        "github.com/ggg17226/rtx2080-dl-benchmark, benchmark-tf.md",
        ("the source does not name the precision; fp32 is that benchmark's default",),
    ),
    "bert-base": Recipe(
        "BERT-base pre-training, data parallel, 32 sequences of 128 tokens per GPU, fp32",
        _bert,
        "8 sequences of 128 tokens",
        32 / 119.6,
        "119.6 sequences/s on one NVIDIA V100 SXM2 16 GB, batch size 32, sequence length 128, fp32, Adam (NVIDIA "
        "DeepLearningExamples in PyTorch 1.5): github.com/Oneflow-Inc/DLPerf, "
        "NVIDIADeepLearningExamples/PyTorch/BERT/README.md",
    ),
    "gpt2": Recipe(
        "GPT-2 124M, data parallel, 12 sequences of 1024 tokens per GPU, mixed precision, fp32 gradients",
        lambda: _gpt2(1024),
        "1 sequence of 1024 tokens",
        0.135,
        "135 ms per iteration with torch.compile: github.com/karpathy/nanoGPT, README.md, 'efficiency notes'",
        (
            "gpt2: the computing time of 135 ms is published for nanoGPT; its default of 12 sequences of 1024 tokens on "
            "one NVIDIA A100 40 GB is inferred from the same page",
            "no gradient accumulation: every backward pass is followed by an exchange and an optimizer step",
        ),
    ),
    "gpt2-xl": Recipe(
        "GPT-2 XL 1.5B, data parallel, 16 sequences of 1024 tokens per GPU, mixed precision, fp32 gradients",
        lambda: _gpt2(256, n_embd=1600, n_layer=48, n_head=25),
        "1 sequence of 256 tokens",
        _gpt2_xl_step_s(),
        "60.15 % of 312 TFLOP/s for a GPT of 1.3 billion parameters and 1024 tokens on NVIDIA A100 80 GB, bf16: "
        "github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md (model 1b). With the same "
        "utilisation, 16 sequences of GPT-2 XL (10.29 GFLOP per token) take 898 ms",
        (
            "GPT-2 XL reaches the utilisation published for a similar model, whose own communication is part of it",
            "plain data parallelism: all gradients in one all-reduce per bucket, none sharded",
        ),
    ),
}


class _Samples:
    """A sink that keeps its samples."""

    def __init__(self) -> None:
        self.origin: Origin | None = None
        self.samples: list[Sample] = []

    def imported(self) -> None:
        pass

    def ready(self) -> None:
        pass

    def __call__(self, origin: Origin, sample: Sample) -> None:
        self.origin = origin
        self.samples.append(sample)
        print(f"  step {len(self.samples)}: {(sample.end_ns - sample.start_ns) / 1e9:.2f} s", file=sys.stderr)

    def stopped(self, reason: str) -> None:
        raise SystemExit(reason)


def record(name: str, job: Recipe) -> Trace:
    """A few steps of real training as a trace, with the CPU's own times."""
    torch.manual_seed(0)
    module, loss = job.build()
    model = torch.nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    sink = _Samples()
    recorder = Recorder(model, sink)
    for _ in range(WARM_UP + STEPS):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    recorder.close()
    assert sink.origin is not None
    return trace_from([(sink.origin, sink.samples[WARM_UP:])], Description(name, NATIVE_RATE.exact))


def scaled(recorded: Trace, job: Recipe) -> Trace:
    """Return the step with the published computing time, at the rate of the library."""
    factor = job.step_s / recorded.compute_s
    version = torch.__version__.split("+")[0]
    return msgspec.structs.replace(
        recorded,
        model=job.model,
        operations=tuple(
            msgspec.structs.replace(op, duration=op.duration and Duration(round(op.duration * factor)))
            for op in recorded.operations
        ),
        source=Source(
            kind="recorded, times scaled",
            measured_by=f"testbed.traces.recorder, one rank of DDP, medians of {STEPS} steps (tools/record_library.py)",
            when=recorded.source.when[:7],
            on=f"{os.cpu_count()} cores of an x86-64 server CPU, PyTorch {version}, Gloo",
            notes=f"Buckets, and the shares of computing between them, are recorded with a batch of {job.batch}; a step's {recorded.compute_s:.4g} s "
            f"of computing × {factor:.4g} = {job.step_s * 1e3:.4g} ms, from {job.published}.",
        ),
        assumptions=(
            "forward pass, backward pass and optimizer share a step on the GPU as they do on the CPU it was recorded on",
            *job.assumptions,
            "no noise: the CPU's spread says nothing of a GPU's",
        ),
        noise="0%",
    )


def describe(trace: Trace) -> str:
    """The trace's duty with two workers at its native rate, as `docs/reference/trace-format.md` has it."""
    wire_s = trace.bytes_per_iteration * 8 / NATIVE_RATE
    step_s = critical_path_s(trace, lambda op: (op.bytes or 0) * 8 / NATIVE_RATE)
    buckets = sum(op.bytes is not None for op in trace.operations)
    return (
        f"{trace.name}: {buckets} buckets, {trace.bytes_per_iteration:,} bytes, {trace.compute_s * 1e3:.1f} ms of "
        f"computing; on the wire {wire_s * 1e3:.1f} ms of {step_s * 1e3:.1f} ms ({wire_s / step_s:.1%})"
    )


def main(names: list[str]) -> None:
    if unknown := set(names) - set(JOBS):
        sys.exit(f"error: no such model: {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    for name in names or JOBS:
        recorded = record(name, JOBS[name])
        trace = scaled(recorded, JOBS[name])
        save(trace, LIBRARY / f"{name}.json")
        print(f"{describe(trace)}; recorded {recorded.compute_s:.3f} s ± {recorded.noise}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
