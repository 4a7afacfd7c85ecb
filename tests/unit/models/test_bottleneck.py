"""What crosses a bottleneck, told apart by direction and link, on cases computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from testbed.cli import console
from testbed.core.runs.load import Experiment, Run
from testbed.core.runs.manifest import Crossing
from testbed.core.runs.plan import LinkEvent
from testbed.linux.sampling import sampler
from testbed.models import bottleneck
from testbed.report.views import interleaving
from tests.support.manifests import VALID, manifest
from tests.support.runs import one_plan

RATE_BPS = 1e6
T_S = np.arange(0.0, 10.001, 0.01)


def ring(*, known: bool = True) -> Run:
    """Two jobs of two workers that fill both directions of one link, one after the other; each iteration takes 2 s."""
    per_s = RATE_BPS / 8
    flows, links = [], {"s1-s2": np.zeros(len(T_S)), "s2-s1": np.zeros(len(T_S))}
    for job in (0, 1):
        sent = per_s * np.clip(T_S % 2 - job, 0, 1) + per_s * (T_S // 2)
        for worker, flow, link in ((0, "0-1", "s1-s2"), (1, "1-0", "s2-s1")):
            links[link] = links[link] + sent * (1.0 if worker == 0 else 0.9)
            rows = {
                "t_s": T_S,
                "job": job,
                "worker": worker,
                "flow": flow,
                "bytes_acked": 0.95 * sent,
                "mltcp_r": np.nan,
            }
            flows.append(pd.DataFrame(rows))
    crossings = [
        Crossing(job, worker, flow, (link,))
        for job in (0, 1)
        for worker, flow, link in ((0, "0-1", "s1-s2"), (1, "1-0", "s2-s1"))
    ]
    plan = one_plan(cc=["reno"], jobs=2, rate=f"{RATE_BPS / 1e6:g}mbit", buffer="20kB")
    jobs = tuple(msgspec.structs.replace(job, ideal_s=2.0, trace="ring") for job in plan.jobs)
    told = manifest(
        msgspec.structs.replace(plan, jobs=jobs, sample_ns=10_000_000), crossings=crossings if known else None
    )
    run = Run(Path("x"), told, VALID)
    ends = [
        (job, worker, i, 2.0 * i, 2.0 * i + job, 2.0 * (i + 1), 1)
        for job in (0, 1)
        for worker in (0, 1)
        for i in range(5)
    ]
    columns = ["job", "worker", "iteration", "start_s", "comm_start_s", "end_s", "bytes"]
    run.__dict__["iterations"] = pd.DataFrame(ends, columns=columns)
    run.__dict__["flows"] = pd.concat(flows, ignore_index=True)
    run.__dict__["links"] = pd.concat(
        pd.DataFrame({"t_s": T_S, "link": name, "bytes": sent}) for name, sent in links.items()
    )
    return run


def test_a_ring_fills_the_link_and_no_more() -> None:
    run = ring()
    assert bottleneck.busiest([run]) == "s1-s2"
    rates = bottleneck.carried(run, "s1-s2", 0.02)
    assert rates.sum(axis="columns").max() <= RATE_BPS * 1.0001
    assert rates.sum(axis="columns").mean() == pytest.approx(RATE_BPS, rel=1e-3)
    assert rates[0][0.5:0.9].mean() == pytest.approx(RATE_BPS) and rates[1][0.5:0.9].max() == 0


def test_what_acknowledgements_do_not_account_for_is_background_traffic() -> None:
    """The jobs send half of what the link carries. Acknowledgements that come late, all at once, are for earlier bytes."""
    run = ring()
    long = one_plan(cc=["reno"], jobs=2, rate="1mbit", buffer="20kB", background=["long"]).background
    run = changed(run, plan=msgspec.structs.replace(run.plan, background=long))
    run.flows["bytes_acked"] *= 0.5 * (1448 / 1514) / 0.95
    steady = bottleneck.carried(run, "s1-s2", 0.02)
    assert list(steady) == [0, 1, bottleneck.BACKGROUND]
    assert steady[0][0.1:0.9].to_numpy() == pytest.approx(RATE_BPS / 2, rel=1e-3)
    assert steady[1][0.1:0.9].max() == 0
    assert steady[bottleneck.BACKGROUND].to_numpy() == pytest.approx(RATE_BPS / 2, rel=1e-3)
    recovers = (run.flows["job"] == 0) & run.flows["t_s"].between(0.3, 0.599)
    run.flows.loc[recovers, "bytes_acked"] = run.flows.loc[recovers, "bytes_acked"].min()
    late = bottleneck.carried(run, "s1-s2", 0.02)
    assert late.to_numpy().min() >= 0 and late.sum(axis="columns").to_numpy() == pytest.approx(RATE_BPS, rel=1e-3)
    assert late.mean().to_numpy() == pytest.approx(steady.mean().to_numpy(), rel=1e-6)


def changed(run: Run, **fields: Any) -> Run:
    """The same run with another manifest."""
    other = Run(run.path, msgspec.structs.replace(run.manifest, **fields), run.verdict)
    other.__dict__.update({name: run.__dict__[name] for name in ("iterations", "links", "flows")})
    return other


def test_what_jobs_need_of_the_link_together() -> None:
    needs = bottleneck.needs(ring(), pd.Series({0: 2.0, 1: 4.0}))
    assert needs["s1-s2"] == pytest.approx((0.5 + 0.25) * 0.95 * 1514 / 1448, rel=1e-3)


def test_an_older_run_shows_the_sum_of_its_flows_and_no_rate(tmp_path: Path) -> None:
    run = ring(known=False)
    assert bottleneck.busiest([run]) is None
    interleaving.draw(Experiment(tmp_path, [run], {}), tmp_path)
    drawn = pd.read_csv(tmp_path / "interleaving.csv")
    assert drawn.groupby("t_s")["bps"].sum().max() == pytest.approx(2 * 0.95 * RATE_BPS, rel=1e-3)


def test_flows_of_a_link_that_fails_are_not_told_apart() -> None:
    plan = msgspec.structs.replace(ring().plan, events=(LinkEvent(1, "s1-s2", None, False),))
    assert bottleneck.crossings(changed(ring(), plan=plan)) is None


def test_of_equally_busy_links_the_one_that_most_jobs_cross() -> None:
    run = ring()
    run.links.loc[run.links["link"] == "s2-s1", "bytes"] /= 0.9
    kept = tuple(flow for flow in run.manifest.crossings or () if flow.links != ("s1-s2",) or flow.job == 0)
    assert bottleneck.busiest([changed(run, crossings=kept)]) == "s2-s1"


def test_a_jobs_live_share_is_that_of_its_busier_direction() -> None:
    plan = one_plan(cc=["reno"], alone=True, trace="resnet50", rate="1mbit", buffer="20kB")
    before = {(0, "s1-s2"): 0, (0, "s2-s1"): 1000}
    by_link = sampler.shares({(0, "s1-s2"): 62_500, (0, "s2-s1"): 32_250}, before, 10**9)
    assert by_link == {0: {"s1-s2": 500_000, "s2-s1": 250_000}}
    assert console._share(plan, by_link[0]) == pytest.approx(0.5)
    assert console._share(plan, {"no such link": 1e9}) == 0
