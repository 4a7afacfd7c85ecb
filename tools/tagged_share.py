"""Measure how many packets of a real model each rule of `testbed.transports.datagram.tags` marks as important.

Trains a model of `testbed.replay.ddp.models` on letters drawn from fonts, then on noise (as `--job ddp:…` does). It reads
the gradients tensor by tensor, as a transport would, in packets of 1400 bytes. Needs PyTorch (`make torch`), and takes
minutes. `python tools/tagged_share.py [MODEL ...]`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any

import numpy as np
import torch

from testbed.replay.ddp.models import MODELS
from testbed.replay.training import letters
from testbed.transports import Message
from testbed.transports.datagram import tags

RULES = ("element-median", "signed-median", "packet-median")
LOOKS = (1, 10, 50, 150)  # rounds
BATCH, IMAGE, RATE, SEGMENT = 32, 64, 0.02, 1400

Batch = tuple[Any, Any]  # pictures, their classes


def main(models: list[str]) -> None:
    for name in models:
        for pictures, learns in (("letters", _letters()), ("noise", _noise())):
            print(f"{name}, {pictures}: of all packets, and of the gradient's norm, what a rule calls important")
            for round, gradients in _gradients(name, learns):
                shares = (
                    f"{rule} {packets:.1%}, {norm:.1%}" for rule in RULES for packets, norm in [_share(rule, gradients)]
                )
                print(f"  round {round:<4d} " + "; ".join(shares), flush=True)


def _letters() -> Iterator[Batch]:
    draw, (train, _) = np.random.default_rng(1), letters.examples()
    while True:
        chosen = draw.integers(len(train.classes), size=BATCH)
        drawn = torch.tensor(train.inputs[chosen]).reshape(BATCH, 1, letters.SIDE, letters.SIDE)
        yield torch.nn.functional.interpolate(drawn, IMAGE).expand(-1, 3, -1, -1), torch.tensor(train.classes[chosen])


def _noise() -> Iterator[Batch]:
    return repeat((torch.randn(BATCH, 3, IMAGE, IMAGE), torch.randint(10, (BATCH,))))


def _gradients(name: str, learns: Iterator[Batch]) -> list[tuple[int, list[np.ndarray]]]:
    torch.manual_seed(1)
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    found = []
    for round, (pictures, classes) in enumerate(islice(learns, LOOKS[-1]), 1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), classes).backward()
        if round in LOOKS:
            found.append(
                (round, [one.grad.numpy().ravel().copy() for one in model.parameters() if one.grad is not None])
            )
        optimizer.step()
    return found


def _share(rule: str, gradients: list[np.ndarray]) -> tuple[float, float]:
    """Of packets, and of the norm, those that are important."""
    packets, important, norm, held = 0, 0, 0.0, 0.0
    for operation, numbers in enumerate(gradients):
        message = Message(0, operation, 0, numbers.nbytes, "gradient")
        chosen = np.array(tags.important(rule, message, numbers.tobytes(), SEGMENT))
        squares = np.add.reduceat(numbers.astype(float) ** 2, np.arange(0, len(numbers), SEGMENT // numbers.itemsize))
        packets += len(chosen)
        important += int(chosen.sum())
        norm += float(squares.sum())
        held += float(squares[chosen].sum())
    return important / packets, (held / norm) ** 0.5


if __name__ == "__main__":
    main(sys.argv[1:] or ["resnet18"])
