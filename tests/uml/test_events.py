"""What happens to links during a run is seen in ``links.csv``, when it happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed import spec
from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.core.runs import rundir
from testbed.planning import plan
from tests.support import runs

ONE: dict[str, Any] = {
    "cc": ["reno"], "jobs": 1, "compute": "1ms", "bytes": "30MB", "iterations": 1, "rate": "100mbit",
    "start_offsets": "0ms", "sample_interval": "1ms",
}  # fmt: skip


def run(**fields: Any) -> runs.Result:
    one = runs.one_plan(**{**ONE, **fields})
    return runs.Result(rundir.unpack(uml.find().run(one, lambda event: None, patience(one))))


def rates(result: runs.Result, link: str) -> pd.Series:
    """Bit/s of a link, by the end of each sample's interval in s."""
    rows = result.table("links.csv").query("link == @link").set_index("t_s")["bytes"]
    return (rows.diff() * 8 / np.diff(rows.index, prepend=np.nan)).dropna()


def test_half_the_rate_at_its_time() -> None:
    link = "l1-s1"  # of a leaf-spine network: with a single spine, the only way
    event = [{"at": "1s", "link": link, "rate": "50%"}, {"at": "1500ms", "link": link, "rate": "100%"}]
    result = run(topo="leafspine,2,1,2", event=event)
    found = rates(result, link)
    slow = found[found < 75e6].loc[0.2:]  # without slow start
    slow = slow[slow.index < 2.3]  # and the end
    assert slow.index[0] - 0.001 == pytest.approx(1.0, abs=0.001)  # when the first interval begins that is slow
    assert slow.index[-1] == pytest.approx(1.5, abs=0.001)
    assert len(slow) == pytest.approx(500, abs=3)
    assert slow.mean() == pytest.approx(50e6, rel=0.01)
    assert result.manifest["plan"]["events"][0]["rate_bps"] == 50_000_000


def test_a_failed_link_carries_nothing_and_works_again() -> None:
    event = [{"at": "1s", "link": "s1-s2", "state": "down"}, {"at": "1200ms", "link": "s1-s2", "state": "up"}]
    result = run(event=event)
    found = rates(result, "s1-s2")
    assert found.loc[1.002:1.2].max() == 0
    assert found.loc[1.2:].max() > 90e6
    assert set(result.table("iterations.csv").query("worker == 0")["bytes"]) == {30_000_000}


def test_another_path_takes_over() -> None:
    """Two spines, one flow: while the link it crosses has failed, its bytes go over the other one."""
    fields = {"topo": "leafspine,2,2,2", "bytes": "20MB", "sample_interval": "10ms"}
    links = run(**fields).manifest["measured"]["paths"][0]["links"]
    taken = next(name for name in links if name.startswith("l1-"))
    other = {"l1-s1": "l1-s2", "l1-s2": "l1-s1"}[taken]
    event = [{"at": "500ms", "link": taken, "state": "down"}, {"at": "1s", "link": taken, "state": "up"}]
    result = run(**fields, event=event)
    before, after = rates(result, taken), rates(result, other)
    assert (
        before.loc[0.1:0.5].median() > 90e6 and before.loc[0.52:1.0].max() == 0 and before.loc[1.05:1.5].median() > 90e6
    )
    assert after.loc[0.1:0.5].max() < 1e6 and after.loc[0.8:1.0].median() > 90e6 and after.loc[1.05:].max() < 1e6


def test_a_host_is_back_with_its_link() -> None:
    """A star's bottlenecks are its hosts' links: with the link goes a host's way to everybody else."""
    event = [{"at": "1s", "link": "h1-s1", "state": "down"}, {"at": "1200ms", "link": "h1-s1", "state": "up"}]
    result = run(topo="star", event=event)
    assert rates(result, "h1-s1").loc[1.002:1.2].max() == 0
    assert set(result.table("iterations.csv").query("worker == 0")["bytes"]) == {30_000_000}


def test_events_happen_to_all_jobs_and_not_to_one_alone() -> None:
    event = [{"at": "1s", "link": "s1-s2", "rate": "50mbit"}]
    made = plan.plans(plan.resolve(spec.read(None, {**ONE, "event": event})))
    assert [len(one.events) for one in made] == [2, 0]
