"""The tables of a run: the row type of each, which defines its columns and their order. Times in seconds since the
common start.

Names of links, flows, and causes have a pattern. A number that may be unknown is empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TextIO

import msgspec


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """``iterations.csv``: one iteration of one worker."""

    system: str | msgspec.UnsetType = msgspec.UNSET  # as typed
    seed: int
    job: int
    worker: int
    iteration: int
    start_s: float
    comm_start_s: float
    end_s: float
    bytes: int  # payload that it wrote
    max_start_delay_s: float  # largest delay of a phase's start after its deadline


class Operation(msgspec.Struct, frozen=True):
    """``operations.csv``: one collective of one iteration of one worker."""

    job: int
    worker: int
    iteration: int
    operation: str
    start_s: float
    end_s: float


class LinkSample(msgspec.Struct, frozen=True):
    """``links.csv``: counters of one direction of a bottleneck, since the start."""

    t_s: float
    link: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.]+-[A-Za-z0-9_.]+$")]
    bytes: int
    packets: int
    drops: int
    ecn_marks: int
    backlog_bytes: int


class BackgroundFlow(msgspec.Struct, frozen=True):
    """``background.csv``: a flow of background traffic, or a program."""

    label: Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f]+$")]
    flow: int
    source: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.]+$")]
    target: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.]+$")]
    burst: int  # flows of one burst have one number
    bytes: int | None  # None: without end, or a program's
    start_s: float
    end_s: float | None  # last byte at the target, or of the response at the source; None: not ended
    received_bytes: int  # at the target
    failure: Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f]*$")]


class Band(msgspec.Struct, frozen=True):
    """``priority_queues.csv``: one priority queue of one direction of a bottleneck, over the complete run."""

    link: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.]+-[A-Za-z0-9_.]+$")]
    band: int  # its DSCP class selector: 0 is the lowest priority
    bytes: int
    packets: int
    ecn_marks: int
    dropped_non_ect: int  # above the ECN threshold, since they are not ECN-capable
    dropped_overflow: int


class FlowSample(msgspec.Struct, frozen=True):
    """``flows.csv``: a flow's sending socket, and its MLTCP state (None: another congestion control, or unknown)."""

    t_s: float
    job: int
    worker: int
    flow: Annotated[str, msgspec.Meta(pattern=r"^\d+-\d+(#\d+)?$")]
    cwnd_segments: int | None  # None: a flow of the simulator, which has no socket
    rtt_us: int | None
    bytes_acked: int
    retrans_segments: int
    mltcp_r: float | None
    mltcp_iterations: int | None
    mltcp_f: float | None


class Messages(msgspec.Struct, frozen=True):
    """``messages.csv``: what became of an iteration's messages with one peer, or of each, where some of their bytes may be lost."""

    job: int
    worker: int
    iteration: int
    peer: int
    side: Literal["send", "receive"]
    stage: Literal["gradient", "parameter"]
    messages: int
    bytes: int
    delivered: int
    missing: int  # bytes
    gap_count: int
    resent: int  # bytes
    closed_complete: int  # messages, by the reason for which they were closed
    closed_tolerance: int
    closed_fraction: int
    closed_deadline: int
    closed_round: int
    closed_peer_lost: int
    first_s: float  # packets that were the first and the last; 0: there was none
    last_s: float
    operation: int = -1  # of the iteration, by its place in it; -1: all of them (`Plan.messages`)
    message_index: int = -1  # in this operation and on this flow; -1: all of them
    missing_ranges: str = ""  # of one received message: offset+bytes of each, separated by spaces


class Training(msgspec.Struct, frozen=True):
    """``training.csv``: one round of a job that trains a model (`JobPlan.trains`)."""

    job: int
    iteration: int
    end_s: float  # at the server; in a ring, at the last rank
    accuracy: float | None  # 0 to 1, on examples outside the training set; None: not measured
    # Largest distance between the parameters of two workers: max‖θi − θj‖ ÷ ‖θ‖, θ of the server or of rank 0; None: unknown.
    replica_divergence: float | None = None


class Disturbance(msgspec.Struct, frozen=True):
    """``disturbances.csv``: when a core, or its ksoftirqd, did not get on, and for how much of that something waited."""

    start_s: float
    end_s: float
    core: int
    kind: Literal["stolen", "interrupts", "program", "unknown", "ksoftirqd"]
    waited_s: float


class DisturbedIteration(msgspec.Struct, frozen=True):
    """``disturbed_iterations.csv``: an iteration that the machine disturbed."""

    job: int
    iteration: int


class Job(msgspec.Struct, frozen=True):
    """``jobs.csv``: the life of a job that holds GPUs; one that never started has no start, and ends with the run."""

    job: int
    arrival_s: float
    start_s: float | None
    end_s: float
    outcome: Literal["done", "left", "failed"]
    gpus: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.]+:\d+( [A-Za-z0-9_.]+:\d+)*$")]
    failure_reason: str = ""


Row = (
    Iteration
    | Operation
    | BackgroundFlow
    | LinkSample
    | Band
    | FlowSample
    | Messages
    | Training
    | Disturbance
    | DisturbedIteration
    | Job
)


def columns(kind: type[Row]) -> tuple[str, ...]:
    """The header of a table with such rows."""
    return kind.__struct_fields__


def text(kind: type[Row], rows: Iterable[Row], decimals: int) -> str:
    """The CSV text of a table: times with so many ``decimals``."""
    buffer = io.StringIO()
    _write(buffer, kind, rows, decimals)
    return buffer.getvalue()


def write(path: Path, kind: type[Row], rows: Iterable[Row], decimals: int) -> None:
    """Write ``rows`` to ``path`` as CSV, row by row, because a table may exceed the memory of a process in user-mode
    Linux."""
    with path.open("w", newline="") as file:
        _write(file, kind, rows, decimals)


def _write(file: TextIO, kind: type[Row], rows: Iterable[Row], decimals: int) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns(kind))
    for row in rows:
        writer.writerow(
            f"{value:.{decimals}f}" if isinstance(value, float) else value for value in msgspec.structs.astuple(row)
        )
