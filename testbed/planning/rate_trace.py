"""Rates of a link over time, recorded in mahimahi's format.

Each line is a time in ms at which the link can deliver one packet of 1500 bytes. After the last line the trace begins again.
Source: mahimahi, ``mm-link`` (Netravali et al., USENIX ATC 2015).
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from pathlib import Path

from testbed.core.errors import RequestError
from testbed.core.runs.plan import RateTrace
from testbed.core.text import quoted
from testbed.models.frames import frame

PACKET_BYTES = 1500
FINEST_MS, MOST = 100, 10_000  # span of one rate; rates
ADDED = (
    0.02  # largest relative excess over the mean rate by packets in a full bucket, which each change of the rate fills
)
LARGEST_BYTES = 1 << 26


def read(name: str, mtu: int) -> RateTrace:
    """The rates of a file, each for 100 ms or, where the link is slow, for longer. Raises `RequestError`.

    A span without a delivery has the rate of one packet: a shaper has no rate of 0.
    """
    times = _times(Path(name))
    length_ms = times[-1]
    mean_bps = len(times) * PACKET_BYTES * 8 * 1000 / length_ms
    bucket_ms = 2 * frame(mtu) * 8 * 1000 / (ADDED * mean_bps)
    span_ms = max(FINEST_MS, FINEST_MS * ceil(bucket_ms / FINEST_MS), length_ms / MOST)
    count = max(1, round(length_ms / span_ms))
    edges = [length_ms * number / count for number in range(count + 1)]
    rates, at = [], 0
    for _, end in pairwise(edges):
        before = at
        while at < len(times) and (times[at] <= end or end == edges[-1]):
            at += 1
        rates.append(ceil(max(1, at - before) * PACKET_BYTES * 8 * 1000 * count / length_ms))
    return RateTrace(name, round(length_ms / count * 1e6), tuple(rates))


def _times(path: Path) -> list[int]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise RequestError(f"rate_trace: {path} is larger than 64 MiB. Give a shorter trace.")
        lines = path.read_text("ascii").split()
    except OSError as error:
        raise RequestError(f"rate_trace: {path} cannot be read: {error.strerror}. Name a file.") from error
    except UnicodeDecodeError as error:
        raise RequestError(
            f"rate_trace: {path} is no mahimahi trace: it is not text. Each line is a time in ms."
        ) from error
    try:
        times = [int(line) for line in lines]
    except ValueError as error:
        raise RequestError(f"rate_trace: {path} is no mahimahi trace: {error}. Each line is a time in ms.") from error
    late = next((b for a, b in pairwise(times) if b < a), None)
    if late is not None or not times or times[0] < 0 or times[-1] == 0:
        wrong = f"{quoted(late)} comes after a later time" if late is not None else "it has no time after 0"
        raise RequestError(f"rate_trace: {path} is no mahimahi trace: {wrong}. Each line is a time in ms, in order.")
    return times
