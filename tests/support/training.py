"""Training on the GPUs of a job, simulated: the profiles that PyTorch would write of it, and the truth that an import has to find.

The CPU launches kernels in order and runs ahead. A compute stream, and one stream for each process group, carry them out: a kernel starts
when its stream is free, and what it was told to wait for has ended. A collective ends on all of its members at once, so long after the
last of them has begun. Times are in milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tests.support.profiles import Kineto

Style = Literal["ddp", "fsdp", "tensor", "experts"]
Key = tuple[str, tuple[int, ...], int]  # of an exchange: its group, its members, and which of these it is
Lines = Mapping[str, tuple[tuple[int, ...], ...]]  # of each group: lists of ranks
LAUNCH, LATENCY = 0.012, 0.004  # between two launches; from a launch, or what a kernel waits for, to its start
LEAD = 0.004  # from a call to its launch
COMPUTE = 7  # stream
ELEMENT = 4  # bytes
_ROUNDS = 1000  # more than there are exchanges
KINDS = {
    "allreduce": "all_reduce",
    "_allgather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_allv": "all_to_all",
    "send": "send",
    "recv": "recv",
}


@dataclass(frozen=True)
class Job:
    """What is trained, how, and what its profile looks like."""

    style: Style | Literal["pipeline"]
    layers: tuple[float, ...]  # forward computing of each; backward takes twice as long
    sizes: tuple[int, ...]  # elements of each layer's collective
    exchange: float  # how long a collective takes
    workers: int = 4
    micro_steps: int = 1  # per iteration: the last one exchanges gradients
    iterations: int = 3
    waits: bool = False  # the CPU for the GPU, at the end of each step
    pause: float = 0.0  # of the CPU between steps
    told: bool = False  # the profile has cudaStreamWaitEvent's
    behind: float = 0.0  # kernels from before the profile still run for so long
    skew: float = 0.0  # of the GPU's clock
    odd: float = 0.0  # how much longer the last iteration computes


@dataclass(frozen=True)
class Exchanged:
    """A collective, in milliseconds of computing."""

    kind: str
    group: str
    elements: int
    ready: float
    needed: float | None  # None: at the end
    peer: int = 0  # of a message: steps along the group's list


@dataclass
class Training:
    """A run of a `Job`; its profile is `made`, and `truth` what one iteration does."""

    job: Job
    rank: int = 0
    lines: Lines = field(default_factory=dict)  # empty: the profile does not say who is in a group
    others: Mapping[Key, float] = field(default_factory=dict)  # when the last other member of an exchange has begun
    clock: float = 0.0  # by how much this rank's is off
    made: Kineto = field(default_factory=Kineto)
    begun: dict[Key, float] = field(default_factory=dict)  # when this rank has
    truth: list[Exchanged] = field(default_factory=list)
    computing: float = 0.0  # of an iteration
    _cpu: float = 100.0
    _free: dict[int, float] = field(default_factory=dict)  # when each stream is
    _blocked: float = 0.0  # until when the compute stream waits
    _sent: list[tuple[int, float]] = field(default_factory=list)  # this iteration's collectives: stream and end
    _awaited: list[int] = field(default_factory=list)  # those that the next kernel waits for
    _scale: float = 1.0
    _numbers: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.job.behind:
            self.made.event("old", "kernel", self._cpu - 5, 5 + self.job.behind, stream=7, correlation=10**6)
            self._free[COMPUTE] = self._cpu + self.job.behind
        usual: list[Exchanged] = []
        computing = 0.0
        for iteration in range(self.job.iterations):
            self._scale = 1.0 + self.job.odd * (iteration == self.job.iterations - 1)
            self.computing, self.truth, self._sent = 0.0, [], []
            for micro in range(self.job.micro_steps):
                start = self._cpu
                self._step(exchanges=micro == self.job.micro_steps - 1, iteration=iteration)
                self.made.step(iteration * self.job.micro_steps + micro, start, self._cpu - start)
            if iteration == 1:  # its sizes are the medians
                usual, computing = self.truth, self.computing
        self.truth, self.computing = usual, computing
        for event in self.made.events:
            if event["cat"] in ("kernel", "cuda_sync"):
                event["ts"] += 1e3 * self.job.skew
            event["ts"] += 1e3 * self.clock

    def _step(self, *, exchanges: bool, iteration: int) -> None:
        styles = {
            "ddp": self._ddp, "fsdp": self._fsdp, "tensor": self._tensor, "experts": self._experts, "pipeline": self._pipeline,
        }  # fmt: skip
        styles[self.job.style](exchanges, iteration)
        self._cpu += LAUNCH
        if self.job.waits:
            start, self._cpu = self._cpu, max(self._cpu, *self._free.values())
            self.made.event("cudaDeviceSynchronize", "cuda_runtime", start, self._cpu - start)
            self._cpu += self.job.pause
            self.computing += self.job.pause

    def _ddp(self, exchanges: bool, iteration: int) -> None:
        for length in self.job.layers:
            self._compute(length)
        sent = []
        for length, size in zip(reversed(self.job.layers), self.job.sizes, strict=True):
            self._compute(2 * length)
            if exchanges:
                sent.append(self._exchange("allreduce", "dp", size, 20))
        if exchanges:
            for one in sent:
                self._wait(one)
            self._compute(1.0)

    def _fsdp(self, exchanges: bool, iteration: int) -> None:
        layers, sizes = self.job.layers, self.job.sizes
        order = [(length, size, False) for length, size in zip(layers, sizes, strict=True)]
        order += [(2 * length, size, True) for length, size, _ in reversed(order)]
        gathered = [self._exchange("_allgather_base", "dp", order[0][1], 40)]
        reduced = []
        for index, (length, size, backward) in enumerate(order):
            if index + 1 < len(order):
                gathered.append(self._exchange("_allgather_base", "dp", order[index + 1][1], 40))
            self._wait(gathered[index])
            self._compute(length)
            if backward:
                reduced.append(self._exchange("_reduce_scatter_base", "dp", size, 41))
        for one in reduced:
            self._wait(one)
        self._compute(1.0)

    def _tensor(self, exchanges: bool, iteration: int) -> None:
        for length, size in zip(self.job.layers, self.job.sizes, strict=True):
            self._compute(length)
            self._wait(self._exchange("allreduce", "tp", size, 50))
        for length in self.job.layers:
            self._compute(2 * length)
        self._wait(self._exchange("allreduce", "dp", 10 * max(self.job.sizes), 51))
        self._compute(1.0)

    def _experts(self, exchanges: bool, iteration: int) -> None:
        for length, size in zip(self.job.layers, self.job.sizes, strict=True):
            self._compute(length)
            self._wait(self._exchange("all_to_allv", "ep", size + iteration % 3 - 1, 60))
            self._compute(length)
        self._wait(self._exchange("allreduce", "dp", 10 * max(self.job.sizes), 51))
        self._compute(1.0)

    def _pipeline(self, exchanges: bool, iteration: int) -> None:
        """All micro-batches forward, then all backward: one for each layer."""
        stages = self._line("pp")
        here = stages.index(self.rank)
        parts = list(zip(self.job.layers, self.job.sizes, strict=True))
        for length, size in parts:
            self._stage(length, size, here - 1, here + 1)
        for length, size in parts:
            self._stage(2 * length, size, here + 1, here - 1)
        if "dp" in self.lines:
            self._wait(self._exchange("allreduce", "dp", 10 * max(self.job.sizes), 51))
        self._compute(1.0)

    def _stage(self, length: float, size: int, source: int, target: int) -> None:
        stages = self._line("pp")
        if 0 <= source < len(stages):
            self._wait(self._exchange("recv", "pp", size, 70 + source, source))
        self._compute(length)
        if 0 <= target < len(stages):
            self._exchange("send", "pp", size, 70 + target, target)

    def _line(self, group: str) -> tuple[int, ...]:
        return next((line for line in self.lines.get(group, ()) if self.rank in line), ())

    def _key(self, name: str, group: str, peer: int | None) -> Key:
        members = self._line(group)
        if peer is not None:
            members = (self.rank, members[peer]) if name == "send" else (members[peer], self.rank)
        kind = group if peer is None else "message"
        self._numbers[kind, members] += 1
        return kind, members, self._numbers[kind, members]

    def _launch(self) -> float:
        self._cpu += LAUNCH
        return self._cpu

    def _compute(self, length: float) -> None:
        length *= self._scale
        launch = self._launch()
        for place in self._awaited:
            self.truth[place] = replace(self.truth[place], needed=self.computing)
        start = max(launch, self._free.get(COMPUTE, 0.0), self._blocked) + LATENCY
        self._awaited, self._blocked = [], 0.0
        self.made.kernel(start, length, launch, COMPUTE)
        self._free[COMPUTE] = start + length
        self.computing += length

    def _exchange(self, name: str, group: str, elements: int, stream: int, peer: int | None = None) -> int:
        """A collective, or message to or from a place in the group, that waits for what the compute stream was given; its place in `truth`."""
        if self.job.told:
            record = self.made.call("cudaEventRecord", self._launch())
            self.made.stream_wait(self._launch(), stream, COMPUTE, record)
        launch = self._launch()
        start = max(launch, self._free.get(COMPUTE, 0.0), self._free.get(stream, 0.0)) + LATENCY
        key = self._key(name, group, peer)
        self.begun[key] = start
        end = max(start, self.others.get(key, start)) + self.job.exchange
        told: dict[str, Any] = {"Process Group Name": group, "Group size": self.job.workers}
        if line := self._line(group):
            number = group if len(self.lines[group]) == 1 else f"{group}{self.lines[group].index(line)}"
            told = {"Process Group Name": number, "Process Group Description": group, "Group size": len(line)}
            told["Process Group Ranks"] = str(list(line))
        if peer is not None:
            told["Dst Rank" if name == "send" else "Src Rank"] = peer
        self.made.collective(
            launch - LEAD,
            start,
            end - start,
            elements,
            name,
            name.strip("_") if peer is None else "SendRecv",
            stream,
            lead=LEAD,
            **told,
        )
        self._free[stream] = end
        self._sent.append((stream, end))
        steps = 0 if peer is None else peer - line.index(self.rank)
        self.truth.append(Exchanged(KINDS[name], group, elements, self.computing, None, steps))
        return len(self.truth) - 1

    def _wait(self, place: int) -> None:
        """The compute stream for a collective."""
        stream, ended = self._sent[place]
        if self.job.told:
            record = self.made.call("cudaEventRecord", self._launch())
            self.made.stream_wait(self._launch(), COMPUTE, stream, record)
        self._blocked = max(self._blocked, ended)
        self._awaited.append(place)

    def write(self, folder: Path) -> Path:
        world = 1 + max(
            (rank for lines in self.lines.values() for line in lines for rank in line), default=self.job.workers - 1
        )
        told = {"rank": self.rank, "world_size": world}
        return self.made.write(folder, f"rank{self.rank}.json", distributedInfo=told)


def trainings(jobs: list[Job], lines: Lines, clocks: list[float]) -> list[Training]:
    """The ranks of a job, each of which does its own of ``jobs``."""
    begun: dict[Key, float] = {}
    for _ in range(_ROUNDS):
        found = [
            Training(job, rank, lines, begun, clock) for rank, (job, clock) in enumerate(zip(jobs, clocks, strict=True))
        ]
        latest: dict[Key, float] = {}
        for one in found:
            for key, moment in one.begun.items():
                latest[key] = max(moment, latest.get(key, moment))
        if latest == begun:
            return found
        begun = latest
    raise ValueError("these ranks wait for each other for ever")
