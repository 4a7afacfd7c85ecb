"""Training by replicas in a ring: the content of their messages, and the use of what arrives.

Every rank computes the gradient of its own examples. In the first half of the ring (reduce-scatter), parts are summed
from rank to rank. A part lost on a hop is lost for all ranks before it. In the second half (all-gather), the sums go
round. A rank that misses a sum makes no step there, nor do the ranks after it, so replicas diverge, as with MLT. Once
in ``sync_every`` rounds, which the transport delivers completely, the second half has parameters instead, each part
from the rank with its sum. All ranks then continue with equal parameters. The next round sends the momentum in the same
way. Neither needs more bytes, because their parts are as long as those of gradients, and without loss neither changes
anything. Hadamard-transformed gradients stay transformed all the way round, and only sums are sent.

A rank cannot compute the divergence of replicas without the others. Each writes its parameters into shared memory, and
the last rank of a round compares them.
"""

from __future__ import annotations

import fcntl
import mmap
import threading
from dataclasses import dataclass
from typing import Literal

import numpy as np

from testbed.replay.exchange import Look
from testbed.replay.ring import slices
from testbed.replay.training import ELEMENT, Holes, Learning, Task
from testbed.replay.training.layers import Array
from testbed.replay.training.parameter_server_training import as_bytes, drawn, keep_memory
from testbed.replay.training.replicas import divergence
from testbed.transports import Buffer, Message, resyncs
from testbed.transports.hadamard import collected, dispersed


@dataclass(frozen=True)
class Place:
    """The content of a ring's message: numbers from ``begin`` to ``end``, in the first half (reduce-scatter) or the second."""

    begin: int
    end: int
    gathers: bool
    own: bool  # the sum of this part was completed at the sender


def place(message: Message, rank: int, ranks: int, size: int) -> Place:
    """Return the elements in a message that ``rank`` sends, of a tensor of ``size`` bytes split evenly."""
    pieces = slices(size // ranks)
    step, piece = divmod(message.part, len(pieces))
    gathers = step >= ranks - 1
    chunk = (rank + 1 - (step - ranks + 1) if gathers else rank - step) % ranks
    begin = chunk * (size // ranks) + sum(pieces[:piece])
    return Place(begin // ELEMENT, (begin + pieces[piece]) // ELEMENT, gathers, own=step == ranks - 1)


class Shared:
    """The parameters of all ranks, of this round and the one before it, in a file in memory."""

    def __init__(self, file: int, learning: Learning, ranks: int) -> None:
        self.file = file
        memory = mmap.mmap(file, learning.shared_bytes(ranks))
        parameters = learning.bytes // ELEMENT
        self.rounds = np.frombuffer(memory, np.int64, ranks)  # number of rounds that each rank has written
        self.replicas = np.frombuffer(memory, np.float32, offset=8 * ranks).reshape(2, ranks, parameters)

    def write(self, rank: int, round: int, flat: Array) -> list[Array] | None:
        """``flat`` after this round; for the last rank those of all ranks, else None."""
        of_this = self.replicas[round % 2]
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            of_this[rank] = flat
            self.rounds[rank] = round + 1
            last = bool((self.rounds > round).all())
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)
        return list(of_this) if last else None


What = Literal["sums", "parameters", "momentum"]  # content of the second half


class Replica:
    """The replica of one rank of the ring."""

    def __init__(self, learning: Learning, rank: int, ranks: int, seed: str, *, shared: int, resync: int = 0) -> None:
        """``shared``: the file of `Shared`; ``resync``: as the transport has it."""
        keep_memory()
        self.task: Task = learning.task
        self.rank, self.ranks, self.resync, self.seed = rank, ranks, resync, drawn(seed)
        self.disperses = learning.options.hadamard
        self.size = learning.bytes_in_a_ring(ranks)
        self.shared = Shared(shared, learning, ranks)
        self.flat = self._numbers()
        self.flat[: self.task.parameters] = self.task.model.first(np.random.default_rng(self.seed))
        self.velocity = self._numbers()
        self.sums, self.gathered = self._numbers(), self._numbers()  # of the first half, and of the second
        self.guess = self._numbers()  # estimated momentum after this round, from this rank's gradient only
        self.coming: dict[int, Array] = {}  # by the message's number
        self.rounds = self.computed = 0
        self.lock = threading.Lock()

    def sends(self, message: Message) -> Buffer:
        """Return a copy of the data to send, because the original is summed up further."""
        self._compute(message.round)
        where = place(message, self.rank, self.ranks, self.size)
        numbers = slice(where.begin, where.end)
        if where.own:
            self._gather(numbers, self._what(message.round))
        return bytes(as_bytes((self.gathered if where.gathers else self.sums)[numbers]))

    def weighs(self, message: Message) -> None:
        """Return None: the magnitudes of the sent data give packets their importance."""

    def room(self, peer: int, message: Message) -> Buffer:
        """Return a buffer filled with the values of missing ranges: no step, or the local values."""
        self._compute(message.round)
        where, what = place(message, peer, self.ranks, self.size), self._what(message.round)
        numbers = slice(where.begin, where.end)
        if not where.gathers or what == "sums":
            made = np.zeros(where.end - where.begin, np.float32)
        elif what == "momentum":
            made = self.guess[numbers].copy()
        else:
            made = self.flat[numbers] - self.task.rate * self.guess[numbers]
        self.coming[message.part] = made
        return as_bytes(made)

    def sent(self, peer: int, message: Message, holes: Holes) -> None:
        """Do nothing: the receiver records the missing ranges."""

    def received(self, peer: int, message: Message, holes: Holes) -> None:
        del holes
        where, came = place(message, peer, self.ranks, self.size), self.coming.pop(message.part)
        if where.gathers:
            self.gathered[where.begin : where.end] = came
        else:
            self.sums[where.begin : where.end] += came

    def evaluate(self) -> Look | None:
        """The step at the end of a round; the last rank reports it."""
        what = self._what(self.rounds)
        if self.disperses:
            self.gathered = collected(self.gathered, (self.seed, self.rounds))
        if what == "sums":
            self.velocity = self.task.momentum * self.velocity + self.gathered / np.float32(self.ranks)
        else:
            self.velocity = (self.guess if what == "parameters" else self.gathered).copy()
        self.flat = self.gathered.copy() if what == "parameters" else self.flat - self.task.rate * self.velocity
        everybody = self.shared.write(self.rank, self.rounds, self.flat[: self.task.parameters])
        self.rounds += 1
        if everybody is None:
            return None
        accuracy = None if self.rounds % self.task.every else self.task.accuracy(everybody[0])
        return Look(accuracy, divergence(everybody, everybody[0]))

    def _what(self, round: int) -> What:
        if resyncs(self.resync, round):
            return "parameters"
        return "momentum" if round and resyncs(self.resync, round - 1) else "sums"

    def _compute(self, round: int) -> None:
        """The gradient of this round, computed once, by the first thread that sends or receives."""
        with self.lock:
            if self.computed == round:
                known, examples = self.task.parameters, np.random.default_rng([self.seed, self.rank, round])
                self.sums[:known] = self.task.gradient(self.flat[:known], examples)
                self.sums[known:] = 0
                self.guess = self.task.momentum * self.velocity + self.sums
                if self.disperses:
                    self.sums = dispersed(self.sums, (self.seed, round))
                self.computed += 1

    def _gather(self, numbers: slice, what: What) -> None:
        """The values of this range, whose sum is here, that go round."""
        if what == "sums":
            self.gathered[numbers] = self.sums[numbers]
            return
        mean = self.sums[numbers] / np.float32(self.ranks)
        self.guess[numbers] = self.task.momentum * self.velocity[numbers] + mean
        momentum = self.guess[numbers]
        self.gathered[numbers] = momentum if what == "momentum" else self.flat[numbers] - self.task.rate * momentum

    def _numbers(self) -> Array:
        return np.zeros(self.size // ELEMENT, np.float32)
