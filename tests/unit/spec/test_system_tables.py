"""``[[system]]`` and ``label=``: what is compared, as a table and as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, RequestError
from testbed.spec import system_tables, systems


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"congestion": "reno"}, "reno"),
        ({"congestion": ["reno", "mltcp_reno"]}, "reno+mltcp_reno"),
        ({"congestion": "mltcp_reno", "congestion_options": {"slope": 1, "intercept": 0.5}, "preset": "paper"}, "mltcp_reno:slope=1,intercept=0.5,preset=paper"),
        ({"congestion": "reno", "transport": "ltp", "transport_options": {"fraction": 0.8}, "label": "LTP"}, "ltp:fraction=0.8,label=LTP"),
        ({"congestion": "bbr", "transport": "ltp"}, "ltp:broadcast=tcp:bbr"),
        ({"congestion": "dctcp", "transport_options": {"send_fraction": 0.9}, "role": "reference"}, "dctcp:send_fraction=0.9,role=reference"),
        ({"flow_scheduler": "unfair", "flow_scheduler_options": {"weights": "3/1"}}, "unfair:weights=3/1"),
    ],
)  # fmt: skip
def test_a_table_is_the_text_form(table: dict[str, Any], text: str) -> None:
    assert system_tables.texts([table, "cubic"]) == [text, "cubic"]
    assert systems.parse(text).label == table.get("label", text)


@pytest.mark.parametrize(
    "table",
    [
        {}, {"congestion": 3}, {"transports": "ltp"}, {"flow_scheduler": "unfair", "congestion": "reno"}, {"congestion": "cubic", "transport": "mlt"},
        {"congestion": ["reno", "cubic"], "transport": "ltp"}, {"congestion": "reno", "label": "a,b"}, {"congestion": "reno", "flow_scheduler_options": {"a": 1}},
        {"congestion": "mltcp_reno", "congestion_options": {"curve": "concave,slope=3"}},
    ],
)  # fmt: skip
def test_a_table_that_makes_no_sense_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"system\[0\]"):
        system_tables.texts([table])


def test_a_label_names_a_system_in_results_and_its_folder_has_a_hash() -> None:
    plain, labelled = systems.parse("reno"), systems.parse("reno:label=my Reno")
    assert (labelled.label, labelled.name, labelled.typed) == ("my Reno", "reno", "reno:label=my Reno")
    assert plain.folder == "reno" and labelled.folder.startswith("reno-")
    assert labelled.congestion == plain.congestion and labelled.role == plain.role


@pytest.mark.parametrize(
    "text", ["reno:label=", "reno:label=a/b", "reno:label=" + "a" * 41, "reno:label=a+cubic:label=b"]
)
def test_a_label_that_no_table_can_hold_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="label"):
        systems.parse(text)


def test_two_systems_of_one_label_are_refused() -> None:
    with pytest.raises(RequestError, match="twice"):
        spec.make({}, {"system": ["reno:label=x", "cubic:label=x"]}, "the test")


def test_a_file_with_tables_runs_and_reports_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(
        'jobs = 2\niterations = 6\non = "flow"\n[[system]]\ncongestion = "reno"\nlabel = "plain Reno"\n'
        '[[system]]\ncongestion = "mltcp_reno"\ncongestion_options = {slope = 1.0}\nlabel = "mine"\n'
    )
    assert main(["run", "mine.toml", "--quiet"]) == EXIT_OK
    summary = json.loads(next(tmp_path.glob("results/*/summary.json")).read_text())
    assert [row["system"] for row in summary["results"]] == ["plain Reno", "mine"]
    assert [row["role"] for row in summary["results"]] == ["baseline", "treatment"]
    assert main(["run", "mine.toml", "--quiet"]) == EXIT_OK  # what is there is known again
    manifest = json.loads(next(tmp_path.glob("results/*/mltcp_reno-*/1/manifest.json")).read_text())
    assert manifest["plan"]["system"]["label"] == "mine"
    assert main(["judge", str(next(tmp_path.glob("results/*")))]) == EXIT_OK
    Path("mine.toml").write_text("[[system]]\ncongestion = 3\n")
    assert main(["run", "mine.toml"]) == EXIT_REQUEST
