"""One job as the user requests it: ``[[job]]`` in a file, ``--job`` on the command line.

On the command line the first word selects the kind of job (``synthetic`` if an option comes first), options follow::

    --job resnet50,workers=4,collective=tree,channels=2
    --job synthetic,compute=500ms,bytes=28MB,offset=2s,leave=20s
    --job ddp:resnet18,transport=ltp --job "cmd:python train.py --epochs 1"

A job takes values that it does not set from the experiment (``--trace``, ``--workers``, ...).
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import msgspec

from testbed import transports
from testbed.core import builtin_transport
from testbed.core.builtin_transport import TCP
from testbed.core.errors import RequestError, within
from testbed.core.text import quoted
from testbed.core.units import Duration, Size
from testbed.replay import training
from testbed.spec import fields
from testbed.spec.fields import field
from testbed.traces import collectives
from testbed.traces import trace as traces
from testbed.traces.noise import Noise
from testbed.traces.trace import Trace

USUAL_WORKERS = 2
SYNTHETIC = "synthetic"  # in place of a trace: compute and bytes describe the iteration
LEARNS_BY = ("parameter_server", "ring")  # the first is the default
_WHAT = ("trace", "ddp", "cmd")
_OF_A_REPLAY = ("train", "collective", "channels", "credit_bytes", "partition_bytes", "noise")


class JobError(RequestError):
    """A job that cannot be; where is its field."""


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One job; a field that is None is as the experiment has it."""

    trace: Annotated[str | None, field("library trace, or ./mine.json")] = None
    compute: Annotated[Duration | None, field("compute time per iteration of a synthetic job")] = None
    bytes: Annotated[
        Size | None, field("bytes per iteration of a synthetic job: one way between two workers, all-reduced by more")
    ] = None
    buckets: Annotated[
        int | None, field("buckets in which a synthetic job exchanges its tensor during the backward pass")
    ] = None
    train: Annotated[str | None, field("model to train over the emulated network", metavar="MODEL")] = None
    ddp: Annotated[str | None, field("model to train with PyTorch (`host`)", metavar="MODEL")] = None
    cmd: Annotated[str | None, field("program to run on every worker (`host`)", metavar="COMMAND")] = None
    workers: Annotated[int | None, field("workers per job")] = None
    collective: Annotated[str | None, field("algorithm of its collectives", metavar="NAME")] = None
    channels: Annotated[int | None, field("parallel connections per flow")] = None
    credit_bytes: Annotated[
        Size | None,
        field(
            "bytes that a worker may have outstanding; front layers go first, and exchanges overlap",
            old_names=("window",),
            folder_name="window",
        ),
    ] = None
    partition_bytes: Annotated[
        Size | None,
        field("largest part of a message that takes credit", old_names=("partition",), folder_name="partition"),
    ] = None
    offset: Annotated[Duration | None, field("arrival, after the start")] = None
    leave: Annotated[Duration | None, field("departure, after the start: its workers are killed")] = None
    noise: Annotated[Noise | None, field("compute-time noise: 5%, lognormal:5%, stragglers:1%")] = None
    device: Annotated[
        str | None,
        field(
            "device for a trace that gives flops",
            metavar="NAME",
            if_unset="the experiment's, or the trace's",
        ),
    ] = None
    iterations: Annotated[int | None, field("iterations to measure; the job continues until all jobs have theirs")] = (
        None
    )
    cc: Annotated[str | None, field("congestion control of this job in every system", metavar="SYSTEM")] = None
    transport: Annotated[str | None, field("transport of this job", if_unset="that of the system; TCP with `cc`")] = (
        None
    )
    gpus: Annotated[
        int | None,
        field("GPUs that the job waits for, holds during its iterations, and frees"),
    ] = None

    @property
    def program(self) -> tuple[str, ...] | None:
        """The program that a job without a replay runs on every worker."""
        command = self.ddp if self.ddp is not None else self.cmd
        if command is None:
            return None
        try:
            words = shlex.split(command)
        except ValueError as error:  # an odd quote
            raise JobError(
                f"{quoted(command)}: {str(error).lower()}", where="ddp" if self.ddp is not None else "cmd"
            ) from error
        return ("python", "-m", "testbed.replay.ddp.train", *words) if self.ddp is not None else tuple(words)

    @property
    def label(self) -> str:
        """Return the name of the job in tables."""
        if self.program is not None:
            return f"ddp:{self.ddp}" if self.ddp is not None else f"cmd:{self.cmd}"
        return self.trace or SYNTHETIC

    @property
    def several(self) -> bool:
        """Return True if a synthetic job needs more than a one-way transfer between two workers."""
        return self.gpus is not None or (self.workers or 0) > 2 or (self.buckets or 1) > 1

    @property
    def inside_servers(self) -> bool:
        """Return True if its trace has process groups within one server."""
        placement = None if self.program is not None or self.trace is None else self.read_trace().placement
        return placement is not None and bool(placement.inside)

    def read_trace(self) -> Trace:
        """The iteration it replays, unscaled; raises `TraceError`."""
        if self.trace is not None:
            return traces.load(self.trace)
        assert self.compute is not None and self.bytes is not None
        kind: traces.Kind = "all_reduce" if self.several else "send_recv"
        if self.collective is not None:
            kind = collectives.find(self.collective).KIND
        return traces.synthetic(self.compute, self.bytes, kind, self.buckets or 1)


def parse(text: str) -> dict[str, Any]:
    """``--job`` as the keys of a ``[[job]]``; raises `JobError`."""
    what, colon, rest = text.partition(":")
    if what == "cmd" and colon:
        return {what: rest}
    first, *options = text.split(",")
    if (key := first.partition("=")[0]) != first and fields.aliases(Job).get(key, key) in Job.__struct_fields__:
        first, options = SYNTHETIC, [first, *options]
    found: dict[str, Any] = {} if first == SYNTHETIC else {"trace": first}
    if what == "ddp" and colon:
        found = {what: first.removeprefix("ddp:")}
    for option in options:
        key, equals, value = option.partition("=")
        key = fields.aliases(Job).get(key, key)
        if not equals or key in found or key not in Job.__struct_fields__ or key in _WHAT:
            known = ", ".join(name for name in Job.__struct_fields__ if name not in _WHAT)
            raise JobError(
                f"{quoted(option)} in {quoted(text)} is not an option of a job, or is given twice. Write for instance workers=4. Options: {known}.",
                where="job",
            )
        found[key] = int(value) if value.isdecimal() and len(value) < 20 else value
    return found


def complete(job: Job, defaults: Job) -> Job:
    """Return ``job`` with missing fields taken from ``defaults``.

    Raises `JobError` if its fields contradict each other.
    """
    given = [name for name in _WHAT if getattr(job, name) is not None]
    synthetic = job.compute is not None or job.bytes is not None
    if len(given) + synthetic > 1:
        raise JobError(
            "a job has either a trace, or compute and bytes, or a program. Leave out the others.", where=given[0]
        )
    own = {name: getattr(job, name) for name in Job.__struct_fields__ if getattr(job, name) is not None}
    if given or synthetic:
        own = dict.fromkeys((*_WHAT, "compute", "bytes", *(() if synthetic else ("buckets",)))) | own
    if job.program is not None:
        if stray := [name for name in _OF_A_REPLAY if name in own]:
            raise JobError(f"{job.label} is a real program, which decides this itself. Leave it out.", where=stray[0])
        if job.gpus is not None:
            raise JobError(f"{job.label} is a real program. Give its number of workers as `workers`.", where="gpus")
        check_transport(job, job.transport or TCP)
        own |= {
            "train": None,
            "collective": None,
            "channels": 1,
            "credit_bytes": None,
            "partition_bytes": None,
            "noise": None,
        }
    result = msgspec.structs.replace(defaults, **own)
    if result.workers is None:
        result = msgspec.structs.replace(result, workers=_ranks(result) or USUAL_WORKERS)
    if result.train is not None:
        result = _learning(result)
    _check(result)
    return result


def _ranks(job: Job) -> int | None:
    """The number that its trace gives, if it gives one."""
    if job.trace is None or job.program is not None:
        return None
    with within("trace"):
        trace = job.read_trace()
    return None if job.gpus is not None and trace.alike else trace.ranks


def _learning(job: Job) -> Job:
    """Return ``job`` with the fields that follow from its trained model. Raises `JobError`."""
    with within("train"):
        what = training.parse(job.train or "")
    by = job.collective or LEARNS_BY[0]
    if by not in LEARNS_BY:
        raise JobError(f"a job with train needs the collective {' or '.join(LEARNS_BY)}.", where="collective")
    if by == "ring" and what.options.fill != "zero":
        raise JobError(
            f"in a ring, the worker whose gradients are missing from a sum is unknown. Leave out fill={what.options.fill}",
            where="train",
        )
    size = what.bytes_in_a_ring(job.workers or 1) if by == "ring" else what.bytes
    if job.trace is not None:
        raise JobError(
            f"a job with train exchanges its own gradients and replays no trace. Leave out {quoted(job.trace)}.",
            where="train",
        )
    if job.compute is None:
        raise JobError(
            "the computing time between two exchanges is missing. Write for instance compute = 20ms.", where="train"
        )
    if job.bytes not in (None, size):
        raise JobError(
            f"a gradient of {job.train} has {size} bytes, not {int(job.bytes or 0)}. Leave it out.", where="bytes"
        )
    for name, usual in (
        ("channels", 1),
        ("credit_bytes", None),
        ("partition_bytes", None),
        ("buckets", None),
        ("gpus", None),
    ):
        if getattr(job, name) not in (None, usual):
            raise JobError("a job with train sends complete gradients, one after the other. Leave it out.", where=name)
    return msgspec.structs.replace(job, bytes=Size(size), collective=by)


def _check(job: Job) -> None:
    if (job.compute is None) != (job.bytes is None):
        missing = "compute" if job.compute is None else "bytes"
        raise JobError("a synthetic job needs both compute and bytes", where=missing)
    if job.bytes is not None and job.bytes < 1:
        raise JobError("a job must send at least 1 byte.", where="bytes")
    if job.buckets is not None and job.compute is None:
        raise JobError(
            "only a synthetic job has buckets. Give compute and bytes, or leave out buckets.", where="buckets"
        )
    if job.buckets is not None and not 1 <= job.buckets <= min(1000, job.bytes or 1):
        raise JobError(f"{job.buckets} is not between 1 and 1000, with at least one byte per bucket.", where="buckets")
    if job.gpus is not None and not 1 <= job.gpus <= 4096:
        raise JobError(f"{job.gpus} is not between 1 and 4096. Give a number in this range.", where="gpus")
    if (job.workers or 0) < 2:  # the upper limit depends on the backend (testbed.spec.limits)
        raise JobError(f"{job.workers} is less than 2. A job needs at least two workers.", where="workers")
    for name, low, high in (("channels", 1, 32), ("iterations", 1, 100_000)):
        value = getattr(job, name)
        if not low <= value <= high:
            raise JobError(f"{value} is not between {low} and {high}. Give a number in this range.", where=name)
    if job.partition_bytes is not None and (
        job.credit_bytes is None or not 1 <= job.partition_bytes <= job.credit_bytes
    ):
        raise JobError(
            "must be at least 1 byte, and at most `credit_bytes`. Give larger `credit_bytes`.", where="partition_bytes"
        )
    if job.credit_bytes is not None and job.credit_bytes < 1:
        raise JobError("is less than 1 byte. Leave it out for one exchange after the other.", where="credit_bytes")
    if job.credit_bytes is not None and (job.channels or 1) > 1:
        raise JobError("opens one connection for each priority queue. Leave out `channels`.", where="credit_bytes")
    if job.leave is not None and job.leave <= (job.offset or 0):
        raise JobError(f"the job would leave after {job.leave}, before it starts. Give a later time.", where="leave")
    if job.collective is not None:
        with within("collective"):
            collectives.find(job.collective)
    if job.program is None:
        _check_trace(job)
    elif not job.program:
        raise JobError("is empty. Give the command to run.", where="cmd")


def check_transport(job: Job, transport: str) -> None:
    """Raise `RequestError` if the gradients of a real program cannot use ``transport``; a `ddp` job can
    (`testbed.transports.torch`)."""
    if builtin_transport.plain(transport) or job.program is None:
        return
    if job.ddp is None:
        raise JobError(
            f"{job.label} is a real program, which chooses its own transport. Leave it out.", where="transport"
        )
    with within("transport"):
        transports.parse(transport).check_tensors()


def _check_trace(job: Job) -> None:
    with within("trace"):
        trace = job.read_trace()
    kinds = {op.kind for op in trace.all_operations} - {"compute"}
    if job.collective is not None:
        kind = collectives.find(job.collective).KIND
        if kind not in kinds:
            raise JobError(
                f"{job.collective} performs {kind}, but {trace.name} has only {', '.join(sorted(kinds))}",
                where="collective",
            )
    if not trace.alike:
        _check_groups(job, trace)
        return
    used = {traces.algorithm(op, job.collective) for op in trace.all_operations if op.kind != "compute"}
    if job.gpus is not None and used != {"ring"}:
        raise JobError(
            f"{trace.name} exchanges by {', '.join(sorted(used))}, but a job with `gpus` can exchange only by rings. "
            "Give `workers` instead of `gpus`, or replay all-reduces.",
            where="gpus",
        )
    if "send_recv" in used and job.credit_bytes is not None:
        raise JobError(
            f"{trace.name} has send_recv operations, which wait for each other. Leave out credit_bytes.",
            where="credit_bytes",
        )
    if "send_recv" in used and job.workers != 2:
        raise JobError(
            f"{trace.name} has send_recv operations, which send from rank 0 to rank 1. For more than two "
            f"workers, use collective=pipeline.",
            where="workers",
        )


def _check_groups(job: Job, trace: Trace) -> None:
    """Raises `JobError` for options that a job with different ranks or several groups cannot have."""
    if job.workers != trace.ranks:
        raise JobError(
            f"{trace.name} has {trace.ranks} ranks, but {job.workers} workers are requested. Leave out workers.",
            where="workers",
        )
    if job.gpus not in (None, trace.ranks):
        raise JobError(
            f"{trace.name} has {trace.ranks} ranks with one GPU each, but {job.gpus} GPUs are requested. Give gpus={trace.ranks}.",
            where="gpus",
        )
    if job.credit_bytes is not None:
        raise JobError(
            f"credit orders the exchanges of one group by layer, but {trace.name} has different ranks or several groups. Leave it out.",
            where="credit_bytes",
        )
