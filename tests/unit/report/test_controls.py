"""Every claim fails on something: what it is about, taken away, and it is not reproduced. Else its verdict would say nothing."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from testbed.core.runs import documents, metrics, rows
from testbed.core.runs.load import TABLES, Run, digest, load_run
from testbed.core.runs.plan import Plan
from testbed.core.runs.verdict import Row
from testbed.models import gradient_masks, learning
from testbed.report import added_lines, chapters, claims, figures, sections, trainings
from testbed.report.finding import Verdict, graded, no_difference
from testbed.report.study import load_study
from testbed.spec import sweep
from tests.support import fluid_runs, synthetic
from tests.support.manifests import VALID
from tests.unit.replay.test_learning import TASK

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
FAILS: tuple[Verdict, ...] = ("no difference", "not reproduced")


def verdicts(id: str, results: Path) -> dict[str, Verdict]:
    return {finding.claim: finding.verdict for finding in figures.find(id).find(load_study(results, id))}


def treated(one: Plan) -> bool:
    return one.system.role == "treatment" or any(job.cc.role == "treatment" for job in one.jobs)


def alike(_one: Plan, _iteration: int) -> float:
    return 1.4


def ideal(_one: Plan, _iteration: int) -> float:
    return 1.0


def harm(one: Plan, _iteration: int) -> float:
    return 1.4 if treated(one) else 1.1


def wander(one: Plan, iteration: int) -> float:
    """Iterations of any length, another one for each seed."""
    return 1.0 + random.Random(f"{one.seed} {iteration} {treated(one)}").uniform(0, 0.8)


def crowded(one: Plan, _iteration: int) -> float:
    """The more jobs, the less time they take."""
    return 3.0 if len(one.jobs) < 3 else 1.0


def settled_at_six(one: Plan, iteration: int) -> float:
    """MLTCP is interleaved from its seventh iteration on."""
    return 1.0 if treated(one) and iteration >= 6 else 1.4


def slower(one: Plan, iteration: int) -> float:
    return settled_at_six(one, iteration) * (1.3 if treated(one) else 1.0)


def eight_later(one: Plan, iteration: int) -> float:
    return 1.0 if treated(one) and iteration >= 14 else 1.4


def where_lost(one: Plan, _iteration: int) -> float:
    """MLT takes 1.4 times as long where packets are lost."""
    return 1.4 if treated(one) and one.wires else 1.0


def the_more_the_slower(one: Plan, _iteration: int) -> float:
    """The fewer of MLT's parts are left out, the longer."""
    return 1.5 - 0.1 * one.jobs[0].transport.count("=") if treated(one) else 1.2


def thrice(one: Plan, _iteration: int) -> float:
    return 3.0 if treated(one) else 1.0


def a_third(one: Plan, _iteration: int) -> float:
    return 1.0 if treated(one) else 3.0


def now_and_then(one: Plan, _iteration: int) -> float:
    """What MLT gains is another number in each seed, 1.65 in the mean."""
    return 1.0 if treated(one) else 0.7 + 0.5 * one.seed


def from_one(one: Plan, _iteration: int) -> float:
    """Twice as long under LTP where a single worker's way loses 8 %."""
    return 2.0 if treated(one) and any(wire.loss > 0.05 for wire in one.wires.values()) else 1.0


def going_back(one: Plan, _iteration: int) -> float:
    """Twice as long under LTP where what the server sends is lost."""
    return 2.0 if treated(one) and one.wires.get("l1-s1") else 1.0


def slow(_one: Plan, _iteration: int) -> float:
    return 3.0


def slow_smallest_first(one: Plan, _iteration: int) -> float:
    return 3.0 if one.scheduler == "sjf_bco" else 1.0


def by_default_worse(one: Plan, _iteration: int) -> float:
    """Every pair of slope and intercept interleaves, but the one that is the default."""
    return 1.1 if one.system.label in ("reno", "mltcp_reno") else 1.0


def late(one: Plan, iteration: int) -> float:
    """Interleaved at last, long after the twin."""
    return 1.4 if iteration < one.iterations - metrics.interleaved_needs(one.iterations) else 1.0


# By figure: what is made of its experiments, and the claims (by how they begin) that fail on it.
INVENTED: dict[str, list[tuple[synthetic.Times, tuple[str, ...]]]] = {
    "interleaving": [(ideal, ("Under the base",)), (alike, ("Under the base",))],
    "cdf-reno": [(alike, ("MLTCP-Reno",))],
    "cdf-cubic": [(alike, ("MLTCP-CUBIC",))],
    "cdf-dcqcn": [(alike, ("MLTCP-DCQCN",))],
    "tails": [(alike, ("Up to 4",))],
    "edges": [
        (
            alike,
            (
                "Behind interfaces of the links' rate MLTCP takes the ideal iteration time where links mark",
                "Behind interfaces of the links' rate MLTCP takes the ideal iteration time where links drop",
            ),
        ),
        (ideal, ("Behind interfaces",)),
    ],
    "map": [(harm, ("On one link",))],
    "partial": [(alike, ("MLTCP also helps",)), (harm, ("MLTCP also helps",))],
    "patterns": [(alike, ("MLTCP's gain extends",)), (harm, ("MLTCP's gain extends",))],
    "circular": [(alike, ("MLTCP interleaves",)), (ideal, ("MLTCP interleaves",))],
    "stragglers": [(alike, ("MLTCP is robust", "Around the interleaved")), (wander, ("Around the interleaved",))],
    "scale": [(alike, ("MLTCP's steady", "The fewer loss cycles")), (ideal, ("MLTCP's steady",))],
    "sensitivity": [(alike, ("A range of F",)), (by_default_worse, ("A range of F",))],
    "baselines": [(alike, ("MLTCP approximates",)), (harm, ("MLTCP approximates",))],
    "fairness": [(harm, ("A training job",))],
    "ltp-incast": [
        (alike, ("LTP shortens the iterations", "LTP shortens them", "Tolerating")),
        (harm, ("LTP shortens the iterations", "LTP shortens them")),
    ],
    "ltp-loss": [
        (alike, ("LTP is up to", "LTP is faster")),
        (harm, ("LTP is up to", "LTP is faster", "Where nothing")),
    ],
    "mlt-fct": [(alike, ("Exchanges", "The tail", "With thresholds"))],
    "mlt-rto": [(alike, ("The longer", "MLT has more"))],
    "mlt-speedup": [(alike, ("With parameter", "The headline of")), (now_and_then, ("The headline of",))],
    "mlt-components": [
        (the_more_the_slower, ("Each part",)),
        (alike, ("All of MLT", "With every path")),
    ],
    "mlt-interleave": [(alike, ("Where F scales",))],
    "mlt-loss": [(where_lost, ("1 % of loss",)), (alike, ("The same loss",))],
    "ltp-uneven": [(from_one, ("What one worker",)), (going_back, ("To LTP",))],
    "sjf-ratio": [(slow, ("Equation 8",)), (slow_smallest_first, ("SJF-BCO", "It ends before"))],
    "sjf-sharing": [(harm, ("MLTCP shortens", "SJF-BCO"))],
    "sjf-model": [(crowded, ("Equation 8",)), (alike, ("Under MLTCP",))],
    "convergence": [(late, ("A fluid model",))],
    "curves": [(late, ("A fluid model",))],
}
FLUID = {  # with shares that do not follow F
    "interleaving": ("Under the base", "MLTCP uses the network"),
    "concept": ("Of two jobs",),
    "favoritism": ("An F that increases",),
    "curves": ("Several increasing",),
    "descent": ("In each iteration",),
    "convergence": ("Jobs interleave", "That happens"),
}


@pytest.mark.parametrize(
    ("id", "times", "beginnings"),
    [(id, times, beginnings) for id, cases in INVENTED.items() for times, beginnings in cases],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
)
def test_a_claim_fails_where_its_matter_is_missing(
    id: str, times: synthetic.Times, beginnings: tuple[str, ...], tmp_path: Path
) -> None:
    synthetic.experiment(id, tmp_path, times)
    found = verdicts(id, tmp_path)
    judged = {claim: verdict for claim, verdict in found.items() if claim.startswith(beginnings)}
    assert judged and set(judged.values()) <= set(FAILS), found


@pytest.mark.parametrize(
    ("id", "only", "claims_"),
    [("ltp-loss", ".delay-50us.", ("Where a round trip",)), ("mlt-loss", "", ("MLT is faster than the", "MLT is faster than CUBIC", "With 1 % of loss on", "With 1 % of loss MLT", "With 1 % of loss and", "Without loss"))],
)  # fmt: skip
@pytest.mark.parametrize(("times", "expected"), [(alike, FAILS), (a_third, ("reproduced",))])
def test_where_gains_end_is_told_by_what_they_are_there(
    id: str, only: str, claims_: tuple[str, ...], times: synthetic.Times, expected: tuple[Verdict, ...], tmp_path: Path
) -> None:
    """By points of the full set: the quick one has no path as short, and one least timeout."""
    synthetic.experiment(id, tmp_path, times, {}, only=only, iterations=2)
    judged = {claim: verdict for claim, verdict in verdicts(id, tmp_path).items() if claim.startswith(claims_)}
    assert len(judged) == len(claims_) and set(judged.values()) <= set(expected), judged


@pytest.mark.parametrize(("times", "expected"), [(harm, "not reproduced"), (alike, "reproduced")])
def test_an_ltp_that_costs_where_nothing_is_lost_is_found(
    times: synthetic.Times, expected: Verdict, tmp_path: Path
) -> None:
    """By points of the full set: the quick one has no queue as deep."""
    asked = {"system": ("reno", "ltp", "ltp:fraction=1")}
    synthetic.experiment("ltp-incast", tmp_path, times, asked, only=".buffer-1MB.", iterations=2)
    assert verdicts("ltp-incast", tmp_path)[figures.find("ltp-incast").NO_GAIN] == expected  # type: ignore[attr-defined]


def test_a_level_of_noise_that_only_the_base_was_run_at_keeps_the_figure(tmp_path: Path) -> None:
    synthetic.experiment("stragglers", tmp_path, alike, {})
    shutil.rmtree(tmp_path / "stragglers.noise-0_5" / "mltcp_reno")
    assert len(verdicts("stragglers", tmp_path)) == 2


def fluid(id: str, folder: Path, exponent: float = 0.0) -> None:
    for spec in sweep.read(str(EXPERIMENTS / f"{id}.toml"), {"quick": True})[:2]:
        few = msgspec.structs.replace(spec, seeds=3, iterations=min(spec.iterations, 14))
        fluid_runs.write(few, folder, exponent)


@pytest.mark.parametrize("id", FLUID)
def test_without_force_a_claim_fails(id: str, tmp_path: Path) -> None:
    fluid(id, tmp_path)
    failing = {claim: verdict for claim, verdict in verdicts(id, tmp_path).items() if claim.startswith(FLUID[id])}
    assert failing and not set(failing.values()) & {"reproduced", "partly"}, failing


def spoilt(results: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Other ``flows.csv`` in every run, and a manifest that knows them."""
    for path in results.rglob("flows.csv"):
        change(pd.read_csv(path)).to_csv(path, index=False)
        told = msgspec.structs.replace(
            load_run(path.parent).manifest, digest=digest({name: (path.parent / name).read_bytes() for name in TABLES})
        )
        (path.parent / "manifest.json").write_bytes(documents.encode(told))


def test_an_f_that_is_stuck_is_no_rule(tmp_path: Path) -> None:
    fluid("concept", tmp_path, exponent=0.5)
    rule = next(claim for claim in verdicts("concept", tmp_path) if claim.startswith("The additive increase"))
    assert verdicts("concept", tmp_path)[rule] == "reproduced"
    spoilt(tmp_path, lambda flows: flows.assign(mltcp_f=1.0))
    assert verdicts("concept", tmp_path)[rule] == "not reproduced"


def test_a_flow_that_loses_its_share_is_found(tmp_path: Path) -> None:
    synthetic.experiment("fairness", tmp_path, alike)
    (claim,) = (claim for claim in verdicts("fairness", tmp_path) if claim.startswith("A long-lived"))
    assert verdicts("fairness", tmp_path)[claim] == "reproduced"
    for path in tmp_path.rglob("flows.csv"):
        run = load_run(path.parent)
        if any(treated_job.cc.role == "treatment" for treated_job in run.jobs):
            spoilt(path.parent, lambda flows: flows.assign(bytes_acked=0.8 * flows["bytes_acked"]))
    assert verdicts("fairness", tmp_path)[claim] == "not reproduced"


def _tenth(flows: pd.DataFrame, share: float = 0.1) -> pd.DataFrame:
    """As if all jobs but the first had got less."""
    acked = flows["bytes_acked"]
    return flows.assign(bytes_acked=acked.where(flows["job"] == 0, share * acked))


def _third(flows: pd.DataFrame) -> pd.DataFrame:
    return _tenth(flows, 1 / 3)


def test_who_gets_less_of_a_link_is_found(tmp_path: Path) -> None:
    synthetic.experiment("ltp-beside", tmp_path, alike)
    assert set(verdicts("ltp-beside", tmp_path).values()) == {"reproduced"}
    for path in tmp_path.rglob("flows.csv"):
        spoilt(path.parent, _tenth if load_run(path.parent).plan.jobs[-1].by_tcp else _third)
    assert set(verdicts("ltp-beside", tmp_path).values()) == {"not reproduced"}


def _tenth_of_the_first(flows: pd.DataFrame) -> pd.DataFrame:
    return _tenth(flows.assign(job=1 - flows["job"])).assign(job=flows["job"])


def test_who_gets_less_beside_mlt_is_found(tmp_path: Path) -> None:
    """In one queue, where TCP gets ten times as much, and in classes of its own, where MLT does."""
    synthetic.experiment("mlt-beside", tmp_path, alike)
    assert set(verdicts("mlt-beside", tmp_path).values()) == {"reproduced"}
    for path in tmp_path.rglob("flows.csv"):
        bands = max(link.bands for link in load_run(path.parent).plan.bottlenecks.values())
        spoilt(path.parent, _tenth if bands > 1 else _tenth_of_the_first)
    assert set(verdicts("mlt-beside", tmp_path).values()) == {"not reproduced"}


def test_a_worker_whose_gradients_hardly_count_is_found(tmp_path: Path) -> None:
    synthetic.experiment("ltp-uneven", tmp_path, ideal)
    for share, verdict in ((0.8, "reproduced"), (0.1, "not reproduced")):
        for path in tmp_path.rglob("iterations.csv"):
            plan = load_run(path.parent).plan
            if plan.jobs[0].by_tcp or plan.alone is not None:
                continue
            told = pd.DataFrame(dict.fromkeys(rows.columns(rows.Messages), 0), index=range(1, len(plan.jobs[0].hosts)))
            loses = told.index == (1 if "l2-s1" in plan.wires else 0)
            told = told.assign(
                peer=told.index,
                side="receive",
                stage="gradient",
                bytes=1000,
                delivered=(1000 * pd.Series(loses, told.index).map({True: share, False: 0.8})).astype(int),
            )
            told.to_csv(path.parent / "messages.csv", index=False)
        assert verdicts("ltp-uneven", tmp_path)[figures.find("ltp-uneven").SHARES] == verdict  # type: ignore[attr-defined]


def all_learn(folder: Path, final: Callable[[Run], float], missing: int = 100) -> None:
    """As if every job had learnt so well, and those not by TCP had missed so many bytes."""
    for path in folder.rglob("iterations.csv"):
        run = load_run(path.parent)
        learnt(run, final(run), 0 if run.plan.jobs[0].by_tcp else missing)


def lossy(final: float) -> Callable[[Run], float]:
    """What all learn in the end that are not by TCP; with nothing missing it is 0.9."""
    return lambda run: 0.9 if run.plan.jobs[0].by_tcp else final


def learnt(run: Run, final: float, missing: int) -> None:
    """As if a job had learnt so well in the end, and so many bytes of every gradient had been missing."""
    looks = range(9, run.plan.iterations, 10)
    ends = run.iterations.groupby("iteration")["end_s"].max()
    curve = [rows.Training(0, number, float(ends[number]), final * (1 - 0.5 ** (number + 1))) for number in looks]
    (run.path / "training.csv").write_text(rows.text(rows.Training, curve, decimals=9))
    if missing:
        told = pd.DataFrame(dict.fromkeys(rows.columns(rows.Messages), 0), index=range(run.plan.iterations))
        told = told.assign(iteration=told.index, peer=1, side="receive", stage="gradient", bytes=1000, missing=missing)
        told.assign(delivered=1000 - missing).to_csv(run.path / "messages.csv", index=False)


@pytest.mark.parametrize(("at_random", "expected"), [(0.9, FAILS), (0.7, ("reproduced",))])
def test_a_switch_that_might_as_well_drop_anything_is_found(
    at_random: float, expected: tuple[Verdict, ...], tmp_path: Path
) -> None:
    figure: Any = figures.find("mlt-accuracy")
    synthetic.experiment("mlt-accuracy.switch", tmp_path, alike, {"iterations": 60})
    all_learn(tmp_path, lambda run: at_random if "tag=random" in run.system else 0.9, missing=300)
    found = figure._chosen(
        load_study(tmp_path, "mlt-accuracy"), pd.DataFrame(figure._emulated(load_study(tmp_path, "mlt-accuracy")))
    )
    assert "÷ by importance: 1.00" in found.measured
    assert found.verdict in expected, found


@pytest.mark.parametrize(("plain", "expected"), [(0.9, FAILS), (0.7, ("reproduced",))])
def test_a_dispersal_that_changes_nothing_is_found(plain: float, expected: tuple[Verdict, ...], tmp_path: Path) -> None:
    figure: Any = figures.find("mlt-accuracy")
    system = ("reno", "mlt:parameters=whole", "mlt:parameters=whole,tolerance=0.3")
    for name in ("mlt-accuracy", "mlt-accuracy.dispersed"):
        synthetic.experiment(name, tmp_path, alike, {"iterations": 60, "system": system})
    all_learn(tmp_path, lambda run: 0.9 if trainings.dispersed(run) else lossy(plain)(run))
    study = load_study(tmp_path, "mlt-accuracy")
    found = figure._dispersed(study, pd.DataFrame(figure._emulated(study)))
    assert found.verdict in expected, found


@pytest.mark.parametrize(("final", "expected"), [(0.3, FAILS), (0.9, ("reproduced",))])
def test_a_training_that_learns_less_by_what_it_loses_is_found(
    final: float, expected: tuple[Verdict, ...], tmp_path: Path
) -> None:
    figure: Any = figures.find("mlt-accuracy")
    asked = {"iterations": 60, "system": ("reno", "mlt", "mlt:parameters=whole")}
    synthetic.experiment("mlt-accuracy", tmp_path, alike, asked)
    all_learn(tmp_path, lambda run: 0.9 if "parameters" in run.system else lossy(final)(run))
    study = load_study(tmp_path, "mlt-accuracy")
    found = figure._loop(study, pd.DataFrame(figure._emulated(study)))
    assert found.verdict in expected, found


@pytest.mark.parametrize(("final", "expected"), [(0.85, FAILS), (0.895, ("reproduced",))])
def test_a_training_that_ends_lower_by_what_it_loses_is_found(
    final: float, expected: tuple[Verdict, ...], tmp_path: Path
) -> None:
    figure: Any = figures.find("mlt-accuracy")
    asked = {"iterations": 60, "system": ("reno", "mlt", "mlt:parameters=whole", "mlt:parameters=whole,tolerance=0.3")}
    synthetic.experiment("mlt-accuracy", tmp_path, alike, asked)
    all_learn(tmp_path, lambda run: final if run.system.endswith("parameters=whole") else lossy(0.5)(run))
    study = load_study(tmp_path, "mlt-accuracy")
    found = figure._final(study, pd.DataFrame(figure._emulated(study)))
    assert found.verdict in expected and "tolerance=0.3" in found.measured, found


def test_mlt_that_takes_as_long_as_plain_tcp_is_found(tmp_path: Path) -> None:
    for name in (
        "mlt-speedup",
        "mlt-speedup.plain",
        "mlt-speedup.workers",
        "mlt-speedup.many",
    ):  # the last two share a run
        synthetic.experiment(name, tmp_path, alike)
    figure: Any = figures.find("mlt-speedup")
    judged = verdicts("mlt-speedup", tmp_path)
    assert judged[figure.PLAINLY] in FAILS and judged[figure.ORDERED] in FAILS
    assert len(figure.draw(load_study(tmp_path, "mlt-speedup"), tmp_path / "drawn")) == 3


@pytest.mark.parametrize(("times", "expected"), [(alike, FAILS), (a_third, ("reproduced",))])
def test_rings_and_sharded_models_that_mlt_does_not_help_are_found(
    times: synthetic.Times, expected: tuple[Verdict, ...], tmp_path: Path
) -> None:
    """By points of the full set: the quick one has parameter servers alone."""
    for name, only in (("mlt-speedup", ".collective-ring."), ("mlt-speedup.fsdp", ".workers-4.")):
        synthetic.experiment(name, tmp_path, times, {}, only=only, iterations=2)
    figure: Any = figures.find("mlt-speedup")
    found = verdicts("mlt-speedup", tmp_path)
    assert {found[claim] for claim in (figure.RING, figure.FSDP)} <= set(expected), found


@pytest.mark.parametrize(
    ("gain", "mlt", "dlcp"),
    [(1.35, "partly", "not reproduced"), (1.7, "reproduced", "partly"), (1.9, "reproduced", "reproduced")],
)
def test_each_headline_has_a_number_of_its_own(gain: float, mlt: Verdict, dlcp: Verdict, tmp_path: Path) -> None:
    """Of two seeds nothing is sure; beside TCP that sends a share it is told, too."""
    asked = {"quick": True, "system": ("dctcp", "dctcp:share=0.9", "mlt")}
    figure: Any = figures.find("mlt-speedup")
    for seeds in (3, 2):
        folder = tmp_path / str(seeds)
        synthetic.experiment(
            "mlt-speedup", folder, lambda one, _: 1.0 if one.system.label == "mlt" else gain, asked, seeds=seeds
        )
        found = {finding.claim: finding for finding in figure.find(load_study(folder, "mlt-speedup"))}
        told = [found[claim] for claim in (figure.MOST, figure.MOST_OF_DLCP)]
        assert [one.verdict for one in told] == ([mlt, dlcp] if seeds > 2 else ["not reproduced"] * 2)
        assert all(f"over TCP that sends 90 % of the gradients: {gain:.2f}" in one.measured for one in told)
        assert ["mlt-components" in one.measured for one in told] == [False, True]


@pytest.mark.parametrize(
    ("undropped", "expected"), [(1.0, ("no difference",)), (0.9, ("not reproduced",)), (1.1, ("reproduced",))]
)
def test_drops_that_gain_nothing_are_found(undropped: float, expected: tuple[Verdict, ...], tmp_path: Path) -> None:
    figure: Any = figures.find("mlt-components")
    for name in ("mlt-components", "mlt-components.shallow"):
        synthetic.experiment(name, tmp_path, lambda one, _: undropped if "bands=4," in one.system.label else 1.0)
    assert verdicts("mlt-components", tmp_path)[figure.DROPS] in expected
    assert len(figure.draw(load_study(tmp_path, "mlt-components"), tmp_path / "drawn")) == 3


@pytest.mark.parametrize(
    ("times", "says", "is_silent"),
    [(lambda one, _: 1.4 if "spray=off" in one.system.label else 1.0, ("the same in every seed",), ("cannot tell",)),
     (lambda one, _: 1.0 + 0.1 * one.seed * (one.system.label == "mlt:tolerance=0"), ("cannot tell", "the same in every seed"), ()),
     (lambda one, _: 1.0 + 0.1 * one.seed, ("cannot tell",), ("the same in every seed",))],
)  # fmt: skip
def test_parts_stand_beside_tcp_that_sends_as_much(
    times: synthetic.Times, says: tuple[str, ...], is_silent: tuple[str, ...], tmp_path: Path
) -> None:
    figure: Any = figures.find("mlt-components")
    system = (
        "dctcp", "dctcp:share=0.9", "dctcp:spray=on", "dctcp:share=0.9,spray=on", "mlt:bands=1,spray=off",
        "mlt:tolerance=0,spray=off", "mlt:spray=off", "mlt", "mlt:tolerance=0", "mlt:tolerance=0,bands=1",
        "mlt:tolerance=0,bands=1,spray=off",
    )  # fmt: skip
    synthetic.experiment("mlt-components", tmp_path, times, {"quick": True, "system": system})
    found = {finding.claim: finding.measured for finding in figure.find(load_study(tmp_path, "mlt-components"))}
    for said in figure.SHARES.values():
        told = found[figure.WHOLE].partition(f"{said}: ")[2].partition(";")[0]
        assert [one.split(" ")[-3] for one in told.split(", ")] == ["A", "A+B", "A+B+C"]
    assert all(f"({said}): " in found[figure.SPRAYED] for said in ("with bands, C+B ÷ B", "in one band, C ÷ none"))
    assert all(text in found[figure.SPRAYED] for text in says)
    assert not any(text in found[figure.SPRAYED] for text in is_silent)


@pytest.mark.parametrize(
    ("sure", "says"),
    [((), "from no number of workers on surely"), ((4, 6), "from no number"), ((8,), "from 8 workers"), ((4, 8), "from 8"),
     ((6, 8), "from 6"), ((4, 6, 8), "from 4")],
)  # fmt: skip
def test_a_tail_begins_where_it_is_sure_from_there_on(sure: tuple[int, ...], says: str, tmp_path: Path) -> None:
    figure: Any = figures.find("mlt-fct")
    gains = {workers: [1.2, 1.21, 1.22] if workers in sure else [0.9, 1.3, 1.4] for workers in (4, 6, 8)}
    assert says in figure._begins(gains)


@pytest.mark.parametrize(("final", "expected"), [(0.3, FAILS), (0.9, ("reproduced",))])
def test_a_ring_that_learns_less_by_what_it_loses_is_found(
    final: float, expected: tuple[Verdict, ...], tmp_path: Path
) -> None:
    """And one that learns alike whatever its replicas copy, as in both cases here."""
    synthetic.experiment("mlt-ring", tmp_path, alike, {"iterations": 60})
    all_learn(tmp_path, lossy(final))
    found, figure = verdicts("mlt-ring", tmp_path), figures.find("mlt-ring")
    assert found[figure.ROUNDS] in expected  # type: ignore[attr-defined]
    assert found[figure.TOGETHER] in FAILS  # type: ignore[attr-defined]
    assert len(figure.draw(load_study(tmp_path, "mlt-ring"), tmp_path / "drawn")) == 3


def test_a_training_whose_gradients_are_gone_is_found(tmp_path: Path) -> None:
    """Nothing is learnt of what arrives; and next to nothing is missing."""
    synthetic.experiment("ltp-accuracy", tmp_path, alike)
    for final, expected in ((0.1, {"not reproduced"}), (0.9, {"reproduced", "partly"})):
        all_learn(tmp_path, lossy(final))
        found = verdicts("ltp-accuracy", tmp_path)
        assert found[figures.find("ltp-accuracy").ACCURACY] in expected  # type: ignore[attr-defined]
        if final < 0.5:
            assert found[figures.find("ltp-accuracy").SOONER] == "not reproduced"  # type: ignore[attr-defined]


def test_a_tolerance_that_does_nothing_is_found(tmp_path: Path) -> None:
    """All systems take as long, and learn as well."""
    synthetic.experiment("mlt-phases", tmp_path, alike)
    all_learn(tmp_path, lossy(0.9))
    found = verdicts("mlt-phases", tmp_path)
    assert len(figures.find("mlt-phases").draw(load_study(tmp_path, "mlt-phases"), tmp_path / "drawn")) == 3
    assert len(found) == 2 and set(found.values()) <= set(FAILS), found


@pytest.fixture
def small_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is computed learns little, and fast; the trainings of this task are forgotten."""
    monkeypatch.setattr(learning, "task", lambda: replace(TASK, every=2, rate=0.05))
    monkeypatch.setattr(trainings, "ROUNDS", 80)
    monkeypatch.setattr(gradient_masks, "PACKET_BYTES", 16)
    for kept in (trainings.curve, trainings.rounds):
        kept.cache_clear()
    yield
    for kept in (trainings.curve, trainings.rounds):
        kept.cache_clear()


@pytest.mark.usefixtures("small_task")
@pytest.mark.parametrize(
    ("times", "missing", "fails", "holds"),
    [(thrice, 0, ("OptiReduce comes", "Losing"), ("With Hadamard",)),
     (alike, 3, ("With Hadamard",), ()),
     (a_third, 0, (), ("OptiReduce comes", "Losing", "With Hadamard"))],
)  # fmt: skip
def test_losses_that_cost_more_than_they_gain_are_found(
    times: synthetic.Times, missing: int, fails: tuple[str, ...], holds: tuple[str, ...], tmp_path: Path
) -> None:
    """``missing``: workers of whose gradients nothing arrives; of the others a number."""
    synthetic.experiment("lossy", tmp_path, times, {"quick": True, "bytes": f"{TASK.bytes}B"})
    for path in tmp_path.rglob("iterations.csv"):
        run = load_run(path.parent)
        workers = len(run.plan.jobs[0].hosts)
        if run.plan.jobs[0].by_tcp:
            continue
        ends = [TASK.bytes * rank // workers for rank in range(workers + 1)]
        told = [
            {
                "iteration": number,
                "worker": worker,
                "peer": peer,
                "bytes": size,
                "missing": lost,
                "missing_ranges": f"0+{lost}",
            }
            for number in range(run.plan.iterations)
            for worker, size in enumerate(end - begin for begin, end in itertools.pairwise(ends))
            for peer in range(workers)
            if peer != worker
            for lost in (size if peer < missing else 4,)
        ]
        columns: dict[str, Any] = dict.fromkeys(rows.columns(rows.Messages), 0) | {
            "side": "receive",
            "stage": "gradient",
        }
        rest = {name: value for name, value in columns.items() if name not in told[0]}
        pd.DataFrame(told).assign(**rest).to_csv(path.parent / "messages.csv", index=False)
    found = verdicts("lossy", tmp_path)
    assert {claim for claim, verdict in found.items() if verdict in FAILS} >= {
        claim for claim in found if claim.startswith(fails)
    }
    assert {claim for claim, verdict in found.items() if verdict == "reproduced"} >= {
        claim for claim in found if claim.startswith(holds)
    }


@pytest.mark.usefixtures("small_task")
def test_parts_that_are_told_apart_by_name_alone_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures.find("mlt-bounds"), "candidates", lambda _part: gradient_masks.anywhere)
    synthetic.experiment("mlt-bounds", tmp_path, alike, {"quick": True, "bytes": f"{TASK.bytes}B"})
    found = verdicts("mlt-bounds", tmp_path)
    assert len(found) == 3 and set(found.values()) <= set(FAILS), found


@pytest.mark.parametrize(
    ("costs", "expected"),
    [((1.3, 1.32, 1.31, 1.29, 1.3), "reproduced"), ((1.02, 1.05, 1.08, 1.03, 1.06), "partly"), ((0.9, 1.5, 1.0, 1.4, 1.1), "not reproduced")],
)  # fmt: skip
def test_a_bound_that_other_seeds_would_turn_round_is_found(
    costs: tuple[float, ...], expected: Verdict, tmp_path: Path
) -> None:
    """The last in the mean, too, costs more than 5 % more."""
    figure: Any = figures.find("mlt-bounds")
    more, less = "smallest third", "largest third"
    rows = pd.DataFrame([
        {"part": part, "seed": seed, "missing": share, "ratio": cost if part == less and share == figure.SHARES[-1] else 1.0}
        for part in (more, less) for share in figure.SHARES for seed, cost in enumerate(costs)
    ])  # fmt: skip
    found = figure._more(load_study(tmp_path, "mlt-bounds"), rows, figure.MAGNITUDE, more, less)
    assert found.verdict == expected and found.interval is not None


@pytest.mark.usefixtures("small_task")
@pytest.mark.parametrize(
    ("rule", "candidates", "fails"),
    [("selective", lambda magnitudes: np.argsort(magnitudes)[-(len(magnitudes) // 4) :], "Selective"), ("random", lambda magnitudes: np.arange(0), "Random")],
)  # fmt: skip
def test_rules_that_do_something_else_are_found(
    rule: str, candidates: gradient_masks.Candidates, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drops of what matters most, and a loss that takes nothing."""
    figure: Any = figures.find("mlt-accuracy")
    monkeypatch.setitem(figure.RULES, rule, candidates)
    synthetic.experiment("mlt-accuracy", tmp_path, alike, {"quick": True, "system": ("reno",)})
    all_learn(tmp_path, lossy(0.9), missing=0)
    found = verdicts("mlt-accuracy", tmp_path)
    assert {claim: verdict in FAILS for claim, verdict in found.items() if claim.startswith(fails)} == {
        claim: True for claim in found if claim.startswith(fails)
    }, found


@pytest.mark.parametrize(
    ("twins", "begins", "expected"),
    [(ideal, "In its region", "reproduced"), (slower, "In its region the twin's mean", "not reproduced"),
     (slower, "In its region the twin's gain", "not reproduced"), (eight_later, "In its region the twin's jobs", "not reproduced")],
)  # fmt: skip
def test_a_twin_that_is_wrong_is_found(twins: synthetic.Times, begins: str, expected: str, tmp_path: Path) -> None:
    synthetic.experiment("twin", tmp_path, settled_at_six)
    synthetic.experiment("twin/twin.flow", tmp_path, settled_at_six if twins is ideal else twins)
    for path in tmp_path.glob("twin.flow.*/**/manifest.json"):
        told = msgspec.structs.replace(load_run(path.parent).manifest, clock="model", backend="flow")
        path.write_bytes(documents.encode(told))
    found = {f.claim: f.verdict for f in figures.find("twin").find(load_study(tmp_path, "twin", several_backends=True))}
    judged = {verdict for claim, verdict in found.items() if claim.startswith(begins)}
    assert judged == {expected}


def test_claims_are_a_table(tmp_path: Path) -> None:
    synthetic.experiment("partial", tmp_path, harm)
    section = sections.one(figures.find("partial"), tmp_path, tmp_path / "out")
    chapter = chapters.make_chapter(section, tmp_path, tmp_path)
    table = claims.table([chapter])
    assert tuple(table.columns) == claims.COLUMNS
    (row,) = table.to_dict("records")
    assert (row["paper"], row["figure"], row["seeds"]) == ("MLTCP", "partial", 3)
    assert row["low"] <= row["value"] <= row["high"] < 1 and row["control"]
    assert re.findall(r"[0-9.%]+\b%?", claims.by_chance([chapter] * 40)) == ["40", "95%", "2.0"]


def test_suspect_runs_stand_beside_their_number(tmp_path: Path) -> None:
    from testbed.report import suspects  # noqa: PLC0415

    specs = sweep.read(str(EXPERIMENTS / "partial.toml"), {"quick": True})[:1]
    synthetic.write([msgspec.structs.replace(spec, seeds=2) for spec in specs], tmp_path, harm)
    paths = [path.parent for path in sorted(tmp_path.rglob("verdict.json"))]
    assert suspects.describe_suspects(paths) == ""
    late = Row("I6", "lateness", 0.03, {"suspect above": 0.02}, "suspect")
    verdict = msgspec.structs.replace(VALID, verdict="suspect", invariants=(late,))
    (paths[0] / "verdict.json").write_bytes(documents.encode(verdict))
    assert suspects.describe_suspects(paths) == f"1 of {len(paths)} runs (I6 in 1)"


def test_the_base_doing_as_well_is_no_difference() -> None:
    assert graded(True, True, alike=True) == "no difference"
    assert no_difference((0.99, 1.01)) and not no_difference((0.9, 1.01)) and not no_difference((1.0, 1.05))


def test_more_lines_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fluid("concept", tmp_path)
    (claim,) = (claim for claim in verdicts("concept", tmp_path) if claim.startswith("MLTCP takes 30"))
    assert verdicts("concept", tmp_path)[claim] == "partly"  # the base's own file alone
    monkeypatch.setattr(added_lines, "added", lambda name: 61)
    assert verdicts("concept", tmp_path)[claim] == "not reproduced"


def test_rounds_at_which_nobody_looked_are_no_looks(tmp_path: Path) -> None:
    """A run writes every round; one of an earlier release only those with an accuracy, and not how far apart its workers were."""
    spec = sweep.read(str(EXPERIMENTS / "mlt-accuracy.toml"), {"quick": True, "system": ("reno",)})
    synthetic.write(spec, tmp_path, alike)
    (path,) = tmp_path.rglob("iterations.csv")
    looks, learned = (
        (rows.Training(0, 9, 1.0, 0.5, 0.25), rows.Training(0, 19, 2.0, 0.75, 0.0)),
        path.parent / "training.csv",
    )
    between = [rows.Training(0, number, 0.5, None, 0.1) for number in range(5)]
    learned.write_text(rows.text(rows.Training, [*between, *looks], decimals=9))
    run = load_run(path.parent)
    assert trainings.learnt(run)["accuracy"].tolist() == [0.5, 0.75]
    assert trainings.replica_divergence(run).to_dict() == {**dict.fromkeys(range(1, 6), 0.1), 10: 0.25, 20: 0.0}
    learned.write_text("job,iteration,end_s,accuracy\n0,9,1.0,0.5\n0,19,2.0,0.75\n")
    run = load_run(path.parent)
    assert trainings.learnt(run)["accuracy"].tolist() == [0.5, 0.75] and trainings.replica_divergence(run).empty
