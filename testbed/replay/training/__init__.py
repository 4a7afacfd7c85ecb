"""Small trained models: the cost of missing ranges in gradients, and jobs whose messages hold real numbers (``--train cnn``).

Data-parallel training by a parameter server: every worker's gradient, a flat vector of float32, is one message. The
server fills missing ranges, computes the mean, makes a step of stochastic gradient descent with momentum, and returns
its parameters. `parameter_server_training` does so inside a run. `testbed.models.learning` computes the effect of given
missing ranges. Replicas in a ring: `ring_training`, and `testbed.models.ring`.

A model is a file in `models`, with

``TITLE``
    model and data set, in a few words;
``MODEL``
    a `Model`;
``task() -> Task``
    the model, its examples, and its training parameters, the same at every call; nothing is downloaded;
``LIBRARY``
    the name of a required library other than NumPy.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

from testbed import registry
from testbed.core import options, system_text
from testbed.core.errors import MachineError
from testbed.core.options import Boolean, OneOf, option
from testbed.replay import ring

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

ELEMENT = 4  # bytes of a float32
Holes = Sequence[tuple[int, int]]  # offset and length in bytes, of one gradient
Fill = Literal["zero", "mean_of_received", "feedback"]  # as in `testbed.transports.torch`


class Model(Protocol):
    """A function of inputs and a flat vector of parameters."""

    @property
    def parameters(self) -> int:
        """Numbers of that vector, and of a gradient."""
        ...

    def first(self, draw: np.random.Generator) -> Array:
        """Parameters to begin with."""
        ...

    def gradient(self, flat: Array, inputs: Any, classes: Any) -> Array:
        """The gradient of the mean loss (softmax cross-entropy) over a batch, flat."""
        ...

    def guesses(self, flat: Array, inputs: Any) -> Any:
        """The class of each example (or of each of its places)."""
        ...


@dataclass(frozen=True)
class Examples:
    """Inputs, a row each, and the class of each (or one for each of its places)."""

    inputs: Any
    classes: Any


@dataclass(frozen=True)
class Task:
    """The model and its training: the same for all network conditions."""

    model: Model
    train: Examples
    test: Examples
    batch: int = 16  # examples of a worker and round
    rate: float = 0.2  # of learning
    momentum: float = 0.9
    every: int = 10  # rounds between two looks at the accuracy

    @property
    def parameters(self) -> int:
        """Numbers of a gradient."""
        return self.model.parameters

    @property
    def bytes(self) -> int:
        """Return the bytes of a gradient."""
        return ELEMENT * self.parameters

    def gradient(self, flat: Array, draw: np.random.Generator) -> Array:
        """Return the gradient on a sampled batch, a flat vector of float32."""
        chosen = draw.integers(len(self.train.classes), size=self.batch)
        return self.model.gradient(flat, self.train.inputs[chosen], self.train.classes[chosen])

    def accuracy(self, flat: Array) -> float:
        """Return the accuracy on the test examples, 0 to 1."""
        return float((self.model.guesses(flat, self.test.inputs) == self.test.classes).mean())


@dataclass(frozen=True)
class Options:
    """The options that may follow a model's name."""

    fill: Fill = option(
        "zero",
        "what a number counts as that did not arrive: zero (default), mean_of_received (it is left out of the mean), or feedback (zero, and "
        "its sender adds it to its next gradient)",
        cast(Callable[[str], Fill], OneOf(*get_args(Fill), contributors="mean_of_received")),
    )
    hadamard: bool = option(
        False,
        "gradients travel transformed (randomised Hadamard), so that what is lost is missing a little everywhere: on, or off (default)",
        Boolean(),
        alias="disperse",
    )


@dataclass(frozen=True)
class Learning:
    """A model with its options."""

    name: str
    options: Options

    def check(self) -> None:
        """Raises `MachineError` if a library that it needs is not installed here."""
        needs = getattr(find(self.name), "LIBRARY", None)
        if needs is not None and importlib.util.find_spec(needs) is None:
            raise MachineError(f"{self.name} trains with {needs}, which is not installed here: `make {needs}`")

    @property
    def bytes(self) -> int:
        """Return the bytes of a gradient."""
        return ELEMENT * int(find(self.name).MODEL.parameters)

    def bytes_in_a_ring(self, ranks: int) -> int:
        """Return the bytes of a gradient, padded so that each of the ring's slices has whole elements."""
        pieces = ELEMENT * ranks * ring.SLICES
        return -(-self.bytes // pieces) * pieces

    def shared_bytes(self, ranks: int) -> int:
        """Return the bytes of shared memory for all replicas of a ring: round counters, and each replica's parameters
        of two rounds."""
        return 8 * ranks + 2 * ranks * self.bytes

    @property
    def task(self) -> Task:
        found: Task = find(self.name).task()
        return found


def check(texts: Iterable[str | None]) -> None:
    """Raise `MachineError` if a model in ``texts``, as typed, cannot be trained here; None: no model."""
    for text in texts:
        if text is not None:
            parse(text).check()


def names() -> list[str]:
    """The models there are."""
    return list(registry.names(registry.MODEL))


def find(name: str) -> ModuleType:
    """The model ``name``; raises `registry.UnknownContentError`."""
    return registry.find(registry.MODEL, name)


@cache
def parse(text: str) -> Learning:
    """Read ``name`` or ``name:fill=mean_of_received``; raises `registry.UnknownContentError` or `testbed.core.options.OptionError`."""
    name = system_text.name_of(text)
    find(name)
    return Learning(name, options.parse(Options, text))
