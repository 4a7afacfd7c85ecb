"""Weighted max-min fair sharing of links by flows, exact, and kept exact while flows come, go and change their weights.

A flow has a rate x, a weight w and links on each of which it loads ``times`` · x. A rate is fair if the flow has a bottleneck: a link
that is full, and on which no flow has a higher level x ÷ w (Bertsekas and Gallager, Data Networks, 1992, 6.5.2). `solve` fills up the
flows that a change affects, with all others fixed. It then adds the flows that have lost their bottleneck, until every flow has
one: the rest of the network is not visited. Loops, not vectors: they are compiled (`testbed.models.compiled`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.models.compiled import compiled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
EXACT = 1e-12  # relative difference up to which levels count as equal
LOST = 1e-6  # relative remainder of a sum after subtractions below which it is computed anew
NOWHERE = -1


class Network(NamedTuple):
    """Flows on links, by number; rates in the links' unit. Flow i's places are ``first[i]`` to ``first[i] + crossed[i]``."""

    capacity: Floats  # of links
    first: Ints
    crossed: Ints  # how many links it crosses
    over: Ints  # by place: the link
    times: Floats  # by place: load on the link per unit of rate
    owner: Ints  # by place: the flow
    weight: Floats
    rate: Floats
    level: Floats  # rate ÷ weight
    bottleneck: Ints  # a link
    active: npt.NDArray[np.bool_]
    load: Floats  # of links
    # Active flows on a link, as a list of places.
    head: Ints
    following: Ints
    previous: Ints
    # State of `solve`.
    chosen: npt.NDArray[np.bool_]  # flows
    frozen: npt.NDArray[np.bool_]
    seen: npt.NDArray[np.bool_]  # links
    room: Floats
    wants: Floats  # weights of those that are not frozen
    whole: Floats  # its value when it was last summed
    unfrozen: Ints
    highest: Floats  # level of a chosen flow on it
    filled_at: Floats  # level at which it was full; -1: it is no flow's bottleneck
    flows: Ints  # the chosen: as many as ``counts[0]``
    links: Ints  # those that they cross: ``counts[1]``
    heap: Ints  # of these links, the tightest first
    key: Floats  # level at which each would be full
    fresh: Floats  # rates to be
    counts: Ints


def network(capacity: npt.ArrayLike, places: npt.ArrayLike) -> Network:
    """Without any active flow: links, and the maximum number of places of each flow (`put` fills them)."""
    rates = np.asarray(capacity, dtype=float)
    room = np.asarray(places, dtype=np.int64)
    links, flows, total = len(rates), len(room), int(room.sum())

    def floats(length: int) -> Floats:
        return np.zeros(length)

    def ints(length: int) -> Ints:
        return np.full(length, NOWHERE, dtype=np.int64)

    def flags(length: int) -> npt.NDArray[np.bool_]:
        return np.zeros(length, dtype=np.bool_)

    return Network(
        rates.copy(), np.concatenate([[0], np.cumsum(room)[:-1]]).astype(np.int64) if flows else ints(0), np.zeros(flows, np.int64),
        np.zeros(total, np.int64), floats(total), np.repeat(np.arange(flows, dtype=np.int64), room),
        np.ones(flows), floats(flows), floats(flows), ints(flows), flags(flows), floats(links),
        ints(links), ints(total), ints(total),
        flags(flows), flags(flows), flags(links), floats(links), floats(links), floats(links), np.zeros(links, np.int64), floats(links), floats(links),
        ints(flows), ints(links), ints(links), floats(links), floats(flows), np.zeros(2, np.int64),
    )  # fmt: skip


def put(net: Network, flow: int, links: npt.ArrayLike, times: npt.ArrayLike = 1.0) -> None:
    """Flow ``flow``, which is not active, crosses these links; raises `ValueError` for more than it has places."""
    over = np.asarray(links, dtype=np.int64)
    at = int(net.first[flow])
    end = int(net.first[flow + 1]) if flow + 1 < len(net.first) else len(net.over)
    if at + len(over) > end:
        raise ValueError(f"flow {flow} crosses {len(over)} links, and has places for {end - at}")
    net.over[at : at + len(over)] = over
    net.times[at : at + len(over)] = times
    net.crossed[flow] = len(over)


def share(capacity: npt.ArrayLike, flows: list[list[int]], weights: npt.ArrayLike | None = None) -> Floats:
    """The fair rates of flows that cross these links each; of one without links: infinity."""
    net = network(capacity, [len(links) for links in flows])
    for flow, links in enumerate(flows):
        put(net, flow, links)
        net.weight[flow] = 1.0 if weights is None else np.asarray(weights, dtype=float)[flow]
        enter(net, flow)
        choose(net, flow)
    solve(net)
    for flow in net.flows[: net.counts[0]]:
        settle(net, flow)
    forget(net)
    net.rate[net.crossed == 0] = np.inf
    return net.rate.copy()


@compiled
def enter(net: Network, flow: int) -> None:
    """The flow is active from now on, with rate 0 at first."""
    net.active[flow] = True
    net.rate[flow] = 0.0
    net.level[flow] = 0.0
    net.bottleneck[flow] = NOWHERE
    for place in range(net.first[flow], net.first[flow] + net.crossed[flow]):
        link = net.over[place]
        after = net.head[link]
        net.following[place] = after
        net.previous[place] = NOWHERE
        if after != NOWHERE:
            net.previous[after] = place
        net.head[link] = place


@compiled
def leave(net: Network, flow: int) -> None:
    """The flow has ended. The flows that it limited are chosen for `solve`."""
    net.active[flow] = False
    for place in range(net.first[flow], net.first[flow] + net.crossed[flow]):
        link, before, after = net.over[place], net.previous[place], net.following[place]
        if before == NOWHERE:
            net.head[link] = after
        else:
            net.following[before] = after
        if after != NOWHERE:
            net.previous[after] = before
        net.load[link] = net.load[link] - net.times[place] * net.rate[flow] if net.head[link] != NOWHERE else 0.0
        choose_held_back(net, link)
    net.rate[flow] = 0.0


@compiled
def choose(net: Network, flow: int) -> None:
    """`solve` is to look at it."""
    if not net.chosen[flow] and net.active[flow]:
        net.chosen[flow] = True
        net.flows[net.counts[0]] = flow
        net.counts[0] += 1


@compiled
def choose_held_back(net: Network, link: int) -> None:
    """`solve` is to look at those that have their bottleneck there."""
    place = net.head[link]
    while place != NOWHERE:
        if net.bottleneck[net.owner[place]] == link:
            choose(net, net.owner[place])
        place = net.following[place]


@compiled
def solve(net: Network) -> None:
    """The rates of the flows that a change affects: ``fresh`` of the chosen. Each is to be settled (`settle`), then forgotten (`forget`)."""
    while True:
        before = net.counts[0]
        _fill(net)
        for number in range(net.counts[1]):
            link = net.links[number]
            full = net.room[link] <= EXACT * net.capacity[link]
            held = net.filled_at[link]
            place = net.head[link]
            while place != NOWHERE:
                flow = net.owner[place]
                if not net.chosen[flow]:
                    level = net.level[flow]
                    high = held >= 0 and level > held * (1 + EXACT)
                    low = net.bottleneck[flow] == link and (not full or net.highest[link] > level * (1 + EXACT))
                    if high or low:
                        choose(net, flow)
                place = net.following[place]
            net.seen[link] = False
        net.counts[1] = 0
        if net.counts[0] == before:
            return


@compiled
def solve_all(net: Network) -> None:
    """`solve` for all flows at once: faster after many changes. ``load`` follows.

    Few links limit any flow. First only those that did so the last time are filled up. A link that then exceeds its capacity
    joins them, until none does: rates that are fair on some links, and feasible on all, are fair on all.
    """
    for flow in range(len(net.active)):
        choose(net, flow)
    for number in range(net.counts[0]):
        flow = net.flows[number]
        if net.crossed[flow] > 0:
            _see(net, net.bottleneck[flow] if net.bottleneck[flow] != NOWHERE else _narrowest(net, flow))
    while True:
        rising = 0
        for number in range(net.counts[0]):
            flow = net.flows[number]
            net.frozen[flow] = net.crossed[flow] == 0
            rising += net.crossed[flow] > 0
        net.room[:] = net.capacity
        before = net.counts[1]
        for number in range(before):
            link = net.links[number]
            _add_up(net, link)
            net.filled_at[link] = -1.0
        _rise(net, rising)
        for link in range(len(net.capacity)):
            if net.room[link] < -EXACT * net.capacity[link]:
                _see(net, link)
        if net.counts[1] == before:
            break
    for number in range(net.counts[1]):
        net.seen[net.links[number]] = False
    net.counts[1] = 0
    for link in range(len(net.capacity)):
        net.load[link] = net.capacity[link] - net.room[link]
    for number in range(net.counts[0]):
        flow = net.flows[number]
        net.rate[flow] = net.fresh[flow]
        net.level[flow] = net.fresh[flow] / net.weight[flow]


@compiled
def _see(net: Network, link: int) -> None:
    """`_rise` is to look at it."""
    if not net.seen[link]:
        net.seen[link] = True
        net.links[net.counts[1]] = link
        net.counts[1] += 1


@compiled
def _narrowest(net: Network, flow: int) -> int:
    """The first of its links to fill up, if no other link limited any flow."""
    found, least = NOWHERE, np.inf
    for own in range(net.first[flow], net.first[flow] + net.crossed[flow]):
        link = net.over[own]
        wants = 0.0
        place = net.head[link]
        while place != NOWHERE:
            wants += net.times[place] * net.weight[net.owner[place]]
            place = net.following[place]
        if net.capacity[link] / wants < least:
            found, least = link, net.capacity[link] / wants
    return int(found)


@compiled
def _fill(net: Network) -> None:
    """Fill only the chosen flows, with the others fixed: all levels rise until a link is full, and again with the
    rest."""
    rising = 0
    for number in range(net.counts[0]):
        flow = net.flows[number]
        # A flow that another's end has chosen may have ended at the same instant.
        net.frozen[flow] = net.crossed[flow] == 0 or not net.active[flow]
        if net.frozen[flow]:
            continue
        rising += 1
        for place in range(net.first[flow], net.first[flow] + net.crossed[flow]):
            link = net.over[place]
            if not net.seen[link]:
                net.seen[link] = True
                net.links[net.counts[1]] = link
                net.counts[1] += 1
                net.room[link] = net.capacity[link] - net.load[link]
                net.wants[link] = 0.0
                net.whole[link] = 0.0
                net.unfrozen[link] = 0
                net.highest[link] = 0.0
                net.filled_at[link] = -1.0
            net.room[link] += net.times[place] * net.rate[flow]
            net.wants[link] += net.times[place] * net.weight[flow]
            net.whole[link] = net.wants[link]
            net.unfrozen[link] += 1
    _rise(net, rising)


@compiled
def _rise(net: Network, rising: int) -> None:
    """Levels of so many flows rise on the visited links, the tightest of them first."""
    # Levels of links only rise while flows are frozen, so that those in the heap are at most too low.
    size = net.counts[1]
    for number in range(size):
        link = net.links[number]
        net.key[link] = net.room[link] / net.wants[link]
        net.heap[number] = link
    for number in range(size // 2 - 1, -1, -1):
        _sink(net.heap, net.key, number, size)
    while rising > 0:
        tightest = net.heap[0]
        if net.unfrozen[tightest] == 0:
            size -= 1
            net.heap[0] = net.heap[size]
            _sink(net.heap, net.key, 0, size)
            continue
        if net.wants[tightest] < LOST * net.whole[tightest]:  # weights so different that rounding dominates
            _add_up(net, tightest)
        least = net.room[tightest] / net.wants[tightest]
        if least > net.key[tightest]:
            net.key[tightest] = least
            _sink(net.heap, net.key, 0, size)
            if net.heap[0] != tightest:
                continue
        least = max(0.0, least)
        net.filled_at[tightest] = least
        place = net.head[tightest]
        while place != NOWHERE:
            flow = net.owner[place]
            if net.chosen[flow] and not net.frozen[flow]:
                net.frozen[flow] = True
                rising -= 1
                net.fresh[flow] = least * net.weight[flow]
                net.bottleneck[flow] = tightest
                for own in range(net.first[flow], net.first[flow] + net.crossed[flow]):
                    link = net.over[own]
                    net.room[link] -= net.times[own] * net.fresh[flow]
                    if net.seen[link]:
                        net.wants[link] -= net.times[own] * net.weight[flow]
                        net.unfrozen[link] -= 1
                        net.highest[link] = least
            place = net.following[place]


@compiled
def _add_up(net: Network, link: int) -> None:
    """The demand of the flows on a link that are not frozen, computed anew, and their number."""
    wants, count = 0.0, 0
    place = net.head[link]
    while place != NOWHERE:
        flow = net.owner[place]
        if net.chosen[flow] and not net.frozen[flow]:
            wants += net.times[place] * net.weight[flow]
            count += 1
        place = net.following[place]
    net.wants[link] = net.whole[link] = wants
    net.unfrozen[link] = count


@compiled
def _sink(heap: Ints, key: Floats, at: int, size: int) -> None:
    """A heap by ``key`` is one again, but for the one at ``at``, which may be too large."""
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and key[heap[child]] < key[heap[least]]:
                least = child
        if least == at:
            return
        heap[at], heap[least] = heap[least], heap[at]
        at = least


@compiled
def settle(net: Network, flow: int) -> None:
    """A chosen flow has its fresh rate from now on."""
    difference = net.fresh[flow] - net.rate[flow]
    for place in range(net.first[flow], net.first[flow] + net.crossed[flow]):
        net.load[net.over[place]] += net.times[place] * difference
    net.rate[flow] = net.fresh[flow]
    net.level[flow] = net.fresh[flow] / net.weight[flow]


@compiled
def forget(net: Network) -> None:
    """Clear the set of chosen flows."""
    for number in range(net.counts[0]):
        net.chosen[net.flows[number]] = False
    net.counts[0] = 0
