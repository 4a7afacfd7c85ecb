"""Every experiment of the repository can be planned, belongs to a figure, and its figure says what its data say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.mltcp import circular, stragglers
from testbed.core.errors import RequestError, VirtualTimeOnlyError
from testbed.core.runs.plan import Plan
from testbed.planning import plan
from testbed.report import figures, sections
from testbed.report.study import Study, figure_id, load_study
from testbed.spec import schedules, sweep
from tests.support import synthetic
from tests.support.claimed import graded
from tests.support.runs import some

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
EVERY = sorted(EXPERIMENTS.glob("*.toml"))
FILES = [Path(file) for file in schedules.apart([str(file) for file in EVERY])[1]]  # the others run nothing
QUICK_RUNS = 40  # at most, of one file: each takes two seconds and more
# Drawn by what any experiment is drawn by, not figures of the paper.
GENERAL = {"constant-factor", "constant-factor-loss", "static-unfairness"}
# Those that runs of the fluid model cannot stand for (`test_report`).
INVENTED = (
    "arms", "baselines", "cdf-cubic", "cdf-dcqcn", "cdf-reno", "circular", "fairness", "frames", "map", "partial", "patterns", "scale", "tail",
    "sensitivity", "stragglers", "sjf-model", "sjf-ratio", "sjf-sharing",
)  # fmt: skip
# What they have in common: a base and MLTCP, and whether the one gains on the other.
SIMPLE = ("cdf-reno", "map", "partial", "patterns")


def learns(one: Plan, iteration: int) -> float:
    """MLTCP interleaves after eight iterations; everything else overlaps."""
    mltcp = any("mltcp" in job.cc.spec for job in one.jobs)
    return 1.0 if mltcp and iteration >= 8 else 1.4 + 0.01 * one.seed


def same(one: Plan, iteration: int) -> float:
    return 1.4


def study(id: str, folder: Path, times: synthetic.Times) -> Study:
    synthetic.experiment(id, folder, times)
    return load_study(folder, id)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize(
    "variant", some([{}, {"quick": True}], {"quick": True}, mark=pytest.mark.slow), ids=["full", "quick"]
)
def test_every_experiment_can_be_planned(file: Path, variant: dict[str, object]) -> None:
    specs = sweep.read(str(file), variant)
    runs = [one for each in specs for one in plan.plans(plan.resolve(each))]
    assert all(one.experiment == file.stem or one.experiment.startswith(f"{file.stem}.") for one in runs)
    others = {
        "constant-factor": "auto",
        "interleaving": "auto",
        "predict-cluster": "flow",
        "predict-shared-link": "flow",
    }
    assert {each.on for each in specs} <= {"uml", others.get(file.stem)}
    if variant:
        assert len(runs) <= QUICK_RUNS


def test_against_a_real_clock_all_of_it_takes_an_hour() -> None:
    """At 500 Mbit/s or less, without what takes netem (marks take none: docs/explanation/statistics.md); half of the ideal time is added for what is not ideal, or busy."""
    seconds = 0.0
    for file in FILES:
        try:
            specs = sweep.read(str(file), {"on": "host"})
        except VirtualTimeOnlyError:
            continue
        for one in [one for each in specs for one in plan.plans(plan.resolve(each))]:
            assert one.link.rate_bps <= 500_000_000 and not one.wires
            seconds += 4 + max(job.iterations * (job.ideal_s or 0.0) for job in one.jobs) * (
                1 if one.alone is not None else 1.3
            )
    assert seconds < 3600


def test_every_experiment_is_a_figures_and_every_figure_has_one() -> None:
    names = {figures.id_for(figure_id(file.stem)) for file in EVERY}
    assert {figure.ID for figure in figures.every()} == names - GENERAL


def test_cassini_refuses_the_circular_placement() -> None:
    """What the figure `circular` says of it."""
    with pytest.raises(RequestError, match="its affinity graph has a loop"):
        plan.plans(plan.resolve(sweep.read(str(EXPERIMENTS / "circular.toml"), {"quick": True, "cc": ("cassini",)})[0]))


@pytest.mark.parametrize("id", INVENTED)
def test_every_figure_draws_and_judges(id: str, tmp_path: Path) -> None:
    figure = figures.find(id)
    found = study(id, tmp_path / "results", learns)
    assert found.problems == ()
    written = figure.draw(found, tmp_path / "out")
    assert {path.name for path in written} >= {f"{id}.{suffix}" for suffix in ("png", "pdf", "csv")}
    claimed = [one for one in graded(id, tmp_path / "results", tmp_path / "report").values() if one.case is not None]
    assert claimed
    for one in claimed:
        assert one.case and (
            one.case.low is None
            or one.case.high is None
            or one.case.low <= one.case.value + 1e-9 <= one.case.high + 2e-9
        )


@pytest.mark.parametrize(
    "id",
    some(
        (id for id in INVENTED if id not in ("cdf-dcqcn", "frames", "tail", "sjf-model", "sjf-ratio", "sjf-sharing")),
        "cdf-reno",
        "map",
        "patterns",
    ),
)
def test_every_figure_draws_what_a_real_clock_leaves_time_for(id: str, tmp_path: Path) -> None:
    """One or two seeds, and fewer of everything."""
    synthetic.write(sweep.read(str(EXPERIMENTS / f"{id}.toml"), {"on": "host"}), tmp_path / "results", learns)
    section = sections.one(figures.find(id), tmp_path / "results", tmp_path / "out")
    assert section.problems == () and len(section.files) >= 3


@pytest.mark.parametrize("id", SIMPLE)
def test_verdicts_follow_the_data(id: str, tmp_path: Path) -> None:
    found = []
    for name, times in (("gain", learns), ("none", same)):
        study(id, tmp_path / name, times)
        found.append(next(iter(graded(id, tmp_path / name, tmp_path / "out" / name).values())))
    gain, none = found
    assert (
        gain.verdict not in ("no difference", "not reproduced")
        and gain.case
        and gain.case.value == pytest.approx(1.42, abs=0.01)
    )
    assert none.case and none.case.value == pytest.approx(1.0)
    assert none.verdict == ("reproduced" if id == "map" else "no difference")  # that it does no harm


def test_a_graph_of_jobs_and_links_has_a_loop_or_not() -> None:
    ring = [(0, "a"), (0, "b"), (1, "b"), (1, "c"), (2, "c"), (2, "a")]
    assert circular.has_loop(ring)
    assert not circular.has_loop(ring[:-1])


def test_the_spread_of_offsets_is_that_on_a_circle() -> None:
    offsets = np.array([0.95, 0.05, 0.0, 0.0])  # around zero, on a circle of one second
    assert stragglers.spread_s(offsets, 1.0) == pytest.approx(np.std([-0.05, 0.05, 0.0, 0.0]))
    assert stragglers.spread_s(offsets + 0.5, 1.0) == pytest.approx(np.std([-0.05, 0.05, 0.0, 0.0]))


@pytest.mark.parametrize(("apart", "verdict"), [(1.01, "reproduced"), (1.04, "not reproduced")])
def test_backends_agree_or_not(apart: float, verdict: str, tmp_path: Path) -> None:
    """Jobs alone and MLTCP once settled; two places of the same kind are one."""
    figure = figures.find("agreement")
    for place in ("uml", "host"):
        flags = {"name": f"agreement.{place}"}
        synthetic.write(
            sweep.read(str(EXPERIMENTS / "agreement.toml"), flags),
            tmp_path,
            lambda one, iteration, factor=1.0 if place == "uml" else apart: factor * learns(one, iteration),  # type: ignore[misc]
        )
    assert len(figure.draw(load_study(tmp_path, "agreement"), tmp_path / "one")) == 3  # one place is no error, either
    for manifest in (tmp_path / "agreement.host").rglob("manifest.json"):
        manifest.write_text(manifest.read_text().replace('"backend": "uml"', '"backend": "host"'))
    (found,) = graded("agreement", tmp_path, tmp_path / "report").values()
    assert found.case and (found.verdict, found.case.seeds) == (verdict, 5)
    assert found.case.value == pytest.approx(1 / apart, rel=1e-3)
    assert len(figure.draw(load_study(tmp_path, "agreement"), tmp_path / "out")) == 3
    assert not sections.one(figure, tmp_path, tmp_path / "out").problems  # for any other figure two places are one
    assert any("Several programs" in problem for problem in load_study(tmp_path, "agreement").problems)
