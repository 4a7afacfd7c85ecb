"""``mltcp explore``: what the file holds, and what is refused. The page itself is looked at in `test_explorer_page`."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed.cli import main
from testbed.core.errors import RequestError
from testbed.core.runs.load import Run, load_run
from testbed.report.explorer import page, series
from tests.support import explored, synthetic

pytestmark = pytest.mark.xdist_group("explorer")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return explored.results(tmp_path_factory.mktemp("explored") / "results")


@pytest.fixture(scope="module")
def written(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("written") / "a folder" / "explorer.html"
    assert main(["explore", str(results), "-o", str(out)]) == 0
    return out


def index(written: Path) -> dict[str, Any]:
    found = page.INDEX.search(written.read_bytes())
    assert found
    return dict(json.loads(found[1]))


def columns(written: Path, id: int) -> dict[str, Any]:
    """What the page decompresses of a run."""
    found = re.search(rf'<script id="run-{id}" type="text/plain">(.*?)</script>', written.read_text())
    assert found
    return dict(json.loads(zlib.decompress(base64.b64decode(found[1]))))


def numbers(column: Any) -> np.ndarray:
    return np.array([np.nan if one is None else one * column.scale for one in column.values])


def one_run(results: Path, **tables: pd.DataFrame) -> Run:
    run = load_run(results / explored.NAME / "mltcp_reno" / "1")
    vars(run).update(tables)
    return run


def test_it_holds_every_run_and_needs_no_network(written: Path) -> None:
    (experiment,) = index(written)["experiments"]
    assert experiment["name"] == explored.NAME
    assert [one["label"] for one in experiment["systems"]] == ["reno", "mltcp_reno"]
    assert [one["role"] for one in experiment["systems"]] == ["baseline", "treatment"]
    seeds = [(seed["seed"], seed["id"], seed["verdict"]) for one in experiment["systems"] for seed in one["seeds"]]
    assert seeds == [(1, 0, "valid"), (2, 1, "valid"), (1, 2, "valid"), (2, 3, "valid")]
    text = written.read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!data:)|url\(|@import""", text.partition("<script>")[0])
    assert "default-src 'none'" in text and "Copyright (c) 2022 Leon Sorokin" in text
    assert len(text) < 1_000_000


def test_the_columns_are_what_was_measured(results: Path, written: Path) -> None:
    run, found = one_run(results), columns(written, 2)
    for job in found["jobs"]:
        ends = run.iterations[run.iterations["job"] == job["job"]].groupby("iteration")["end_s"].max()
        assert np.array(job["ends"]["values"]) * job["ends"]["scale"] == pytest.approx(ends, abs=1e-6)
    (link,) = found["links"]
    assert link["name"] == "s1-s2" and set(link["carried"]) == {"0", "1"} and set(link["factors"]) == {"0", "1"}
    carried = sum(sum(one["values"]) * one["scale"] for one in link["carried"].values()) * found["bin_s"] / 8
    assert carried == pytest.approx(run.links["bytes"].max(), rel=0.01)
    assert [one["job"] for one in found["jobs"]] == [0, 1] and found["left_out"] == ""
    assert columns(written, 0)["links"][0]["factors"] == {}  # of Reno


def test_a_worker_that_only_receives_does_not_communicate(results: Path) -> None:
    run = one_run(results)
    job = series.series(run, page.MOST_BINS).jobs[0]
    begins, ends = map(numbers, job.busy)
    sends = run.iterations[(run.iterations["job"] == 0) & (run.iterations["bytes"] > 0)]
    assert begins == pytest.approx(sends["comm_start_s"], abs=1e-6) and ends == pytest.approx(sends["end_s"], abs=1e-6)


def test_peaks_and_sums_survive_longer_bins(results: Path) -> None:
    run = one_run(results)
    links, flows = run.links.copy(), run.flows.copy()
    middle = len(links) // 2
    links.loc[middle, "backlog_bytes"] = 99_000
    links["drops"] = np.where(links.index >= middle, 7, 0)
    one = flows.index[flows["job"] == 1][len(links) // 3]
    flows["cwnd_segments"] = 10
    flows.loc[one, "cwnd_segments"] = 250
    found = series.series(one_run(results, links=links, flows=flows), 64)
    assert found.bins <= 64 and round(found.bin_s * 1e9) % run.plan.sample_ns == 0
    (link,) = found.links
    assert link.queue and link.queue.high and numbers(link.queue.high).max() == pytest.approx(99_000, rel=1e-3)
    assert link.drops and numbers(link.drops).sum() == 7
    window = link.windows["1"]
    assert window.high and window.low and numbers(window.high).max() == 250 and numbers(window.low).min() == 10
    where = int(numbers(window.high).argmax())
    assert where == int(flows.loc[one, "t_s"] / found.bin_s) and numbers(window.mean)[where] < 250
    assert numbers(window.mean)[where + 1] == 10


def test_a_column_has_four_digits_and_what_is_unknown() -> None:
    assert series.column([0.0, 0.12345, None, 2.0]) == series.Column(0.001, [0, 123, None, 2000])
    assert series.column([5e9, 1.23456e9]).values == [5000, 1235]
    assert series.column([0, 0]) == series.Column(1.0, [0, 0]) and series.column([]) == series.Column(1.0, [])


@pytest.mark.slow
def test_it_becomes_as_small_as_it_must(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, small = tmp_path / "whole.html", tmp_path / "small.html"
    assert main(["explore", str(results), "-o", str(whole)]) == 0
    most = whole.stat().st_size - 2000
    assert main(["explore", str(results), "-o", str(small), "--max-size", f"{most}B"]) == 0
    assert small.stat().st_size <= most
    assert columns(small, 0)["bin_s"] > columns(whole, 0)["bin_s"]
    capsys.readouterr()
    assert main(["explore", str(results), "-o", str(tmp_path / "none.html"), "--max-size", "10kB"]) == 2
    said = capsys.readouterr().err
    assert said.count("error:") == 1 and "--max-size" in said and not (tmp_path / "none.html").exists()


def test_names_end_no_script(results: Path, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    for path in copy.rglob("manifest.json"):
        told = json.loads(path.read_text())
        told["plan"]["system"]["label"] = told["plan"]["topology"] = evil + told["plan"]["system"]["name"]
        path.write_text(json.dumps(told | {"backend": evil}))
    (copy / explored.NAME).rename(copy / evil.replace("/", "_"))
    out = tmp_path / "explorer.html"
    assert main(["explore", str(copy), "-o", str(out)]) == 0
    text = out.read_text()
    assert "<script>alert" not in text and "\\u003c/script>" in text
    assert page.experiments_of(out) == [evil.replace("/", "_")]


def test_what_cannot_be_read_is_named_and_the_rest_is_there(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    (copy / explored.NAME / "reno" / "1" / "flows.csv").unlink()
    (copy / explored.NAME / "reno" / "2" / "manifest.json").write_text("{")
    assert main(["explore", str(copy), "-o", str(tmp_path / "x.html")]) == 1
    said = capsys.readouterr()
    assert "flows.csv" in said.err and "manifest.json" in said.err and "x.html" in said.out
    (experiment,) = index(tmp_path / "x.html")["experiments"]
    assert [one["label"] for one in experiment["systems"]] == ["mltcp_reno"]


def test_results_of_one_name_are_told_apart(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "mine")
    found = page.experiments([results, tmp_path / "mine"])
    assert list(found) == [f"results/{explored.NAME}", f"mine/{explored.NAME}"]
    assert list(page.experiments([results / explored.NAME])) == [explored.NAME]


@pytest.mark.parametrize(
    ("asked", "because"),
    [(["RESULTS/none"], "is not there"), (["RESULTS", "--max-size", "big"], "--max-size: 'big'"), (["RESULTS", "-o", "/dev/null/x.html"], "/dev/null")],
)  # fmt: skip
def test_bad_input(asked: list[str], because: str, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", *(word.replace("RESULTS", str(results)) for word in asked)]) == 2
    said = capsys.readouterr().err
    assert because in said and said.count("error:") == 1 and "Traceback" not in said


def test_a_file_is_kept_unless_force_is_given(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.html"
    out.write_text("mine")
    assert main(["explore", str(results), "-o", str(out)]) == 2
    assert out.read_text() == "mine" and "--force" in capsys.readouterr().err
    assert main(["explore", str(results), "-o", str(out), "--force"]) == 0
    assert out.read_text() != "mine"


@pytest.mark.slow
def test_figures_of_a_report_link_to_their_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.experiment(
        "interleaving", tmp_path / "results", synthetic.gains, seeds=1, iterations=12, system=("reno", "mltcp_reno")
    )
    explorer, out = tmp_path / "an explorer.html", tmp_path / "out" / "report.html"
    only = ["--experiments", "experiments/interleaving.toml"]
    asked = ["report", str(tmp_path / "results"), "--out", str(out), "--figures", str(tmp_path / "out"), *only]
    assert main(["explore", str(tmp_path / "results"), "-o", str(explorer)]) == 0
    assert main(asked) in (0, 1) and "explorer" not in out.read_text()
    assert main([*asked, "--explorer", str(explorer)]) in (0, 1)
    assert out.read_text().count('href="../an%20explorer.html#e=interleaving"') == 1
    capsys.readouterr()
    assert main([*asked, "--explorer", str(tmp_path / "none.html")]) == 2
    assert "none.html" in capsys.readouterr().err
    assert main([*asked, "--explorer", str(out)]) == 2
    assert "is not an explorer" in capsys.readouterr().err


def test_only_an_explorer_is_one(written: Path, tmp_path: Path) -> None:
    assert page.experiments_of(written) == [explored.NAME]
    (tmp_path / "other.html").write_text("<p>no explorer</p>")
    with pytest.raises(RequestError, match="is not an explorer"):
        page.experiments_of(tmp_path / "other.html")
