"""Schedulers as mathematics: circles, scores, the affinity graph, slots and bands; and how they are asked for."""

from __future__ import annotations

import itertools
import random
import socket
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed import spec
from testbed.core.errors import RequestError
from testbed.core.grid import Grid
from testbed.core.phase import Phase
from testbed.core.runs.plan import Plan
from testbed.linux.participants.turns import Turns
from testbed.models import circle
from testbed.planning import plan
from testbed.planning import profiles as profiling
from testbed.replay.bands import Bands
from testbed.schedulers import affinity, flow
from testbed.schedulers.flow import Demand, ScheduleError, cassini, lretf

GBIT = 1e9
ANY = 360 // 5


def job(iteration_s: float, up_s: float, *links: str, bps: float = GBIT) -> Demand:
    """Computes first, then wants ``bps`` of each link."""
    return Demand(
        iteration_s, {link: (Phase(iteration_s - up_s, iteration_s, bps),) for link in links or ("a",)}, 10**6
    )


def shared(*jobs: Demand) -> flow.Sharing:
    """By CASSINI, with iterations exactly as long as they are alone."""
    links = {link: GBIT for demand in jobs for link in demand.phases or {}}
    return cassini.share(jobs, links, cassini.Options(slack=0.0))


def plans(**fields: Any) -> list[Plan]:
    """Of the runs with every job."""
    return [one for one in plan.plans(plan.resolve(spec.read(None, fields))) if one.alone is None]


def test_the_unified_circle_is_the_least_common_multiple() -> None:
    """The paper's example: 40 and 60 ms give 120 ms."""
    assert circle.unify([0.04, 0.06], ANY) == (pytest.approx(0.12), (3, 2))
    assert circle.unify([0.255], ANY) == (pytest.approx(0.255), (1,))
    assert circle.unify([1.6, 1.6], ANY) == (pytest.approx(1.6), (1, 1))
    assert circle.unify([0.02, 0.03, 0.05], ANY) == (pytest.approx(0.3), (15, 10, 6))


def test_iterations_are_stretched_to_fit_and_never_shortened() -> None:
    assert circle.unify([1.0, 1.04], ANY) == (pytest.approx(1.04), (1, 1))
    assert circle.unify([1.0, 0.334], ANY) == (pytest.approx(1.002), (1, 3))
    draw = random.Random(1)
    for _ in range(200):
        iterations = [draw.uniform(0.1, 1) for _ in range(draw.randint(1, 3))]
        perimeter, counts = circle.unify(iterations, ANY)
        for count, one in zip(counts, iterations, strict=True):
            assert one - 1e-9 <= perimeter / count <= one * 1.2


def test_a_circle_of_vgg16() -> None:
    """The paper's example: 255 ms, of which 141 ms are Down."""
    around = circle.demand((Phase(0.141, 0.255, GBIT),), GBIT, 0.255, 1, ANY)
    assert np.count_nonzero(around == 0) == int(141 / 255 * 72)
    assert np.count_nonzero(around > 0.999) == int(114 / 255 * 72)
    assert around.mean() == pytest.approx(114 / 255)
    twice = circle.demand((Phase(0.141, 0.255, GBIT),), GBIT, 0.255, 2, ANY)
    assert twice[:36] == pytest.approx(twice[36:]) and twice.mean() == pytest.approx(around.mean())


@pytest.mark.parametrize("count", [12, 24])
def test_the_score_agrees_with_brute_force(count: int) -> None:
    """100 small cases each: two or three jobs on one or two links, any demands, any number of repetitions."""
    draw = random.Random(count)
    for _ in range(100):
        jobs = range(draw.randint(2, 3))
        times = [draw.choice([1, 1, 2, 3]) for _ in jobs]
        demands = []
        for repeated in times:
            peaks = tuple(
                Phase(start, start + draw.uniform(0.05, 0.3), draw.uniform(0.2, 1.2) * GBIT)
                for start in (draw.uniform(0, 0.4), draw.uniform(0.5, 0.7))
            )
            demands.append(circle.demand(peaks, GBIT, 1 / repeated, repeated, count)[np.newaxis])
        if draw.random() < 0.3:
            demands = [np.concatenate([one, draw.random() * one]) for one in demands]
        steps = [-(-count // repeated) for repeated in times]
        left = min(
            circle.excess(
                np.sum([circle.turn(one, by) for one, by in zip(demands, (0, *rest), strict=True)], axis=0)
            ).sum()
            for rest in itertools.product(*map(range, steps[1:]))
        )
        found = circle.fit(demands, steps)
        total = np.sum([circle.turn(one, by) for one, by in zip(demands, found.rotations, strict=True)], axis=0)
        assert found.excess == pytest.approx(left, abs=1e-9)
        assert circle.excess(total).sum() == pytest.approx(left, abs=1e-9)
        assert found.rotations[0] == 0 and all(by < limit for by, limit in zip(found.rotations, steps, strict=True))


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.5), (0.375, 0.5), (0.25, 0.75), (0.1, 0.85)])
def test_jobs_that_leave_room_for_each_other_score_one(first: float, second: float) -> None:
    assert shared(job(1.6, first * 1.6), job(1.6, second * 1.6)).report["scores"] == {"a": 1.0}


def test_jobs_that_do_not_fit_score_what_is_too_much() -> None:
    for share in (0.55, 0.6, 0.75, 1.0):
        found = shared(job(1.0, share), job(1.0, share))
        assert found.report["scores"]["a"] == pytest.approx(1 - (2 * share - 1))
        # Their slots are as far apart as the link needs.
        assert {one.grid and one.grid.period_ns for one in found.rules} == {round(2 * share * 1e9)}


def test_many_jobs_that_fit_are_found_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shared(*[job(1.0, 0.95 / 8)] * 8)
    assert found.report["scores"] == {"a": 1.0}
    monkeypatch.setattr(circle, "EXHAUSTED", 40_000)  # a tenth, for time
    with pytest.raises(RequestError, match="rotations"):
        draw = random.Random(3)
        circle.fit([np.array([[draw.random() * 0.28 for _ in range(72)]]) for _ in range(7)], [72] * 7)


def test_equally_good_rotations_leave_air_on_both_sides() -> None:
    two = shared(job(1.0, 0.3), job(1.0, 0.3))
    assert two.report["rotations_degrees"]["a"] == {"0": 0.0, "1": 180.0}
    assert two.rules[1].grid == Grid(10**9, 5 * 10**8)


def test_jobs_that_share_nothing_are_left_alone() -> None:
    found = shared(job(1.0, 0.3, "a"), job(1.0, 0.3, "b"))
    assert [one.grid for one in found.rules] == [None, None] and found.report["scores"] == {}


def test_a_loop_is_refused_and_the_scores_are_told() -> None:
    """Three jobs on a ring of three links."""
    with pytest.raises(ScheduleError) as caught:
        shared(job(1.0, 0.3, "a", "b"), job(1.0, 0.6, "b", "c"), job(1.0, 0.6, "c", "a"))
    words = str(caught.value)
    assert "(job 1 – link b – job 0 – link a – job 2 – link c – job 1)" in words
    assert "a 1.000, b 1.000, c 0.800" in words


def test_both_directions_of_a_cable_are_no_loop() -> None:
    found = shared(job(1.0, 0.5, "a", "b"), job(1.0, 0.4, "a", "b"))
    assert found.report["scores"] == {"a": 1.0, "b": 1.0}
    # But that a third job crosses one of them closes a loop.
    with pytest.raises(ScheduleError, match="has a loop"):
        shared(job(1.0, 0.6, "a", "b"), job(1.0, 0.1, "a", "b"), job(1.0, 0.1, "b"))


def test_one_shift_suits_every_link_of_a_tree() -> None:
    """Random trees of jobs and links: on each link the shifts differ as the link wants them to."""
    draw = random.Random(7)
    for _ in range(50):
        count = draw.randint(2, 9)
        links = {"l0": [0, 1]}
        for new in range(2, count):
            if draw.random() < 0.5:
                links[draw.choice(list(links))].append(new)
            else:
                links[f"l{len(links)}"] = [draw.randrange(new), new]
        per_link = {name: {job: draw.random() for job in jobs} for name, jobs in links.items()}
        graph = affinity.walk(links)
        assert not graph.loop and sorted(graph.components[0]) == list(range(count))
        shifts = affinity.shifts(graph, per_link, [1.0] * count)
        for name, wanted in per_link.items():
            for one, other in itertools.combinations(wanted, 2):
                off = (shifts[one] - shifts[other]) - (wanted[one] - wanted[other])
                assert abs(off - round(off)) < 1e-9, name


def test_a_grid_puts_back_who_has_drifted() -> None:
    grid = Grid(period_ns=1000, phase_ns=300)
    assert [grid.drift_ns(now) for now in (300, 340, 1250, 1800, 1801)] == [0, 40, -50, 500, -499]
    assert [grid.begin_ns(now) for now in (300, 350, 351, 1250, 1249)] == [300, 350, 1300, 1250, 1300]
    assert [grid.next_ns(now) for now in (0, 300, 301)] == [300, 300, 1300]


def test_what_is_left_decides_the_band() -> None:
    bands = Bands([500, 250, 125], 1000)
    with socket.socket() as link:
        seen = []
        while bands.left:
            before = bands.left
            claimed = bands.claim(link, 200)
            seen.append((before, claimed, link.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 5))
        assert seen == [
            (1000, 200, 0), (800, 200, 0), (600, 100, 0), (500, 200, 1), (300, 50, 1), (250, 125, 2), (125, 125, 3),
        ]  # fmt: skip
        bands.begin()
        bands.give_back(bands.claim(link, 10) - 4)
        assert (bands.left, bands.band) == (996, 0)


def test_what_was_sent_decides_the_band_where_it_falls() -> None:
    bands = Bands([125, 250, 500], 1000, falls=True)
    with socket.socket() as link:
        for _ in range(2):
            seen = []
            while bands.left:
                sent, claimed = 1000 - bands.left, bands.claim(link, 200)
                seen.append((sent, claimed, link.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 5))
            assert seen == [
                (0, 125, 3), (125, 125, 2), (250, 200, 1), (450, 50, 1), (500, 200, 0), (700, 200, 0), (900, 100, 0),
            ]  # fmt: skip
            bands.begin()


def test_pias_knows_no_sizes_but_those_of_its_thresholds() -> None:
    (made,) = plans(cc=["pias:bands=4"])
    sent = made.jobs[0].bytes_per_worker[0]
    assert [job.bands for job in made.jobs] == [(sent // 8, sent // 4, sent // 2)] * len(made.jobs)
    assert all(job.falls for job in made.jobs) and made.bottlenecks["s1-s2"].bands == 4


def test_schedulers_stand_beside_congestion_controls() -> None:
    made = plans(cc=["reno", "cassini", "priority:bands=4", "unfair:weights=3/1", "mltcp_reno"])
    assert [str(one.folder).split("-")[0].split("/")[0] for one in made] == [
        "reno", "cassini", "priority", "unfair", "mltcp_reno",
    ]  # fmt: skip
    reno, cassini_, priority, unfair, _ = made
    assert [job.cc.spec for job in cassini_.jobs] == [job.cc.spec for job in reno.jobs] == ["reno", "reno"]
    assert all(job.grid for job in cassini_.jobs) and not any(job.grid for job in reno.jobs)
    assert cassini_.schedule is not None and cassini_.schedule["scores"] == {"s1-s2": 1.0}
    sent = priority.jobs[0].bytes_per_worker[0]
    assert priority.jobs[1].bands == (sent // 2, sent // 4, sent // 8)
    assert [one.bands for one in (priority.bottlenecks["s1-s2"], reno.bottlenecks["s1-s2"])] == [4, 1]
    assert [job.cc.spec for job in unfair.jobs] == [
        f"mltcp_reno:slope=0,intercept={weight},total_bytes={sent}B" for weight in (3, 1)
    ]


def test_lretf_ranks_jobs_by_what_remains() -> None:
    """Ten iterations of a second, thirty of half a second, five of two: the second has most before it."""
    lasts = [(1.0, 10), (0.5, 30), (2.0, 5)]
    jobs = [replace(job(iteration_s, 0.3), iterations=count) for iteration_s, count in lasts]
    found = lretf.share(jobs, {"a": GBIT}, lretf.Options())
    assert found.report == {"remaining_s": [10.0, 15.0, 10.0], "ranks": [1, 2, 0]}
    assert [rule.bands for rule in found.rules] == [(10**6,), (10**6, 10**6), ()]
    many = lretf.share([replace(jobs[0], iterations=10 + count) for count in range(20)], {"a": GBIT}, lretf.Options())
    assert many.report["ranks"] == sorted(many.report["ranks"]) and max(len(rule.bands) for rule in many.rules) == 7


def test_lretf_sends_all_of_a_job_in_one_band() -> None:
    (made,) = plans(cc=["lretf"], job=["s2,iterations=5", "s2,iterations=9"])
    first, second = made.jobs
    assert (len(first.bands), len(second.bands)) == (0, 1)
    assert Bands(second.bands, second.bytes_per_worker[0]).band == 1 and made.bottlenecks["s1-s2"].bands == 2


def test_what_a_scheduler_is_told_comes_before_its_runs() -> None:
    scenario = plan.resolve(spec.read(None, {"cc": ["reno", "cassini"]}))
    made = plan.plans(scenario)
    assert [(one.system.name, one.alone) for one in made] == [
        ("reno", None), ("reno", 0), ("cassini", 0), ("cassini", None),
    ]  # fmt: skip
    profiles = {job: profiling.Profile(1.1, 0.01) for job in (0, 1)}
    slower = plan.replan(scenario, made[3], profiles)
    assert slower.jobs[0].grid and slower.jobs[0].grid.period_ns == round((1.1 * 1.001 + 0.02) * 1e9)
    assert made[2].jobs[0].grid is None  # alone, nobody has to wait


def test_traces_of_the_library_fit_as_published() -> None:
    """S2 and S3: duties of 37.5 % and 50 % of the same period."""
    fields = {"rate": "10gbit", "mtu": 9000, "cc": ["cassini"], "keep_duty": True}
    (fits,) = plans(job=["s2", "s3"], **fields)
    assert fits.schedule is not None and fits.schedule["scores"] == {"s1-s2": 1.0, "s2-s1": 1.0}
    (crowded,) = plans(job=["s1", "s3"], **fields)
    assert crowded.schedule is not None and crowded.schedule["scores"]["s1-s2"] < 0.9


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cc": ["casini"]}, "'cassini'"),
        ({"cc": ["cassini:step=7"]}, "do not divide a circle"),
        ({"cc": ["cassini:pace=7"]}, "'pace=7' in 'cassini:pace=7'"),
        ({"cc": ["cassini:over=renoo"]}, "cassini:over=renoo: there is no congestion control 'renoo'"),
        ({"cc": ["cassini+reno"]}, "cannot alternate with others"),
        ({"cc": ["cassini", "cassini"]}, "names one twice"),
        ({"cc": ["priority:bands=9"]}, "9 is not between 2 and 8"),
        ({"cc": ["cassini:over=dctcp"], "ecn": "off"}, "no bottleneck marks"),
        ({"cc": ["unfair:weights=2/x"]}, "weights in 'unfair:weights=2/x'"),
        ({"cc": ["unfair:over=bbr"]}, "there is no congestion control 'mltcp_bbr'"),
        ({"cc": ["cassini"], "job": ["ddp:resnet18", "s2"]}, "job 0 is a real program"),
        ({"cc": ["priority"], "job": ["s2", "cmd:true"]}, "job 1 is a real program"),
        ({"cc": ["pias"], "job": ["s2", "cmd:true"]}, "job 1 is a real program"),
        ({"cc": ["pias:bands=1"]}, "1 is not between 2 and 8"),
        ({"cc": ["lretf"], "job": ["s2", "cmd:true"]}, "job 1 is a real program"),
    ],
)
def test_a_wrong_request(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        plans(**fields)
    assert words in str(caught.value)


def test_lretf_without_preemption_grants_links() -> None:
    (made,) = plans(cc=["lretf:preempt=no"], job=["s2,iterations=5", "s2,iterations=9"])
    assert all("s1-s2" in job.exclusive for job in made.jobs)
    assert not any(job.bands for job in made.jobs) and made.bottlenecks["s1-s2"].bands == 1
    hashed = replace(job(1.0, 0.3), iterations=3, phases=None)
    with pytest.raises(ScheduleError, match="a hash"):
        lretf.share([hashed], {"a": GBIT}, lretf.Options(preempt=False))


def turns() -> Turns:
    """Three jobs on one link: 5, 9 and 7 iterations."""
    (made,) = plans(cc=["lretf:preempt=no"], job=["s2,iterations=5", "s2,iterations=9", "s2,iterations=7"])
    return Turns(made.jobs)


def test_who_still_runs_longest_is_next_and_nobody_is_interrupted() -> None:
    found = turns()
    found.ask(0, 0)
    assert found.grant() == []  # its other rank is not ready
    found.ask(0, 1)
    assert found.grant() == [0]
    for rank in (0, 1):
        found.ask(2, rank)
        found.ask(1, rank)
    assert found.grant() == []  # though both still run longer
    found.done(0, 0)
    assert found.grant() == []
    found.done(0, 1)
    assert found.grant() == [1]
    found.ended(1, 7)  # an iteration is left of it
    found.ask(1, 0)
    found.done(1, 0)
    found.done(1, 1)
    found.ask(1, 1)
    assert found.grant() == [2]


def test_a_job_that_leaves_holds_nothing() -> None:
    found = turns()
    for number in (0, 1):
        for rank in (0, 1):
            found.ask(number, rank)
    assert found.grant() == [1]
    found.over(1)
    assert found.grant() == [0]
