"""What stands in the holes of a closed loop: a server and its workers train by the collective itself, over a wire that loses what it is told to.

Beside it the same training is computed, without messages. How the core in C fills a hole, `test_mlt` shows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pytest

from testbed import transports
from testbed.replay import exchange, training
from testbed.replay.exchange import Link
from testbed.replay.training import Examples, Task, parameter_server_training
from testbed.replay.training.mean import arrived
from testbed.replay.training.models.perceptron import Perceptron
from testbed.transports import Buffer, Close, Counters, Delivery, Message, Span, Tagger, Transfer
from tests.support.processes import HANG_S
from workloads.collectives import parameter_server

ROUNDS, WORKERS = 12, 3
DRAW = np.random.default_rng(1)
CLASSES = DRAW.integers(4, size=400)
INPUTS = (np.eye(4, 8)[CLASSES] + DRAW.normal(0, 0.2, (400, 8))).astype(np.float32)
TASK = Task(Perceptron(8, 16, 4), Examples(INPUTS, CLASSES), Examples(INPUTS, CLASSES), batch=8)
Key = tuple[int, int, Message]  # from whom, to whom, and what


class Small(training.Learning):
    bytes, task = TASK.bytes, TASK


def lost(message: Message, worker: int) -> tuple[Span, ...]:
    """Of a gradient a third, in every round another and not always; of parameters other numbers; all in whole numbers."""
    size = TASK.parameters // 3
    at = (message.round * 7 + worker * 11) % (TASK.parameters - size)
    if message.stage == "parameter":
        return ((4 * (TASK.parameters - at - size), 4 * size),) if message.round % 3 == worker % 3 else ()
    return () if (message.round + worker) % 4 == 0 else ((4 * at, 4 * size),)


class Wire:
    """What has been sent, for who waits for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: dict[Key, Future[bytes]] = {}

    def __getitem__(self, key: Key) -> Future[bytes]:
        with self.lock:
            return self.sent.setdefault(key, Future())


class Ends(Transfer):
    def __init__(self) -> None:
        self.told = Future[Delivery]()

    def wait(self, timeout_s: float | None = None) -> Delivery:
        return self.told.result(timeout_s or HANG_S)

    def done(self) -> bool:
        return self.told.done()

    def on_done(self, callback: Callable[[Transfer], None]) -> None:
        self.told.add_done_callback(lambda _: callback(self))


class End:
    """A rank's endpoint on a wire: what is ``lost`` never comes, and in its place is what `Close.missing` says."""

    def __init__(self, rank: int, wire: Wire) -> None:
        self.rank, self.wire = rank, wire

    def post_send(self, to: int, m: Message, data: Buffer | None, tag: Tagger | None = None) -> Transfer:
        assert data is not None and tag is None
        self.wire[self.rank, to, m].set_result(bytes(data))
        return ended(m, max(self.rank, to))

    def post_receive(self, source: int, m: Message, into: Buffer | None, close: Close) -> Transfer:
        assert into is not None
        found, memory = Ends(), np.frombuffer(into, np.float32)  # the caller's own
        here = arrived(TASK.parameters, lost(m, max(self.rank, source)))

        def came(sent: Future[bytes]) -> None:
            memory[here] = np.frombuffer(sent.result(), np.float32)[here]
            if close.missing == "zero":
                memory[~here] = 0
            found.told.set_result(ended(m, max(self.rank, source)).wait())

        self.wire[source, self.rank, m].add_done_callback(came)
        return found

    def counters(self, peer: int) -> Counters:
        raise NotImplementedError(peer)

    def end(self, reason: str, gone: int | None = None) -> None:
        raise NotImplementedError(reason, gone)


def ended(m: Message, worker: int) -> Ends:
    holes, found = lost(m, worker), Ends()
    found.told.set_result(Delivery(m.bytes, m.bytes - sum(size for _, size in holes), "tolerance", holes))
    return found


def trained(text: str) -> list[list[Any]]:
    """By messages: after every round the server's parameters, and those of each worker."""
    closes = transports.parse(text).close
    chosen = Small("perceptron", training.Options())
    content = [parameter_server_training.content(chosen, rank, WORKERS + 1, "a seed") for rank in range(WORKERS + 1)]
    wire = Wire()
    rounds = []
    for number in range(ROUNDS):

        def links(rank: int, number: int = number) -> dict[tuple[int, int], Link]:
            end, peers = End(rank, wire), [0] if rank else range(1, WORKERS + 1)
            made = {peer: partial(Link, end, peer, number, closes=closes, content=content[rank]) for peer in peers}
            return {flow: link() for peer, link in made.items() for flow in ((rank, peer), (peer, rank))}

        exchange.together(
            *(partial(parameter_server.run, rank, WORKERS + 1, TASK.bytes, links(rank)) for rank in range(WORKERS + 1))
        )
        rounds.append([one.flat.copy() for one in content])  # type: ignore[attr-defined]
    return rounds


def computed(*, keeps: bool) -> list[list[Any]]:
    """The same by its rule alone: of what is missing of a gradient, what came of the worker's one before it, or nothing."""
    seed = parameter_server_training.drawn("a seed")
    first = TASK.model.first(np.random.default_rng(seed))
    told, velocity, replicas = (
        first.copy(),
        np.zeros_like(first),
        {rank: first.copy() for rank in range(1, WORKERS + 1)},
    )
    before = {rank: np.zeros_like(first) for rank in replicas}
    rounds = []
    for number in range(ROUNDS):
        for rank, flat in replicas.items():
            gradient = TASK.gradient(flat, np.random.default_rng([seed, rank, number]))
            here = arrived(TASK.parameters, lost(Message(number, 0, 0, TASK.bytes, "gradient"), rank))
            before[rank] = np.where(here, gradient, before[rank] if keeps else np.float32(0))
        velocity = TASK.momentum * velocity + sum(before.values()) / np.float32(WORKERS)
        told = told - TASK.rate * velocity
        for rank, flat in replicas.items():
            here = arrived(TASK.parameters, lost(Message(number, 0, 0, TASK.bytes, "parameter"), rank))
            replicas[rank] = np.where(here, told, flat)
        rounds.append([told, *(one.copy() for one in replicas.values())])
    return rounds


@pytest.mark.parametrize("missing", ["zero", "keep", "local"])
def test_what_is_missing_is_zero_or_what_was_there(missing: str) -> None:
    """Of a gradient; of parameters a worker keeps its own in any case (MLT)."""
    found = trained(f"mlt:missing={missing}")
    wanted, other = (computed(keeps=keeps) for keeps in (missing != "zero", missing == "zero"))
    for number, (one, same) in enumerate(zip(found, wanted, strict=True)):
        assert all(np.allclose(*pair, atol=1e-5) for pair in zip(one, same, strict=True)), number
    assert not np.allclose(found[-1][0], other[-1][0], atol=1e-2), "it matters"
    apart = [max(float(np.abs(one - told).max()) for one in replicas) for told, *replicas in found]
    assert all(apart), "parameters are missing, of one worker in every round"
