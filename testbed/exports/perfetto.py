"""Chrome's trace-event JSON, for Perfetto (https://ui.perfetto.dev) and ``chrome://tracing``; times in microseconds.

A job is a process and a rank a thread. Iterations, computes and exchanges are slices (``ph`` X). An iteration is called
``ProfilerStep#k``, as PyTorch's profiler has it. Congestion windows, F, queues, throughput and link shares are counters (``ph`` C).
The format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.core.errors import RequestError
from testbed.core.runs import metrics
from testbed.core.runs.load import Run
from testbed.core.runs.plan import JobPlan
from testbed.exports import timeline
from testbed.exports.timeline import ITERATION, Slice
from testbed.models import bottleneck
from testbed.traces import json_stream
from testbed.traces.kineto_events import COLLECTIVE

Event = dict[str, Any]
_COMPUTES, _EXCHANGES = 7, 20  # streams, with the numbers that they have in PyTorch's profiles
_NAMES = {  # as PyTorch calls collectives in its profiles
    "all_reduce": "allreduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "all_to_all": "all_to_allv",
    "broadcast": "broadcast", "send": "send", "recv": "recv",
}  # fmt: skip
_STEP = "ProfilerStep#"
_SHARES_S = 0.02  # window of throughput and shares, if an iteration is not shorter than a hundred of it


def text(run: Run, jobs: Sequence[JobPlan], rank: int | None = None, beside: Path | None = None) -> str:
    """Return the file: these jobs with all their ranks (or one), and every link.

    ``beside``: a profile of PyTorch to include. Its first ``ProfilerStep`` is aligned with iteration 0 of the first
    job. Raises `RequestError`, `TraceError` or `LoadError`.
    """
    every = {job.job: timeline.of_job(run, job, rank) for job in jobs}
    own: list[Event] = []
    base, shift_us, others = 1, 0.0, list[Event]()
    if beside is not None:
        first = next((one for one in every[jobs[0].job] if one.kind == ITERATION), None)
        if first is None:
            raise RequestError(
                f"job {jobs[0].job} ended no iteration, so {beside} cannot be aligned with it. Name another --job."
            )
        others = list(json_stream.items(beside, "traceEvents"))
        base, shift_us = _after(others), _first_step(others, beside) - first.start_s * 1e6
    for job in jobs:
        own += _job(job, base + job.job, every[job.job])
        own += _flows(run, job, base + job.job, rank)
    own += _links(run, base + len(run.jobs))
    for event in own:
        if "ts" in event:
            event["ts"] = round(event["ts"] + shift_us, 3)
    about: dict[str, Any] = {"displayTimeUnit": "ms"}
    if len(jobs) == 1 and rank is not None:
        about["distributedInfo"] = {"backend": "testbed", "rank": rank, "world_size": len(jobs[0].hosts)}
    about["otherData"] = {"run": str(run.path), "system": run.system, "seed": run.seed, "backend": run.manifest.backend}
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), default=float) for event in (*others, *own))
    return f'{json.dumps(about)[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _job(job: JobPlan, pid: int, slices: Sequence[Slice]) -> Iterator[Event]:
    yield _about(
        pid, "process_name", name=f"job {job.job}: {job.trace}, {job.transport if not job.by_tcp else job.cc.spec}"
    )
    yield _about(pid, "process_sort_index", sort_index=job.job)
    for rank in dict.fromkeys(one.rank for one in slices):
        for number, lane in enumerate(_lanes([one for one in slices if one.rank == rank])):
            tid = 1 + rank + number * len(job.hosts)
            name = f"rank {rank} on {job.hosts[rank]}" + (" (overlapping)" if number else "")
            yield _about(pid, "thread_name", tid, name=name)
            yield _about(pid, "thread_sort_index", tid, sort_index=rank)
            for one in lane:
                yield _slice(one, pid, tid)


def _about(pid: int, what: str, tid: int | None = None, **args: Any) -> Event:
    return {"ph": "M", "pid": pid, **({} if tid is None else {"tid": tid}), "name": what, "args": args}


def _lanes(slices: Sequence[Slice]) -> list[list[Slice]]:
    """The slices of a rank in rows in which they nest, and in which only an iteration contains others.

    Exchanges have separate rows if one of them overlaps with computing.
    """
    computing = [one for one in slices if not one.exchanges]
    lanes = _nested(computing)
    together = _nested(slices)
    if len(together) == len(lanes):
        return together
    return [*lanes, *_nested([one for one in slices if one.exchanges])]


def _nested(slices: Sequence[Slice]) -> list[list[Slice]]:
    lanes: list[list[Slice]] = []
    open_: list[list[Slice]] = []  # of each lane the slices that have not ended, innermost last
    for one in sorted(slices, key=lambda each: (each.start_s, each.kind != ITERATION, each.end_s)):
        for lane, stack in zip(lanes, open_, strict=True):
            while stack and stack[-1].end_s <= one.start_s:
                stack.pop()
            if not stack or (stack[-1].kind == ITERATION and one.kind != ITERATION and one.end_s <= stack[-1].end_s):
                lane.append(one)
                stack.append(one)
                break
        else:
            lanes.append([one])
            open_.append([one])
    return lanes


def _slice(one: Slice, pid: int, tid: int) -> Event:
    args: dict[str, Any] = {"iteration": one.iteration}
    if one.reconstructed:
        args |= {"reconstructed": True, "stream": _COMPUTES}
    if one.kind in _NAMES:
        args |= _described(one)
    name = f"{_STEP}{one.iteration}" if one.kind == ITERATION else one.name
    category = COLLECTIVE if one.kind in _NAMES else "kernel" if one.reconstructed else one.kind or "exchange"
    start = round(one.start_s * 1e6, 3)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": round(one.end_s * 1e6 - start, 3),
        "args": args,
    }


def _described(one: Slice) -> dict[str, Any]:
    """The arguments that PyTorch's profiler records for a collective, in elements of a byte."""
    size, ranks = one.bytes or 0, max(1, one.group.workers)
    part = -(-size // ranks)
    sent, received = {"all_gather": (part, size), "reduce_scatter": (size, part)}.get(one.kind, (size, size))
    args: dict[str, Any] = {
        "Collective name": _NAMES[one.kind], "In msg nelems": sent, "Out msg nelems": received, "dtype": "Byte", "Group size": ranks, "stream": _EXCHANGES,
        "Process Group Name": one.group.name, "Process Group Ranks": json.dumps(list(one.group.ranks)), "bytes": size,
    }  # fmt: skip
    if one.peer is not None:
        args["Dst Rank" if one.kind == "send" else "Src Rank"] = one.peer
    if one.splits:
        args["In split size"] = json.dumps(list(one.splits))
    return args


def _flows(run: Run, job: JobPlan, pid: int, rank: int | None) -> Iterator[Event]:
    """Of each flow its congestion window (segments) and F; where there is no packet there is no window."""
    own = run.flows[run.flows["job"] == job.job]
    for name in dict.fromkeys(own["flow"].tolist()):
        flow = own[own["flow"] == name]
        if rank is None or flow["worker"].iloc[0] == rank:
            yield from _counter(pid, f"cwnd {name}", "segments", flow["t_s"], flow["cwnd_segments"])
            yield from _counter(pid, "F", name, flow["t_s"], flow["mltcp_f"])


def _links(run: Run, pid: int) -> Iterator[Event]:
    """Of each direction of a bottleneck its queue, what crosses it, and the share of its rate of each job and of background traffic."""
    yield _about(pid, "process_name", name="links")
    yield _about(pid, "process_sort_index", sort_index=len(run.jobs))
    window_s = max(min(_SHARES_S, float(metrics.pooled(run.times).mean()) / 100), 2 * run.plan.sample_ns / 1e9)
    crossed = bottleneck.crossings(run) or {}
    for name in dict.fromkeys(run.links["link"].tolist()):
        rows = run.links[run.links["link"] == name]
        if run.manifest.clock != "model":
            yield from _counter(pid, f"queue {name}", "bytes", rows["t_s"], rows["backlog_bytes"])
        edges = np.arange(0.0, float(rows["t_s"].max()), window_s)
        carried = np.diff(np.interp(edges, rows["t_s"], rows["bytes"])) * 8 / window_s
        yield from _counter(pid, f"throughput {name}", "Mbit/s", edges[:-1], carried / 1e6)
        if name in crossed:
            shares = bottleneck.carried(run, name, window_s) / bottleneck.rate_bps(run, name)
            for job in shares.columns:
                whose = job if job == bottleneck.BACKGROUND else f"job {job}"
                yield from _counter(pid, f"share of {name}", whose, shares.index - window_s / 2, shares[job])


def _counter(pid: int, name: str, series: str, t_s: Iterable[float], values: Iterable[float]) -> Iterator[Event]:
    """The samples at which a value changes, which it keeps until the next one. Perfetto calls it ``name series``."""
    last = None
    for at, value in zip(t_s, values, strict=True):
        if value == last or value != value:  # unchanged, or not a number
            continue
        last = value
        yield {
            "ph": "C",
            "pid": pid,
            "name": name,
            "ts": round(float(at) * 1e6, 3),
            "args": {series: round(float(value), 6)},
        }


def _after(events: Iterable[Event]) -> int:
    """A number above those of all processes of a profile."""
    found = [event["pid"] for event in events if isinstance(event.get("pid"), int)]
    return max(found, default=0) + 1


def _first_step(events: Iterable[Event], path: Path) -> float:
    steps = [
        json_stream.number(event, "ts", f"{path}: {event['name']}")
        for event in events
        if event.get("ph") == "X" and str(event.get("name")).startswith(_STEP)
    ]
    if not steps:
        raise RequestError(
            f"--beside {path} has no {_STEP}N, so where its first step begins is unknown. Profile with torch.profiler's "
            "schedule=…, and call prof.step() after each training step."
        )
    return min(steps)
