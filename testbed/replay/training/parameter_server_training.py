"""Training by a parameter server inside a run: the content of its messages, and the use of what arrives.

Rank 0 is the server. Every other rank computes the gradient of its own examples, sends it, and continues with the
parameters that return. Missing values stay unchanged (`transports.Close`), so replicas may diverge, as with MLT. The
choice of examples and the first parameters depend only on the run's seed, the rank, and the round: compared systems
train on the same data.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading

import numpy as np

from testbed.replay.exchange import Content, Look
from testbed.replay.training import Fill, Holes, Learning
from testbed.replay.training.layers import Array
from testbed.replay.training.mean import arrived, gathered
from testbed.replay.training.replicas import divergence
from testbed.transports import Buffer, Message
from testbed.transports.hadamard import collected, dispersed

SERVER = 0
# Options of mallopt(3): memory stays in the process, in one arena for all threads.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8
KEPT = {M_ARENA_MAX: 1, M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 1 << 30, M_TOP_PAD: 64 << 20}


def content(learning: Learning, rank: int, ranks: int, seed: str) -> Content:
    """The messages that one rank of ``ranks`` sends and receives; ``seed`` is the run's and the job's."""
    keep_memory()
    return _Server(learning, ranks, drawn(seed)) if rank == SERVER else _Trainer(learning, rank, drawn(seed))


def keep_memory() -> None:
    """Keep freed memory in the process, because page faults cost most under virtual time."""
    libc = ctypes.CDLL(None)
    for what, value in KEPT.items():
        libc.mallopt(what, value)


def drawn(seed: str) -> int:
    """A number of this text, by which examples are chosen."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")


class _Server:
    """The server: computes the mean of received gradients, makes a step, and sends its parameters."""

    def __init__(self, learning: Learning, ranks: int, seed: int) -> None:
        self.task = learning.task
        # With error feedback, workers add what was lost to their next gradient, so missing elements are zero here.
        self.fill: Fill = "zero" if learning.options.fill == "feedback" else learning.options.fill
        self.seed, self.disperses = seed, learning.options.hadamard
        self.flat = self.task.model.first(np.random.default_rng(seed))
        self.velocity, self.published = np.zeros_like(self.flat), self.flat.copy()
        self.update = np.zeros_like(self.flat)  # from the previous parameters to the current ones
        self.gradients = {rank: np.zeros_like(self.flat) for rank in range(ranks) if rank != SERVER}
        self.holes: dict[int, Holes] = dict.fromkeys(self.gradients, ())
        # A worker's next parameters follow from the data that arrived there, which both ends have recorded.
        self.replicas = dict.fromkeys(self.gradients, self.published)
        self.rounds = 0
        self.accuracy: float | None = None  # after this round, if evaluated
        self.lock = threading.Lock()

    def sends(self, message: Message) -> Buffer:
        """The parameters after this round's step, computed at the first call: all gradients have arrived by then."""
        with self.lock:
            if self.rounds == message.round:
                self._step()
        return as_bytes(self.published)

    def weighs(self, message: Message) -> Buffer:
        """Return the update, because a worker that misses an element misses its update (MLT, section 3)."""
        del message
        return as_bytes(self.update)

    def room(self, peer: int, message: Message) -> Buffer:
        del message
        return as_bytes(self.gradients[peer])

    def sent(self, peer: int, message: Message, holes: Holes) -> None:
        """Missing parameters keep their value there."""
        del message
        published = self.published
        self.replicas[peer] = (
            np.where(arrived(len(published), holes), published, self.replicas[peer]) if holes else published
        )

    def received(self, peer: int, message: Message, holes: Holes) -> None:
        del message
        self.holes[peer] = holes

    def evaluate(self) -> Look | None:
        return Look(self.accuracy, divergence(list(self.replicas.values()), self.published))

    def _step(self) -> None:
        task = self.task
        mean = gathered(list(self.gradients.values()), list(self.holes.values()), [], self.fill)
        if self.disperses:
            mean = collected(mean, (self.seed, self.rounds))
        self.velocity *= task.momentum
        self.velocity += mean
        self.update = task.rate * self.velocity
        self.flat -= self.update
        self.published = self.flat.copy()
        self.rounds += 1
        self.accuracy = None if self.rounds % task.every else task.accuracy(self.flat)


class _Trainer:
    def __init__(self, learning: Learning, rank: int, seed: int) -> None:
        self.task, self.rank, self.seed = learning.task, rank, seed
        self.flat = self.task.model.first(np.random.default_rng(seed))
        self.travels = self.owed = np.zeros_like(self.flat)
        self.feeds_back, self.disperses = learning.options.fill == "feedback", learning.options.hadamard

    def sends(self, message: Message) -> Buffer:
        self.travels = self.task.gradient(self.flat, np.random.default_rng([self.seed, self.rank, message.round]))
        if self.feeds_back:
            self.travels += self.owed
        if self.disperses:
            self.travels = dispersed(self.travels, (self.seed, message.round))
        return as_bytes(self.travels)

    def weighs(self, message: Message) -> None:
        """Return None: the magnitudes of the sent data give packets their importance."""

    def room(self, peer: int, message: Message) -> Buffer:
        """Return the buffer of the parameters: every message is from the server."""
        del peer, message
        return as_bytes(self.flat)

    def sent(self, peer: int, message: Message, holes: Holes) -> None:
        del peer
        if self.feeds_back:
            lost = self.travels * ~arrived(len(self.travels), holes)
            self.owed = collected(lost, (self.seed, message.round)) if self.disperses else lost

    def received(self, peer: int, message: Message, holes: Holes) -> None:
        """Missing parameters keep their value."""

    def evaluate(self) -> Look | None:
        """It leaves that to the server."""
        return None


def as_bytes(numbers: Array) -> Buffer:
    return memoryview(numbers.data).cast("B")
