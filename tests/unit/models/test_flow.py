"""The flow-level twin: closed forms exact to 1e-9, what must hold whatever happens, and against an independent fluid model."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.backends.flow import model
from testbed.models import compiled, flow_simulator, fluid
from testbed.models.curves import FAIR, Curve
from testbed.models.flow_simulator import Ended, FlowJob, Loop, Node
from testbed.models.weight_function import Force

EXACT = pytest.approx


def job(compute_s: float, bits: float, links: tuple[int, ...] = (0,), start_s: float = 0.0, **more: object) -> FlowJob:
    return FlowJob((Node(compute_s), Node(bits, (0,), links)), start_s, **more)  # type: ignore[arg-type]


def ended(loop: Loop, until_s: float) -> dict[tuple[int, int], Ended]:
    return {(one.job, one.iteration): one for iterations, _ in loop.run(until_s) for one in iterations}


def steps(exponent: float, count: int) -> Force:
    bounds = tuple((number + 1) / count for number in range(count))
    return Force(bounds, tuple(float(Curve()(bound - 0.5 / count)) ** exponent for bound in bounds))


def test_alone_it_takes_what_it_computes_and_sends() -> None:
    found = ended(Loop([job(0.5, 30.0)], [100.0]), 8.0)
    assert len(found) == 10
    for (_, iteration), one in found.items():
        assert one.start_s == EXACT(iteration * 0.8, rel=1e-9, abs=1e-9)
        assert one.comm_start_s == EXACT(iteration * 0.8 + 0.5, rel=1e-9)
        assert one.end_s == EXACT(iteration * 0.8 + 0.8, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.floats(1, 8e11), st.sampled_from([1e6, 5e8, 5e10, 4e11]), st.floats(0, 1e5), st.integers(1, 4))
def test_a_flow_of_any_size_ends_however_late_it_begins(bits: float, rate: float, start_s: float, jobs: int) -> None:
    """From 1 bit to 100 GB; the first second of a run, and a day later, where a clock resolves 15 ps."""
    asked = [job(0.5, bits, start_s=start_s, force=steps(0.7, 16), mltcp_active_from=1) for _ in range(jobs)]
    loop = Loop(asked, [rate])
    took_s = 0.5 + jobs * bits / rate
    found = ended(loop, start_s + 3.5 * took_s)
    assert len(found) == 3 * jobs
    for one in found.values():
        assert one.end_s - one.start_s == EXACT(took_s, rel=1e-9, abs=1e-9)
    assert np.isfinite(loop.carried_bits).all()


def test_flows_that_end_at_the_same_instant() -> None:
    found = ended(Loop([job(0.5, 30.0), job(0.5, 30.0), job(0.5, 60.0)], [100.0]), 2.0)
    assert found[0, 0].end_s == found[1, 0].end_s == EXACT(0.5 + 0.9, rel=1e-9)


def test_fair_shares_of_two_that_begin_apart() -> None:
    """The first has the link for d, both half of it until the first has ended: A + (A - d) after its start; the fixed point of d."""
    compute, comm, apart = 0.5, 0.4, 0.1
    found = ended(Loop([job(compute, 100 * comm), job(compute, 100 * comm, start_s=apart)], [100.0]), 1.35)
    assert found[0, 0].end_s == EXACT(compute + comm + (comm - apart), rel=1e-9)
    assert found[1, 0].end_s == EXACT(compute + 2 * comm, rel=1e-9)


@pytest.mark.parametrize("weight", [2.0, 8.0])
def test_weights_divide_a_link(weight: float) -> None:
    heavy, light = job(0.0, 80.0, force=Force((1.0,), (weight,))), job(0.0, 80.0)
    found = ended(Loop([heavy, light], [100.0]), 10.0)
    assert found[0, 0].end_s == EXACT(0.8 * (1 + 1 / weight), rel=1e-9)


def test_several_links_and_a_change_of_capacity() -> None:
    long, short = job(0.0, 300.0, (0, 1)), job(0.0, 100.0, (0,))
    loop = Loop([long, short], [100.0, 30.0])
    found = ended(loop, 2.0)
    assert found[1, 0].end_s == EXACT(100 / 70, rel=1e-9)  # the other one has 30 everywhere
    loop.change(1, 100.0)
    found |= ended(loop, 10.0)
    assert found[0, 0].end_s == EXACT(2 + (300 - 60) / 50, rel=1e-9)


def test_what_depends_on_each_other() -> None:
    """Two buckets, the second computed while the first travels; then both ways at once."""
    nodes = (Node(0.3), Node(40.0, (0,), (0,), begins_at=0.0, ends_at=0.4), Node(0.3, (0,)), Node(60.0, (1, 2), (0,), begins_at=0.4),
             Node(10.0, (3,), (1,)), Node(70.0, (3,), (0,)))  # fmt: skip
    one = ended(Loop([FlowJob(nodes)], [100.0, 50.0]), 5.0)[0, 0]
    assert one.end_s == EXACT(0.3 + 0.4 + 0.6 + 0.7, rel=1e-9)


def test_a_grid_makes_iterations_wait() -> None:
    found = ended(Loop([job(0.5, 30.0, start_s=0.2, grid=(1.0, 0.1))], [100.0]), 6.0)
    assert [found[0, number].start_s for number in range(4)] == EXACT([1.1, 2.1, 3.1, 4.1], rel=1e-9)


def test_who_is_stopped_leaves_its_share() -> None:
    loop = Loop([job(0.0, 100.0), job(0.0, 100.0)], [100.0])
    loop.advance(1.0)
    loop.stop(0)
    assert ended(loop, 2.0)[1, 0].end_s == EXACT(1.5, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 0.5), st.floats(5, 80), st.sets(st.integers(0, 3), min_size=1), st.floats(0, 1), st.booleans()),
        min_size=1, max_size=6,
    ),
    st.integers(0, 5),
)  # fmt: skip
def test_bytes_are_conserved_and_no_link_is_faster_than_it_is(
    drawn: list[tuple[float, float, set[int], float, bool]], seed: int
) -> None:
    capacity = np.array([100.0, 60.0, 80.0, 100.0])
    asked = [
        job(compute, bits, tuple(sorted(links)), start, force=steps(0.5, 8) if grows else Force(), spread=0.2)
        for compute, bits, links, start, grows in drawn
    ]
    loop = Loop(asked, capacity, seed=seed)
    iterations = [0] * len(asked)
    for until in (1.0, 2.5, 7.0):
        before, began = loop.carried_bits, loop.now_s
        for found, _ in loop.run(until):
            for one in found:
                iterations[one.job] += 1
        assert (loop.carried_bits - before <= capacity * (until - began) * (1 + 1e-9)).all()
    carried = np.zeros(4)
    for number, (_, bits, links, _, _) in enumerate(drawn):
        under_way = 0.0 if not loop.net.active[2 * number + 1] else bits - loop.left_bits[2 * number + 1]
        carried[list(links)] += iterations[number] * bits + under_way
    assert loop.carried_bits == EXACT(carried, rel=1e-6, abs=1e-6)
    full = np.isclose(loop.net.load, capacity, rtol=1e-9)
    for number, (_, _, links, _, _) in enumerate(drawn):  # work conservation: who sends has a full link
        assert not loop.net.active[2 * number + 1] or full[list(links)].any()


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_it_agrees_with_the_fluid_model_of_one_link(exponent: float) -> None:
    offsets = [0.0, 0.02, 0.05]
    asked = [job(0.7, 30.0, start_s=at, force=steps(exponent, 256), mltcp_active_from=2) for at in offsets]
    found = ended(Loop(asked, [100.0]), 40.0)
    expected = fluid.simulate(0.7, 0.3, offsets, Curve(), exponent=exponent, iterations=15)
    for number in range(3):
        for iteration in range(15):
            assert found[number, iteration].end_s == EXACT(float(expected.end_s[0, iteration, number]), abs=0.01)


def test_sixteen_steps_are_as_good_as_many() -> None:
    """Of four jobs that fill the link: mean iteration, and when they are interleaved."""

    def times(count: int) -> np.ndarray:
        asked = [
            job(0.76, 24.0, start_s=0.012 * number, force=steps(0.7, count), mltcp_active_from=2) for number in range(4)
        ]
        found = ended(Loop(asked, [100.0]), 60.0)
        return np.array([[found[number, k].end_s - found[number, k].start_s for k in range(30)] for number in range(4)])

    few, many = times(16), times(256)
    assert few.mean() == EXACT(many.mean(), rel=0.01)
    assert abs(int((few.max(axis=0) > 1.05).sum()) - int((many.max(axis=0) > 1.05).sum())) <= 1


def test_fair_shares_of_one_link_stay_as_the_fluid_model_has_them() -> None:
    found = ended(Loop([job(0.6, 40.0), job(0.6, 40.0, start_s=0.03)], [100.0]), 30.0)
    expected = fluid.simulate(0.6, 0.4, [0.0, 0.03], FAIR, iterations=12)
    for number in range(2):
        ends = [found[number, iteration].end_s for iteration in range(12)]
        assert ends == EXACT(list(map(float, expected.end_s[0, :, number])), abs=1e-6)
        assert all(later > earlier for earlier, later in pairwise(ends))


SAME = """
import sys
from testbed.models import compiled
from testbed.models.flow_simulator import Loop
from tests.unit.models.test_flow import several

def told(loop, until_s):
    return [array.tobytes() for _ in [loop.advance(until_s)] for array in (*loop.rows(), loop.carried_bits, loop.left_bits)]

interpreted, between = [told(loop, at) for loop in several() for at in (3.0, 9.0)], []
if not compiled.is_there():
    sys.exit(77)
compiled.pace.limit_s = 0.0
said = []
for loop in several():
    loop.say = said.append
    between += [told(loop, at) for at in (3.0, 9.0)]
assert not compiled.pace.interpreted and len(said) <= 1
assert between == interpreted
assert [told(loop, at) for loop in several() for at in (3.0, 9.0)] == interpreted
"""


def several() -> list[Loop]:
    """Loops that use everything: forces, grids, chance, factors of computing, several links, ties, batches."""
    force, nodes = steps(0.7, 16), (Node(0.3), Node(40.0, (0,), (0,), ends_at=0.4), Node(20.0, (1,), (0, 1), (1.0, 0.5), 0.4), Node(1e-6, (2,), (1,)))  # fmt: skip
    mixed = [FlowJob(nodes, 0.1 * number, force, 1, factors=np.array([1.0, 1.1]), spread=0.2) for number in range(3)]
    mixed.append(job(0.2, 30.0, grid=(0.7, 0.1)))
    return [
        Loop(mixed, [100.0, 60.0], seed=3),
        Loop([job(0.5, 30.0), job(0.5, 30.0)], [100.0]),
        Loop(mixed, [100.0, 60.0], batch_s=0.02),
    ]


@pytest.mark.slow
def test_compiled_loops_give_the_same_bytes() -> None:
    """Interpreted, compiled from the middle of a run on, and compiled from its start."""
    env = {**os.environ, "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", SAME], env=env, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("Numba is not installed")
    assert (done.returncode, done.stderr) == (0, "")


def test_equal_flows_over_the_same_links_are_one_node() -> None:
    """Four flows of 25 and one node that stands for them, next to a fifth flow: the same times, and frames for each flow."""
    ends = []
    for nodes in ([Node(25.0, (), (0,))] * 4, [Node(25.0, (), (0,), (4.0,), flows=4)]):
        loop = Loop([FlowJob(tuple(nodes)), FlowJob((Node(40.0, (), (0,)),))], [10.0], threshold=[20.0])
        loop.advance(1.0)
        assert loop.state.flows_on[0] == 5
        loop.advance(40.0)
        ends.append([(one.job, round(one.end_s, 9)) for one in loop.taken()[0]])
    assert ends[0] == ends[1] and len(ends[0]) >= 2


def test_joined_timers_end_at_the_same_times() -> None:
    """Two ranks compute alike, exchange inside their server, compute again, and then send; the chain becomes one timer."""
    nodes = [
        Node(0.5), Node(0.5), Node(0.1, (0, 1)), Node(0.2, (0, 2)), Node(0.2, (1, 2)), Node(10.0, (3, 4), (0,)), Node(0.3, (5,)), Node(0.4, (5,)),
    ]  # fmt: skip
    joined = [node for node, _, _ in model._joined([(node, None, ()) for node in nodes])]
    assert [(round(node.amount, 9), node.after) for node in joined] == [
        (0.8, ()),
        (10.0, (0,)),
        (0.3, (1,)),
        (0.4, (1,)),
    ]
    ends = []
    for own in (nodes, joined):
        loop = Loop([FlowJob(tuple(own))], [10.0])
        loop.advance(20.0)
        ends.append([round(one.end_s, 9) for one in loop.taken()[0]])
    assert ends[0] == ends[1] and len(ends[0]) == 9


def test_compiled_loops_are_looked_for_under_their_name() -> None:
    """Numba names a file after the module and the function."""
    assert f"{flow_simulator.__name__.rsplit('.', 1)[-1]}.{flow_simulator.advance.__name__}-*" in inspect.getsource(
        compiled._kept
    )
