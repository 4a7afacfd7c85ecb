"""CASSINI's affinity graph: jobs on one side, the links they share on the other (NSDI 2024).

Each link gives the required shifts between its jobs. Walked breadth first, a graph
without a loop gives every job one shift that suits all its links: with job k known and j new
on link l, t_j = (t_k - t_k(l) + t_j(l)) mod iteration of j. Around a loop the links may contradict
each other, and CASSINI does not place jobs so (recalled, not confirmed).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Walk:
    """The graph, breadth first."""

    components: tuple[tuple[int, ...], ...]  # jobs that hang together, in the order they are met
    steps: tuple[tuple[int, str, int], ...]  # known job, link, new job
    loop: tuple[int | str, ...] = ()  # alternating jobs and links, the first repeated at the end; empty: no loop


def walk(links: Mapping[str, Iterable[int]]) -> Walk:
    """Walk the graph of which ``jobs`` share which link."""
    near: dict[int | str, list[int | str]] = {}
    for link, jobs in links.items():
        for job in jobs:
            near.setdefault(job, []).append(link)
            near.setdefault(link, []).append(job)
    parent: dict[int | str, int | str | None] = {}
    components: list[tuple[int, ...]] = []
    steps: list[tuple[int, str, int]] = []
    loop: tuple[int | str, ...] = ()
    for root in sorted(node for node in near if isinstance(node, int)):
        if root in parent:
            continue
        parent[root] = None
        queue, met = deque[int | str]([root]), [root]
        while queue:
            node = queue.popleft()
            for other in near[node]:
                if other not in parent:
                    parent[other] = node
                    queue.append(other)
                    if isinstance(other, int) and isinstance(node, str):
                        known = parent[node]
                        assert isinstance(known, int)
                        steps.append((known, node, other))
                        met.append(other)
                elif other != parent[node] and not loop:
                    loop = _loop(parent, node, other)
        components.append(tuple(met))
    return Walk(tuple(components), tuple(steps), loop)


def _loop(parent: Mapping[int | str, int | str | None], begin: int | str, other: int | str) -> tuple[int | str, ...]:
    """Return the loop of an edge between ``begin`` and ``other``: from ``begin`` up to their common ancestor, and down
    to ``other``."""
    up, down = _ancestors(parent, begin), _ancestors(parent, other)
    meet = next(node for node in up if node in down)
    way = [*up[: up.index(meet) + 1], *reversed(down[: down.index(meet)])]
    return (*way, begin)


def _ancestors(parent: Mapping[int | str, int | str | None], node: int | str | None) -> list[int | str]:
    way = []
    while node is not None:
        way.append(node)
        node = parent[node]
    return way


def shifts(found: Walk, per_link: Mapping[str, Mapping[int, float]], periods_s: Sequence[float]) -> dict[int, float]:
    """Return a shift for each job in s, below its period; ``per_link``: t_j(l) of each link's jobs."""
    result = {component[0]: 0.0 for component in found.components}
    for known, link, new in found.steps:
        shift = result[known] - per_link[link][known] + per_link[link][new]
        result[new] = shift % periods_s[new]
    return result
