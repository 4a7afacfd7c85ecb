"""The measurements of a training step, and their destination: a file, or a descriptor the testbed reads.

All times are ns of the monotonic clock. Standard library only: this runs inside the
training script, in the environment of that script.

=====================  =====================================================================
environment variable   meaning
=====================  =====================================================================
``MLTCP_RECORD``       folder in which every rank writes its samples (`FileSink`)
``MLTCP_REPORT_FD``    descriptor on which to report iterations (`ReportSink`); has precedence
``MLTCP_START_FD``     descriptor from which the start is read, one line ``{"start_ns": t}``
``MLTCP_TRANSPORT``    transport of gradients; if not TCP, the first rank is the server
``MLTCP_MESSAGES``     ``full``: each of their messages is logged (`say_beside`)
``MLTCP_MTU``          MTU of the network, in bytes
=====================  =====================================================================
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

from testbed.core import builtin_transport
from testbed.core.builtin_transport import TCP
from testbed.core.clock import sleep_until

RECORD, REPORT_FD, START_FD, TRANSPORT = "MLTCP_RECORD", "MLTCP_REPORT_FD", "MLTCP_START_FD", "MLTCP_TRANSPORT"
MESSAGES, MTU = "MLTCP_MESSAGES", "MLTCP_MTU"
TORCH_SEEN = "torch-imported"  # file in the folder of `RECORD`
STOPPED = ".stopped"  # end of the names of the files there with the reason for a rank's stopped recording

T = TypeVar("T")


@dataclass(frozen=True)
class Bucket:
    """One exchange of gradients: ready once the backward pass has filled it, ended once averaged."""

    bytes: int
    ready_ns: int
    end_ns: int
    importance: tuple[float, ...] = ()  # of its packets (`testbed.traces.trace`), where the recorder has looked


@dataclass(frozen=True)
class Sample:
    """One training step, from the end of one optimizer step to the end of the next."""

    start_ns: int
    end_ns: int
    buckets: tuple[Bucket, ...]
    spent_ns: int  # inside the recorder


@dataclass(frozen=True)
class Origin:
    """The measured rank, its model, its device and its software."""

    rank: int
    ranks: int
    model: str
    parameters: int
    device: str
    software: str
    notes: tuple[str, ...] = ()


class Sink(Protocol):
    """A destination of samples."""

    def imported(self) -> None:
        """The script has imported torch."""

    def ready(self) -> None:
        """The model is built and connected; returns when the first step may begin."""

    def __call__(self, origin: Origin, sample: Sample) -> None:
        """A step has ended."""

    def stopped(self, reason: str) -> None:
        """Recording has stopped; ``reason``: why."""


class Guard:
    """Runs the recorder's own code in a training script: an exception there ends the recording, never the training."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.off = False

    def __call__(self, call: Callable[..., T], *arguments: Any, default: T) -> T:
        """The result of ``call``; ``default`` once the recording has stopped."""
        if not self.off:
            try:
                return call(*arguments)
            except Exception as error:  # for any error the user's training continues
                self.stop(f"{type(error).__name__}: {error}")
        return default

    def stop(self, reason: str) -> None:
        """Stop recording, with one warning."""
        if self.off:
            return
        self.off = True
        say(f"recording stopped: {reason}. The training goes on.")
        try:
            self._sink.stopped(reason)
        except Exception as error:
            say(f"the reason could not be kept: {error}")


def say(line: str) -> None:
    """Print a line on stderr, from the first rank only."""
    if os.environ.get("RANK", "0") == "0":
        try:
            print("mltcp: " + " ".join(line.split()), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # the script has closed it
            pass


class FileSink:
    """A file for each process: its origin, then a line for each step, so that a killed script keeps what it wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: TextIO | None = None

    def imported(self) -> None:
        (self._folder / TORCH_SEEN).touch()

    def ready(self) -> None:
        pass

    def __call__(self, origin: Origin, sample: Sample) -> None:
        if self._file is None:
            self._file = (self._folder / f"{os.getpid()}.jsonl").open("w", buffering=1)
            self._file.write(json.dumps(asdict(origin)) + "\n")
        self._file.write(json.dumps(asdict(sample)) + "\n")

    def stopped(self, reason: str) -> None:
        (self._folder / f"{os.getpid()}{STOPPED}").write_text(reason)


class ReportSink:
    """The line-of-JSON protocol of a replaying worker (`testbed.replay.worker`), with absolute times.

    ``{"ready": true}`` once connected, then per iteration ``[iteration, start, comm_start, end, bytes, late]``.
    ``bytes`` is the data that a ring all-reduce makes this rank send, 2(n−1)/n of its gradients. With a server
    (``served``), every other rank sends its gradients once, and the first one sends their mean to all. ``late`` is 0,
    because nothing is replayed. `say_beside` precedes the iteration that it describes.
    """

    def __init__(self, report: int, start: int | None, *, served: bool = False) -> None:
        self._report, self._start, self._served = report, start, served
        self._iteration = 0

    def imported(self) -> None:
        pass

    def ready(self) -> None:
        self._say({"ready": True})
        if self._start is None:
            return
        with os.fdopen(self._start, closefd=False) as file:
            line = file.readline()
        if not line:
            raise SystemExit(f"descriptor {self._start} ({START_FD}) was closed before it named a start")
        sleep_until(json.loads(line)["start_ns"])

    def __call__(self, origin: Origin, sample: Sample) -> None:
        gradients = sum(bucket.bytes for bucket in sample.buckets)
        if self._served:
            sent = gradients if origin.rank else (origin.ranks - 1) * gradients
        else:
            sent = 2 * (origin.ranks - 1) * gradients // origin.ranks
        first = min(bucket.ready_ns for bucket in sample.buckets)
        self._say([self._iteration, sample.start_ns, first, sample.end_ns, sent, 0])
        self._iteration += 1

    def stopped(self, reason: str) -> None:
        """A job of the testbed runs for its reports alone: without them it would run for ever."""
        raise SystemExit(f"this job's iterations cannot be reported: {reason}")

    def _say(self, message: Any) -> None:
        _say(self._report, message)


def say_beside(environment: Mapping[str, str], messages: list[list[Any]], datagrams: Mapping[str, int] | None) -> None:
    """Report, to a reader if there is one, the messages of the step that ends next (rows of `testbed.replay.messages`, absolute times),
    and of all datagrams so far (`transports.Datagrams`)."""
    if REPORT_FD in environment:
        _say(int(environment[REPORT_FD]), {"messages": messages, "datagrams": datagrams})


def _say(report: int, message: Any) -> None:
    try:
        os.write(report, (json.dumps(message) + "\n").encode())
    except OSError as error:  # the reader has closed it, or there was none
        raise SystemExit(f"cannot report on descriptor {report} ({REPORT_FD}): {error}") from error


def sink_of(environment: Mapping[str, str]) -> Sink | None:
    """Return the sink that the environment variables select; None: no sink."""
    if REPORT_FD in environment:
        start = environment.get(START_FD)
        served = not builtin_transport.plain(environment.get(TRANSPORT, TCP))
        return ReportSink(int(environment[REPORT_FD]), int(start) if start else None, served=served)
    if RECORD in environment:
        return FileSink(Path(environment[RECORD]))
    return None


def read(folder: Path) -> list[tuple[Origin, list[Sample]]]:
    """The samples that the `FileSink`s of a run have written, by rank."""
    found = []
    for path in folder.glob("*.jsonl"):
        # A script that was killed, or a full disk, may have left a line without its end.
        whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if not whole:
            continue
        head, *lines = map(json.loads, whole)
        origin = Origin(**head | {"notes": tuple(head["notes"])})
        samples = [Sample(**line | {"buckets": tuple(map(_bucket, line["buckets"]))}) for line in lines]
        found.append((origin, samples))
    return sorted(found, key=lambda one: one[0].rank)


def reasons(folder: Path) -> list[str]:
    """Return why ranks of a run stopped recording; empty if none did."""
    return sorted({path.read_text() for path in folder.glob(f"*{STOPPED}")})


def _bucket(fields: dict[str, Any]) -> Bucket:
    return Bucket(**fields | {"importance": tuple(fields["importance"])})
