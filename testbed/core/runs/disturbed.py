"""The iterations that the machine itself disturbed, and the metrics without them.

``disturbances.csv`` records when a core stood still, or its ksoftirqd waited. Disturbances shorter than `COUNTS_S` cannot
be distinguished from the network's processing. The invariants of links detect these, because they check every interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan

import numpy as np
import pandas as pd

from testbed.core.runs import metrics

COUNTS_S = 0.010  # one sample of a link; a hundredth of a second-long iteration


@dataclass(frozen=True)
class Calm:
    """The undisturbed time of a run: the gaps between disturbances, whose spans (in s) may overlap."""

    starts: np.ndarray  # in order
    reached: np.ndarray  # the latest end so far

    @classmethod
    def around(cls, disturbances: pd.DataFrame | None) -> Calm:
        """Calm spans of a run; complete if there is no record of disturbances."""
        if disturbances is None:
            return cls(np.array([]), np.array([]))
        rows = disturbances[disturbances["waited_s"] >= COUNTS_S].sort_values("start_s")
        return cls(rows["start_s"].to_numpy(), np.maximum.accumulate(rows["end_s"].to_numpy()))

    def holds(self, begin_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
        """Return, for each span (in s), whether it is within a gap."""
        if not len(self.starts):
            return np.ones(len(begin_s), dtype=bool)
        before = np.searchsorted(self.starts, end_s, side="right")  # so many began before it ended
        return np.asarray((before == 0) | (self.reached[before - 1] < begin_s))


def is_disturbed(iterations: pd.DataFrame, disturbances: pd.DataFrame) -> pd.Series[bool]:
    """Return, by job and iteration, whether an iteration was disturbed while it communicated.

    The communication lasts from the time at which the first sender was due (a disturbance can delay the start) to its end.
    Computation is a sleep, which disturbances do not prolong.
    """
    sends = iterations[iterations["bytes"] > 0] if (iterations["bytes"] > 0).any() else iterations
    due = (sends["comm_start_s"] - sends["max_start_delay_s"]).groupby([sends["job"], sends["iteration"]]).min()
    ends = iterations.groupby(["job", "iteration"])["end_s"].max().reindex(due.index)
    calm = Calm.around(disturbances).holds(due.to_numpy(), ends.to_numpy())
    return pd.Series(~calm, index=due.index)


def listed(iterations: pd.DataFrame, disturbances: pd.DataFrame) -> pd.DataFrame:
    """Disturbed iterations, a row for each: ``disturbed_iterations.csv``."""
    met = is_disturbed(iterations, disturbances)
    return met.index[met.to_numpy()].to_frame(index=False)


@dataclass(frozen=True)
class Undisturbed:
    """A run's numbers with and without its disturbed iterations; NaN where none are left."""

    disturbed_iterations: int
    iterations: int
    mean_s: float
    last10_mean_s: float
    undisturbed_mean_s: float
    undisturbed_last10_mean_s: float

    @property
    def share(self) -> float:
        return self.disturbed_iterations / self.iterations

    @property
    def difference(self) -> float:
        """Relative change of the mean by disturbed iterations, of all or of the last ten, the larger one; NaN: there are no others."""
        off = [
            abs(every / calm - 1)
            for every, calm in (
                (self.mean_s, self.undisturbed_mean_s),
                (self.last10_mean_s, self.undisturbed_last10_mean_s),
            )
        ]
        return nan if isnan(off[0]) else float(np.nanmax(off))


def marked(iterations: pd.DataFrame, disturbances: pd.DataFrame) -> pd.DataFrame:
    """`is_disturbed`, in the form of `metrics.iteration_times`."""
    found = is_disturbed(iterations, disturbances).unstack("job", fill_value=False)
    return found.reindex_like(metrics.iteration_times(iterations)).fillna(False).astype(bool)


def undisturbed(iterations: pd.DataFrame, disturbances: pd.DataFrame) -> Undisturbed:
    """A run's iteration times without those that were disturbed."""
    times, met = metrics.iteration_times(iterations), marked(iterations, disturbances)
    calm = times.where(~met)
    last = times.apply(lambda job: job.index.isin(job.dropna().tail(metrics.STEADY_ITERATIONS).index))
    return Undisturbed(
        disturbed_iterations=int(met.to_numpy().sum()),
        iterations=int(times.notna().to_numpy().sum()),
        mean_s=float(metrics.pooled(times).mean()),
        last10_mean_s=metrics.steady(times),
        undisturbed_mean_s=float(np.nanmean(calm.to_numpy())) if calm.notna().to_numpy().any() else nan,
        undisturbed_last10_mean_s=float(calm.where(last).mean().mean()),
    )
