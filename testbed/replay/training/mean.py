"""The server's mean of its workers' gradients, of which some numbers did not arrive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.replay.training import ELEMENT, Fill, Holes
from testbed.replay.training.layers import Array


def gathered(gradients: Sequence[Array], holes: Sequence[Holes], owed: list[Array], fill: Fill) -> Array:
    """The mean of ``gradients``; ``owed`` (what each has not delivered so far) changes under ``feedback``."""
    total: Array = np.zeros_like(gradients[0])
    came: Array = np.zeros_like(total)
    for worker, (gradient, lost) in enumerate(zip(gradients, holes, strict=True)):
        here = arrived(len(gradient), lost)
        sent = gradient + owed[worker] if fill == "feedback" else gradient
        if fill == "feedback":
            owed[worker] = np.where(here, 0, sent).astype(np.float32)
        total += np.where(here, sent, 0)
        came += here
    return total / (np.maximum(came, 1) if fill == "mean_of_received" else np.float32(len(gradients)))


def arrived(parameters: int, holes: Holes) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements that arrived completely."""
    here = np.ones(parameters, bool)
    for at, size in holes:
        here[at // ELEMENT : -(-(at + size) // ELEMENT)] = False
    return here
