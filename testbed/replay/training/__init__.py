"""Small trained models: the cost of missing ranges in gradients, and jobs whose messages hold real numbers (``--train cnn``).

Data-parallel training by a parameter server: every worker's gradient, a flat vector of float32, travels as one message; the server
fills what is missing of it, takes the mean, makes a step of stochastic gradient descent with momentum, and sends its parameters back.
`serving` does so inside a run, where gradients meet a network; `testbed.models.learning` computes what given holes do. Or by replicas in a ring:
`ringing`, and `testbed.models.ring`.

A model is a file in `models`, with

``TITLE``
    what it is and learns, in a few words;
``MODEL``
    a `Model`;
``task() -> Task``
    that, its examples and how it learns, the same at every call; nothing is downloaded;
``LIBRARY``
    if it needs another than NumPy: its name.

Adding one is adding a file.
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
        """Of a gradient."""
        return ELEMENT * self.parameters

    def gradient(self, flat: Array, draw: np.random.Generator) -> Array:
        """Of sampled examples."""
        chosen = draw.integers(len(self.train.classes), size=self.batch)
        return self.model.gradient(flat, self.train.inputs[chosen], self.train.classes[chosen])

    def accuracy(self, flat: Array) -> float:
        """On the test's examples, 0 to 1."""
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
            raise MachineError(f"{self.name} learns with {needs}, which is not installed here: `make {needs}`")

    @property
    def bytes(self) -> int:
        """Of a gradient."""
        return ELEMENT * int(find(self.name).MODEL.parameters)

    def bytes_in_a_ring(self, ranks: int) -> int:
        """The same, and zeros until each of its pieces there is of whole numbers."""
        pieces = ELEMENT * ranks * ring.SLICES
        return -(-self.bytes // pieces) * pieces

    def shared_bytes(self, ranks: int) -> int:
        """Of the memory in which all replicas of a ring lie: rounds that each has written, and its parameters after two of them."""
        return 8 * ranks + 2 * ranks * self.bytes

    @property
    def task(self) -> Task:
        found: Task = find(self.name).task()
        return found


def check(texts: Iterable[str | None]) -> None:
    """Raises `MachineError` if any of what jobs train, as typed, cannot be trained here; None: nothing."""
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
