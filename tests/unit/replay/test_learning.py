"""A training with holes in its gradients: what is missing counts as each way to fill it has it, and nothing else changes."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed import spec
from testbed.core.errors import MachineError, RequestError
from testbed.models import learning
from testbed.models.ring import reduced
from testbed.planning.plan import planned
from testbed.replay import ring
from testbed.replay import training as models
from testbed.replay.exchange import Look
from testbed.replay.training import Examples, Fill, Holes, Task, layers, parameter_server_training, ring_training
from testbed.replay.training.mean import arrived, gathered
from testbed.replay.training.models.perceptron import Perceptron
from testbed.replay.training.replicas import divergence
from testbed.transports import Message, Stage, resyncs

ROUNDS, WORKERS = 40, 4
Lost = Callable[[int, int], Holes]  # of a round and a worker


def examples(count: int, seed: int) -> Examples:
    """Four classes, each around a point of its own."""
    draw = np.random.default_rng(seed)
    classes = draw.integers(4, size=count)
    inputs = np.eye(4, 8, dtype=np.float32)[classes] + draw.normal(0, 0.2, (count, 8)).astype(np.float32)
    return Examples(inputs.astype(np.float32), classes)


TASK = Task(Perceptron(8, 16, 4), examples(400, 1), examples(200, 2), batch=8)
NOTHING = [[()] * WORKERS] * ROUNDS
EVERYTHING = [[((0, TASK.bytes),)] * WORKERS] * ROUNDS


def test_it_learns_and_repeats_exactly() -> None:
    curve = learning.train(TASK, NOTHING, seed=3)
    assert len(curve) == ROUNDS // TASK.every and curve[-1] > 0.95
    assert (curve == learning.train(TASK, NOTHING, seed=3)).all()
    assert (curve[0] != learning.train(TASK, NOTHING, seed=4)[0]) or curve[0] == 1


def test_without_its_library_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    models.check(["cnn", None])
    with pytest.raises(MachineError, match=r"torch_cnn .*`make torch`"):
        models.check(["cnn", "torch_cnn:fill=feedback"])


@pytest.mark.parametrize("name", ["cnn", "gru", "perceptron"])
def test_a_gradient_is_what_the_loss_changes_by(name: str) -> None:
    """Of every model, by finite differences at places that are drawn."""
    task = learning.task(name)
    draw = np.random.default_rng(1)
    flat: Any = task.model.first(draw) + draw.normal(0, 0.01, task.parameters)  # of 64 bits
    chosen = draw.integers(len(task.train.classes), size=4)
    inputs, classes = task.train.inputs[chosen], task.train.classes[chosen]
    inputs = inputs if inputs.dtype == np.uint8 else inputs.astype(float)
    found = task.model.gradient(flat, inputs, classes)
    steepest = np.argsort(-np.abs(found))[:200]
    for place in draw.choice(steepest, 20):
        step = np.zeros(task.parameters)
        step[place] = 3e-3
        sides = [loss(task, flat + sign * step, inputs, classes) for sign in (1, -1)]
        assert (sides[0] - sides[1]) / 6e-3 == pytest.approx(found[place], rel=0.03, abs=1e-4)


def loss(task: Task, flat: Any, inputs: np.ndarray, classes: np.ndarray) -> float:
    """The mean softmax cross-entropy, from the scores that a model's error is made of."""
    seen: list[float] = []

    def error(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
        seen.append(float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(right)), right])))
        return layers.error(scores, right)

    module = sys.modules[type(task.model).__module__]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "error", error)
        task.model.gradient(flat, inputs, classes)
    return seen[0]


@pytest.mark.parametrize("fill", ["zero", "mean_of_received", "feedback"])
def test_without_gradients_nothing_is_learnt(fill: learning.Fill) -> None:
    curve = learning.train(TASK, EVERYTHING, fill=fill)
    assert (curve == curve[0]).all()


def test_one_byte_takes_its_whole_number() -> None:
    assert list(np.flatnonzero(~arrived(5, ((7, 2),)))) == [1, 2]


@pytest.mark.parametrize(
    ("fill", "expected"),
    [("zero", [2.0, 3.0, 1.0]), ("mean_of_received", [4.0, 3.0, 1.0]), ("feedback", [2.0, 3.0, 1.0])],
)
def test_each_way_to_fill_a_hole(fill: learning.Fill, expected: list[float]) -> None:
    """The second of two workers does not deliver its first number."""
    gradients = [np.array([4, 4, 0], np.float32), np.array([8, 2, 2], np.float32)]
    owed = [np.zeros(3, np.float32) for _ in gradients]
    assert list(gathered(gradients, [(), ((0, 4),)], owed, fill)) == expected
    assert list(owed[1]) == ([8, 0, 0] if fill == "feedback" else [0, 0, 0])
    then = gathered(gradients, [(), ()], owed, fill)
    assert list(then) == ([10.0, 3.0, 1.0] if fill == "feedback" else [6.0, 3.0, 1.0])  # what was lost comes later


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=5), st.integers(0, 2**32))
def test_no_fill_invents_anything(holes: list[tuple[int, int]], seed: int) -> None:
    """Under feedback the sum of what arrived and what is owed is what was computed; the mean of contributors is between theirs."""
    draw = np.random.default_rng(seed)
    gradients = [draw.normal(size=20).astype(np.float32) for _ in range(3)]
    owed = [np.zeros(20, np.float32) for _ in gradients]
    lost = [tuple(holes), (), ()]
    mean = gathered(gradients, lost, owed, "feedback")
    assert np.allclose(3 * mean + sum(owed), sum(gradients), atol=1e-5)
    among = gathered(gradients, lost, owed, "mean_of_received")
    assert (among <= np.max(gradients, axis=0) + 1e-6).all() and (among >= np.min(gradients, axis=0) - 1e-6).all()


def nothing(_round: int, _rank: int) -> Holes:
    return ()


def closed_loop(text: str, pushed: Lost, rounds: int = 30, pulled: Lost = nothing) -> tuple[list[float], list[float]]:
    """What `serving` learns where of each round and worker these bytes of what is pushed and pulled do not arrive; WORKERS of them.

    The accuracy by looks, and after every round how far apart the workers are, which is what the server says.
    """
    chosen = models.parse(text)
    server, *workers = (
        parameter_server_training.content(chosen, rank, WORKERS + 1, "a seed") for rank in range(WORKERS + 1)
    )
    looks: list[float] = []
    distances = []
    for number in range(rounds):
        message = Message(number, 0, 0, chosen.bytes, "gradient")
        for rank, worker in enumerate(workers, 1):
            lost = pushed(number, rank)
            came = bytearray(worker.sends(message))
            for at, size in lost:
                came[at : at + size] = bytes(size)
            memoryview(server.room(rank, message))[:] = came
            worker.sent(0, message, lost)
            server.received(rank, message, lost)
        told = bytes(server.sends(message))
        for rank, worker in enumerate(workers, 1):
            room = memoryview(worker.room(0, message))
            kept = {at: bytes(room[at : at + size]) for at, size in pulled(number, rank)}
            room[:] = told
            for at, before in kept.items():
                room[at : at + len(before)] = before
            worker.received(0, message, ())
            server.sent(rank, message, pulled(number, rank))
        look = server.evaluate()
        assert look is not None and (look.accuracy is not None) == (number % 10 == 9)
        looks += [] if look.accuracy is None else [look.accuracy]
        replicas = [np.frombuffer(worker.room(0, message), np.float32).copy() for worker in workers]
        assert look.replica_divergence == divergence(replicas, np.frombuffer(told, np.float32))
        distances.append(look.replica_divergence)
    return looks, distances


def test_a_closed_loop_learns_and_repeats_exactly() -> None:
    found, distances = closed_loop("perceptron", nothing)
    assert found[-1] > 0.15 and (found, distances) == closed_loop("perceptron:fill=mean_of_received", nothing)
    assert (found, distances) == closed_loop("perceptron:fill=feedback", nothing)
    assert set(distances) == {0.0}


def test_workers_that_miss_parameters_drift_apart_until_a_round_is_whole() -> None:
    """Each loses another tenth, in all rounds but the tenth, the twentieth, …"""
    size = models.parse("perceptron").bytes
    tenth = size // 40 * 4

    def pulled(number: int, rank: int) -> Holes:
        return () if resyncs(10, number) else ((rank * tenth, tenth),)

    _, distances = closed_loop("perceptron", nothing, 25, pulled)
    assert [number for number, distance in enumerate(distances) if not distance] == [9, 19]
    assert distances[0] < distances[8] and distances[10] < distances[18]
    _, alike = closed_loop("perceptron", nothing, 5, lambda *_: ((0, tenth),))
    assert set(alike) == {0.0}  # what all lose, they have in common


def test_the_furthest_two_count() -> None:
    one, other = np.zeros(4, np.float32), np.array([3, 0, 0, 4], np.float32)
    assert divergence([one, other, other * np.float32(0.5)], other) == 1.0
    assert divergence([other, other], other) == divergence([other], other) == 0.0


def test_in_a_closed_loop_it_matters_what_becomes_of_holes() -> None:
    """The first half of every second gradient does not arrive."""
    half = models.parse("perceptron").bytes // 8 * 4

    def holes(number: int, rank: int) -> Holes:
        return ((0, half),) if (number + rank) % 2 else ()

    found = {tuple(closed_loop(f"perceptron:fill={fill}", holes)[0]) for fill in get_args(Fill)}
    assert len(found) == 3


@pytest.mark.parametrize("fill", get_args(Fill))
def test_what_is_dispersed_is_a_little_of_everything(fill: Fill) -> None:
    """Where the same half of every gradient is lost, which without dispersal never learns; where nothing is, it changes nothing."""
    size = models.parse("perceptron").bytes
    plain, _ = closed_loop(f"perceptron:fill={fill}", nothing)
    spread, _ = closed_loop(f"perceptron:fill={fill},disperse=on", nothing)
    assert spread == pytest.approx(plain, abs=0.01)
    half = ((size // 8 * 4, size - size // 8 * 4),)  # with what the output is made of
    lost, _ = closed_loop(f"perceptron:fill={fill}", lambda *_: half)
    kept, _ = closed_loop(f"perceptron:fill={fill},disperse=on", lambda *_: half)
    assert kept[-1] > lost[-1] + 0.05


def test_a_closed_loop_of_which_nothing_arrives_learns_nothing() -> None:
    everything = ((0, models.parse("perceptron").bytes),)
    assert len(set(closed_loop("perceptron", lambda *_: everything)[0])) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [("resnet", "unknown model 'resnet'"), ("cnn:fill=ones", "fill"), ("cnn:x=1", "'x=1'")],
)  # fmt: skip
def test_what_cannot_be_learnt_is_refused(text: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        models.parse(text)


PLAIN = models.Options()
Came = Callable[[int, int, int], bool]  # round, number of a message, and who waits for it: whether it comes
RING = Task(
    Perceptron(8, 12, 4), TASK.train, TASK.test, batch=8
)  # of a number of parameters that pieces of a ring share evenly


@pytest.fixture(autouse=True, scope="module")
def slices_are_small() -> Iterator[None]:
    """So that a ring's chunk is cut although so small a model's would not fill a packet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring, "LEAST_SLICE", 1)
        yield


def in_a_ring(
    came: Came, rounds: int, resync: int = 0, options: models.Options = PLAIN
) -> tuple[list[ring_training.Replica], list[Look]]:
    """WORKERS replicas after so many rounds, and what the last of each round says."""

    class Learns(models.Learning):
        bytes, task = RING.bytes, RING

    chosen = Learns("perceptron", options)
    looks: list[Look] = []
    with tempfile.TemporaryFile() as shared:
        shared.truncate(chosen.shared_bytes(WORKERS))
        made = [
            ring_training.Replica(chosen, rank, WORKERS, "a seed", shared=shared.fileno(), resync=resync)
            for rank in range(WORKERS)
        ]
        for number in range(rounds):
            for part in range(2 * (WORKERS - 1) * ring.SLICES):
                stage: Stage = "gradient" if part < (WORKERS - 1) * ring.SLICES else "parameter"
                message = Message(number, 0, part, RING.bytes // WORKERS // ring.SLICES, stage)
                told = [bytes(replica.sends(message)) for replica in made]
                for rank, replica in enumerate(made):
                    room = memoryview(replica.room((rank - 1) % WORKERS, message))
                    if came(number, part, rank):
                        room[:] = told[rank - 1]
                    replica.received((rank - 1) % WORKERS, message, ())
            (look,) = [one for one in [replica.evaluate() for replica in made] if one is not None]
            looks.append(look)
    return made, looks


@given(st.integers(0, 2**32), st.floats(0, 0.6))
@settings(max_examples=25, deadline=None)
def test_a_ring_sums_up_what_comes(seed: int, share: float) -> None:
    """One round, against what `testbed.models.ring` computes of the same holes."""
    lost = np.random.default_rng(seed).random((2 * (WORKERS - 1) * ring.SLICES, WORKERS)) < share
    made, (look,) = in_a_ring(lambda _round, part, rank: not lost[part, rank], 1)
    drawn = parameter_server_training.drawn("a seed")
    first = RING.model.first(np.random.default_rng(drawn))
    gradients = [RING.gradient(first, np.random.default_rng([drawn, rank, 0])) for rank in range(WORKERS)]

    def arrives(step: int, rank: int, count: int) -> npt.NDArray[np.bool_]:
        parts = ~lost[step * ring.SLICES : (step + 1) * ring.SLICES, rank]
        return np.repeat(parts, count // ring.SLICES)

    replicas = [first - RING.rate * mean for mean in reduced(gradients, arrives)]
    for replica, wanted in zip(made, replicas, strict=True):
        assert np.allclose(replica.flat, wanted, atol=1e-6)
    assert look.replica_divergence == pytest.approx(divergence(replicas, replicas[0]), abs=1e-6)


def test_to_take_the_same_parameters_changes_nothing_where_nothing_is_lost() -> None:
    plain, looks = in_a_ring(lambda *_: True, 24)
    copied, copies = in_a_ring(lambda *_: True, 24, resync=5)
    assert all(look.replica_divergence == 0 for look in looks + copies)
    assert np.allclose(plain[0].flat, copied[0].flat, atol=1e-4) and looks[9].accuracy == copies[9].accuracy
    assert np.allclose(plain[2].velocity, copied[2].velocity, atol=1e-4)


def test_in_a_ring_gradients_are_dispersed_all_the_way() -> None:
    plain, _ = in_a_ring(lambda *_: True, 24)
    spread, looks = in_a_ring(lambda *_: True, 24, options=models.Options(hadamard=True))
    assert all(look.replica_divergence == 0 for look in looks)
    assert np.allclose(plain[0].flat, spread[0].flat, atol=1e-4)

    def came(_number: int, part: int, _rank: int) -> bool:
        return part % ring.SLICES > 0  # in every round the same pieces are lost, on both halves of the way

    def untouched(options: models.Options) -> float:
        made, _ = in_a_ring(came, 5, options=options)
        first = RING.model.first(np.random.default_rng(parameter_server_training.drawn("a seed")))
        return float((made[0].flat == first).mean())

    assert untouched(PLAIN) > 0.1 > 0.02 > untouched(models.Options(hadamard=True))


def test_replicas_are_together_once_in_so_many_rounds() -> None:
    def came(number: int, part: int, rank: int) -> bool:
        whole = resyncs(5, number) and part >= (WORKERS - 1) * ring.SLICES
        return whole or (7 * number + 3 * part + rank) % 10 > 1

    _, never = in_a_ring(came, 24)
    _, found = in_a_ring(came, 24, resync=5)
    assert all(look.replica_divergence > 0 for look in never)
    assert [number for number, look in enumerate(found) if look.replica_divergence == 0] == [4, 9, 14, 19]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"train": "cnn"}, "computing time between two exchanges is missing"),
        ({"train": "cnn", "compute": "1ms", "bytes": "1MB"}, "a gradient of cnn has 114408 bytes, not 1000000"),
        ({"train": "cnn", "compute": "1ms", "collective": "tree"}, "needs the collective parameter_server or ring"),
        (
            {"train": "cnn:fill=mean_of_received", "compute": "1ms", "collective": "ring"},
            "gradients are missing from a sum",
        ),
        ({"train": "cnn", "compute": "1ms", "channels": 2}, "sends complete gradients"),
        ({"train": "cnn", "compute": "1ms", "stop_when_periodic": 3}, "fills in what is alike"),
        ({"train": "cnn", "trace": "resnet50"}, "replays no trace"),
    ],
)
def test_jobs_that_cannot_learn_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        spec.read(None, asked)


def test_what_is_dispersed_is_neither_filled_up_nor_copied_in_pieces() -> None:
    asked = {"train": "perceptron:disperse=on", "compute": "1ms", "workers": 3, "jobs": 1}
    for collective, system, says in (
        ("ring", "mlt:resync=10", "sync_every"),
        ("parameter_server", "mlt:missing=keep", "fill"),
    ):
        with pytest.raises(RequestError, match=says):
            planned(spec.read(None, asked | {"collective": collective, "system": [system]}))
        planned(spec.read(None, asked | {"collective": collective, "system": ["mlt"]}))
