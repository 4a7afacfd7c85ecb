"""A study as one tidy table: a row per run, with its point of the sweep and its iteration times.

Iteration times are divided by the ideal of their job, so that different kinds of jobs can be pooled: 1 is an isolated
job. *Steady state* is the last half of a run's iterations, a window fixed before the run; statistics of all iterations
include those in which MLTCP still learns. An *arm* is MLTCP with one preset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, nan

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.core.runs.plan import Role
from testbed.models.frames import frame, payload_share
from testbed.models.statistics import log_interval
from testbed.report.study import Study

BASE = "base"  # the arm without MLTCP
ARMS = ("placebo", "paper", "recommended")  # presets of MLTCP
METRICS = ("mean", "p99", "settled", "settled_p99")


def table(study: Study) -> pd.DataFrame:
    """Return a row per run, without isolated runs."""
    return pd.DataFrame([_row(experiment, run) for experiment in study.experiments for run in experiment.runs])


def relative_times(experiment: Experiment, run: Run) -> pd.DataFrame:
    """Iteration times ÷ ideal of the job (a real program's: ÷ its time alone): a row per iteration, a column per job."""
    times = run.times
    alone = measured.isolated_s(experiment, run)
    yardsticks = {
        job.job: job.ideal_s if job.ideal_s is not None else (nan if alone is None else float(alone[job.job]))
        for job in run.jobs
    }
    return times / pd.Series(yardsticks)


def select_steady(times: pd.DataFrame) -> pd.DataFrame:
    """The iterations of a run in steady state, independent of the result: its last half."""
    return times.iloc[len(times) // 2 :]


def settled_times(experiment: Experiment, run: Run) -> pd.DataFrame:
    """`relative_times` of the steady state of a run."""
    return select_steady(relative_times(experiment, run))


def second_halves(run: Run) -> list[np.ndarray]:
    """The second half of each job's iterations ÷ ideal: a steady state that is fixed before the run."""
    ideals = measured.ideals_s(run)
    times = [run.times[job].dropna().to_numpy() / ideals[job] for job in range(len(ideals))]
    return [np.asarray(one[len(one) // 2 :]) for one in times]


def arm(run: Run) -> str:
    """``base``, or the preset of its MLTCP: ``paper``, ``recommended``, ``placebo``; empty of systems that are neither."""
    if run.role == "baseline" and not any(one.base for one in run.plan.system.congestion):
        return BASE
    return next((one.preset or "" for one in run.plan.system.congestion if one.base), "")


def arms(runs: Iterable[Run]) -> list[str]:
    """The presets that MLTCP had in these runs, in the order of `ARMS`."""
    found = set(map(arm, runs))
    return [one for one in ARMS if one in found]


def by_arm(runs: Iterable[Run]) -> dict[str, str]:
    """The systems that are compared: the base first, then MLTCP by arm."""
    found = {arm(run): run.system for run in runs}
    return {one: found[one] for one in (BASE, *ARMS) if one in found}


def base(run: Run) -> str:
    """The congestion control that a system is, or changes."""
    control = run.plan.system.congestion[0]
    return control.base or control.name


def threshold_frames(run: Run) -> float:
    """Frames of marking threshold for each flow of a link that all jobs share; NaN: it does not mark."""
    threshold, flows = run.plan.link.ecn_threshold, sum(job.channels for job in run.jobs)
    return nan if threshold is None else round(threshold.min_bytes / frame(run.plan.link.mtu) / flows, 1)


def pooled_gains(experiment: Experiment) -> pd.DataFrame:
    """The base's 99th percentile ÷ MLTCP's, pooled over jobs and seeds: ``arm, part, value, low, high, seeds, iterations``.

    A single run has too few iterations for one: of fifty the 99th percentile is the largest, nearly. The interval is over the seeds'
    own percentiles, and reaches to the value. No rows without a seed of both.
    """
    systems = by_arm(experiment.runs)
    rows = table(Study("", (experiment,), ()))
    found = []
    for name, system in systems.items():
        for part, column in (("settled", "settled_p99"), ("all", "p99")):
            gains = [] if name == BASE or BASE not in systems else ratios(rows, systems[BASE], system, column)
            if not gains:
                continue
            before, after = (_pooled_times(experiment, one, part) for one in (systems[BASE], system))
            value = float(np.percentile(before, 99) / np.percentile(after, 99))
            low, high = log_interval(gains) or (nan, nan)  # on a log scale: a single slow seed could dominate a mean
            found.append({
                "arm": name, "part": part, "value": value, "low": min(low, value), "high": max(high, value),
                "seeds": len(gains), "iterations": len(after),
            })  # fmt: skip
    return pd.DataFrame(found, columns=["arm", "part", "value", "low", "high", "seeds", "iterations"])


def _pooled_times(experiment: Experiment, system: str, part: str) -> np.ndarray:
    select = settled_times if part == "settled" else relative_times
    return np.concatenate([_pooled(select(experiment, run)) for run in experiment.runs_of(system)])


def duty(run: Run, job: int) -> float:
    """Return the fraction of a job's ideal iteration in which it needs the complete link, headers included."""
    sent = max(run.jobs[job].bytes_per_worker) / payload_share(run.plan.link.mtu)
    return sent * 8 / run.rate_bps / measured.ideals_s(run)[job]


def load(run: Run) -> float:
    """The offered load of all jobs on one shared link, if each took its ideal iteration time."""
    return sum(duty(run, job.job) if job.ideal_s else nan for job in run.jobs)


def compared(study: Study) -> tuple[pd.DataFrame, tuple[str, str]]:
    """`table`, and the base and the MLTCP in it that are compared; raises `LoadError` if one of them is missing."""
    rows = table(study)
    found = pair(roles(rows)) if len(rows) else None
    if found is None:
        raise LoadError(f"{study.id}: there are no results of both a base and MLTCP; run experiments/{study.id}.toml")
    return rows, found


def speed_ups(rows: pd.DataFrame, pair: tuple[str, str], column: str, keys: Sequence[str] = ()) -> pd.DataFrame:
    """Per point (``keys``) and seed, ``column`` under the base ÷ that under MLTCP as ``speed_up``; where both were run."""
    wide = rows.pivot_table(index=[*keys, "seed"], columns="cc", values=column).reindex(columns=list(pair))
    return (wide[pair[0]] / wide[pair[1]]).dropna().rename("speed_up").reset_index()


def ratios(rows: pd.DataFrame, base: str, other: str, column: str) -> list[float]:
    """``column`` of the one congestion control ÷ that of the other, paired by seed: above 1, the other is faster."""
    return [float(value) for value in speed_ups(rows, (base, other), column)["speed_up"]]


def pair(roles: Mapping[str, Role]) -> tuple[str, str] | None:
    """The first baseline and the first treatment among systems; None if one of them is missing."""
    base = next((system for system, role in roles.items() if role == "baseline"), None)
    other = next((system for system, role in roles.items() if role == "treatment"), None)
    return (base, other) if base and other else None


def roles(rows: pd.DataFrame) -> dict[str, Role]:
    """Return the role of each system in a `table`, in its order."""
    return dict(zip(rows["cc"], rows["role"], strict=True))


def _row(experiment: Experiment, run: Run) -> dict[str, object]:
    times = relative_times(experiment, run)
    every, late = (_pooled(part) for part in (times, select_steady(times)))
    noise = dict.fromkeys(job.noise for job in run.jobs)
    return {
        "experiment": experiment.path.name, "cc": run.system, "role": run.role, "arm": arm(run), "seed": run.seed, "jobs": len(run.jobs),
        "load": round(load(run), 3), "rate_bps": run.rate_bps, "buffer_bytes": run.plan.link.buffer_bytes,
        "noise": next(iter(noise)) if len(noise) == 1 else "various",
        "mean": every.mean(), "p99": np.percentile(every, 99),
        "settled": late.mean(), "settled_p99": np.percentile(late, 99),
        "interleaved_at": measured.interleaved_at(experiment, run),
        "timeouts": run.manifest.measured.counters.tcp_timeouts,
    }  # fmt: skip


def _pooled(times: pd.DataFrame) -> np.ndarray:
    every = times.to_numpy().ravel()
    every = every[~np.isnan(every)]
    return np.asarray(every) if every.size else np.array([inf])
