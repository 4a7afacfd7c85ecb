"""Compute the period of overlapping iterations: the longest mean of a cycle of operations that wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Edge:
    """``target`` begins ``seconds`` after ``source`` at the earliest; if ``later``, that of the next iteration."""

    source: int
    target: int
    seconds: float
    later: bool = False


def longest_mean_s(count: int, edges: Sequence[Edge]) -> float:
    """Return the largest mean of a cycle, in seconds per iteration, among nodes 0 … ``count`` - 1; 0 if there is no
    cycle.

    Edges within an iteration lead to higher nodes. Between two edges to the next iteration, only the longest path
    counts. This leaves a small graph, to which Karp's algorithm applies (A characterization of the minimum cycle mean
    in a digraph, 1978).
    """
    laters = [edge for edge in edges if edge.later]
    within: dict[int, list[Edge]] = {}
    for edge in edges:
        if not edge.later:
            within.setdefault(edge.source, []).append(edge)
    weights = []
    for later in laters:
        away = [-inf] * count
        away[later.target] = 0.0
        for node in range(later.target, count):
            if away[node] > -inf:
                for edge in within.get(node, ()):
                    away[edge.target] = max(away[edge.target], away[node] + edge.seconds)
        weights.append([later.seconds + away[other.source] for other in laters])
    return _karp(weights)


def _karp(weights: Sequence[Sequence[float]]) -> float:
    n = len(weights)
    walks = [[0.0] * n]  # from any node at first: every component is reached
    for _ in range(n):
        last = walks[-1]
        walks.append([max(last[i] + weights[i][j] for i in range(n)) for j in range(n)])
    found = [
        min((walks[n][j] - walks[k][j]) / (n - k) for k in range(n) if walks[k][j] > -inf)
        for j in range(n) if walks[n][j] > -inf
    ]  # fmt: skip
    return max(found, default=0.0)
