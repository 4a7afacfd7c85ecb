"""What a figure shows of a run under virtual time, where what crosses a link is exact."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from testbed.campaign.tasks import Completed, Task, carry_out
from testbed.core.runs import rundir
from testbed.core.runs.load import load_experiment
from testbed.linux.queues.rates import bucket_bytes
from testbed.report import views
from tests.support import runs


def test_no_stack_of_a_ring_exceeds_the_link(tmp_path: Path) -> None:
    """Two jobs that send both ways at once: with every flow counted it would be twice the rate."""
    plan = runs.one_plan(jobs=2, trace="resnet50", keep_duty=True, iterations=3, cc=["reno"])
    outcome = carry_out(Task(plan, "uml"))
    assert isinstance(outcome, Completed), outcome
    rundir.store(outcome.files, tmp_path / plan.folder)
    views.draw(load_experiment(tmp_path), tmp_path / "figures")
    stacks = pd.read_csv(tmp_path / "figures" / "interleaving.csv").groupby("t_s")["bps"].sum()
    link, window_s = plan.link, 2 * plan.sample_ns / 1e9
    bucket = bucket_bytes(link.rate_bps, link.mtu, real_time=False)
    assert stacks.max() <= link.rate_bps + bucket * 8 / window_s
    assert stacks.max() > 0.9 * link.rate_bps
