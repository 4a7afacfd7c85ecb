"""Max-min fair sharing: closed forms, what defines it, an LP that knows nothing of filling, and changes one after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from testbed.models import maxmin


def cases() -> st.SearchStrategy[tuple[list[float], list[list[int]], list[float]]]:
    def of(links: int) -> st.SearchStrategy[tuple[list[float], list[list[int]], list[float]]]:
        paths = st.lists(
            st.lists(st.integers(0, links - 1), min_size=1, max_size=4, unique=True), min_size=1, max_size=9
        )
        return paths.flatmap(
            lambda flows: st.tuples(
                st.lists(st.sampled_from([1.0, 2.5, 7.0, 10.0]), min_size=links, max_size=links),
                st.just(flows),
                st.lists(st.sampled_from([0.25, 1.0, 1.0, 2.0]), min_size=len(flows), max_size=len(flows)),
            )
        )

    return st.integers(1, 6).flatmap(of)


def by_programs(capacity: list[float], flows: list[list[int]], weights: list[float]) -> np.ndarray:
    """One linear program after the other: the highest level that all may have who are not yet fixed, then who can have no more."""
    matrix = np.array([[float(link in links) for links in flows] for link in range(len(capacity))])
    weight, fixed = np.array(weights), np.full(len(flows), np.nan)
    while np.isnan(fixed).any():
        free = np.flatnonzero(np.isnan(fixed))
        left = np.array(capacity) - matrix @ np.nan_to_num(fixed)
        level = linprog([-1.0], A_ub=(matrix[:, free] @ weight[free])[:, None], b_ub=left, method="highs").x[0]
        for flow in free:  # can it have more, if the others have at least this?
            goal = np.where(free == flow, -1.0, 0.0)
            bounds = [(level * weight[other] * (1 - 1e-9), None) for other in free]
            most = -linprog(goal, A_ub=matrix[:, free], b_ub=left, bounds=bounds, method="highs").fun
            if most <= level * weight[flow] * (1 + 1e-6) + 1e-9:
                fixed[flow] = level * weight[flow]
    return fixed


@settings(max_examples=150, deadline=None)
@given(cases())
def test_it_is_what_linear_programs_say(case: tuple[list[float], list[list[int]], list[float]]) -> None:
    capacity, flows, weights = case
    np.testing.assert_allclose(maxmin.share(capacity, flows, weights), by_programs(*case), rtol=1e-5, atol=1e-7)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_everybody_has_a_bottleneck_and_no_link_carries_more_than_it_can(
    case: tuple[list[float], list[list[int]], list[float]],
) -> None:
    capacity, flows, weights = case
    rates = maxmin.share(*case)
    loads = [sum(rates[flow] for flow, links in enumerate(flows) if link in links) for link in range(len(capacity))]
    assert all(load <= room * (1 + 1e-9) for load, room in zip(loads, capacity, strict=True))
    levels = rates / np.array(weights)
    for flow, links in enumerate(flows):
        assert any(
            loads[link] >= capacity[link] * (1 - 1e-9)
            and all(levels[flow] >= levels[other] * (1 - 1e-9) for other in range(len(flows)) if link in flows[other])
            for link in links
        )


@settings(max_examples=150, deadline=None)
@given(cases(), st.lists(st.tuples(st.sampled_from(["enter", "leave", "weight"]), st.integers(0, 8)), max_size=25))
def test_after_any_changes_it_is_as_if_computed_at_once(
    case: tuple[list[float], list[list[int]], list[float]], changes: list[tuple[str, int]]
) -> None:
    capacity, flows, weights = case
    net = maxmin.network(capacity, [len(links) for links in flows])
    for flow, links in enumerate(flows):
        maxmin.put(net, flow, links)
        net.weight[flow] = weights[flow]
    for what, number in changes:
        flow = number % len(flows)
        if what == "leave" and net.active[flow]:
            maxmin.leave(net, flow)
        elif what == "enter" and not net.active[flow]:
            maxmin.enter(net, flow)
        elif what == "weight":
            net.weight[flow] = 3.0 if net.weight[flow] < 3 else 0.5
        maxmin.choose(net, flow)
        maxmin.solve(net)
        for one in net.flows[: net.counts[0]]:
            maxmin.settle(net, one)
        maxmin.forget(net)
        there = np.flatnonzero(net.active)
        expected = maxmin.share(capacity, [flows[one] for one in there], net.weight[there])
        np.testing.assert_allclose(net.rate[there], expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=150, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_all_at_once_is_fair_whoever_was_held_back_where_before(
    case: tuple[list[float], list[list[int]], list[float]], chance: random.Random
) -> None:
    """`solve_all` begins with the links that held somebody back the last time: several changes between two looks mislead it."""
    capacity, flows, weights = case
    net = maxmin.network(capacity, [len(links) for links in flows])
    for flow, links in enumerate(flows):
        maxmin.put(net, flow, links)
        net.weight[flow] = weights[flow]
    for step in range(24):
        flow = chance.randrange(len(flows))
        if not net.active[flow]:
            maxmin.enter(net, flow)
        elif chance.random() < 0.5:
            maxmin.leave(net, flow)
        else:
            net.weight[flow] = chance.choice([1e6, 0.5, 1])
        maxmin.forget(net)
        if step % 3:
            continue
        maxmin.solve_all(net)
        maxmin.forget(net)
        there = np.flatnonzero(net.active)
        expected = maxmin.share(capacity, [flows[one] for one in there], net.weight[there])
        np.testing.assert_allclose(net.rate[there], expected, rtol=1e-9, atol=1e-12)
        loads = [sum(net.rate[one] for one in there if link in flows[one]) for link in range(len(capacity))]
        np.testing.assert_allclose(net.load, loads, rtol=1e-9, atol=1e-9)


def test_closed_forms() -> None:
    assert maxmin.share([10], [[0]] * 4) == pytest.approx([2.5] * 4, rel=1e-12)
    assert maxmin.share([10], [[0], [0]], [3, 1]) == pytest.approx([7.5, 2.5], rel=1e-12)
    # A parking lot: who crosses both links has a third of one, and leaves the rest of the other to the one there.
    assert maxmin.share([9, 10], [[0], [0], [0, 1], [1]]) == pytest.approx([3, 3, 3, 7], rel=1e-12)
    assert maxmin.share([1], [[]]) == pytest.approx([np.inf])


def test_weights_that_are_very_unlike_leave_what_is_left_to_the_light() -> None:
    """A heavy flow that is held up elsewhere leaves a link to a light one: of their sum nothing exact remains."""
    for heavy in (1e6, 1e12, 1e20, 1e30):
        found = maxmin.share([10.0, 4.0], [[0, 1], [0], [0]], [heavy, 1.0, 2.0])
        assert found == pytest.approx([4.0, 2.0, 4.0], rel=1e-9)
