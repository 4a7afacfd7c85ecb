"""ARTIFACT.md and `make artifact-check`: what is compared, and that the page, the checks and the kept report agree."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.core.errors import EXIT_OK
from tools import artifact_check as artifact

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "ARTIFACT.md").read_text()
CHECKS = artifact.read()
CLAIMS = {row["id"]: row for row in csv.DictReader((ROOT / "docs/report/claims.csv").read_text().splitlines())}


def write(folder: Path, at: dict[str, int | None], seconds: dict[str, list[float]]) -> None:
    """Results of one seed: ``seconds`` of each iteration of one job with two workers."""
    for place, (system, times) in enumerate(seconds.items()):
        run = folder / f"system-{place}" / "1"
        run.mkdir(parents=True)
        rows = ["system,seed,job,worker,iteration,start_s,end_s"]
        for iteration, time in enumerate(times):
            rows += [f"{system},1,0,0,{iteration},0,{time}", f"{system},1,0,1,{iteration},0.01,{time / 2}"]
        (run / "iterations.csv").write_text("\n".join(rows) + "\n")
    results = [
        {
            "system": system,
            "mean_s": sum(times) / len(times),
            "interleaved_at": at.get(system),
            "per_job": [{"job": 0, "ideal_s": 2.0}],
        }
        for system, times in seconds.items()
    ]
    (folder / "summary.json").write_text(json.dumps({"results": results}))


def faked(code: int = EXIT_OK, mean: float = 1.315) -> tuple[Callable[[Sequence[str]], int], list[list[str]]]:
    """What stands in for `mltcp`: Reno takes ``mean`` times as long, and MLTCP interleaves from iteration 6 on."""
    called: list[list[str]] = []

    def runner(words: Sequence[str]) -> int:
        called.append([*words])
        out, name = words[words.index("--out") + 1], words[words.index("--name") + 1]
        if code == EXIT_OK:
            write(Path(out) / name, {"mltcp_reno": 6}, {"reno": [mean] * 4, "mltcp_reno": [1.0] * 4})
        return code

    return runner, called


def test_a_value_within_its_tolerance_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner, called = faked()
    assert artifact.main(["--only", "demo", "--out", str(tmp_path)], runner) == 0
    (words,) = called
    assert words[:5] == ["run", "--topo", "dumbbell", "--jobs", "4"]
    assert "1 of 1 checks agree" in capsys.readouterr().out


def test_a_value_beyond_its_tolerance_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner, _ = faked(mean=1.2)
    assert artifact.main(["--only", "demo", "--out", str(tmp_path)], runner) == 1
    printed = capsys.readouterr().out
    assert "| 1.315 ± 0.05 | 1.2 | DIFFERS |" in printed and "0 of 1 checks agree" in printed


@pytest.mark.parametrize(("code", "then"), [(1, 1), (4, 1), (3, 3)])
def test_a_run_that_fails_agrees_with_nothing(tmp_path: Path, code: int, then: int) -> None:
    runner, _ = faked(code)
    assert artifact.main(["--only", "demo", "--out", str(tmp_path)], runner) == then


def test_an_unknown_check_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert artifact.main(["--only", "none-such"]) == 2
    assert "none-such" in capsys.readouterr().err


def test_never_agrees_with_never_alone() -> None:
    never, six = artifact.Value("reno", "interleaved_at", None), artifact.Value("reno", "interleaved_at", 6, 1)
    assert never.agrees(None) and not never.agrees(6)
    assert six.agrees(7) and not six.agrees(8) and not six.agrees(None)


def test_the_last_half_of_the_iterations_counts(tmp_path: Path) -> None:
    write(tmp_path, {}, {"reno": [9.0, 9.0, 2.0, 4.0], "ltp": [9.0, 9.0, 1.0, 1.0]})
    write(tmp_path / "isolated", {}, {"reno": [7.0]})
    (tmp_path / "isolated" / "summary.json").unlink()
    assert artifact.measure(tmp_path, artifact.Value("ltp", "settled_mean_s", 3.0, over="reno")) == 3.0
    assert artifact.measure(tmp_path, artifact.Value("reno", "settled_p99_s", 4.0)) == pytest.approx(3.98)
    assert artifact.measure(tmp_path, artifact.Value("reno", artifact.TIMES_IDEAL, 2.0)) == pytest.approx(1.99)
    with pytest.raises(KeyError):
        artifact.measure(tmp_path, artifact.Value("cubic", "settled_mean_s", 1.0))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.id))
def test_a_check_can_be_planned(check: artifact.Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its systems are those that it runs, on virtual time."""
    monkeypatch.chdir(ROOT)
    program, *words = shlex.split(check.command)
    assert program == "mltcp" and words[-2:] == ["--on", "uml"]
    assert main([*words, "--name", check.id, "--dry-run"]) == EXIT_OK
    systems = {value.system for value in check.values} | {value.over for value in check.values if value.over}
    assert systems <= ({*words} if "--system" in words else {"reno", "mltcp_reno"})


def test_all_checks_take_twenty_minutes_at_most() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert sum(check.minutes for check in CHECKS) <= 20


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page."""
    text = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_has_every_check() -> None:
    expected = [
        [f"`{check.id}`", value.text, f"{check.minutes:g}", f"{check.disk_mb:g} MB"]
        for check in CHECKS
        for value in check.values
    ]
    assert [[row[0], *row[2:]] for row in table("Short column")] == expected


def headlines() -> list[list[str]]:
    return table("Full column")


@pytest.mark.parametrize("row", headlines(), ids=lambda row: str(row[0]))
def test_an_expected_value_is_that_of_the_kept_report(row: Sequence[Any]) -> None:
    name, command, expected = row[0].strip("`"), row[1], row[2]
    claim = CLAIMS[name]
    assert claim["figure"] == re.search(r"FIGURE=([\w-]+)", command)[1]  # type: ignore[index]
    value, tolerance = (float(number.replace("−", "-")) for number in expected.split(" ± "))
    assert abs(float(claim["value"]) - value) <= tolerance


def test_every_claim_that_is_checked_is_a_headline() -> None:
    named = {value.claim for check in CHECKS for value in check.values if value.claim}
    assert named <= {row[0].strip("`") for row in headlines()}
    first = (ROOT / "docs/report/report.md").read_text().split("<!-- begin headlines -->")[1].split("\n\n")[0]
    readme = (ROOT / "README.md").read_text()
    for row in headlines():
        claim = CLAIMS[row[0].strip("`")]
        assert claim["sentence"] in first or f"{float(claim['value']):.2f}×" in readme
