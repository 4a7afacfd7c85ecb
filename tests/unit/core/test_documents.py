"""A run's files as types: what is written is read again, whatever else stands there is left out, and what is missing is named."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pandas as pd
import pytest

from testbed.core.runs import documents, rows, table_errors
from testbed.core.runs.findings import Uneven
from testbed.core.runs.format_version import VERSION, OtherVersionError
from testbed.core.runs.manifest import Manifest, Provenance
from testbed.core.runs.summary import Summary
from testbed.core.runs.verdict import Row, Verdict
from tests.support.manifests import manifest
from tests.support.runs import one_plan
from tests.support.summaries import row, summary


@pytest.fixture
def told() -> Manifest:
    return manifest(one_plan(jobs=2, cc=["mltcp_reno:slope=2"]))


def test_what_is_written_is_read_again(told: Manifest) -> None:
    assert documents.decode(documents.encode(told), Manifest) == told
    verdict = Verdict(
        VERSION,
        "suspect",
        (Row("I1", "settings", 70, None, "ok"), Row("I6", "late", 0.03, {"suspect above": 0.02}, "suspect", "why")),
    )
    written = documents.encode(verdict)
    assert documents.decode(written, Verdict) == verdict
    first, second = json.loads(written)["invariants"]
    assert first == {"id": "I1", "name": "settings", "value": 70, "limit": None, "status": "ok"}
    assert second["note"] == "why"


def test_keys_that_are_numbers_are_read_again() -> None:
    """JSON has no other keys than text."""
    written = summary(row("reno", findings=(Uneven({0: 1.5, 11: 0.9}),)))
    assert documents.decode(documents.encode(written), Summary) == written


def test_what_a_file_says_besides_is_left_out(told: Manifest) -> None:
    """Who adds a field needs no new version: an older reader does without it."""
    more = json.loads(documents.encode(told)) | {"weather": "fine"}
    more["plan"]["jobs"][0]["colour"] = "red"
    assert documents.decode(json.dumps(more), Manifest) == told


def test_what_is_missing_is_named(told: Manifest) -> None:
    less = json.loads(documents.encode(told))
    del less["measured"]["counters"]["packets"]
    with pytest.raises(
        msgspec.ValidationError, match=r"missing required field `packets` - at `\$\.measured\.counters`"
    ):
        documents.decode(json.dumps(less), Manifest)
    for other in (VERSION - 1, VERSION + 1):
        with pytest.raises(OtherVersionError):
            documents.decode(json.dumps(less | {"version": other}), Manifest)


def test_a_manifest_holds_its_provenance(told: Manifest) -> None:
    assert set(Provenance.__struct_fields__) <= set(Manifest.__struct_fields__)
    assert told.made.backend == told.backend == "uml"


def test_a_table_follows_from_its_rows(tmp_path: Path) -> None:
    sample = rows.FlowSample(0.25, 0, 1, "0-1#2", 10, 100, 1448, 0, None, 2, 1.5)
    path = tmp_path / "flows.csv"
    rows.write(path, rows.FlowSample, [sample], decimals=6)
    assert path.read_bytes() == rows.text(rows.FlowSample, [sample], decimals=6).encode()
    assert path.read_text().splitlines() == [
        "t_s,job,worker,flow,cwnd_segments,rtt_us,bytes_acked,retrans_segments,mltcp_r,mltcp_iterations,mltcp_f",
        "0.250000,0,1,0-1#2,10,100,1448,0,,2,1.500000",
    ]
    assert table_errors.first(pd.read_csv(path), "flows.csv") == ""


def test_what_tables_must_have_follows_from_their_rows() -> None:
    iterations, flows = table_errors.TABLES["iterations.csv"], table_errors.TABLES["flows.csv"]
    assert "system" not in iterations.needed and "max_start_delay_s" in iterations.numbers
    assert flows.may_be_empty == ("cwnd_segments", "rtt_us", "mltcp_r", "mltcp_iterations", "mltcp_f") and set(
        flows.words
    ) == {"flow"}
    assert table_errors.TABLES["disturbances.csv"].words["kind"].count("|") == 4
