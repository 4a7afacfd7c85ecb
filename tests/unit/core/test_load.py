"""Run directories that are not as they were written: which file, line and column."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from testbed.backends.host import Host
from testbed.campaign import driver, judge, provenance
from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.core.runs import load
from testbed.core.runs.load import TABLES, LoadError, digest, load_run, load_summary
from testbed.planning import plan
from testbed.spec import read
from tests.support import synthetic


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One stored run."""
    spec = read(None, {"jobs": 1, "cc": ["reno"], "iterations": 3, "name": "x"})
    synthetic.write([spec], tmp_path, lambda plan, i: 1.0)
    return tmp_path / "x/reno/1"


def sign(folder: Path) -> None:
    """Make the manifest tell of the tables as they are: digests do not find what is wrong with them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["digest"] = digest({name: (folder / name).read_bytes() for name in TABLES})
    (folder / "manifest.json").write_text(json.dumps(manifest))


def changed(text: str, line: int, column: int, value: str) -> str:
    lines = text.splitlines()
    words = lines[line - 1].split(",")
    words[column] = value
    lines[line - 1] = ",".join(words)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    "value", ["NaN", "inf", "-inf", "<script>alert(1)</script>", "\0", "", "1e999", "\x1b[2J", "null"]
)
def test_a_value_that_no_run_writes(run: Path, value: str, signed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    table = run / "iterations.csv"
    table.write_text(changed(table.read_text(), 3, 7, value))
    if signed:
        sign(run)
    assert main(["judge", str(run)]) == EXIT_REQUEST
    said = capsys.readouterr().err
    assert f"{table}, line 3, column end_s: " in said
    assert "\x1b" not in said and "\0" not in said


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: "", ""),
        (lambda text: text[: len(text) // 2], "line 4, column "),
        (lambda text: text + text, "line 8, column seed: 'seed' "),
        (lambda text: text + text.partition("\n")[2], "line 8: "),
        (lambda text: "\0" * 5000, "line 1: "),
        (lambda text: text.replace("comm_start_s", "other"), "line 1: has no column comm_start_s"),
        (lambda text: changed(text, 2, 3, "0,0"), "line 2: "),
        (lambda text: changed(text, 3, 3, "0,0"), "line 3"),
    ],
    ids=["empty", "halved", "doubled", "doubled without header", "NULs", "another column", "one more", "one more below"],
)  # fmt: skip
def test_a_table_that_no_run_writes(run: Path, spoil: object, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = run / "iterations.csv"
    table.write_text(spoil(table.read_text()))  # type: ignore[operator]
    sign(run)
    assert main(["judge", str(run)]) == EXIT_REQUEST
    said = capsys.readouterr().err
    assert str(table) in said and says in said


@pytest.mark.parametrize(
    ("table", "column", "value"), [("links.csv", 1, "<b>"), ("flows.csv", 3, "$(id)"), ("flows.csv", 8, "inf")]
)
def test_text_has_its_form(run: Path, table: str, column: int, value: str) -> None:
    (run / table).write_text(changed((run / table).read_text(), 2, column, value))
    with pytest.raises(LoadError, match="line 2, column"):
        getattr(load_run(run), table.removesuffix(".csv"))


def test_a_table_may_be_as_large_as_said(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (run / "links.csv").open("ab") as file:
        file.truncate(5 << 30)  # sparse
    assert main(["judge", str(run)]) == EXIT_REQUEST
    said = capsys.readouterr().err
    assert all(value in said for value in ("links.csv", "5.4 GB", "2.1 GB"))


def test_a_digest_is_taken_in_pieces(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PIECE_BYTES", 7)
    load.check(load_run(run))


def test_a_pipe_is_not_waited_for(run: Path) -> None:
    (run / "flows.csv").unlink()
    os.mkfifo(run / "flows.csv")
    with pytest.raises(LoadError, match="not a regular file"):
        load.check(load_run(run))


def test_what_disturbed_a_run_is_a_table_too(run: Path) -> None:
    table = run / "disturbances.csv"
    table.write_text("start_s,end_s,core,kind,waited_s\n0.1,0.2,1,ksoftirqd,0.1\n")
    assert (found := load_run(run).disturbances) is not None and len(found) == 1
    table.write_text("start_s,end_s,core,kind,waited_s\n")
    assert load_run(run).disturbances is not None
    table.write_text("start_s,end_s,core,kind,waited_s\n0.1,inf,1,ksoftirqd,0.1\n")
    with pytest.raises(LoadError, match="line 2, column end_s"):
        _ = load_run(run).disturbances


@pytest.mark.parametrize("name", ["manifest.json", "verdict.json"])
@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '{"version": 1}', '{"version": 1, "plan": 3}', "\0"])
def test_a_file_that_is_not_what_it_should_be(
    run: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).write_text(text)
    assert main(["judge", str(run)]) == EXIT_REQUEST
    assert "error: " in (said := capsys.readouterr().err) and "Traceback" not in said and str(run) in said


@pytest.mark.parametrize("level", [0, 1])
def test_a_folder_of_runs_is_told_from_a_run_that_is_not_complete(run: Path, level: int) -> None:
    with pytest.raises(LoadError, match=f"such as {re.escape(str(run))}$"):
        load_run(run.parents[1 + level])
    assert main(["verify", str(run.parents[1 + level])]) == EXIT_REQUEST
    (run / "manifest.json").unlink()
    with pytest.raises(LoadError, match="not complete"):
        load_run(run)


def test_judge_wants_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", ""]) == EXIT_REQUEST
    assert "name a run directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, "null", "[]", '{"version": 1}', '{"version": 1, "plan": 3, "remote": 3, "kernel": 3}']
)
def test_a_sweep_repeats_what_it_cannot_read(run: Path, text: str) -> None:
    spec = read(None, {"jobs": 1, "cc": ["reno"], "iterations": 3, "name": "x"})
    (wanted, *_) = driver.wanted([plan.planned(spec)], run.parents[2])
    (run / "manifest.json").write_text(text)
    assert wanted.folder == run and not provenance.is_there(wanted.plan, run, Host())


def test_what_judge_names_commands_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge, "again", lambda _: [(Path("1\x1b[2J"), "\x1b]0;owned\x07", "valid")])
    assert main(["judge", "results"]) == EXIT_OK
    assert r"1\x1b[2J: \x1b]0;owned\x07, now valid" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("{run}/../../..", "several experiments"),
        ("{run}", "is one run"),
        ("nope", "no folder nope"),
        ("x" * 5000, "too long"),
    ],
)
def test_a_folder_that_is_no_experiment(run: Path, folder: str, says: str) -> None:
    (run.parents[1] / "summary.json").touch()
    with pytest.raises(LoadError, match=says):
        load_summary(Path(folder.format(run=run)))
