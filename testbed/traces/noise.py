"""Kinds of noise, by which compute times vary between iterations.

==================  ===========================================================================
text                effect on the compute times of an iteration
==================  ===========================================================================
``5%``              × normal(1, 0.05), not below 0; ``normal:5%`` is the same
``lognormal:5%``    × lognormal with mean 1 and standard deviation 0.05: never early by much
``stragglers:5%``   in 5 % of the iterations one worker, sampled uniformly, is slower by a Pareto
                    factor (shape 1.5, at most 10): a heavy tail
==================  ===========================================================================
"""

from __future__ import annotations

import math
import random

from testbed.core.text import quoted
from testbed.core.units import Share, UnitError, Written

KINDS = ("normal", "lognormal", "stragglers")
PARETO_SHAPE, SLOWEST = 1.5, 10.0


class Noise(Written):
    """``5%``, ``lognormal:5%``, ``stragglers:1%``. ``amount``: standard deviation ÷ mean, or the share of iterations with a straggler."""

    kind: str
    amount: float

    def read(self) -> None:
        kind, colon, amount = self.rpartition(":")
        if colon and kind not in KINDS:
            raise UnitError(f"{quoted(kind)} is not a kind of noise. Give one of {', '.join(KINDS)}")
        self.kind, self.amount = kind or "normal", Share(amount).value


def factor(noise: Noise, draw: random.Random, rank: int, workers: int) -> float:
    """The factor of one worker's compute times in the next iteration.

    All workers of a job draw the same numbers from equal generators: noise belongs to the
    job's iteration, as data of varying length does; only a straggler is a single worker.
    """
    if not noise.amount:
        return 1.0
    if noise.kind == "normal":
        return max(0.0, draw.gauss(1.0, noise.amount))
    if noise.kind == "lognormal":
        variance = math.log1p(noise.amount**2)
        return draw.lognormvariate(-variance / 2, math.sqrt(variance))
    happens, who, slower = draw.random() < noise.amount, draw.randrange(workers), draw.paretovariate(PARETO_SHAPE)
    return min(slower, SLOWEST) if happens and who == rank else 1.0
