"""Training on one GPU of a job, simulated: the profile that PyTorch would write of it, and the truth that an import has to find.

The CPU launches kernels in order and runs ahead. A compute stream, and one stream for each process group, carry them out: a kernel starts
when its stream is free, and what it was told to wait for has ended. Times are in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tests.support.profiles import Kineto

Style = Literal["ddp", "fsdp", "tensor", "experts"]
LAUNCH, LATENCY = 0.012, 0.004  # between two launches; from a launch, or what a kernel waits for, to its start
LEAD = 0.004  # from a call to its launch
COMPUTE = 7  # stream
ELEMENT = 4  # bytes
KINDS = {
    "allreduce": "all_reduce",
    "_allgather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_allv": "all_to_all",
}


@dataclass(frozen=True)
class Job:
    """What is trained, how, and what its profile looks like."""

    style: Style
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


@dataclass
class Training:
    """A run of a `Job`; its profile is `made`, and `truth` what one iteration does."""

    job: Job
    made: Kineto = field(default_factory=Kineto)
    truth: list[Exchanged] = field(default_factory=list)
    computing: float = 0.0  # of an iteration
    _cpu: float = 100.0
    _free: dict[int, float] = field(default_factory=dict)  # when each stream is
    _blocked: float = 0.0  # until when the compute stream waits
    _sent: list[tuple[int, float]] = field(default_factory=list)  # this iteration's collectives: stream and end
    _awaited: list[int] = field(default_factory=list)  # those that the next kernel waits for
    _scale: float = 1.0

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

    def _step(self, *, exchanges: bool, iteration: int) -> None:
        styles = {"ddp": self._ddp, "fsdp": self._fsdp, "tensor": self._tensor, "experts": self._experts}
        styles[self.job.style](exchanges, iteration)
        self._cpu += LAUNCH
        if self.job.waits:
            start, self._cpu = self._cpu, max(self._cpu, self._free[COMPUTE])
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

    def _exchange(self, name: str, group: str, elements: int, stream: int) -> int:
        """A collective that waits for what the compute stream has been given; its place in `truth`."""
        if self.job.told:
            record = self.made.call("cudaEventRecord", self._launch())
            self.made.stream_wait(self._launch(), stream, COMPUTE, record)
        launch = self._launch()
        start = max(launch, self._free.get(COMPUTE, 0.0), self._free.get(stream, 0.0)) + LATENCY
        told: dict[str, Any] = {"Process Group Name": group, "Group size": self.job.workers}
        self.made.collective(
            launch - LEAD, start, self.job.exchange, elements, name, name.strip("_"), stream, lead=LEAD, **told
        )
        self._free[stream] = start + self.job.exchange
        self._sent.append((stream, self._free[stream]))
        self.truth.append(Exchanged(KINDS[name], group, elements, self.computing, None))
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
        return self.made.write(folder, distributedInfo={"rank": 0, "world_size": self.job.workers})
