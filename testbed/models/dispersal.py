"""The effect of given missing ranges on Hadamard-transformed gradients (`testbed.transports.hadamard`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.replay.training import Fill, Holes
from testbed.replay.training.layers import Array
from testbed.replay.training.mean import gathered
from testbed.transports.hadamard import collected, dispersed


class Dispersed:
    """The mean of gradients that travel Hadamard-transformed (a `testbed.models.learning.Mean`)."""

    def __init__(self, fill: Fill = "zero", seed: int = 0) -> None:
        self.fill, self.seed, self.round = fill, seed, 0
        self.owed: list[Array] = []  # by `feedback`, not transformed

    def __call__(self, gradients: Sequence[Array], holes: Sequence[Holes]) -> Array:
        self.round += 1
        signs = hash((self.seed, self.round)) % 2**63
        sent = dispersed(np.stack(gradients), signs)
        owed = list(dispersed(np.stack(self.owed), signs)) if self.owed else [np.zeros_like(one) for one in sent]
        mean = gathered(list(sent), holes, owed, self.fill)
        if self.fill == "feedback":
            self.owed = list(collected(np.stack(owed), signs))
        return collected(mean, signs)
