"""A run of two kinds of jobs by the flow simulator, which the exports are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from testbed.core.runs.load import Run, load_run


@pytest.fixture(scope="session")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Job 0 has 14 all-reduces that overlap with computing, job 1 one exchange after its computing, with noise."""
    out = tmp_path_factory.mktemp("exports")
    results = testbed.run(
        job=[
            {"trace": "bert-base", "workers": 4}, {"trace": "mltcp-50g", "workers": 2, "noise": "5%"}
        ],
        topo="star", on="flow", system="mltcp_reno", rate="1gbit", keep_duty=True, iterations=6, isolated_runs="none", out=out, name="computed",
    )  # fmt: skip
    return load_run(results.path / "mltcp_reno" / "1")


@pytest.fixture
def stored() -> Path:
    """A run directory of `uml`, as it was written."""
    return Path(__file__).parents[2] / "data/runs/v4/plain/mltcp_reno/1"
