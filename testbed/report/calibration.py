"""Equation 8 as `mltcp calibrate` fits it: its predictions for the cells outside the fit, and f."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.core.errors import RequestError
from testbed.models.calibration import Fit, Took, fitted
from testbed.report import drawing, style

NAME = "calibration"
CLOSE = 0.10


def draw(took: Mapping[str, Sequence[Took]], folder: Path) -> list[Path]:
    """Write ``calibration.{png,pdf,csv}``, of each system a row per seed and cell; raises `RequestError` if they cannot be written."""
    halves = {system: list(fitted(own)) for system, own in took.items()}
    table = pd.DataFrame(
        {
            "system": system, "seed": half.seed, "p": cell.p, "ratio": cell.ratio, "held_out": out, "slowdown": cell.slowdown,
            "foretold": half.fit.slowdown(cell.p, cell.ratio),
        }
        for system, own in halves.items() for half in own
        for out, cells in ((False, half.fitted), (True, half.held_out)) for cell in cells
    )  # fmt: skip
    figure, ((left, right),) = style.new_figure(1, 2, figsize=(11.0, 4.6))
    crowds = np.arange(1, int(table["p"].max()) + 1)
    for (system, own), colour in zip(halves.items(), style.JOBS, strict=False):
        rows = table[(table["system"] == system) & table["held_out"]]
        left.plot(rows["foretold"], rows["slowdown"], "o", color=colour, markersize=4, markeredgewidth=0, alpha=0.6)
        _curve(right, crowds, [half.fit for half in own], colour, system)
    reach = np.array([1.0, 1.05 * float(table[["slowdown", "foretold"]].to_numpy().max())])
    left.plot(reach, reach, color=style.REFERENCE, linewidth=1)
    for off in (1 - CLOSE, 1 + CLOSE):
        left.plot(reach, off * reach, ":", color=style.REFERENCE, linewidth=1)
    left.set(xlabel="foretold: an iteration ÷ alone", ylabel="measured", title="Cells that it was not fitted to")
    right.plot(crowds, crowds, "--", color=style.REFERENCE, linewidth=1, label="f = p")
    right.set(xlabel="p: jobs on the uplink", ylabel="f", title="What contention costs, fitted", xticks=crowds)
    right.legend(loc="upper left")
    seeds = drawing.count(table["seed"].nunique(), "seed")
    drawing.caption(
        figure, f"{seeds}; between the dotted lines equation 8 is off by {CLOSE:.0%} at most; thin lines are seeds"
    )
    try:
        return drawing.save(figure, table, folder, NAME)
    except OSError as error:
        raise RequestError(f"--figures: {folder} cannot be written: {error.strerror}") from error


def _curve(axis: Any, crowds: npt.NDArray[np.int64], fits: Sequence[Fit], colour: str, system: str) -> None:
    lines = np.array([[one.degradation(int(p)) for p in crowds] for one in fits])
    axis.plot(crowds, lines.T, color=colour, linewidth=0.6, alpha=0.4)
    axis.plot(crowds, lines.mean(axis=0), color=colour, linewidth=2, label=system)
