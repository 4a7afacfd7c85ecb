"""How a model is trained: the ranks that it is split over, and its micro-batches.

Ranks are numbered as in Megatron-LM: tensor-parallel ranks are neighbours, then come context-parallel ones, replicas,
and pipeline stages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from testbed.core.errors import RequestError
from testbed.core.options import Boolean, Integer, Name, OneOf, option
from testbed.core.units import parse_fraction
from testbed.traces import devices
from testbed.traces.devices import Bandwidth, ComputesOn, Flops
from testbed.traces.operations import Groups

MOST_RANKS = 65_536
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}  # of a number
T = TypeVar("T")


def _maybe(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """A parser for an option whose default depends on another value."""
    return read


@dataclass(frozen=True)
class Layout:
    """Options of a job made from a model: a flag each, and a keyword of `testbed.traces.model_jobs.build`."""

    tp: int = option(
        1, "ranks that share each layer's matrices, inside a server (tensor parallel; default: 1)", Integer(1, 1024)
    )
    pp: int = option(1, "pipeline stages (default: 1)", Integer(1, 1024))
    dp: int | None = option(
        None, "replicas (data parallel; default: 2, or as many as --ep)", _maybe(Integer(1, MOST_RANKS))
    )
    ep: int = option(
        1, "replicas over which a layer's experts are spread (expert parallel; default: 1)", Integer(1, 4096)
    )
    cp: int = option(1, "ranks that share each sequence (context parallel; default: 1)", Integer(1, 1024))
    micro_batches: int | None = option(
        None, "micro-batches of an iteration (default: 1, or 4 for each stage)", _maybe(Integer(1, 10_000))
    )
    micro_batch_size: int | None = option(
        None, "samples of a micro-batch (default: the model's)", _maybe(Integer(1, 1_000_000))
    )
    sequence: int | None = option(None, "tokens of a sample (default: the model's)", _maybe(Integer(1, 10_000_000)))
    virtual_stages: int = option(
        1, "parts of the layers that each pipeline stage has (interleaved 1F1B; default: 1)", Integer(1, 1024)
    )
    schedule: str = option(
        "1f1b", "order of a stage's micro-batches: 1f1b or gpipe (default: 1f1b)", OneOf("1f1b", "gpipe")
    )
    sequence_parallel: bool = option(
        False, "whether activations are split among tensor-parallel ranks (default: off)", Boolean()
    )
    recompute: bool = option(
        False, "whether layers compute their forward pass again in the backward pass (default: off)", Boolean()
    )
    zero: str = option(
        "0",
        "ZeRO stage: replicas split nothing (0), the optimizer (1), gradients, too (2), or parameters, too (3, FSDP); default: 0",
        OneOf("0", "1", "2", "3"),
    )
    gradients: str | None = option(
        None, "element type of exchanged gradients: bf16, fp16, fp32 (default: the model's)", _maybe(OneOf(*BYTES))
    )
    detail: str = option(
        "auto",
        "tensor-parallel exchanges: each by itself (layer), or joined for a micro-batch of a stage (stage); default: layer up to 100,000 operations",
        OneOf("auto", "layer", "stage"),
    )
    device: str | None = option(None, f"device that computes: {', '.join(devices.KNOWN)}", _maybe(Name()))
    peak: Flops | None = option(None, "peak speed of a device: 312tflops", _maybe(Flops.parse))
    mfu: float | None = option(
        None, "MFU: share of a device's peak that training reaches (default: 40%)", _maybe(parse_fraction)
    )
    memory: Bandwidth | None = option(None, "memory bandwidth of a device: 2tb/s", _maybe(Bandwidth.parse))

    @property
    def replicas(self) -> int:
        return self.dp if self.dp is not None else max(2, self.ep)

    @property
    def batches(self) -> int:
        """Micro-batches of an iteration."""
        return self.micro_batches or (4 * self.pp if self.pp > 1 else 1)

    @property
    def sharers(self) -> int:
        """Ranks that have the same parameters and see other data."""
        return self.replicas * self.cp

    @property
    def of_stage(self) -> int:
        """Ranks of a pipeline stage."""
        return self.tp * self.cp * self.replicas

    @property
    def ranks(self) -> int:
        return self.of_stage * self.pp

    @property
    def computes_on(self) -> ComputesOn | None:
        """The device that it names; raises `RequestError`."""
        if self.device is None and self.peak is None and self.mfu is None and self.memory is None:
            return None
        found = ComputesOn(self.device and self.device.lower(), self.peak, self.mfu, self.memory)
        found.device()
        return found

    def check(self) -> None:
        """Raise `RequestError` if no model can be trained with these values."""
        if self.ranks > MOST_RANKS:
            raise wrong(
                "dp", f"tp × cp × dp × pp is {self.ranks:,} ranks, and {MOST_RANKS:,} is the most. "
                "Give fewer replicas: the bytes of a rank hardly change"
            )  # fmt: skip
        if self.ranks == 1:
            raise wrong("dp", "a single rank exchanges nothing. Give --dp 2 or more")
        if self.sequence_parallel and self.tp == 1:
            raise wrong(
                "sequence-parallel",
                "it splits activations among tensor-parallel ranks, and tp is 1. Give --tp, or leave it out",
            )
        if self.zero in ("2", "3") and self.pp > 1:
            what = "scatters gradients" if self.zero == "2" else "gathers parameters"
            raise wrong(
                "zero",
                f"{self.zero} {what} for each micro-batch of each stage, which no framework combines with pipeline stages. Give --zero 1, or --pp 1",
            )
        self._check_virtual_stages()
        if self.zero != "0" and self.sharers == 1:
            raise wrong("zero", f"{self.zero} splits among replicas, and there is one. Give --dp, or leave it out")
        if self.replicas % self.ep:
            raise wrong(
                "ep",
                f"{self.ep} does not divide dp ({self.replicas}). Experts are spread over replicas. Give --dp {self.ep * max(1, round(self.replicas / self.ep))}",
            )
        self.computes_on  # noqa: B018

    def _check_virtual_stages(self) -> None:
        if self.virtual_stages == 1:
            return
        if self.pp == 1:
            raise wrong("virtual-stages", "it interleaves pipeline stages, and pp is 1. Give --pp, or leave it out")
        if self.schedule == "gpipe":
            raise wrong(
                "virtual-stages", "it interleaves forward and backward passes, and gpipe does not. Leave out --schedule"
            )
        if self.batches % self.pp:
            more = self.pp * -(-self.batches // self.pp)
            raise wrong(
                "micro-batches",
                f"{self.batches} is no multiple of pp ({self.pp}), in groups of which interleaved stages compute. Give --micro-batches {more}",
            )

    def groups(self, *, ties: tuple[int, ...] = ()) -> Groups:
        """Process groups of several ranks; ``ties``: stages that share the embedding's parameters."""
        t, c, d, p = map(range, (self.tp, self.cp, self.replicas, self.pp))
        found = {
            "tp": (tuple(self._rank(a, b, e, f) for a in t) for f, e, b in product(p, d, c)),
            "cp": (tuple(self._rank(a, b, e, f) for b in c) for f, e, a in product(p, d, t)),
            "dp": (tuple(self._rank(a, b, e, f) for e, b in product(d, c)) for f, a in product(p, t)),
            "pp": (tuple(self._rank(a, b, e, f) for f in p) for e, b, a in product(d, c, t)),
        }
        if self.ep > 1:
            first = range(0, self.replicas, self.ep)
            found["ep"] = (
                tuple(self._rank(a, b, e + k, f) for k in range(self.ep)) for f, e, b, a in product(p, first, c, t)
            )
            found["edp"] = (
                tuple(self._rank(a, b, e + k, f) for e, b in product(first, c))
                for f, k, a in product(p, range(self.ep), t)
            )
        if len(ties) > 1:
            found["embedding"] = (tuple(self._rank(a, b, e, f) for f in ties) for e, b, a in product(d, c, t))
        return {name: lists for name, each in found.items() if len((lists := tuple(each))[0]) > 1}

    def _rank(self, t: int, c: int, d: int, p: int) -> int:
        return t + self.tp * (c + self.cp * (d + self.replicas * p))

    def __str__(self) -> str:
        degrees = {"tp": self.tp, "cp": self.cp, "pp": self.pp, "dp": self.replicas, "ep": self.ep}
        degrees["virtual stages"] = self.virtual_stages
        return ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)


def wrong(option: str, what: str) -> RequestError:
    """The error of an option."""
    return RequestError(what, where=f"--{option}")
