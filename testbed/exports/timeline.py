"""The activity of a job's ranks over time: iterations, computes, exchanges.

Iterations and exchanges are measured (``iterations.csv``, ``operations.csv``). Computes are not in these tables. They are
reconstructed from the plan. A compute starts when the operations that it depends on and the previous compute have ended. Its
duration follows from the plan and the iteration's noise. It ends before the first exchange that waits for it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from testbed.core.errors import RequestError
from testbed.core.runs.load import Run
from testbed.core.runs.plan import JobPlan, Operation
from testbed.core.text import did_you_mean, quoted
from testbed.traces import noise
from testbed.traces.process_groups import NO_GROUP, Group

ITERATION, COMPUTE = "iteration", "compute"
_ONE_GROUP = "dp"  # of a trace whose ranks all communicate with each other
_PIPELINE = "pipeline"  # the algorithm in which each rank forwards the data that it receives
_LAST = "@-1"  # suffix of an operation's name of the previous iteration
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Slice:
    """An activity of a rank from ``start_s`` to ``end_s``, in seconds since the start of the run."""

    job: int
    rank: int
    iteration: int
    name: str  # of the operation
    kind: str  # `ITERATION`, `COMPUTE`, a collective, "send", "recv", or "" for an exchange of a real program
    start_s: float
    end_s: float
    bytes: int | None = None  # of the complete tensor of an exchange; None: unknown
    group: Group = NO_GROUP  # of an exchange: its name, and its ranks in order
    peer: int | None = None  # of a message
    splits: tuple[int, ...] = ()  # bytes for each member of an uneven all-to-all
    after: tuple[str, ...] = ()  # operations of the same iteration that it waits for
    reconstructed: bool = False  # from the plan, and not measured

    @property
    def exchanges(self) -> bool:
        return self.kind not in (ITERATION, COMPUTE)


def of_job(run: Run, job: JobPlan, rank: int | None = None) -> list[Slice]:
    """Return the slices of every rank of a job (or of one), by rank, iteration and time; iterations precede their
    content."""
    measured: defaultdict[tuple[int, int], dict[str, Span]] = defaultdict(dict)
    own = run.operations[run.operations["job"] == job.job]
    columns = ("worker", "iteration", "operation", "start_s", "end_s")
    for worker, iteration, name, start_s, end_s in zip(*(own[column].tolist() for column in columns), strict=True):
        measured[worker, iteration][name] = (start_s, end_s)
    found: list[Slice] = []
    for number in range(len(job.hosts)) if rank is None else (rank,):
        rows = run.iterations[(run.iterations["job"] == job.job) & (run.iterations["worker"] == number)]
        factors = _factors(job, number)
        known = {op.id: op for op in job.operations if op.ranks is None or number in op.ranks}
        before: dict[str, Span] = {}
        rows = rows.sort_values("iteration")
        for iteration, start_s, end_s in zip(
            *(rows[c].tolist() for c in ("iteration", "start_s", "end_s")), strict=True
        ):
            spans, place = measured[number, iteration], (job.job, number, iteration)
            whole = Slice(*place, f"{ITERATION} {iteration}", ITERATION, start_s, end_s)
            computes = _computes(known, whole, spans, before, next(factors))
            parts = [Slice(*place, name, COMPUTE, *span, reconstructed=True) for name, span in computes.items()]
            for name, span in spans.items():
                parts += _exchange(Slice(*place, name, "", *span), known.get(name), job)
            parts = [replace(part, after=_after(known.get(part.name))) for part in parts]
            found += [whole, *sorted(parts, key=lambda part: (part.start_s, part.end_s))]
            before = {**computes, **spans}
    return found


def find_job(run: Run, name: str) -> JobPlan:
    """The job of this number, or the only one that replays the trace ``name``; raises `RequestError`."""
    numbers = [job for job in run.jobs if str(job.job) == name]
    named = numbers or [job for job in run.jobs if job.trace == name]
    if len(named) == 1:
        return named[0]
    if named:
        raise RequestError(
            f"--job {quoted(name)}: jobs {', '.join(str(job.job) for job in named)} replay this trace. Give a number."
        )
    known = [*(str(job.job) for job in run.jobs), *dict.fromkeys(job.trace for job in run.jobs)]
    hint = did_you_mean(name, known, f"This run has {', '.join(known)}.")
    raise RequestError(f"--job {quoted(name)}: this run has no such job. {hint}")


def check_rank(job: JobPlan, rank: int) -> None:
    """Raises `RequestError` if the job has no such rank."""
    if not 0 <= rank < len(job.hosts):
        raise RequestError(f"--rank {rank}: job {job.job} has ranks 0 to {len(job.hosts) - 1}. Give one of these.")


def check_sizes(job: JobPlan) -> None:
    """Raises `RequestError` for a real program: its exchanges have times, but no sizes."""
    if job.program is not None or not job.exchanges:
        what = "is a real program" if job.program is not None else "exchanges nothing"
        raise RequestError(
            f"--job {job.job} {what}, so the sizes of its collectives are unknown, and this format needs them. "
            "Export --perfetto or --csv, or record the program as a trace (`mltcp record`)."
        )


def started_us(run: Run) -> int:
    """Return the start of a run in microseconds since 1970, the origin of formats without a start time."""
    return int(datetime.fromisoformat(run.manifest.started).timestamp()) * 1_000_000


def _factors(job: JobPlan, rank: int) -> Iterator[float]:
    """What multiplies the computes of each iteration: the same numbers that the worker drew."""
    varies, draw = noise.Noise(job.noise), random.Random(job.seed)
    while True:
        yield noise.factor(varies, draw, rank, len(job.hosts))


def _computes(
    own: dict[str, Operation], whole: Slice, measured: dict[str, Span], before: dict[str, Span], factor: float
) -> dict[str, Span]:
    waiting: defaultdict[str, list[float]] = defaultdict(list)
    for op in own.values():
        for name in op.after:
            if op.id in measured:
                waiting[name].append(measured[op.id][0])
    found: dict[str, Span] = {}
    free = whole.start_s
    for op in own.values():
        if not op.computes:
            continue
        ended = [_end(name, {**measured, **found}, before) for name in op.after]
        start = min(max(free, *ended, whole.start_s), whole.end_s)
        end = min(start + (op.duration_ns or 0) / 1e9 * factor, whole.end_s, *waiting[op.id])
        found[op.id] = (start, max(start, end))
        free = found[op.id][1]
    return found


def _end(name: str, now: dict[str, Span], before: dict[str, Span]) -> float:
    spans = before if name.endswith(_LAST) else now
    return spans.get(name.removesuffix(_LAST), (0.0, 0.0))[1]


def _after(op: Operation | None) -> tuple[str, ...]:
    return () if op is None else tuple(name for name in op.after if not name.endswith(_LAST))


def _exchange(one: Slice, op: Operation | None, job: JobPlan) -> list[Slice]:
    """Return an exchange with its data from the plan.

    A one-way exchange is a send on one rank and a receive on the other; a pipeline has both.
    """
    if op is None:
        return [one]
    ranks = op.members or tuple(range(len(job.hosts)))
    name = job.groups[op.group].name if job.groups and 0 <= op.group < len(job.groups) else _ONE_GROUP
    place = ranks.index(one.rank) if one.rank in ranks else 0
    group = Group(name, len(ranks), ranks=ranks)
    if op.kind in ("send_recv", "send", "recv"):
        last = len(ranks) if op.algorithm == _PIPELINE else 2
        made = []
        if 0 < place < last:
            made.append(replace(one, kind="recv", bytes=op.bytes, group=group, peer=ranks[place - 1]))
        if place < min(last, len(ranks)) - 1:
            made.append(replace(one, kind="send", bytes=op.bytes, group=group, peer=ranks[place + 1]))
        return made
    if op.rows and op.kind == "all_to_all":
        row = op.rows[place]
        return [replace(one, kind=op.kind, bytes=sum(row), group=group, splits=row)]
    return [replace(one, kind=op.kind, bytes=op.bytes, group=group)]
