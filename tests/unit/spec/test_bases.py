"""Several bases in one study: one drawing for each, and one table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from testbed.core.runs.plan import Plan
from testbed.report import chapters, figures, sections
from tests.support import synthetic
from tests.support.claimed import graded

FOUR = ("reno", "mltcp_reno", "cubic", "mltcp_cubic")


def only_reno_gains(one: Plan, _iteration: int) -> float:
    return 1.0 if one.system.label == "mltcp_reno" else 1.4


def test_each_base_has_a_verdict_and_a_drawing_of_its_own(tmp_path: Path) -> None:
    synthetic.experiment("partial", tmp_path, only_reno_gains, system=FOUR)
    figure = figures.find("partial")
    section = sections.one(figure, tmp_path, tmp_path / "out")
    assert not section.problems
    found = graded("partial", tmp_path, tmp_path / "report")
    assert found["mltcp-partial-helps-reno"].verdict == "reproduced"
    assert found["mltcp-partial-helps-cubic"].verdict == "no difference"
    assert found["mltcp-partial-helps-dcqcn"].verdict == "not measured"
    # Without a summary, which says in which order they were named, the first is the first by name.
    names = {f"partial{base}.{kind}" for base in ("", "-reno") for kind in ("png", "pdf")} | {"partial.csv"}
    assert {path.name for path in section.files} == {path.name for path in (tmp_path / "out").iterdir()} == names


def test_one_base_is_drawn_as_ever(tmp_path: Path) -> None:
    synthetic.experiment("partial", tmp_path, only_reno_gains)
    figure = figures.find("partial")
    section = sections.one(figure, tmp_path, tmp_path / "out")
    assert sorted(path.name for path in section.files) == ["partial.csv", "partial.pdf", "partial.png"]
    assert set(pd.read_csv(tmp_path / "out" / "partial.csv")["base"]) == {"reno"}


def test_a_base_may_have_a_file_of_its_own_and_that_of_most_runs_comes_first(tmp_path: Path) -> None:
    for name, seeds in (("fairness", 3), ("fairness.cubic", 2), ("fairness.dcqcn", 2)):
        synthetic.experiment(name, tmp_path, only_reno_gains, seeds=seeds)
    figure = figures.find("fairness")
    section = sections.one(figure, tmp_path, tmp_path / "out")
    assert not section.problems
    assert list(dict.fromkeys(pd.read_csv(tmp_path / "out" / "fairness.csv")["base"])) == ["reno", "cubic", "dcqcn"]
    assert {path.name for path in section.files if path.suffix == ".png"} == {
        "fairness.png", "fairness-cubic.png", "fairness-dcqcn.png",
    }  # fmt: skip
    assert sorted(chapters.commands(section, "results")) == [
        f"mltcp sweep experiments/{name}.toml --out results" for name in ("fairness.cubic", "fairness.dcqcn", "fairness")
    ]  # fmt: skip
