"""The predictions of measurements on hardware (``predictions.toml``), next to the published values."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from math import log, nan
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from testbed.core.runs.load import Experiment, Run
from testbed.report import drawing, style
from testbed.report.study import Study, figure_id

ID = "predicted"
POSITION = 485
EXPERIMENTS = "predict-*"
SEVERAL_BACKENDS = True
TITLE = "Published measurements on hardware: signs are predicted, effects are too small"
TEXT = (
    "What this testbed predicted of published measurements, ÷ the published value: dots, with the interval over what the publications leave open. On the line they agree. "
    "A cross is what “no effect” predicts. The predictions were committed before this comparison, and nothing was fitted since; the predictor knew the published values."
)


class Published(NamedTuple):
    """A published value: where it is read, and its range if it has one."""

    value: float
    source: str
    low: float = nan
    high: float = nan


PUBLISHED = {
    "gpt": Published(1.70 / 1.53, "Crux, SIGCOMM 2024 (restated)"),
    "bert": Published(1 - 0.077, "Crux, SIGCOMM 2024 (restated)"),
    "vgg-pair-fair": Published(0.31, "HotNets 2022, figure 1 (read from the image)"),
    "vgg-pair-gain": Published(1.23, "HotNets 2022, figure 1 (annotated)"),
    "vgg-pair-alike": Published(1.0, "HotNets 2022, figure 1 (both jobs alike)"),
    "mlcc-vgg19": Published(0.935, "MLCC, raw logs", 0.93, 0.94),
    "mlcc-resnet": Published(0.68, "MLCC, raw logs"),
    "srsf-avoid": Published(1 - 0.201, "arXiv 2002.10105"),
    "srsf-accept": Published(1 - 0.367, "arXiv 2002.10105"),
    "lwf": Published(1.59, "arXiv 2002.10105"),
    "cassini-mean": Published(1.6, "CASSINI, NSDI 2024 (up to)"),
    "cassini-p99": Published(2.5, "CASSINI, NSDI 2024 (up to)"),
    "crux-utilisation": Published(1.1155, "Crux, SIGCOMM 2024 (restated)", 1.083, 1.148),
}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``predicted.{png,pdf,csv}``, and ``predicted-runs.csv``: the values of the runs at hand, a row for each configuration and seed."""
    runs = _runs(study)
    table = _table(runs)
    figure, axes = style.new_figure(1, 1, figsize=(8.4, 0.36 * len(table) + 1.4))
    axis = axes[0, 0]
    named: list[Any] = list(table.itertuples())
    for y, row in enumerate(named):
        colour = drawing.colour(treatment=row.sign_right != "no")
        ends = [value / row.published for value in (row.low, row.high)]
        axis.hlines(y, *ends, color=colour, linewidth=2)
        axis.plot(row.predicted / row.published, y, "o", color=colour, markersize=6)
        if row.sign != "none":
            axis.plot(1 / row.published, y, "x", color=style.REFERENCE, markersize=6)
    axis.axvline(1, color=style.REFERENCE, linewidth=0.9, linestyle="--")
    axis.set_xscale("log")
    axis.set_xticks([0.4, 0.5, 0.7, 1, 1.4, 1.6], ["0.4", "0.5", "0.7", "1", "1.4", "1.6"])
    axis.set_xticks([], minor=True)
    axis.set_yticks(range(len(table)), [f"{row.id} ({row.measurement})" for row in named])
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.set_xlabel("predicted ÷ published")
    signed = table[table["sign"] != "none"]
    drawing.caption(
        figure,
        f"Dot: prediction with its interval; cross: no effect. Signs: {(signed['sign_right'] == 'yes').sum()} of {len(signed)} right. Median error {median(table['error'].abs()):.0%}; median share of the effect "
        f"{median(signed['effect']):.2f}; {table['inside'].sum()} of {len(table)} published values lie in the interval. Orange: the sign is wrong.",
    )
    return [*drawing.save(figure, table, out, ID), *drawing.write_tables({f"{ID}-runs": runs}, out)]


def _table(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each prediction: ``effect`` is log predicted ÷ log published, ``again`` the same rule for the runs at hand."""
    rows = []
    for said in tomllib.loads(Path(__file__).with_name("predictions.toml").read_text(encoding="utf-8"))["prediction"]:
        published, predicted, signed = PUBLISHED[said["id"]], said["predicted"], said["sign"] != "none"
        low, high = (end if end == end else published.value for end in (published.low, published.high))
        rows.append({
            **{key: said[key] for key in ("id", "measurement", "quantity", "sign", "predicted", "low", "high")},
            "again": _again(runs, said["id"], said["rule"]), "published": published.value, "published_low": low, "published_high": high,
            "source": published.source, "error": predicted / published.value - 1,
            "effect": log(predicted) / log(published.value) if signed else nan,
            "sign_right": ("yes" if (predicted > 1) == (published.value > 1) else "no") if signed else "",
            "inside": said["low"] <= high and low <= said["high"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def _again(runs: pd.DataFrame, id: str, rule: str) -> float:
    """Of CUBIC, which is there for one configuration alone, the rule takes no account; the interval does."""
    mine = runs[(runs["id"] == id) & ~runs["configuration"].str.startswith("predict-gpt-bert.cubic")]
    means = mine.groupby("configuration")["value"].mean()
    return nan if means.empty else float(means.median() if rule == "median" else means.max())


def _runs(study: Study) -> pd.DataFrame:
    """A row for each prediction, configuration and seed that is there."""
    rows = []
    for experiment in study.experiments:
        for id, (base, other, value) in _MEASURES.get(figure_id(experiment.path.name), {}).items():
            for run, against in _pairs(experiment, base, other):
                rows.append((id, experiment.path.name, run.seed, value(run, against)))
    if study.schedules is not None:
        wide = study.schedules.table.pivot_table(
            index=["setting", "seed"], columns="scheduler", values="mean_completion_s"
        )
        for id, (above, below) in _SCHEDULED.items():
            ratios = (wide[above] / wide[below]).rename("ratio").reset_index()
            each: list[Any] = list(ratios.itertuples())
            rows += [(id, str(one.setting), int(one.seed), float(one.ratio)) for one in each]
    return pd.DataFrame(rows, columns=["id", "configuration", "seed", "value"])


def _pairs(experiment: Experiment, base: str, other: str | None) -> list[tuple[Run, Run]]:
    """Runs of ``base`` (of any system, where it is compared with none), each with that of ``other`` of its seed."""
    if other is None:
        return [(run, run) for run in experiment.runs]
    found = {(run.system.partition(":")[0], run.seed): run for run in experiment.runs}
    return [(run, found[other, seed]) for (name, seed), run in found.items() if name == base and (other, seed) in found]


def _times(run: Run) -> pd.DataFrame:
    """Every job's iterations, from when all jobs have begun until the first one has ended: ``job, time_s``."""
    each = (
        run.iterations.groupby(["job", "iteration"]).agg(begin=("start_s", "min"), end=("end_s", "max")).reset_index()
    )
    first, last = each.groupby("job")["begin"].min().max(), each.groupby("job")["end"].max().min()
    shared: pd.DataFrame = each[(each["begin"] >= first - 1e-9) & (each["end"] <= last + 1e-9)]
    return shared.assign(time_s=shared["end"] - shared["begin"])


def _means(run: Run) -> Any:
    return _times(run).groupby("job")["time_s"].mean()


def _slowdown(run: Run) -> Any:
    """Iteration time ÷ ideal of each job."""
    return _means(run) / pd.Series({job.job: job.ideal_s for job in run.plan.jobs})


def _p99(run: Run) -> float:
    times = _times(run)
    return float((times["time_s"] / times["job"].map({job.job: job.ideal_s for job in run.plan.jobs})).quantile(0.99))


def _gains(run: Run, other: Run) -> Any:
    return _means(run) / _means(other)


Value = Callable[[Run, Run], float]
_MEASURES: dict[str, dict[str, tuple[str, str | None, Value]]] = {
    "predict-gpt-bert": {
        "gpt": ("", None, lambda run, _: _slowdown(run)[0]),
        "bert": ("", None, lambda run, _: 1 / _slowdown(run)[1]),
    },
    "predict-vgg-pair": {
        "vgg-pair-fair": ("dcqcn", "unfair", lambda run, _: _means(run).mean()),
        "vgg-pair-gain": ("dcqcn", "unfair", lambda run, other: _gains(run, other).mean()),
        "vgg-pair-alike": ("dcqcn", "unfair", lambda run, other: _gains(run, other)[0] / _gains(run, other)[1]),
    },
    "predict-mlcc": {
        "mlcc-vgg19": ("", None, lambda run, _: 1 / _slowdown(run)[0]),
        "mlcc-resnet": ("", None, lambda run, _: 1 / _slowdown(run)[1]),
    },
    "predict-shared-link": {
        "cassini-mean": ("reno", "cassini", lambda run, other: _gains(run, other).mean()),
        "cassini-p99": ("reno", "cassini", lambda run, other: _p99(run) / _p99(other)),
    },
    "predict-cluster": {
        "crux-utilisation": ("reno", "priority", lambda run, other: (1 / _slowdown(other)).mean() / (1 / _slowdown(run)).mean()),
    },
}  # fmt: skip
_SCHEDULED = {
    "srsf-avoid": ("srsf", "srsf:share=1"),
    "srsf-accept": ("srsf", "srsf:share=2"),
    "lwf": ("first_fit", "lwf"),
}
