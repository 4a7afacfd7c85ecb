"""MLT beside TCP on one link, in one queue and in classes of its own: who gets how much."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.coexistence import FAIR, HALF, shares
from testbed.report.finding import Finding, graded, not_measured, not_measured_without
from testbed.report.study import Study

ID = "mlt-beside"
POSITION = 360
PAPER = "MLT"
TITLE = "MLT beside TCP: one queue, or classes of its own"
TEXT = (
    "One job sends by MLT, the other by TCP, a message after the other, as fast as they go. Bars: what each gets of the link, means; dots are seeds. In one queue MLT slows down for "
    "the delay that TCP makes; in classes of its own, which are served first, TCP has what is left."
)
SHARED = "In one queue with TCP, MLT keeps half of its fair share."
OWN = "Beside MLT in classes of its own, TCP keeps half of its fair share."
SOURCE = "ours: the paper gives MLT classes of its own"
CONTROLS = {
    SHARED: "a TCP that gets ten times as much as MLT",
    OWN: "an MLT that gets ten times as much as TCP",
}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-beside.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    figure, axes = style.new_figure(1, 2, figsize=(9.5, 4.0), sharey=True)
    for axis, own in zip(axes[0], (False, True), strict=True):
        mine = rows[rows["own"] == own]
        systems = list(dict.fromkeys(rows["system"]))
        for colour, column, label in ((style.JOBS[0], "mlt_share", "MLT"), (style.JOBS[1], "other_share", "TCP")):
            at = [place + (0.18 if column == "other_share" else -0.18) for place in range(len(systems))]
            means = mine.groupby("system")[column].mean().reindex(systems)
            axis.bar(at, means, width=0.34, color=colour, label=label)
            places = dict(zip(systems, at, strict=True))
            axis.plot(mine["system"].map(places), mine[column], "o", color="black", markersize=3)
        axis.axhline(FAIR, color=style.REFERENCE, linewidth=0.9, linestyle="--")
        axis.set_xticks(range(len(systems)), systems)
        axis.set(title="in classes of its own" if own else "in one queue", ylim=(0, 1.02), xlabel="MLT beside")
    axes[0, 0].set_ylabel("share of the link")
    axes[0, 0].legend(loc="upper left")
    one = study.runs[0]
    drawing.caption(
        figure, f"{drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots). Dashed: half."
    )
    return drawing.save(figure, rows, out, ID)


@not_measured_without(dict.fromkeys(CONTROLS, SOURCE))
def find(study: Study) -> list[Finding]:
    """What each keeps where it is the weaker one."""
    rows = _table(study)
    return [
        _keeps(study, rows[~rows["own"]], SHARED, "mlt_share"),
        _keeps(study, rows[rows["own"]], OWN, "other_share"),
    ]


def _keeps(study: Study, rows: pd.DataFrame, claim: str, column: str) -> Finding:
    if rows.empty:
        return not_measured(claim, SOURCE, "it was not run so")
    kept = {
        str(system): [float(value) / FAIR for value in cell[column]]
        for system, cell in rows.groupby("system", sort=False)
    }
    least = min(kept, key=lambda system: geometric_mean(kept[system]))
    fine = [min(values) >= HALF for values in kept.values()]
    return Finding(
        claim, SOURCE, "its share ÷ half of the link: " + "; ".join(f"{observed.with_interval(values)} beside {system}" if column == "mlt_share" else f"{observed.with_interval(values)} {system}" for system, values in kept.items()),
        geometric_mean(kept[least]), f"of its fair share, the least: {least}", log_interval(kept[least]), len(kept[least]),
        graded(all(fine), any(fine)), f"reproduced if every TCP and seed gets at least {HALF:.0%} of half the link, partly if one TCP does", study.paths,
    )  # fmt: skip


def _table(study: Study) -> pd.DataFrame:
    """``system, role, seed, own, mlt_share, other_share``; raises `LoadError` without runs of two jobs."""
    rows = [row for run in study.runs if (row := _row(run)) is not None]
    if not rows:
        raise LoadError(f"{ID}: there are no runs of MLT beside TCP; run experiments/{ID}.toml")
    return pd.DataFrame(rows)


def _row(run: Run) -> dict[str, object] | None:
    found = shares(run)
    if found is None:
        return None
    return {
        "system": run.system, "role": run.role, "seed": run.seed, "own": max(link.bands for link in run.plan.bottlenecks.values()) > 1, "mlt_share": found[0], "other_share": found[1],
    }  # fmt: skip
