"""Flow-size distributions as points of a CDF, by name or from a CSV file.

Between two points sizes are spread evenly. Sizes of packets in the sources count as 1,460 bytes.
"""

from __future__ import annotations

import csv
import io
import itertools
import random
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import RequestError
from testbed.core.input_files import is_file, read_text
from testbed.core.text import quoted, shown

_PACKET = 1460
_MOST_BYTES = 1 << 20  # of a CSV file
_LARGEST = 1 << 40  # bytes of a flow


@dataclass(frozen=True)
class Sizes:
    """A CDF: ``bytes[i]`` or less has a flow with probability ``shares[i]``; the last share is 1."""

    bytes: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean size in bytes."""
        parts = zip(itertools.pairwise(self.bytes), itertools.pairwise(self.shares), strict=True)
        return self.bytes[0] * self.shares[0] + sum((a + b) / 2 * (d - c) for (a, b), (c, d) in parts)

    def draw(self, chance: random.Random) -> int:
        """The size of a flow in bytes, at least 1."""
        share = chance.random()
        at = bisect_left(self.shares, share)
        if at == 0:
            return max(1, round(self.bytes[0]))
        low, high = self.bytes[at - 1], self.bytes[at]
        part = (share - self.shares[at - 1]) / (self.shares[at] - self.shares[at - 1])
        return max(1, round(low + part * (high - low)))


def _of_packets(*points: tuple[float, float]) -> Sizes:
    return Sizes(tuple(packets * _PACKET for packets, _ in points), tuple(share for _, share in points))


NAMED = {
    # Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4, as the simulations of pFabric have it.
    "websearch": _of_packets(
        (6, 0.15), (13, 0.2), (19, 0.3), (33, 0.4), (53, 0.53), (133, 0.6), (667, 0.7), (1333, 0.8), (3333, 0.9),
        (6667, 0.97), (20000, 1),
    ),
    # Greenberg et al., "VL2", SIGCOMM 2009, figure 2, as the simulations of pFabric have it.
    "datamining": _of_packets(
        (1, 0.5), (2, 0.6), (3, 0.7), (7, 0.8), (267, 0.9), (2107, 0.95), (66667, 0.99), (666667, 1)
    ),
    # No source: small calls of 64 bytes to 64 kB, each octave of sizes as likely as the next.
    "rpc": Sizes(tuple(64.0 * 2**n for n in range(11)), tuple(n / 10 for n in range(11))),
}  # fmt: skip


def find(name: str) -> Sizes:
    """The distribution ``name``, a CSV file of ``bytes,share`` lines, or one size (``20kB``); raises `RequestError`."""
    if name in NAMED:
        return NAMED[name]
    if not name.endswith(".csv"):
        raise RequestError(f"sizes: {quoted(name)} is none of {', '.join(NAMED)}, and no CSV file")
    if not is_file(Path(name)):
        raise RequestError(f"sizes: there is no file {shown(name, 200)}")
    return _parsed(read_text(Path(name), _MOST_BYTES), name)


def _parsed(text: str, name: str) -> Sizes:
    points: list[tuple[float, float]] = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row or row[0].startswith("#") or (number == 1 and row[0].strip() == "bytes"):
            continue
        try:
            size, share = (float(cell) for cell in row)
        except ValueError as error:
            raise RequestError(
                f"sizes: {shown(name, 200)}, line {number}: {quoted(','.join(row))} is not a size in bytes and the share of flows up to it"
            ) from error
        points.append((size, share))
    rising = all(a[0] <= b[0] and a[1] < b[1] for a, b in itertools.pairwise(points))
    inside = all(0 < size <= _LARGEST and 0 <= share <= 1 for size, share in points)
    if not points or not rising or not inside or points[-1][1] != 1:
        raise RequestError(
            f"sizes: {shown(name, 200)} is no CDF. Sizes (1 B to 1 TiB) and shares rise from line to line, and the last share is 1"
        )
    return Sizes(tuple(size for size, _ in points), tuple(share for _, share in points))
