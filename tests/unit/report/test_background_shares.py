"""Of a link with background traffic, a job has what its flows sent, in every figure and export; the rest is `background`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from testbed import spec
from testbed.core.runs.load import Experiment, Run, load_run
from testbed.exports import matrix, perfetto
from testbed.models import bottleneck
from testbed.planning import plan as plans
from testbed.report import style
from testbed.report.explorer import series
from testbed.report.views import interleaving, link_shares
from tests.support import fluid_runs, manifests

SAID = "Background: all other bytes on the link."
WHOSE = ["0", "1", bottleneck.BACKGROUND]


def stored(folder: Path, *background: str) -> Run:
    asked = {"jobs": 2, "iterations": 12, "system": ["reno"], "isolated_runs": "none", "background": list(background)}
    (plan,) = plans.plans(plans.resolve(spec.read(None, asked)))
    fluid_runs.write_run(plan, folder, crossings=manifests.crossings(plan))
    return load_run(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Background traffic sends whenever the jobs do not."""
    return stored(tmp_path_factory.mktemp("background") / "run", "long")


@pytest.fixture(scope="module")
def expected(run: Run) -> dict[str, float]:
    """The mean share of each on s1-s2 in percent, by the traffic matrix."""
    sent = matrix.table(run).set_index("job")["s1-s2"] * 8 * 1514 / 1448
    shares = 100 * sent / run.rate_bps / float(run.flows["t_s"].max())
    return dict(zip(WHOSE, [*shares, 100 - shares.sum()], strict=True))


def test_link_shares_agree_with_the_traffic_matrix(run: Run, expected: dict[str, float], tmp_path: Path) -> None:
    link_shares.draw(Experiment(tmp_path, [run], {}), tmp_path)
    found = pd.read_csv(tmp_path / "link-shares.csv").set_index("job")["percent"]
    assert found.to_dict() == pytest.approx(expected, abs=1.5)
    assert expected[bottleneck.BACKGROUND] > 20
    assert SAID in style.note(tmp_path / "link-shares.png").replace("\n", " ")


def test_no_job_sends_while_it_computes(run: Run, tmp_path: Path) -> None:
    interleaving.draw(Experiment(tmp_path, [run], {}), tmp_path)
    rates = pd.read_csv(tmp_path / "interleaving.csv").pivot_table(index="t_s", columns="job", values="bps")
    assert list(rates) == WHOSE
    begin_s = run.operations[run.operations["worker"] == 0].groupby("job")["start_s"].min().min()
    before = rates[rates.index < begin_s - 0.02]
    assert len(before) and before[["0", "1"]].to_numpy().max() == 0
    assert before[bottleneck.BACKGROUND].to_numpy() == pytest.approx(run.rate_bps, rel=1e-3)
    assert SAID in style.note(tmp_path / "interleaving.png").replace("\n", " ")


def test_the_explorer_and_perfetto_have_the_same_shares(run: Run, expected: dict[str, float]) -> None:
    (link,) = series.series(run, 16384).links
    means = {
        whose: 100 * np.mean(np.array(one.values, dtype=float) * one.scale) / run.rate_bps
        for whose, one in link.carried.items()
    }
    assert means == pytest.approx(expected, abs=1.5)
    told = json.loads(perfetto.text(run, run.jobs))["traceEvents"]
    counted = {name for event in told if event["name"] == "share of s1-s2" for name in event["args"]}
    assert counted == {"job 0", "job 1", bottleneck.BACKGROUND}


def test_a_run_without_background_traffic_has_no_such_share(tmp_path: Path) -> None:
    run = stored(tmp_path / "run")
    assert list(bottleneck.carried(run, "s1-s2", 0.02)) == [0, 1]
    link_shares.draw(Experiment(tmp_path, [run], {}), tmp_path)
    assert "Background" not in style.note(tmp_path / "link-shares.png")
