"""Tables for notebooks: everything that a run's tables say, and nothing else."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.core.errors import MachineError
from testbed.core.runs import rows
from testbed.core.runs.load import LoadError, Run, load_run
from testbed.exports import csv, matrix, parquet, tables


def test_the_tidy_table_has_every_value_of_every_table(stored: Path) -> None:
    run = load_run(stored)
    tidy = pd.read_csv(io.StringIO(csv.text(run)), low_memory=False)
    assert list(tidy.columns[:3]) == ["system", "seed", "table"] and list(tidy.columns[-2:]) == ["metric", "value"]
    assert set(tidy["table"]) == set(tables.of(run)) == {path.stem for path in stored.glob("*.csv")}
    ends = tidy[(tidy["table"] == "iterations") & (tidy["metric"] == "end_s")]
    assert list(ends["value"].astype(float)) == list(run.iterations["end_s"])
    assert list(ends["worker"]) == list(run.iterations["worker"])
    acked = tidy[(tidy["table"] == "flows") & (tidy["metric"] == "bytes_acked")]
    assert list(acked["value"].astype(int)) == list(run.flows["bytes_acked"])


def test_flows_of_background_traffic_are_told_apart_by_their_source(stored: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stored, folder)
    both = [rows.BackgroundFlow(label, 0, "l1", "r1", 0, 1000, 0.0, 1.0, 1000, "") for label in ("web", "rpc")]
    rows.write(folder / "background.csv", rows.BackgroundFlow, both, decimals=9)
    tidy = pd.read_csv(io.StringIO(csv.text(load_run(folder))), low_memory=False)
    own = tidy[(tidy["table"] == "background") & (tidy["metric"] == "end_s")]
    assert list(own["label"]) == ["web", "rpc"]


def test_of_what_is_unknown_there_is_no_row(computed: Run) -> None:
    """A model's flows have no congestion window, and F is unknown at first."""
    tidy = pd.read_csv(io.StringIO(csv.text(computed)), low_memory=False)
    assert len(tidy[tidy["metric"] == "mltcp_f"]) == computed.flows["mltcp_f"].notna().sum() < len(computed.flows)
    assert tidy[tidy["metric"] == "cwnd_segments"].empty


def test_parquet_keeps_the_types(stored: Path) -> None:
    pytest.importorskip("pyarrow")
    run = load_run(stored)
    found = {name: pd.read_parquet(io.BytesIO(content)) for name, content in parquet.files(run).items()}
    assert set(found) == {f"{path.stem}.parquet" for path in stored.glob("*.csv")}
    own = run.flows.copy()
    pd.testing.assert_frame_equal(found["flows.parquet"][list(own.columns)], own)
    assert set(found["links.parquet"]["system"]) == {run.system} and set(found["links.parquet"]["seed"]) == {1}


def test_without_pyarrow_it_says_what_to_install(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MachineError, match=r"needs the package pyarrow.*mltcp-testbed\[parquet\]"):
        parquet.files(load_run(stored))


def test_the_matrix_is_what_flows_carried_over_each_link(computed: Run) -> None:
    found = matrix.table(computed).set_index("job")
    assert set(found.pop("until_s")) == {computed.flows["t_s"].max()} == {computed.links["t_s"].max()}
    sent = computed.flows.groupby(["job", "worker", "flow"])["bytes_acked"].max().groupby("job").sum()
    carried = computed.links.groupby("link")["bytes"].max()
    for link in found.columns:
        assert 0.9 * carried[link] < found[link].sum() < carried[link]  # headers are not in it
    for job in sent.index:
        assert found.loc[job].sum() == 2 * sent[job]  # of a star each flow crosses two links


def test_without_crossings_there_is_no_matrix(stored: Path) -> None:
    run = load_run(stored)
    run.__dict__["flows"] = run.flows.iloc[:0]
    with pytest.raises(LoadError, match="which flow crosses which link"):
        matrix.table(run)
