"""What commands print fits every width, with whole words and a name in each row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import testbed.cli
from testbed.cli import doctor
from testbed.cli.doctor import Finding
from testbed.core import heartbeat, terminal
from testbed.core.terminal import Column, Sheet
from testbed.traces import trace

WIDTHS = (50, 60, 72, 80, 100, 140)
WORDS = st.text("abcdefgh-", min_size=1, max_size=12)
SCHEDULERS = ("first_fit", "sjf_bco:kappa=3")
FINDINGS = [
    Finding("unshare and setpriv (util-linux)", True, "", "", "host"),
    Finding(
        "minimum RTO per namespace (--rto-min)", False, "this kernel has no such parameter", "Linux 6.11 or newer", ""
    ),
    Finding("a small run in user-mode Linux", True, "Linux 6.12.117, under virtual time", "", "uml"),
]


class Tried:
    """A trial that has come out."""

    def __init__(self, finding: Finding) -> None:
        self.what, self.finding = finding.what, finding

    def __call__(self) -> Finding:
        return self.finding


def printed(command: Callable[[], object], width: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        command()
    return capsys.readouterr().out.splitlines()


def listed(_folder: Path) -> tuple[Callable[[], object], tuple[str, ...]]:
    return lambda: testbed.cli.main(["list"]), tuple(trace.names())


def controls(_folder: Path) -> tuple[Callable[[], object], tuple[str, ...]]:
    return lambda: testbed.cli.main(["cc", "list"]), ("slope", "gap_factor", "mltcp_reno")


def scheduled(folder: Path) -> tuple[Callable[[], object], tuple[str, ...]]:
    jobs = folder / "jobs.csv"
    jobs.write_text(
        "job,gpus,iterations,gradient_bytes,compute_s,arrival_s\n0,4,100,1000000,0.1,0\n1,2,100,1000000,0.1,0\n"
    )
    return lambda: testbed.cli.main(["schedule", str(jobs), "--scheduler", *SCHEDULERS]), SCHEDULERS


def examined(_folder: Path) -> tuple[Callable[[], object], tuple[str, ...]]:
    def command() -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(doctor, "_trials", lambda: [Tried(finding) for finding in FINDINGS])
            return doctor.report(as_json=False)

    return command, ("unshare", "--rto-min", "user-mode")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("made", [listed, controls, scheduled, examined])
def test_commands_fit(
    made: Callable[[Path], tuple[Callable[[], object], tuple[str, ...]]],
    width: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, names = made(tmp_path)
    lines = printed(command, width, capsys)
    whole = {word for line in printed(command, 1000, capsys) for word in line.split()}
    assert all(len(line) <= width or " " not in line.strip() for line in lines)
    for name in names:
        assert any(name in line for line in lines), name
    left_out = [number for number, line in enumerate(lines) if line.startswith("Columns left out")]
    said = {number + more for number in left_out for more in range(4)}
    words = {word for number, line in enumerate(lines) if number not in said for word in line.split()}
    assert {word for word in words - whole if not re.fullmatch(r"[0-9.]+", word)} == set()  # times are measured anew


@given(st.lists(WORDS, max_size=30), st.integers(20, 150))
def test_prose_keeps_its_words(words: list[str], columns: int) -> None:
    lines = terminal.wrapped(" ".join(words), columns)
    assert " ".join(lines).split() == words
    assert all(len(line) <= columns for line in lines)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.sampled_from(WIDTHS))
def test_columns_are_left_out_from_the_right(rows: list[tuple[str, str, str]], width: int) -> None:
    wide = "x" * 30
    sheet = Sheet([Column(), Column("a", right=True), Column("b"), Column("c")], [(*row, wide) for row in rows])
    lines, left_out = sheet.lines(width)
    assert list(left_out) == ["", "a", "b", "c"][4 - len(left_out) :]
    assert all(line.cell_len <= width for line in lines)
    assert all(any(line.plain.startswith(name) for line in lines) for name, _, _ in rows)


@given(st.text("abc:,=./-1", max_size=80))
def test_a_folded_name_is_the_name(name: str) -> None:
    assert "".join(terminal.folded(name)) == name
    assert len(name) > terminal.NAME or terminal.folded(name) == [name]


SMALL = [
    "run",
    "--on",
    "flow",
    "--jobs",
    "2",
    "--iterations",
    "3",
    "--compute",
    "20ms",
    "--bytes",
    "200kB",
    "--rate",
    "100mbit",
]


@pytest.mark.parametrize("width", (50, 72))
def test_lines_on_standard_error_fit(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress of runs, then that they are kept; and the lines that come every 30 s."""
    monkeypatch.setenv("COLUMNS", str(width))
    for flags in (["--system", "reno", "mltcp_reno:slope=1.75"], ["--system", "reno", "mltcp_reno:slope=1.75"]):
        assert testbed.cli.main([*SMALL, *flags, "--out", str(tmp_path)]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert lines and all(len(line) <= width for line in lines), lines
    heartbeat.print_error(
        "2 of 7 schedules done, about 4 min left; 100 of 20000 jobs have ended in the schedule under way"
    )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and all(len(line) <= width for line in lines)
