"""Measure the steps of a real PyTorch training loop: when gradients are ready, and when they are averaged.

Two lines in a script, ``from testbed.traces.recorder import Recorder`` and ``Recorder(model, "mine.json")``, record a
trace; ``mltcp record`` does it without a change of the script. Any optimizer step that follows a backward pass ends an
iteration, so work in between (such as loading data) belongs to the next one.

* `DistributedDataParallel`: a communication hook does the averaging all-reduce that DDP otherwise does itself, and records when each
  bucket is handed over and when its future completes.
* any other model of one process: the gradients are put into the buckets that DDP would use (`buckets_of`), each ready with its last
  gradient; nothing is exchanged.

Other exchanges are not supported: `obstacle` names them before the first step is recorded. An exception in the recorder
stops the recording; the training continues (`testbed.traces.recording.Guard`).

On a GPU the hooks only enqueue work, so CUDA events are recorded in its streams and read after the step, which must
wait for the GPU once per step. That path follows the documented stream semantics of DDP's futures.
"""

from __future__ import annotations

import atexit
import os
import platform
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from testbed.traces.recording import Bucket, Guard, Origin, Sample, Sink, say

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
except ImportError as error:
    raise ImportError(f"the recorder needs PyTorch ({error}): pip install 'mltcp-testbed[torch]'") from error

MEASURED = 1  # the step after which it is seen which packets matter; of DDP's first one buckets are others
PACKET_BYTES = 1400
SAMPLED = 20  # stride of the numbers sampled for their median (MLT, section 3)
QUANTILES = 11
# DDP's rule: a small bucket first, so that the exchange begins early (torch.nn.parallel, bucket_cap_mb).
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


class Recorder:
    """Records the training steps of ``model`` from now on.

    ``to`` is the file of the trace, written when the program ends or by `close`, or a
    `Sink`. Rank 0 alone writes the file, without the first ``skip`` steps. An optimizer may
    stand for its model.
    """

    def __init__(
        self,
        model: Any,
        to: str | os.PathLike[str] | Sink,
        *,
        name: str = "",
        native_rate: str = "",
        on: str = "",
        skip: int = 2,
        guard: Guard | None = None,
    ) -> None:
        self._sink = _File(Path(to), name, native_rate, on, skip) if isinstance(to, str | os.PathLike) else to
        self._guard = guard or Guard(self._sink)
        self._model: Callable[[], Any] = lambda: None
        self._exchanges: Callable[[], _DataParallel | _Plain | None] = lambda: None
        self._handle: Any = None
        self._guard(self._begin, model, default=None)

    def _begin(self, model: Any) -> None:
        if reason := obstacle(model):
            self._guard.stop(reason)
            return
        self._model = weakref.ref(model)
        parameters = _parameters(model)
        self._clock = _DeviceClock() if parameters[0].is_cuda else _HostClock()
        self._origin = _origin(model, parameters)
        for note in self._origin.notes:
            say(note)
        # The model owns them: its connections must not stay open because it is recorded.
        self._exchanges = weakref.ref(
            _DataParallel(model, self._clock, self._guard)
            if isinstance(model, DistributedDataParallel)
            else _Plain(parameters, self._clock, self._guard)
        )
        self._handle = register_optimizer_step_post_hook(
            lambda optimizer, args, kwargs: self._guard(self._stepped, default=None)
        )
        if isinstance(self._sink, _File):
            atexit.register(self._at_exit)
        self._sink.ready()
        self._start = self._clock.mark()
        self._spent_ns = 0
        self._steps = 0
        self._importances: list[tuple[float, ...]] = []  # of each bucket, once measured

    def records(self, model: Any) -> bool:
        """Return True if ``model`` is recorded by this recorder's communication hook."""
        return self._model() is model and isinstance(self._exchanges(), _DataParallel)

    def replace_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """Let the script's own communication hook do the exchange, measured from outside."""
        exchanges = self._exchanges()
        assert isinstance(exchanges, _DataParallel)
        exchanges.average = lambda bucket: hook(state, bucket)
        name = getattr(hook, "__qualname__", type(hook).__name__)
        note = f"the script's own communication hook ({name}) ran; bytes are those handed to it"
        self._origin = replace(self._origin, notes=(*self._origin.notes, note))

    def close(self) -> None:
        """Stop recording; with a file, write the trace. Raises `TraceError` if no step was seen."""
        atexit.unregister(self._at_exit)
        if self._handle is not None:
            self._handle.remove()
        if isinstance(self._sink, _File):
            self._sink.save()

    def _at_exit(self) -> None:
        try:
            self.close()
        except Exception as error:  # the training has ended successfully, for any exception here
            print(f"error: {error}", file=sys.stderr)

    def _stepped(self) -> None:
        begun = time.monotonic_ns()
        if torch._C._current_graph_task_id() != -1:
            self._guard.stop("the optimizer takes its steps during the backward pass, so no step has an end of its own")
            return
        owned = self._exchanges()
        exchanges = owned.take(self._start) if owned else []
        if not exchanges:  # another optimizer of the same step, or one of another model
            return
        start, self._start = self._start, self._clock.mark()
        marks = [start, *(mark for one in exchanges for mark in (one.ready, one.end)), self._start]
        start_ns, *middle, end_ns = self._clock.read(marks)
        # Buckets are sent in their order, so none is ready before the one before it.
        ready = accumulate(middle[::2], max)
        known = self._importances if len(self._importances) == len(exchanges) else [()] * len(exchanges)
        buckets = [
            Bucket(one.bytes, first, max(first, last), importance)
            for one, first, last, importance in zip(exchanges, ready, middle[1::2], known, strict=True)
        ]
        spent = self._spent_ns + sum(one.spent_ns for one in exchanges)
        self._sink(self._origin, Sample(start_ns, end_ns, tuple(buckets), spent))
        self._spent_ns = time.monotonic_ns() - begun  # delays the step that begins now
        if self._steps == MEASURED:
            self._importances = [_importance_if_possible(one.gradients) for one in exchanges]
            self._start, self._spent_ns = self._clock.mark(), 0  # the step begins at the end of this function
        self._steps += 1


@dataclass
class _Exchange:
    """One bucket in transfer; marks are instants of the clock in use."""

    bytes: int
    ready: Any
    end: Any
    gradients: Sequence[Any] = ()  # the averaged gradients
    spent_ns: int = 0


class _HostClock:
    """The clock of training on the CPU, where calls complete synchronously."""

    def mark(self) -> Any:
        return time.monotonic_ns()

    def read(self, marks: Sequence[Any]) -> list[int]:
        return list(marks)


class _DeviceClock:
    """For training on a GPU: events in its streams, anchored to the host's clock at the last one."""

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def read(self, marks: Sequence[Any]) -> list[int]:
        marks[-1].synchronize()
        now = time.monotonic_ns()
        return [now - round(mark.elapsed_time(marks[-1]) * 1e6) for mark in marks]


class _DataParallel:
    """The buckets of a `DistributedDataParallel` model, as its reducer hands them over."""

    def __init__(self, model: Any, clock: _HostClock | _DeviceClock, guard: Guard) -> None:
        self._clock, self._guard = clock, guard
        self._current: list[_Exchange] = []
        group = weakref.ref(model.process_group)
        self.average: Callable[[Any], Any] = lambda bucket: allreduce_hook(group(), bucket)
        # A lambda, because DDP refuses hooks with annotations of other types.
        model.register_comm_hook(self, lambda exchanges, bucket: exchanges._handed_over(bucket))
        # The model's list of hooks is pickled with it (`torch.save`, a copy) and must not contain the recorder; the reducer has the hook.
        model._comm_hooks.clear()

    def _handed_over(self, bucket: Any) -> Any:
        exchange = self._guard(self._noted, bucket, default=None)
        future = self.average(bucket)
        return future if exchange is None else future.then(lambda done: self._averaged(exchange, done))

    def _noted(self, bucket: Any) -> _Exchange:
        begun = time.monotonic_ns()
        gradients = bucket.buffer()
        ready = self._clock.mark()
        exchange = _Exchange(gradients.numel() * gradients.element_size(), ready, ready, [gradients])
        self._current.append(exchange)
        exchange.spent_ns += time.monotonic_ns() - begun
        return exchange

    def _averaged(self, exchange: _Exchange, done: Any) -> Any:
        self._guard(self._over, exchange, default=None)
        return done.value()

    def _over(self, exchange: _Exchange) -> None:
        begun = time.monotonic_ns()
        # With NCCL this runs as soon as the all-reduce is enqueued, in a stream that waits for it.
        exchange.end = self._clock.mark()
        exchange.spent_ns += time.monotonic_ns() - begun

    def take(self, start: Any) -> list[_Exchange]:
        """The exchanges since the last call; all are over, since the backward pass waits for them."""
        marks, self._current = self._current, []
        return marks


def builtin_hook(kind: Any) -> Callable[[Any, Any], Any]:
    """The effect of one of DDP's built-in communication hooks (`dist.BuiltinCommHookType`), to be called from another hook."""
    hook: Callable[[Any, Any], Any] = fp16_compress_hook if "FP16" in str(kind) else allreduce_hook
    return hook


class _Plain:
    """The buckets that DDP would make of a model's gradients."""

    def __init__(self, parameters: Sequence[Any], clock: _HostClock | _DeviceClock, guard: Guard) -> None:
        sizes = [parameter.numel() * parameter.element_size() for parameter in parameters]
        buckets = buckets_of(sizes)
        # A weak reference: otherwise the hook would keep the model alive, because Python cannot trace references through tensors.
        self._parameters = [[weakref.ref(parameters[index]) for index in bucket] for bucket in buckets]
        self._bytes = [sum(sizes[index] for index in bucket) for bucket in buckets]
        self._ready: dict[int, Any] = {}
        self._spent_ns = 0
        self._clock = clock
        for number, bucket in enumerate(buckets):
            for index in bucket:
                parameters[index].register_post_accumulate_grad_hook(
                    lambda _, number=number: guard(self._filled, number, default=None)
                )

    def _filled(self, bucket: int) -> None:
        begun = time.monotonic_ns()
        self._ready[bucket] = self._clock.mark()  # the last gradient counts, of the last backward pass too
        self._spent_ns += time.monotonic_ns() - begun

    def take(self, start: Any) -> list[_Exchange]:
        """One exchange per bucket, if there are new gradients; one without any is ready at once."""
        if not self._ready:
            return []
        marks = [self._ready.get(number, start) for number in range(len(self._bytes))]
        buckets = [
            _Exchange(
                size,
                mark,
                mark,
                [one.grad for own in parameters if (one := own()) is not None and one.grad is not None],
            )
            for size, mark, parameters in zip(self._bytes, marks, self._parameters, strict=True)
        ]
        buckets[0].spent_ns = self._spent_ns
        self._ready, self._spent_ns = {}, 0
        return buckets


def _importance_if_possible(gradients: Sequence[Any]) -> tuple[float, ...]:
    """As `importance`; empty where there is no memory for it, or for numbers of an unsupported type."""
    try:
        return importance(gradients)
    except Exception:  # the recording continues without it
        return ()


def importance(gradients: Sequence[Any]) -> tuple[float, ...]:
    """Evenly spaced quantiles of packets' mean magnitude ÷ the median magnitude of all numbers; empty where that is 0, there are few, they
    are not finite, sparse, or on several devices.

    As `testbed.traces.trace.Operation` has it: what rules for tags, of a replay, are applied to.
    """
    if not gradients or any(one.is_sparse for one in gradients) or len({one.device for one in gradients}) > 1:
        return ()
    numbers = torch.cat([one.detach().reshape(-1).abs().float() for one in gradients])
    packet = PACKET_BYTES // gradients[0].element_size()
    packets = numbers[: len(numbers) // packet * packet].reshape(-1, packet).mean(dim=1)
    middle = float(numbers[::SAMPLED].median())
    if len(packets) < QUANTILES or not middle or not bool(torch.isfinite(numbers).all()):
        return ()
    found = torch.quantile(packets / middle, torch.linspace(0, 1, QUANTILES, device=packets.device))
    return tuple(float(f"{value:.3g}") for value in found.tolist())


def buckets_of(sizes: Sequence[int], first: int = FIRST_BUCKET_BYTES, others: int = BUCKET_BYTES) -> list[list[int]]:
    """Return the indices of parameters by bucket, as DDP groups them: last parameter first, full when the limit is
    reached.

    ``sizes`` in bytes, in the order of registration; parameters of one type are assumed.
    """
    buckets: list[list[int]] = [[]]
    filled = 0
    for index in reversed(range(len(sizes))):
        if filled >= (first if len(buckets) == 1 else others):
            buckets.append([])
            filled = 0
        buckets[-1].append(index)
        filled += sizes[index]
    return buckets


class _File:
    """The sink of ``Recorder(model, "mine.json")``: keeps the samples, then writes the trace."""

    def __init__(self, path: Path, name: str, native_rate: str, on: str, skip: int) -> None:
        from testbed.traces import trace_builder  # needs more than a training script may have; fail now, not at the end

        self._recorded, self._path, self._skip = trace_builder, path, skip
        self._how = trace_builder.Description(name or path.stem, native_rate, on)
        self._samples: list[Sample] = []
        self._origin: Origin | None = None
        self._reason = ""

    def imported(self) -> None:
        pass

    def ready(self) -> None:
        pass

    def __call__(self, origin: Origin, sample: Sample) -> None:
        self._origin = origin
        self._samples.append(sample)

    def stopped(self, reason: str) -> None:
        self._reason = reason

    def save(self) -> None:
        ranks = [(self._origin, self._samples[self._skip :])] if self._origin else []
        if not ranks and self._reason:  # reported when it was found
            return
        if self._origin is None or self._origin.rank == 0:
            print(self._recorded.write(ranks, self._path, self._how), file=sys.stderr)


def sharded(model: Any) -> str:
    """Return why a model with sharded parameters, or its optimizer, cannot be recorded; empty if none are sharded."""
    if any(hasattr(one, "device_mesh") or type(one).__name__ == "FlatParameter" for one in _every(model)):
        return (
            f"{'an optimizer' if isinstance(model, Optimizer) else type(model).__name__} has sharded parameters (FSDP, DTensor), whose "
            "all-gathers and reduce-scatters are not recorded. Profile it with torch.profiler and use `mltcp import`"
        )
    return ""


def obstacle(model: Any) -> str:
    """Return why the training of ``model`` (or of an optimizer's parameters) cannot be recorded; empty if it can."""
    if reason := sharded(model):
        return reason
    if isinstance(model, DistributedDataParallel):
        if model._comm_hooks:
            return "DDP's mixed precision has a communication hook of its own, and its exchanges are not recorded"
        return ""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return (
            f"{dist.get_world_size()} processes train without DistributedDataParallel, and no other exchange is recorded. Profile it with "
            "torch.profiler and use `mltcp import`"
        )
    return ""


def _unseen(model: Any) -> tuple[str, ...]:
    """The exchanges of a DDP model other than its gradients."""
    if not isinstance(model, DistributedDataParallel):
        return ()
    found = []
    if any(isinstance(one, torch.nn.SyncBatchNorm) for one in model.modules()):
        found.append("the exchanges of SyncBatchNorm are not recorded")
    if dist.get_world_size(model.process_group) != dist.get_world_size():
        found.append("exchanges outside the process group of DistributedDataParallel are not recorded")
    return tuple(found)


def _every(model: Any) -> list[Any]:
    if isinstance(model, Optimizer):
        return [parameter for group in model.param_groups for parameter in group["params"]]
    return list(model.parameters())


def _parameters(model: Any) -> list[Any]:
    trained = [parameter for parameter in _every(model) if parameter.requires_grad]
    if not trained:
        raise ValueError(f"{type(model).__name__} has no parameter that requires a gradient: nothing to record")
    return trained


def _origin(model: Any, parameters: Sequence[Any]) -> Origin:
    inside = model.module if isinstance(model, DistributedDataParallel) else model
    parallel = isinstance(model, DistributedDataParallel)
    backend = f", {dist.get_backend(model.process_group)}" if parallel else ""
    device = parameters[0].device
    return Origin(
        rank=dist.get_rank(model.process_group) if parallel else 0,
        ranks=dist.get_world_size(model.process_group) if parallel else 1,
        model="model" if isinstance(inside, Optimizer) else type(inside).__name__,
        parameters=sum(parameter.numel() for parameter in parameters),
        device=torch.cuda.get_device_name(device) if parameters[0].is_cuda else f"{platform.machine()} CPU",
        software=f"PyTorch {torch.__version__.split('+')[0]}{backend}",
        notes=_unseen(model),
    )
