"""The convolutional network of `cnn`, by PyTorch's autograd: real framework code beneath the same loop (`make torch` installs it)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.replay.training import Task, letters
from testbed.replay.training.layers import Array
from testbed.replay.training.models import cnn

TITLE = "a convolutional network in PyTorch that reads letters"
LIBRARY = "torch"


@dataclass(frozen=True)
class ByTorch:
    """The model of `cnn.MODEL` in PyTorch: as many parameters, in PyTorch's order."""

    like: cnn.Convolutional

    @property
    def parameters(self) -> int:
        return self.like.parameters

    def first(self, draw: np.random.Generator) -> Array:
        torch = _torch()
        torch.manual_seed(int(draw.integers(2**31)))
        return np.concatenate([part.detach().numpy().ravel() for part in self._module().parameters()])

    def gradient(self, flat: Array, inputs: Array, classes: npt.NDArray[np.int64]) -> Array:
        torch, module = _torch(), self._with(flat)
        module.zero_grad(set_to_none=True)
        scores = module(torch.from_numpy(self._pictures(inputs)))
        torch.nn.functional.cross_entropy(scores, torch.from_numpy(classes)).backward()
        return np.concatenate([part.grad.numpy().ravel() for part in module.parameters()])

    def guesses(self, flat: Array, inputs: Array) -> npt.NDArray[np.int64]:
        torch, module = _torch(), self._with(flat)
        with torch.no_grad():
            parts = [
                module(torch.from_numpy(self._pictures(inputs[at : at + cnn.TESTED]))).argmax(dim=1).numpy()
                for at in range(0, len(inputs), cnn.TESTED)
            ]
        return np.asarray(np.concatenate(parts))

    def _pictures(self, inputs: Array) -> Array:
        return np.ascontiguousarray(inputs.reshape(len(inputs), 1, self.like.side, self.like.side))

    def _with(self, flat: Array) -> Any:
        torch, module = _torch(), self._module()
        torch.nn.utils.vector_to_parameters(torch.from_numpy(flat.copy()), module.parameters())
        return module

    def _module(self) -> Any:
        return _module(self.like)


@cache
def _module(like: cnn.Convolutional) -> Any:
    nn = _torch().nn
    one, two = like.channels
    pooled = (like.side // cnn.POOL**2) ** 2 * two
    return nn.Sequential(
        nn.Conv2d(1, one, cnn.KERNEL, padding=1), nn.ReLU(), nn.MaxPool2d(cnn.POOL),
        nn.Conv2d(one, two, cnn.KERNEL, padding=1), nn.ReLU(), nn.MaxPool2d(cnn.POOL), nn.Flatten(),
        nn.Linear(pooled, like.hidden), nn.ReLU(), nn.Linear(like.hidden, like.classes),
    )  # fmt: skip


@cache
def _torch() -> Any:
    import torch  # noqa: PLC0415  # large, and not there everywhere

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return torch


MODEL = ByTorch(cnn.MODEL)


def task() -> Task:
    """Reading a letter: 26 classes."""
    _torch()
    train, test = letters.examples()
    return Task(MODEL, train, test, rate=0.1)
