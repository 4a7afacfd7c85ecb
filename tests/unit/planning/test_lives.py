"""Jobs that ask for GPUs: where they are put, what they exchange, when they start, and what becomes of those that fail."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import spec
from testbed.campaign.verdict import Case, jobs
from testbed.campaign.verdict.invariant import Noted
from testbed.cli import main
from testbed.core.errors import RequestError
from testbed.core.placing import Gpu, Request
from testbed.core.runs import rows, table_errors
from testbed.core.runs.plan import JobPlan, Life, Plan
from testbed.core.units import Duration, Size
from testbed.linux.participants import timeline
from testbed.linux.participants.job_lifecycle import Lives
from testbed.linux.participants.workers import GoneError
from testbed.models import bounds
from testbed.models.contention import Model
from testbed.planning import gpu_jobs
from testbed.planning import plan as planning
from testbed.schedulers.job import make_cluster, map_hosts
from testbed.traces import trace as traces
from tests.support import runs
from topologies.cluster import Cluster
from topologies.leafspine import LeafSpine
from topologies.star import Star

JOBS = [{"gpus": 2}, {"gpus": 6}, {"gpus": 4, "offset": "20ms"}, {"gpus": 1}]


def planned(topo: str = "cluster,4,4", jobs: list[dict[str, Any]] | None = None, **fields: Any) -> Plan:
    usual: dict[str, Any] = {
        "cc": ["reno"],
        "compute": "10ms",
        "bytes": "12MB",
        "rate": "10gbit",
        "scheduler": "first_fit",
    }
    return runs.one_plan(**{**usual, "topo": topo, "job": JOBS if jobs is None else jobs, **fields})


def life(*gpus: str, at_ns: int = 0, after: tuple[int, ...] = ()) -> Life:
    return Life(gpus, at_ns, at_ns, after)


def jobs_of(*them: Life) -> list[JobPlan]:
    (job,) = planned(jobs=[{"gpus": 1}]).jobs
    return [msgspec.structs.replace(job, job=number, life=one) for number, one in enumerate(them)]


def test_a_drawn_order_is_of_the_seed() -> None:
    """The same under every job scheduler, another for each seed, and the listed one if nothing is said."""

    def sizes(**fields: Any) -> list[list[int]]:
        asked = spec.make({"topo": "cluster,4,4", "compute": "10ms", "bytes": "12MB", "rate": "10gbit", "system": ["reno"], "alone": "none", "job": JOBS, **fields}, {}, "the test")  # fmt: skip
        return [[len(cast(Life, job.life).gpus) for job in one.jobs] for one in planning.planned(asked)[1]]

    listed = [2, 6, 4, 1]
    assert sizes(scheduler=["first_fit"]) == [listed]
    drawn = sizes(scheduler=["first_fit", "sjf_bco"], seeds=6, job_order="shuffled")
    assert drawn[:6] == drawn[6:]
    assert all(sorted(one) == sorted(listed) for one in drawn) and len({tuple(one) for one in drawn}) > 3


@pytest.mark.parametrize(
    ("topo", "servers"),
    [(Star(3, 4), ["h1"] * 4 + ["h2"] * 4 + ["h3"] * 4), (LeafSpine(2, 1, 1, 1, 2), ["h1"] * 2 + ["h2"] * 2), (Cluster(2, 3), ["s1"] * 2 + ["s2"] * 3)],
)  # fmt: skip
def test_hosts_have_as_many_gpus_as_they_say(topo: Any, servers: list[str]) -> None:
    assert [gpu.host for gpu in make_cluster(topo, shared=True).gpus] == servers
    assert len(map_hosts(topo, shared=True)) == len(servers)


def test_a_host_has_room_for_one_worker_of_a_job_that_asks_for_none() -> None:
    assert [gpu.host for gpu in make_cluster(Star(3, 4)).gpus] == ["h1", "h2", "h3"]


@pytest.mark.parametrize("topo", ["star,3,0", "leafspine,2,2,2,1,0"])
def test_a_host_without_a_gpu_is_none(topo: str) -> None:
    with pytest.raises(RequestError, match="topo"):
        planned(topo, jobs=[{"gpus": 1}])


def test_one_worker_for_each_server_and_each_server_once() -> None:
    plan = planned(jobs=[{"gpus": 2}, {"gpus": 6}])
    assert [job.hosts for job in plan.jobs] == [("h1",), ("h3", "h5")]
    assert plan.jobs[1].life == Life(("s1:2", "s1:3", "s2:0", "s2:1", "s2:2", "s2:3"), 0, 0, ())


def test_a_server_that_comes_twice_is_entered_once() -> None:
    gpus = [Gpu("s2", 1), Gpu("s1", 0), Gpu("s2", 0)]
    assert gpu_jobs._ring(gpus, map_hosts(Cluster(2, 2))) == ("h4", "h1")


@given(gpus=st.integers(2, 64), servers=st.integers(2, 8), size=st.integers(10_000, 10**9))
def test_each_edge_carries_what_a_ring_over_the_gpus_would(gpus: int, servers: int, size: int) -> None:
    servers = min(gpus, servers)
    trace = traces.synthetic(Duration(10**7), Size(size), "all_reduce")
    own = gpu_jobs.on_servers(trace, gpus, servers, Model())
    (op,) = [op for op in own.operations if op.kind != "compute"]
    topo = Star(servers)
    (payload,) = traces.rounds(op, servers)
    links = {f"h{host}-s1": _Link() for host in range(1, servers + 1)}
    ways = {(a, b): bounds.crossed(topo, links, f"h{a + 1}", f"h{b + 1}") for a, b in payload}
    found = bounds.loads(payload, ways)
    wanted = 2 * size * (gpus - 1) / gpus
    assert set(found) == set(links) and all(abs(bytes_ - wanted) <= 2 * servers for bytes_ in found.values())


class _Link:
    rate_bps, mtu = 10**9, 1500


def test_inside_a_server_nothing_is_sent_and_its_own_rate_decides() -> None:
    trace = traces.synthetic(Duration(10**7), Size(10**6), "all_reduce")
    fast, slow = (gpu_jobs.on_servers(trace, 4, 1, Model(intra_bps=rate)) for rate in (math.inf, 1.2e9))
    assert {op.kind for op in (*fast.operations, *slow.operations)} == {"compute"}
    assert fast.compute_s == 0.01
    assert slow.compute_s == pytest.approx(0.01 + 2 * 8e6 * 3 / 4 / 1.2e9)


def test_adding_up_and_overhead_take_time_as_in_equation_8() -> None:
    model, wanted = Model(1e9, reduce_bps=4e9, xi2_s=1e-3), Request(0, 4, 1, 10**6, 0.01)
    own = gpu_jobs.on_servers(traces.synthetic(Duration(10**7), Size(10**6), "all_reduce"), 4, 2, model)
    exchange_s = 2 * 8e6 * 3 / 4 / 1e9
    assert own.compute_s + exchange_s == pytest.approx(model.iteration_s(wanted, 2))


def test_a_job_starts_after_those_on_whose_gpus_it_waited() -> None:
    plan = planned(jobs=[{"gpus": 8}, {"gpus": 8}, {"gpus": 4}], scheduler="first_fit")
    assert [(job.life.at_ns, job.life.after) for job in plan.jobs if job.life] == [(0, ()), (0, (0,)), (0, (1,))]


def test_a_job_alone_waits_for_nobody() -> None:
    fields = {"system": ["reno"], "topo": "cluster,4,4", "scheduler": "first_fit", "job": [{"gpus": 8}, {"gpus": 8, "bytes": "1MB", "compute": "1ms"}]}  # fmt: skip
    scenario, found = planning.planned(spec.make(fields, {}, "the test"))
    alone = next(one for one in found if one.alone == 1)
    assert [one.life and one.life.after for one in scenario.placed[0].jobs] == [(), (0,)]
    assert alone.jobs[0].life is not None and (alone.jobs[0].life.after, alone.jobs[0].life.at_ns) == ((), 0)


@pytest.mark.parametrize(
    ("jobs", "fields", "said"),
    [
        ([{"gpus": 9}], {}, "job 0 requests 9 GPUs, but there are only 8"),
        ([{"gpus": 0}], {}, "gpus: 0 is not between"),
        ([{"gpus": 2}, {}], {}, "job.1.gpus"),
        ([{"gpus": 2, "collective": "tree"}], {}, "only by rings"),
        ([{"gpus": 2, "trace": None, "cmd": "true", "compute": None, "bytes": None}], {}, "real program"),
        (
            [{"gpus": 8, "iterations": 1000}, {"gpus": 1, "offset": "5s", "iterations": 5}],
            {"scheduler": "las:threshold=1"},
            "preempts job",
        ),
        ([{"gpus": 8}, {"gpus": 8}], {"cc": ["cassini"]}, "start together"),
        ([{}], {"intra_server_rate": "1gbit"}, "intra_server_rate"),
    ],
)
def test_what_cannot_be(jobs: list[dict[str, Any]], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        planned(jobs=jobs, **fields)


# The clock of a run


def test_gpus_go_on_at_the_instant_of_an_end_by_number() -> None:
    found = Lives(jobs_of(life("s1:0"), life("s1:0", after=(0,)), life("s1:0", after=(0,)), life("s1:1", at_ns=7)))
    assert found.start(0) == [(0, 0)]
    assert found.next_ns == 7
    assert found.start(6) == [] and found.start(9) == [(3, 7)]
    found.end(0, 100)
    assert found.start(105) == [(1, 100)]  # 2 finds the GPU taken again
    assert found.next_ns is None
    found.end(1, 150)
    assert found.start(150) == [(2, 150)]


def test_a_job_that_has_to_wait_longer_than_planned_waits() -> None:
    found = Lives(jobs_of(life("s1:0"), life("s1:0", at_ns=50)))
    found.start(0)
    assert found.start(60) == []
    found.end(0, 80)
    assert found.start(80) == [(1, 80)]


@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 3), min_size=1), st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=8
    )
)
def test_no_gpu_is_ever_held_twice(drawn: list[tuple[set[int], int, int]]) -> None:
    them = Lives(jobs_of(*(life(*(f"s1:{gpu}" for gpu in sorted(gpus)), at_ns=at) for gpus, at, _ in drawn)))
    running: dict[int, int] = {}
    for now in range(200):
        for number in [number for number, end in running.items() if end == now]:
            them.end(number, now)
            del running[number]
        for number, at in them.start(now):
            assert at == now
            running[number] = now + drawn[number][2]
        held = [gpu for number in running for gpu in them.lives[number].gpus]
        assert len(held) == len(set(held))
    assert len(them.ended) == len(drawn)


class FakeWorkers:
    """Workers that say what a test has them say."""

    def __init__(self, says: list[Any]) -> None:
        self.says, self.begun, self.left = says, [], []  # type: ignore[var-annotated]
        self.participants = [_At(0, 0), _At(1, 0)]

    def begin(self, job: int, start_ns: int, offset_ns: int) -> None:
        self.begun.append((job, offset_ns))

    def leave(self, job: int) -> None:
        self.left.append(job)

    def read(self, _until: float) -> Iterator[Any]:
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        yield said


class _At:
    def __init__(self, job: int, rank: int) -> None:
        self.job, self.rank = job, rank


def carried_out(says: list[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[FakeWorkers, timeline.Timeline]:
    plan = planned(
        jobs=[{"gpus": 4, "iterations": 1}, {"gpus": 4, "iterations": 1}], topo="cluster,4,4", scheduler="tightest_fit"
    )
    second = msgspec.structs.replace(plan.jobs[1], life=life("s1:0", after=(0,)))
    plan = msgspec.structs.replace(plan, jobs=(msgspec.structs.replace(plan.jobs[0], life=life("s1:0")), second))
    monkeypatch.setattr(timeline, "readable", lambda *_: [])
    fake = FakeWorkers(says)
    found = timeline.Timeline(plan, 0, cast(Any, None), [], timeline.Machine())
    found.begin(cast(Any, fake))
    found.run(cast(Any, fake), cast(Any, None), lambda _event: None, lambda: None, lambda _record: None)
    return fake, found


def said(job: int, end: int) -> Any:
    return _At(job, 0), [0, 0, 0, end, 0, 0, []]


def test_the_next_job_starts_at_the_end_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, _ = carried_out([said(0, 1234), said(1, 5678)], monkeypatch)
    assert fake.begun == [(0, 0), (1, 1234)] and fake.left == [0, 1]


def test_a_job_that_fails_frees_its_gpus_and_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, found = carried_out([GoneError(0, "worker 0 of job 0 ended with code 1"), said(1, 5678)], monkeypatch)
    assert [job for job, _ in fake.begun] == [0, 1]
    told = list(found.lives.rows())
    assert [(one.job, one.outcome) for one in told] == [(0, "failed"), (1, "done")]
    assert "code 1" in told[0].failure_reason and told[1].start_s == told[0].end_s
    assert table_errors.first(pd.read_csv(io.StringIO(rows.text(rows.Job, told, 9))), "jobs.csv") == ""


def case(how: str, ended: int) -> Any:
    """Two jobs of two iterations; the first ends so many, and then as ``how`` says."""
    plan = planned(jobs=[{"gpus": 2, "iterations": 2}, {"gpus": 2, "iterations": 2}], scheduler="tightest_fit")
    rows = [(0, 0, number, 0) for number in range(ended)] + [(1, 0, number, 0) for number in range(2)]
    lived = pd.DataFrame({"job": [0, 1], "outcome": [how, "done"], "failure_reason": ["killed", math.nan]})
    manifest = SimpleNamespace(plan=plan)
    return Case(cast(Any, manifest), pd.DataFrame(rows, columns=["job", "worker", "iteration", "bytes"]), pd.DataFrame(), pd.DataFrame(), lives=lived)  # fmt: skip


def test_a_failure_makes_a_run_suspect_and_is_no_missing_byte() -> None:
    failed, whole, cut = case("failed", 1), case("done", 2), case("done", 1)
    told = jobs.failures(failed)
    assert isinstance(told, Noted) and told.value == 1 and "job 0: killed" in told.note
    assert jobs.other_bytes(failed) == 0 and jobs.failures(whole) == 0 and jobs.other_bytes(whole) == 0
    assert jobs.other_bytes(cut) == 1  # an iteration is missing of a job that says it is done
    assert jobs.holds_gpus(whole) is None


def test_without_gpus_a_failure_ends_the_run() -> None:
    plan = runs.one_plan(cc=["reno"], jobs=1)
    found = timeline.Timeline(plan, 0, cast(Any, None), [], timeline.Machine())
    with pytest.raises(GoneError):
        list(found._receive(cast(Any, FakeWorkers([GoneError(0, "killed")]))))


def test_the_command_says_what_is_wrong_in_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    job = "synthetic,compute=1ms,bytes=1MB,gpus=9"
    assert main(["run", "--topo", "cluster,4,4", "--job", job, "--scheduler", "fifo", "--dry-run", "--on", "uml"]) == 2
    said = capsys.readouterr().err
    assert all(value in said for value in ("job 0", "9 GPUs", " 8 "))
