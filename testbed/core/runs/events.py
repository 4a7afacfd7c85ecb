"""Events of a run in progress (one line of JSON each), and those that its driver adds.

::

    phase       its current step, in words
    start       its first iteration begins, on the monotonic clock (real time only)
    iteration   a worker has ended one
    shares      the rate of each job over each bottleneck since the last event, in bit/s
    computing   a participant begins, or ends, to compute for real
    prompt      its shell waits for a line
    output      what a command of its shell printed
    named       the namespaces of its hosts arrive on the socket of its shell
    left        its shell was left before the run had started, or in a pause
    error       why it ends: an exit code and a message
    results     an archive of so many bytes follows
"""

from __future__ import annotations

import msgspec

from testbed.core.runs.verdict import Word


class Phase(msgspec.Struct, tag_field="event", tag="phase", frozen=True, omit_defaults=True):
    """The current step of a run, in words."""

    text: str
    long: bool = False  # it takes a while: shown without a terminal, too


class Start(msgspec.Struct, tag_field="event", tag="start", frozen=True):
    """The instant of the first iteration, in ns of the monotonic clock."""

    start_ns: int


class Iteration(msgspec.Struct, tag_field="event", tag="iteration", frozen=True):
    """One iteration of one worker has ended; times in s after the start of the run."""

    job: int
    rank: int
    iteration: int
    start_s: float
    end_s: float


class Shares(msgspec.Struct, tag_field="event", tag="shares", frozen=True):
    """The rate of each job over each bottleneck since the last event, in bit/s."""

    bps: dict[int, dict[str, float]]  # by job and bottleneck


class Computing(msgspec.Struct, tag_field="event", tag="computing", frozen=True):
    """A participant begins, or ends, to compute for real."""

    who: str | int
    begins: bool


class Prompt(msgspec.Struct, tag_field="event", tag="prompt", frozen=True):
    """The run's shell waits for a line."""

    number: int  # of the question (`testbed.core.runs.shell`)
    text: str


class Output(msgspec.Struct, tag_field="event", tag="output", frozen=True):
    """Output of a command of the shell."""

    number: int  # of the question whether the command continues; 0: none
    text: str
    at_ns: int  # on the monotonic clock


class Named(msgspec.Struct, tag_field="event", tag="named", frozen=True):
    """The names of the hosts' namespaces, which arrive on the socket of the shell."""

    names: tuple[str, ...]


class Left(msgspec.Struct, tag_field="event", tag="left", frozen=True):
    """The shell was left before the start of the run, or in a pause."""

    paused: bool  # the run had started


class Error(msgspec.Struct, tag_field="event", tag="error", frozen=True):
    """The run has failed: the exit code and the message of its error."""

    code: int
    message: str


class Results(msgspec.Struct, tag_field="event", tag="results", frozen=True):
    """An archive follows: its size in bytes and its SHA-256."""

    size: int
    sha256: str


class Started(msgspec.Struct, frozen=True):
    """An executor has begun with it."""


class There(msgspec.Struct, frozen=True):
    """The run existed already, once its schedule was known."""


class Repeated(msgspec.Struct, frozen=True):
    """The run was invalid and is repeated."""

    verdict: Word
    because: tuple[str, ...]


class Stored(msgspec.Struct, frozen=True):
    """The run has ended, and its directory is complete."""

    backend: str
    verdict: Word


class Failed(msgspec.Struct, frozen=True):
    """The run failed and has no result."""

    backend: str


class GivenUp(msgspec.Struct, frozen=True):
    """The machine of the run was lost; the run is repeated on another one."""

    because: str


Event = Phase | Start | Iteration | Shares | Computing | Prompt | Output | Named | Left | Error | Results
Said = Event | Started | There | Repeated | Stored | Failed | GivenUp
