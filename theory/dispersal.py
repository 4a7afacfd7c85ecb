"""What given holes do to gradients that travel dispersed (`transports.hadamard`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transports.hadamard import collected, dispersed
from workloads.learning import Fill, Holes
from workloads.learning.layers import Array
from workloads.learning.mean import gathered


class Dispersed:
    """The mean of gradients that travel dispersed (a `theory.learning.Mean`)."""

    def __init__(self, fill: Fill = "zero", seed: int = 0) -> None:
        self.fill, self.seed, self.round = fill, seed, 0
        self.owed: list[Array] = []  # by `feedback`, not dispersed

    def __call__(self, gradients: Sequence[Array], holes: Sequence[Holes]) -> Array:
        self.round += 1
        signs = hash((self.seed, self.round)) % 2**63
        sent = dispersed(np.stack(gradients), signs)
        owed = list(dispersed(np.stack(self.owed), signs)) if self.owed else [np.zeros_like(one) for one in sent]
        mean = gathered(list(sent), holes, owed, self.fill)
        if self.fill == "feedback":
            self.owed = list(collected(np.stack(owed), signs))
        return collected(mean, signs)
