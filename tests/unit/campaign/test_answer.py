"""The closing text: what stands in it, and that it fits."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from testbed.campaign import findings
from testbed.campaign.findings import answer
from testbed.campaign.findings.demand import Demand
from testbed.cli import run_summary, table
from testbed.core import terminal
from testbed.core.runs.findings import (
    AtIdeal,
    Compared,
    Delivered,
    FewFrames,
    Finding,
    MostlyHidden,
    NoCauseKnown,
    OfferedLoad,
    OneJob,
    OtherBase,
    Periods,
    SharedAcks,
    Timeouts,
    TooShort,
    Uneven,
)
from testbed.core.runs.summary import Summary
from testbed.core.terminal import Sheet
from tests.support.summaries import row, summary

WIDTHS = (50, 60, 72, 80, 100, 140)


@pytest.mark.parametrize(
    ("system", "written"),
    [("ltp:rtts=2", "LTP (rtts=2)"), ("optireduce", "OptiReduce"), ("mltcp_reno", "MLTCP-Reno"), ("mine", "mine")],
)
def test_names_are_written_as_people_do(system: str, written: str) -> None:
    assert answer.name(system) == written


REASONS = (OneJob(), MostlyHidden((0.4, 0.4), (0.1, 0.1)), SharedAcks("s1-s2"), OfferedLoad("s1-s2", 5e8, 1.25), Periods((1.0, 0.6), None, 0.4), FewFrames("s1-s2", "ecn", 40, 32), Timeouts(3, 0.2, 0.05),
           AtIdeal("reno", 1.001), OtherBase("cubic", 0.88), OtherBase("cubic", None), NoCauseKnown())  # fmt: skip
FINDINGS: tuple[Finding, ...] = (
    Compared("faster", "reno", 1.3, (1.2, 1.4), 3), Compared("slower", "reno", 0.9, None, 1, (NoCauseKnown(),)),
    Compared("no difference", "reno", 1.0, None, 1, REASONS), Compared("inconclusive", "reno", 1.0, (0.9, 1.1), 3, (NoCauseKnown(),)),
    TooShort("reno", 1.3, 12, 4, 10), TooShort("reno", 1.3, 12, None, 10), Uneven({0: 1.3, 1: 0.9}), Delivered(0.9004, 0.98), Delivered(1.0, None),
)  # fmt: skip


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: type(finding).__name__)
def test_every_finding_that_is_put_into_words_ends_a_sentence(finding: Finding) -> None:
    said = answer.sentence(row("mltcp_reno"), row("reno"), [finding])
    assert said.endswith(".") and all(len(one.split()) <= 30 for one in re.split(r"[.?!] ", said))


def test_what_is_not_all_is_never_called_all() -> None:
    said = answer.sentence(row("ltp"), row("reno"), [Delivered(1 - 1e-9, None)])
    assert "99.99 %" in said


def test_every_reason_is_put_into_words() -> None:
    assert all(answer.reason(one).endswith(".") for one in REASONS)


def test_a_base_that_is_not_the_baseline_is_named_with_its_speedup_or_its_flag() -> None:
    assert answer.reason(OtherBase("cubic", 0.88)) == "CUBIC, its base, is 0.88×."
    assert "--system cubic" in answer.reason(OtherBase("cubic", None))


def test_what_is_invalid_has_no_findings_but_advice() -> None:
    broken = row("mltcp_reno", 1.3, verdicts=("invalid",))
    assert findings.compared(broken, row("reno"), Demand()) == ()
    real = summary(row("reno"), broken, verdict="invalid", clock="real")
    assert "--on uml" in str(answer.advice(real))
    assert "--on uml" not in str(answer.advice(replace(real, clock="virtual")))
    assert answer.advice(replace(real, verdict="suspect")) is None


def stated(*systems: str, jobs: int = 2, several: bool = False) -> Summary:
    """Results with their findings, as a run has them."""
    interval = (1.2, 1.3) if several else None
    every = [row(system, 1.25, interval, [1.3, 0.9, 1.0][:jobs]) for system in systems]
    told = [replace(one, findings=(*findings.compared(one, every[0], Demand()), *findings.own(one))) for one in every]
    return summary(*told)


def rendered(sheet: Sheet, width: int) -> list[str]:
    out = StringIO()
    sheet.print(Console(file=out, width=width, soft_wrap=True))
    return out.getvalue().splitlines()


LETTERS = st.text("abcxyz_", min_size=1, max_size=10)
OPTIONS = st.lists(st.tuples(LETTERS, st.integers(0, 99)).map(lambda one: f"{one[0]}={one[1]}"), max_size=2).map(
    ",".join
)
NAMES = st.builds(
    lambda name, options: f"{name}:{options}" if options else name, LETTERS, OPTIONS
)  # up to 40 characters


@settings(max_examples=60)
@given(systems=st.lists(NAMES, min_size=1, max_size=4, unique=True), width=st.sampled_from(WIDTHS), several=st.booleans(),
       traces=st.lists(LETTERS, min_size=2, max_size=3, unique=True))  # fmt: skip
def test_at_every_width_a_row_has_its_name_and_whole_words(
    systems: list[str], width: int, several: bool, traces: list[str]
) -> None:
    found = stated(*systems, jobs=len(traces), several=several)
    results = tuple(
        replace(one, per_job=tuple(replace(job, trace=trace) for job, trace in zip(one.per_job, traces, strict=True)))
        for one in found.results
    )
    found = replace(found, experiment="(experiment)", results=results)
    jobs = table.jobs_table(found)
    assert jobs is not None
    whole = {
        word for sheet in (table.closing_table(found), jobs) for line in rendered(sheet, 1000) for word in line.split()
    }
    for sheet, count in ((table.closing_table(found), 1), (jobs, len(traces))):
        lines = rendered(sheet, width)
        assert max(map(len, lines)) <= width
        for system in systems:
            assert sum(line.split()[:1] == [system] for line in lines if line.strip()) == count, lines
        left_out = sheet.lines(width)[1]
        body = (
            lines
            if not left_out
            else lines[: next(i for i, line in enumerate(lines) if line.startswith("Columns left"))]
        )
        assert {word for line in body for word in line.split()} <= whole
        titles = [column.title for column in sheet.columns]
        assert list(left_out) == titles[len(titles) - len(left_out) :]


@pytest.mark.parametrize("width", [140, 100])
def test_a_wide_terminal_shows_every_column(width: int) -> None:
    assert table.closing_table(stated("reno", "mltcp_reno")).lines(width)[1] == ()


@pytest.mark.parametrize("width", WIDTHS)
def test_prose_breaks_between_words(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    told = "Interleaved iterations of isolated communication phases, " * 4
    run_summary.labelled(terminal.console(), "Links", told)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split()[1:] == told.split()


def test_the_width_is_that_of_columns_even_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "61")
    assert (terminal.width(), terminal.console().width) == (61, 61)
    monkeypatch.delenv("COLUMNS")
    assert terminal.width(usual=110) == 110


def test_a_lone_job_has_no_column_of_interleaving() -> None:
    alone = summary(
        row("reno", jobs=[1.0], interleaved_seeds=None), row("mltcp_reno", jobs=[1.0], interleaved_seeds=None)
    )
    titles = [column.title for column in table.closing_table(alone).columns]
    pair = [column.title for column in table.closing_table(stated("reno")).columns]
    assert set(pair) - set(titles) == {"interleaved"}


def test_rows_by_job_keep_the_system_as_typed() -> None:
    typed = ("reno", "priority", "unfair:weights=2/0.5")
    found = stated(*typed)
    odd = tuple(
        replace(one, per_job=tuple(replace(job, congestion="reno", ideal_s=1.0 + job.job) for job in one.per_job))
        for one in found.results
    )
    sheet = table.jobs_table(replace(found, results=odd))
    assert sheet is not None
    assert [str(cells[0]) for cells in sheet.rows] == [system for system in typed for _ in range(2)]


def test_last_counts_the_iterations_that_there_are() -> None:
    headings = [column.title for column in table.closing_table(summary(row("reno", iterations=3))).columns]
    assert "last 3 (s)" in headings and "last 10 (s)" not in headings


@pytest.mark.parametrize("reason", [True, False])
def test_an_overload_is_printed_once(
    reason: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the reason of a system that gains nothing, or else by itself."""
    monkeypatch.setenv("COLUMNS", "1000")
    load = OfferedLoad("s1-s2", 5e8, 1.25)
    gain = 1.0 if reason else 1.3
    treated, base = row("mltcp_reno", gain), row("reno")
    found = findings.compared(treated, base, Demand(loads=(load,)))
    treated = replace(treated, findings=found, conclusion=answer.sentence(treated, base, found))
    assert run_summary.say(terminal.console(), summary(base, treated, overloads=(load,)))
    assert capsys.readouterr().out.count("125 %") == 1


def test_nothing_to_say_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert not run_summary.say(terminal.console(), summary(row("reno")))
    assert capsys.readouterr().out == ""


def test_the_title_has_the_iterations_of_every_job() -> None:
    (first, second) = row("reno").per_job
    mixed = (replace(first, iterations=12), replace(second, iterations=30))
    assert "12 to 30 iterations" in table.closing_table(summary(row("reno", per_job=mixed))).title
    assert "1 job," in table.closing_table(summary(row("reno", jobs=[1.0]))).title
