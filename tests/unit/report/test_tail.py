"""Tails and marking thresholds: what invented runs come to."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from testbed.core.runs.plan import Plan
from testbed.report import alternative, figures, redrawing, style
from testbed.report.study import load_study
from tests.support import synthetic

KEPT = Path(__file__).parents[3] / "docs" / "report" / "figures"


def slow_base(one: Plan, _iteration: int) -> float:
    """Reno takes four times the ideal, what the placebo has too; F takes the ideal."""
    return 1.0 if one.system.role == "treatment" and one.system.congestion[0].preset != "placebo" else 4.0


@pytest.mark.parametrize(("id", "table", "gain"), [("tail", "tail-p99", "value"), ("frames", "frames-gains", "gain")])
def test_gains_are_told_by_arm(id: str, table: str, gain: str, tmp_path: Path) -> None:
    synthetic.experiment(id, tmp_path / "results", slow_base)
    figures.find(id).draw(load_study(tmp_path / "results", id), tmp_path / "out")
    found = pd.read_csv(tmp_path / "out" / f"{table}.csv")
    arms = {"paper": 4.0, "recommended": 4.0, "placebo": 1.0} if id == "tail" else {"paper": 4.0}  # of the quick sets
    assert found.groupby("arm")[gain].mean().to_dict() == pytest.approx(arms)
    assert (found["frames"] > 0).all()
    if id == "tail":
        assert set(found["long_jobs"]) == {20} and set(found["duty"]) == {0.5} and (found["seeds"] == 3).all()


def test_a_map_stands_next_to_the_point_with_most_seeds(tmp_path: Path) -> None:
    """One seed of a few cells neither moves the point nor joins its gain."""
    synthetic.experiment("tail", tmp_path / "results", slow_base)
    for long_jobs in (8, 12):
        synthetic.experiment(f"tail.grid.{long_jobs}", tmp_path / "results", slow_base, seeds=1)
    figure = figures.find("tail")
    figure.draw(load_study(tmp_path / "results", "tail"), tmp_path / "out")
    tables = {name: pd.read_csv(tmp_path / "out" / f"{name}.csv") for name in ("tail", "tail-p99")}
    seeds = tables["tail-p99"].set_index(["long_jobs", "arm"])["seeds"]
    assert seeds[20, "paper"] == 3 and seeds[8, "paper"] == seeds[12, "paper"] == 1
    assert figures.is_plotted(figure)
    arms, mapped = alternative.panels(figure.plot(tables))
    assert (
        len(arms.collections) == 8 and len(mapped.lines) == 12
    )  # four bars with intervals; five gains, with one seed or several, two rules
    image = tmp_path / "out" / "tail.png"
    assert "20 jobs of 1 s" in style.note(image) and "3 seeds" in style.note(image) and "one seed" in style.note(image)


def test_without_a_map_there_is_one_panel(tmp_path: Path) -> None:
    synthetic.experiment("tail", tmp_path / "results", slow_base)
    figures.find("tail").draw(load_study(tmp_path / "results", "tail"), tmp_path / "out")
    image = tmp_path / "out" / "tail.png"
    assert "One panel" in style.description(image) and "one seed" not in style.note(image)


def test_gains_at_four_frames_are_shown_over_jobs(tmp_path: Path) -> None:
    """Cells with this one threshold are in the last panel alone."""
    for name in ("frames", "frames.jobs"):
        synthetic.experiment(name, tmp_path / "results", slow_base)
    figure = figures.find("frames")
    figure.draw(load_study(tmp_path / "results", "frames"), tmp_path / "out")
    assert figures.is_plotted(figure)
    tables = {name: pd.read_csv(tmp_path / "out" / f"{name}.csv") for name in ("frames", "frames-gains")}
    *by_frames, by_jobs = alternative.panels(figure.plot(tables))
    assert by_jobs.get_xlabel() == "jobs" and by_jobs.get_title(loc="left") == "4 frames a flow"
    assert all(panel.get_xlabel() == "marking threshold (frames a flow)" for panel in by_frames)


def test_no_legend_covers_a_gain() -> None:
    """Of the kept tables, where a star was hidden."""
    tables = {name: redrawing.read(KEPT / f"{name}.csv") for name in ("frames", "frames-gains")}
    figure = figures.find("frames")
    assert figures.is_plotted(figure)
    drawn = figure.plot(tables)
    drawn.canvas.draw()
    for panel in alternative.panels(drawn):
        box = panel.get_legend().get_window_extent()
        for line in panel.get_lines():
            for x, y in line.get_transform().transform(line.get_xydata()):
                assert not box.contains(x, y), (panel.get_title(loc="left"), line.get_label())
