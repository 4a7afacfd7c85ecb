"""GOAL schedules as the tests make them, after the format's documentation."""

from __future__ import annotations

from collections.abc import Sequence


class Schedule:
    """Operations of each rank under construction; a label stands for an operation of its rank."""

    def __init__(self, ranks: int) -> None:
        self.lines: list[list[str]] = [[] for _ in range(ranks)]
        self.sent = [0] * ranks  # bytes of each rank
        self._count = 0

    def add(self, rank: int, text: str, *after: str) -> str:
        self._count += 1
        label = f"l{self._count}"
        self.lines[rank] += [f"{label}: {text}", *(f"{label} requires {one}" for one in after)]
        return label

    def send(self, rank: int, peer: int, size: int, *after: str, tag: int = 0) -> str:
        self.sent[rank] += size
        return self.add(rank, f"send {size}b to {peer} tag {tag}", *after)

    def recv(self, rank: int, peer: int, size: int, *after: str, tag: int = 0) -> str:
        return self.add(rank, f"recv {size}b from {peer} tag {tag}", *after)

    def text(self) -> str:
        blocks = ("rank {} {{\n{}\n}}\n".format(rank, "\n".join(lines)) for rank, lines in enumerate(self.lines))
        return f"num_ranks {len(self.lines)}\n\n" + "\n".join(blocks)


def ring(
    schedule: Schedule,
    ranks: Sequence[int],
    size: int,
    rounds: int,
    after: Sequence[str],
    reduce_ns: int = 0,
    tag: int = 0,
) -> list[str]:
    """What has come from one neighbour goes on to the other; returns a join of each rank. ``reduce_ns``: computed in the first n − 1 rounds."""
    ends = []
    for place, rank in enumerate(ranks):
        start = schedule.add(rank, "calc 0", after[place])
        done, passed = [], [start]
        for number in range(rounds):
            sent = schedule.send(rank, ranks[(place + 1) % len(ranks)], size, *passed, tag=tag)
            came = schedule.recv(rank, ranks[place - 1], size, start, tag=tag)
            done += [sent, came]
            passed = [start, came]
            if reduce_ns and number < len(ranks) - 1:
                passed = [start, schedule.add(rank, f"calc {reduce_ns}", came)]
        ends.append(schedule.add(rank, "calc 0", *done, *passed[1:]))
    return ends


def all_to_all(schedule: Schedule, ranks: Sequence[int], size: int, after: Sequence[str], tag: int = 0) -> list[str]:
    """Each rank sends to each other one at once; returns a join of each rank."""
    ends = []
    for rank, before in zip(ranks, after, strict=True):
        others = [one for one in ranks if one != rank]
        parts = [schedule.send(rank, one, size, before, tag=tag) for one in others]
        parts += [schedule.recv(rank, one, size, before, tag=tag) for one in others]
        ends.append(schedule.add(rank, "calc 0", *parts))
    return ends


def computes(schedule: Schedule, ranks: Sequence[int], nanoseconds: int, after: Sequence[str] = ()) -> list[str]:
    """Each rank computes, perhaps after one operation of its own."""
    return [schedule.add(rank, f"calc {nanoseconds}", *after[place : place + 1]) for place, rank in enumerate(ranks)]


def training(data: int = 3, stages: int = 2) -> Schedule:
    """Pipeline stages whose ranks all-reduce gradients by a ring: activations forward, errors back, gradients, optimizer."""
    schedule = Schedule(data * stages)
    ranks = range(data * stages)
    last = computes(schedule, ranks, 2_000_000)
    for rank in range(data * (stages - 1)):
        schedule.send(rank, rank + data, 100_000, last[rank])
        last[rank + data] = schedule.add(
            rank + data, "calc 3000000", schedule.recv(rank + data, rank, 100_000), last[rank + data]
        )
    for rank in reversed(range(data, data * stages)):
        schedule.send(rank, rank - data, 100_000, last[rank], tag=1)
        last[rank - data] = schedule.add(
            rank - data, "calc 4000000", schedule.recv(rank - data, rank, 100_000, tag=1), last[rank - data]
        )
    for stage in range(stages):
        own = list(ranks[stage * data : (stage + 1) * data])
        ends = ring(schedule, own, 200_000, 2 * (data - 1), [last[rank] for rank in own], 10_000, tag=2)
        computes(schedule, own, 500_000, ends)
    return schedule
