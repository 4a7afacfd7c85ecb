"""Sample the start times, hosts, and sizes of the flows of a source of background traffic, by its seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.core.runs.plan import Background
from testbed.traffic.sizes import Sizes


@dataclass(frozen=True)
class Arrival:
    """A flow: ``at_ns`` after the start of the run, ``bytes`` from ``source`` to ``target``; None: without end."""

    at_ns: int
    source: str
    target: str
    bytes: int | None
    burst: int  # flows of one burst have one number


def arrivals(plan: Background) -> Iterator[Arrival]:
    """Yield the flows in order of time; without end unless `Background.stop_ns` is set."""
    chance = random.Random(plan.seed)
    sizes = Sizes(plan.sizes, plan.shares)
    if plan.pattern == "long":
        for number in range(plan.at_once):
            source, target = plan.sources[number % len(plan.sources)], plan.targets[number % len(plan.targets)]
            yield Arrival(plan.start_ns, source, target, None, number)
        return
    at_ns = float(plan.start_ns)
    for burst in itertools.count():
        if plan.pattern == "random":
            at_ns += chance.expovariate(1 / plan.gap_ns)
        if plan.stop_ns is not None and at_ns >= plan.stop_ns:
            return
        if plan.pattern == "random":
            source, target = chance.choice(plan.sources), chance.choice(plan.targets)
            yield Arrival(round(at_ns), source, target, sizes.draw(chance), burst)
        else:
            for number in range(plan.at_once):
                source = plan.sources[number % len(plan.sources)]
                target = plan.targets[(0 if plan.fan_in else number) % len(plan.targets)]
                yield Arrival(round(at_ns), source, target, sizes.draw(chance), burst)
            at_ns += plan.gap_ns


def band(priority: str, size: int | None) -> int:
    """The class selector of a flow: 0 is the lowest. ``by-size``: 2 up to 100 kB, 1 up to 1 MB, else 0."""
    if priority != "by-size":
        return int(priority)
    return 0 if size is None else 2 if size <= 100_000 else 1 if size <= 1_000_000 else 0
