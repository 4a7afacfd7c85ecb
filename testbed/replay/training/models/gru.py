"""Gated recurrent units (Cho et al., EMNLP 2014; in PyTorch's form) that predict the next character of a text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.replay.training import Task, topics
from testbed.replay.training.layers import Array, Parts, error, flat

TITLE = "gated recurrent units that continue a text"
HIDDEN = 64


@dataclass(frozen=True)
class Gru:
    characters: int
    hidden: int

    @cached_property
    def parts(self) -> Parts:
        """The weights from a character and from the state to the three gates (update, reset, new), their biases, and the scores."""
        return Parts(
            (self.characters, 3 * self.hidden), (self.hidden, 3 * self.hidden), (3 * self.hidden,), (self.hidden,),
            (self.hidden, self.characters), (self.characters,),
        )  # fmt: skip

    @property
    def parameters(self) -> int:
        return self.parts.size

    def first(self, draw: np.random.Generator) -> Array:
        return self.parts.drawn(draw, gain=1.0)

    def gradient(self, flat_: Array, inputs: npt.NDArray[np.uint8], classes: npt.NDArray[np.int64]) -> Array:
        of_input, of_state, bias, bias_new, last, last_bias = self.parts.split(flat_)
        size, (count, length) = self.hidden, inputs.shape
        states, kept = self._run(flat_, inputs)
        after = states[1:].reshape(-1, size)
        wrong = error(after @ last + last_bias, classes.T.ravel())
        from_above = (wrong @ last.T).reshape(length, count, size)
        parts = [np.zeros_like(part) for part in (of_input, of_state, bias, bias_new)]
        below = np.zeros((count, size), np.float32)
        for at in range(length - 1, -1, -1):
            update, reset, new, from_state = kept[at]
            state = states[at]
            below = below + from_above[at]
            to_new = below * (1 - update) * (1 - new**2)
            to_update = below * (state - new) * update * (1 - update)
            to_reset = to_new * from_state * reset * (1 - reset)
            gates = np.concatenate((to_update, to_reset, to_new), axis=1)
            np.add.at(parts[0], inputs[:, at], gates)
            back = np.concatenate((to_update, to_reset, to_new * reset), axis=1)
            parts[1] += state.T @ back
            parts[2] += gates.sum(axis=0)
            parts[3] += (to_new * reset).sum(axis=0)
            below = below * update + back @ of_state.T
        return flat((*parts, after.T @ wrong, wrong.sum(axis=0)))

    def guesses(self, flat_: Array, inputs: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        *_, last, last_bias = self.parts.split(flat_)
        states, _ = self._run(flat_, inputs)
        return np.asarray((states[1:] @ last + last_bias).argmax(axis=2).T)

    def _run(self, flat_: Array, inputs: npt.NDArray[np.uint8]) -> tuple[Array, list[tuple[Array, ...]]]:
        """The states, (length + 1, examples, hidden), and of each step: update, reset, new, and the state's contribution to new."""
        of_input, of_state, bias, bias_new, *_ = self.parts.split(flat_)
        size, (count, length) = self.hidden, inputs.shape
        states = np.zeros((length + 1, count, size), np.float32)
        kept: list[tuple[Array, ...]] = []
        for at in range(length):
            from_input, state = of_input[inputs[:, at]] + bias, states[at]
            back = state @ of_state
            update, reset = (
                _squashed(from_input[:, place] + back[:, place]) for place in (slice(size), slice(size, 2 * size))
            )
            from_state = back[:, 2 * size :] + bias_new
            new = np.tanh(from_input[:, 2 * size :] + reset * from_state)
            states[at + 1] = (1 - update) * new + update * state
            kept.append((update, reset, new, from_state))
        return states, kept


def _squashed(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


MODEL = Gru(topics.CHARACTERS, HIDDEN)


def task() -> Task:
    """The next character of Python's own documentation."""
    train, test = topics.examples()
    return Task(MODEL, train, test, rate=1.0)
