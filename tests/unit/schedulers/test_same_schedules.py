"""Schedules are those of the definitions in `tests.support.naive_schedules`, to the last bit; lists of arriving jobs are scheduled alike in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core import options
from testbed.core.errors import RequestError
from testbed.core.placing import Assignments, Request
from testbed.models.cluster import Servers, follow, simulate
from testbed.models.contention import Contended, Model
from testbed.schedulers import job, online, search
from testbed.schedulers.job import Cluster
from tests.support import naive_schedules
from tests.support.clusters import MODEL, cluster
from tests.support.properties import examples

NAIVE: dict[str, Callable[[list[Request], Cluster, Model, Any], Assignments]] = {
    "fifo": naive_schedules.by_fifo, "las": naive_schedules.by_las, "srsf": naive_schedules.by_srsf,
}  # fmt: skip
HOW = (
    "fifo",
    "fifo:backfill=no",
    "srsf",
    "srsf:share=1",
    "srsf:share=2",
    "las:threshold=1",
    "las:threshold=20,restart=500ms",
)
SLOW = Model(rate_bps=1e9, alpha=0.3)


@st.composite
def busy(draw: st.DrawFn) -> tuple[list[Request], Cluster]:
    """More jobs than there is room for, some alike, arriving together and one by one."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=6))
    kinds = draw(
        st.lists(
            st.tuples(
                st.integers(1, min(8, sum(sizes))), st.integers(1, 60), st.integers(0, 10**7), st.sampled_from([0.0, 0.01, 0.1]),
                st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.7]),
            ),
            min_size=1, max_size=40,
        )
    )  # fmt: skip
    return [Request(number, *kind) for number, kind in enumerate(kinds)], cluster(*sizes)


def asked(how: str, requests: list[Request], where: Cluster) -> tuple[Any, Any]:
    module = job.find(how.partition(":")[0])
    return module, options.parse(module.Options, how)


@pytest.mark.parametrize("how", HOW)
@given(instance=busy())
def test_policies_start_the_jobs_of_their_definition(how: str, instance: tuple[list[Request], Cluster]) -> None:
    requests, where = instance
    module, chosen = asked(how, requests, where)
    expected = NAIVE[how.partition(":")[0]](requests, where, SLOW, chosen)
    assert module.schedule(requests, where, SLOW, chosen, seed=1) == expected


@pytest.mark.parametrize("how", ["tightest_fit", "first_fit", "srsf", "random", "las:threshold=5,restart=100ms"])
@given(instance=busy())
def test_a_schedule_is_carried_out_as_by_looking_at_every_job(
    how: str, instance: tuple[list[Request], Cluster]
) -> None:
    requests, where = instance
    module, chosen = asked(how, requests, where)
    try:
        assigned = module.schedule(requests, where, SLOW, chosen, seed=1)
    except RequestError:
        return
    servers, ran = Servers(tuple(where.gpus)), []
    for way in (follow, naive_schedules.follow):
        given_, policy = way(assigned, requests, servers)
        ran.append(simulate(given_, servers, policy, Contended(SLOW, len(servers.sizes))))
    assert ran[0] == ran[1]


@given(instance=busy())
def test_tightest_fit_is_that_of_its_definition(instance: tuple[list[Request], Cluster]) -> None:
    """At every moment of a run, with all free GPUs as candidates."""
    requests, where = instance
    one = search.Instance(requests, where, SLOW)

    def both(offer: search.Offer) -> Any:
        found, expected = search.tightest_fit(offer), naive_schedules.tightest_fit(offer)
        if found is None or expected is None:
            assert found is expected
        else:
            assert found.tolist() == expected.tolist()
        return found

    trial = search.Trial(one, both, range(len(requests)), one.lowest_s() * 1.5 + 1)
    one.run(trial, trial.law)
    trial = search.Trial(one, both, range(len(requests)), backfill=True)
    assert one.run(trial, trial.law) is not None


@examples(30)
@given(instance=busy(), backfill=st.sampled_from(["yes", "no"]))
def test_jobs_that_arrive_are_scheduled_alike_in_one_pass(
    instance: tuple[list[Request], Cluster], backfill: str
) -> None:
    """First fit's search changes nothing of what starts at a moment."""
    requests, where = instance
    module, chosen = asked(f"first_fit:backfill={backfill}", requests, where)
    if not any(one.arrival_s for one in requests):
        return
    planned = online.schedule(module, requests, where, MODEL, chosen, seed=1)
    assert planned.jobs == module.schedule_as_they_arrive(requests, where, MODEL, chosen).jobs


def test_a_long_list_of_arriving_jobs_is_scheduled_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, where = (
        [Request(number, 1 + number % 4, 10, 10**6, 0.1, 0.1 * number) for number in range(60)],
        cluster(4, 4),
    )
    module, chosen = asked("list_scheduling", requests, where)
    planned = online.schedule(module, requests, where, MODEL, chosen, seed=1)
    monkeypatch.setattr(online, "MOST_PLANNED", 50)
    in_one_pass = online.schedule(module, requests, where, MODEL, chosen, seed=1)
    assert in_one_pass.trials == 1 < planned.trials and in_one_pass.jobs == planned.jobs
