"""Figures, findings and the report, from runs of the fluid model: what is behind the data is known."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pandas as pd
import pytest

from testbed.cli import main
from testbed.core.runs import determinism_log, documents
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.verdict import Row, Verdict
from testbed.report import chapters, figures, sections, stalls, verdicts
from testbed.report.claims import PAPERS
from testbed.report.study import ids, load_study
from testbed.spec import sweep
from tests.support import fluid_runs, manifests
from tests.support.browser import BROWSER, PHONE, looked_at
from tests.support.claimed import graded
from tests.support.runs import one_plan

ROOT = Path(__file__).parents[3]
IDS = ("interleaving", "concept", "favoritism", "curves", "descent", "convergence")


def write(id: str, results: Path, exponent: float = 0.5) -> None:
    """What a figure's quick experiments would be if shares went as F^exponent; of a sweep the first two points."""
    specs = sweep.read(str(ROOT / "experiments" / f"{id}.toml"), {"quick": True})[:2]
    for spec in specs:
        few = msgspec.structs.replace(spec, seeds=3, iterations=min(spec.iterations, 18))
        fluid_runs.write(few, results, exponent)


pytestmark = pytest.mark.xdist_group("report")  # who share what follows


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fluid") / "results"
    for id in IDS:
        write(id, folder)
    (folder / determinism_log.FILE).write_bytes(documents.encode(determinism_log.Sample(60, 30, ())))
    return folder


@pytest.fixture(scope="module")
def reported(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of `results`; its figures are in ``figures`` beside it."""
    out = tmp_path_factory.mktemp("reported") / "with blank" / "report.html"
    assert main(["report", str(results), "--out", str(out), "--figures", str(out.parent / "figures")]) == 0
    return out


@pytest.mark.parametrize(
    ("figure", "claim", "verdict"),
    # The shift equation as published has shares ∝ F; here they go as √F.
    [("interleaving", "mltcp-interleaves", "reproduced"), ("concept", "mltcp-rule", "reproduced"),
     ("favoritism", "mltcp-increasing-f-separates", "reproduced"), ("curves", "mltcp-decreasing-functions", "reproduced"),
     ("descent", "mltcp-shift", "not reproduced"), ("convergence", "mltcp-few-iterations-reno", "reproduced")],
)  # fmt: skip
def test_what_the_fluid_model_does_is_found(
    figure: str, claim: str, verdict: str, results: Path, tmp_path: Path
) -> None:
    assert graded(figure, results, tmp_path)[claim].verdict == verdict


def test_without_results_every_claim_is_not_measured() -> None:
    found, problems = verdicts.of_chapters(figures.claims().claim, {}, Path())
    assert problems == [] and {one.verdict for one in found} == {"not measured"}


@pytest.mark.slow
def test_figures_drawn_again_are_the_same_bytes(results: Path, reported: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")  # elsewhere, and later
    assert main(["figures", str(tmp_path / "copy"), "--out", str(tmp_path / "second")]) == 0
    first, second = (
        {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}
        for folder in (reported.parent / "figures", tmp_path / "second")
    )
    assert set(first) >= {f"{id}.{kind}" for id in IDS for kind in ("csv", "pdf", "png")}
    assert first == second


class Tags(HTMLParser):
    """Every attribute that may name something elsewhere, and the rows of the claims."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            (tag, name, value or "") for name, value in attrs if name in ("src", "href", "srcset", "data", "id")
        ]


def test_the_report_stands_by_itself_and_its_links_lead_somewhere(reported: Path) -> None:
    """The appendix, too, but for its images, which lie beside it."""
    found = {name: Tags() for name in ("report.html", "appendix.html")}
    for name, page in found.items():
        page.feed((reported.parent / name).read_text())
    anchors = {name: {value for _, what, value in page.found if what == "id"} for name, page in found.items()}
    for where, page in found.items():
        for tag, name, value in page.found:
            if name == "id" or value.startswith("data:"):
                continue
            assert tag == "a" or (tag, where) == ("img", "appendix.html"), (tag, value)  # nothing else is loaded
            place, _, anchor = value.partition("#")
            assert not place or (reported.parent / unquote(place)).exists(), value
            assert not anchor or anchor in anchors[place or where], value
        assert not re.search(r"@import|url\(|<script|https?://", (reported.parent / where).read_text())
    assert reported.with_suffix(".md").read_text().startswith("# The papers' claims")


def test_every_claim_stands_in_the_appendix_and_in_claims_csv(reported: Path) -> None:
    ids = {claim.id for claim in figures.claims().claim}
    appendix = (reported.parent / "appendix.html").read_text()
    assert (
        ids
        == set(re.findall(r'<tr id="claim-([\w-]+)">', appendix))
        == set(pd.read_csv(reported.parent / "claims.csv")["id"])
    )


def test_each_figure_stands_once_with_the_paper_that_it_judges(reported: Path) -> None:
    page = reported.read_text()
    parts = dict(re.findall(r'<section id="paper-([\w-]+)">(.*?)</section>', page, re.DOTALL))
    shown = {id: [paper for paper, part in parts.items() if f'<article id="{id}">' in part] for id in IDS}
    assert shown == {id: ["MLTCP"] for id in IDS}
    assert all(f"make reproduce FIGURE={id}</code>" in parts["MLTCP"] for id in IDS)


def test_every_threat_is_told(reported: Path) -> None:
    told = reported.with_suffix(".md").read_text()
    threats = figures.claims().threat
    assert len(threats) >= 30 and all(f"- {one.says} {one.done}\n" in told for one in threats)


def test_the_kept_report_can_be_read_in_one_sitting() -> None:
    kept = ROOT / "docs" / "report"
    assert len((kept / "report.md").read_text().split()) <= 8000
    assert (kept / "report.html").stat().st_size <= 3_000_000


def test_headlines_come_first_and_papers_and_our_own_are_counted_apart(reported: Path) -> None:
    told = reported.with_suffix(".md").read_text()
    content = figures.claims()
    headlines = sorted((claim for claim in content.claim if claim.headline), key=lambda claim: claim.headline)
    assert len(headlines) == 10
    places = [told.index(claim.sentence) for claim in headlines]
    assert places == sorted(places) and places[-1] < told.index("| claims of |")
    counted = [line for line in told.splitlines() if line.startswith(tuple(f"| {paper} |" for paper in PAPERS))]
    assert sum(sum(map(int, re.findall(r"\d+", line.partition("|")[2].partition("|")[2]))) for line in counted) == len(
        content.claim
    )
    assert all(f"| {sentence.says} |" in told for sentence in content.sentence)


def test_how_many_runs_were_repeated_is_told(reported: Path) -> None:
    said = "| repeated, and compared | 30 of 60 runs, on any free worker: 30 of them byte-identical |"
    assert said in reported.with_suffix(".md").read_text()


@pytest.mark.slow
def test_a_figure_without_results_stays_if_asked_to(results: Path, reported: Path, tmp_path: Path) -> None:
    """Renewed from one figure's results, a report says of all others what it said; not a byte is different."""
    shutil.copytree(reported.parent, tmp_path / "kept")
    few, out = tmp_path / "results", tmp_path / "kept" / "report.html"
    few.mkdir()
    for folder in results.glob("descent*"):
        shutil.copytree(folder, few / folder.name)
    asked = ["report", str(few), "--out", str(out), "--figures", str(out.parent / "figures")]
    assert main([*asked, "--keep"]) == 0
    before, after = (pd.read_csv(folder / "claims.csv") for folder in (reported.parent, out.parent))
    assert before.equals(after)
    figure = '<article id="{}">(.*?)</article>'
    was, now = reported.read_text(), out.read_text()
    for id in set(IDS) - {"descent"}:
        assert re.findall(figure.format(id), was, re.DOTALL) == re.findall(figure.format(id), now, re.DOTALL) != []
    assert (out.parent / "figures" / "curves.json").exists()
    assert main(asked) == 0  # not asked: what is not there is not told, nor kept any longer
    assert 'id="curves"' not in out.read_text() and not (out.parent / "figures" / "curves.json").exists()
    (out.parent / "figures" / "curves.json").write_text("{}")
    assert main([*asked, "--keep"]) == 2


@pytest.mark.skipif(BROWSER is None, reason="no chromium here: make browser")
def test_a_browser_has_nothing_to_say_of_the_report(reported: Path, tmp_path: Path) -> None:
    appendix = re.sub("<img [^>]*>", "", (reported.parent / "appendix.html").read_text())
    assert looked_at(appendix, tmp_path) == ([PHONE, PHONE], [])
    page = reported.read_text()
    assert looked_at(page, tmp_path) == ([PHONE, PHONE], [])
    spoilt = page + '<img src="https://example.org/a.png"><hr style="width: 900px">'
    (window, document), console = looked_at(spoilt, tmp_path)  # what shall not be is seen
    assert document > window and len(console) == 1 and "example.org" in console[0]


def spoil(results: Path) -> dict[str, Path]:
    """Run directories that cannot be used, by what is to be said of them."""
    arm = min((results / "interleaving").glob("mltcp_reno-*"))
    runs = {seed: arm / str(seed) for seed in (1, 2, 3)}
    (runs[1] / "flows.csv").unlink()
    table = runs[2] / "iterations.csv"  # a digit that nobody could tell from the right one
    table.write_text(table.read_text().removesuffix("\n") + "1\n")
    manifest = json.loads((runs[3] / "manifest.json").read_text())
    (runs[3] / "manifest.json").write_text(json.dumps(manifest | {"version": 99}))
    other = results / "favoritism" / "reno" / "1"
    (other / "manifest.json").write_text("{")
    invalid = results / "favoritism" / "reno" / "2"
    broken = Verdict(VERSION, "invalid", (Row("I0", "drift", 2.0, None, "invalid"),))
    (invalid / "verdict.json").write_bytes(documents.encode(broken))
    return {
        "not complete": runs[1],
        "SHA-256": runs[2],
        "format version 99": runs[3],
        "cannot be read": other,
        "is invalid (I0: drift)": invalid,
    }


@pytest.mark.slow
def test_what_cannot_be_used_is_named_and_the_rest_is_drawn(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    spoilt = spoil(copy)
    mixed = copy / "descent" / "reno" / "1" / "manifest.json"
    mixed.write_text(json.dumps(json.loads(mixed.read_text()) | {"source_sha256": "f" * 64}))
    assert (
        main(["report", str(copy), "--out", str(tmp_path / "report.html"), "--figures", str(tmp_path / "figures")]) == 1
    )
    said = capsys.readouterr().err
    page = (tmp_path / "appendix.html").read_text()
    for what, path in spoilt.items():
        lines = [line for line in said.splitlines() if str(path) in line]
        assert len(lines) == 1 and what in lines[0], (what, lines)
        assert str(path) in page
    assert sum("Several programs" in line for line in said.splitlines()) == 1
    assert "Traceback" not in said
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} == set(IDS)


def test_no_results_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["report", str(tmp_path), "--out", str(tmp_path / "report.html"), "--figures", str(tmp_path / "figures")]
    assert main(asked) == 1
    assert "make reproduce" in capsys.readouterr().err
    assert main([*asked, "--keep"]) == 0  # of what is kept: here, nothing


@pytest.mark.slow
def test_the_command_is_the_one_that_made_the_runs(results: Path, tmp_path: Path) -> None:
    """Where they ran and what was set is part of it; other experiments of the same sweep are not."""
    copy = tmp_path / "results"
    shutil.copytree(results / "descent", copy / "descent")
    words = [
        "__main__.py",
        "sweep",
        "experiments/map.toml",
        "experiments/descent.toml",
        "--set",
        "rate=100mbit",
        "--on",
        "ssh:a",
        "-j",
        "1",
        "--out",
        "x",
    ]
    for path in copy.rglob("manifest.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"command": words}))
    one = copy / "descent" / "reno" / "1" / "manifest.json"
    one.write_text(
        json.dumps(
            json.loads(one.read_text())
            | {"command": ["run.py", "experiments/descent.toml", "--on", "host", "--out", "y"]}
        )
    )
    section = sections.one(figures.find("descent"), copy, tmp_path / "out")
    assert sorted(chapters.commands(section, "results")) == [
        "mltcp run experiments/descent.toml --on host --out results",
        "mltcp sweep experiments/descent.toml --set rate=100mbit --on ssh:HOST --out results",
    ]


def test_the_quick_sets_folder_is_no_experiment(results: Path, tmp_path: Path) -> None:
    """``make reproduce QUICK=1`` keeps its results in ``results/quick``."""
    shutil.copytree(results / "favoritism", tmp_path / "favoritism")
    shutil.copytree(results / "descent", tmp_path / "quick" / "descent")
    assert ids(tmp_path) == ["favoritism"]
    assert load_study(tmp_path, "descent").experiments == ()


@pytest.mark.slow
@pytest.mark.parametrize("id", ["interleaving", "curves", "convergence"])
def test_without_jobs_alone_nobody_can_tell(id: str, results: Path, tmp_path: Path) -> None:
    """What is interleaved is judged against the time alone; missing is not “never”."""
    for folder in results.glob(f"{id}*"):
        shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("isolated"))
    found = graded(id, tmp_path, tmp_path / "out")
    unknown = [one for one in found.values() if one.claim.measure.average == "every"]
    assert unknown and {one.verdict for one in unknown} == {"not measured"}


def test_stalls_of_runs_are_counted(tmp_path: Path) -> None:
    runs = []
    for seed, tcp in enumerate(({"TCPTimeouts": 2, "TCPLossProbes": 5}, {"TCPTimeouts": 1, "TCPLossProbes": 0}, None)):
        run = tmp_path / str(seed)
        run.mkdir()
        (run / "verdict.json").write_bytes(documents.encode(manifests.VALID))
        told = manifests.manifest(one_plan(jobs=1, cc=["reno"]), measured={"tcp": tcp})
        (run / "manifest.json").write_bytes(documents.encode(told))
        runs.append(run)
    assert stalls.describe_stalls(runs[2:]) == "not recorded"
    timeouts, probes, spurious, recorded, not_recorded = map(int, re.findall(r"\d+", stalls.describe_stalls(runs)))
    assert (timeouts, probes, spurious, recorded, not_recorded) == (3, 5, 0, 2, 1)


def test_the_parts_of_the_report_stand_between_markers(reported: Path) -> None:
    """So that other pages can include them."""
    told = reported.with_suffix(".md").read_text()
    for part in ("headlines", *PAPERS, "threats"):
        begin, end = told.index(f"<!-- begin {part} -->"), told.index(f"<!-- end {part} -->")
        assert begin < end and "<!-- begin" not in told[begin + 1 : end]
