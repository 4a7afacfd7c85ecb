"""Cost of tagging the important packets of a tensor (`testbed.transports.datagram.tags`): CPU time by rule, relative
to a copy.

``python -P benchmarks/tagging.py [--megabytes 25]``: float32 gradients, normal; packets of 1432 bytes. *Rule*:
selection of important packets from all numbers. *Marks*: a byte of the IP header for each packet, which every rule
needs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from testbed.transports import Importance, Message
from testbed.transports.datagram import native, tags

SEGMENT, ROUNDS = 1432, 7


def cpu_s(work: Callable[[], object]) -> float:
    """The median of several rounds."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=25)
    size = parser.parse_args().megabytes * 10**6
    data = np.random.default_rng(1).normal(size=size // 4).astype(np.float32).view(np.uint8).data
    message, count = Message(0, 0, 0, len(data), "gradient", layers=8), -(-len(data) // SEGMENT)
    native.load()
    copied = cpu_s(lambda: bytearray(data))

    def row(name: str, took: float) -> None:
        print(
            f"{name:<24}{1e3 * took:>9.1f}{1e9 * took / count:>13.0f}{8 * len(data) / took / 1e9:>10.1f}{took / copied:>9.1f}"
        )

    print(f"{len(data) / 1e6:g} MB, {count} packets\n{'':<24}{'ms':>9}{'ns a packet':>13}{'Gbit/s':>10}{'÷ copy':>9}")
    row("a copy", copied)
    for rule in tags.RULES:
        row(f"rule: {rule}", cpu_s(lambda rule=rule: tags.important(rule, message, data, SEGMENT)))  # type: ignore[misc]
    tag = tags.Rule("none", 4)(message, None, SEGMENT)
    spans = [(at, min(SEGMENT, len(data) - at)) for at in range(0, len(data), SEGMENT)]
    row("marks", cpu_s(lambda: [tag(span, Importance(0.0)) for span in spans]))


if __name__ == "__main__":
    main()
