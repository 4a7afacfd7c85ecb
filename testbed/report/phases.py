"""An exchange with a parameter server in parts: gather, broadcast, delivered gradients, and drops in queues; for LTP's figures.

The gather ends when the server's own flows acknowledge their first byte of the iteration, minus one round trip. It is
observed at a sample, with the resolution of the sample interval (`Plan.sample_ns`). The rule is the same for every
transport, except one that sends parameters by TCP and gradients by datagrams. Those flows are not sampled: the
broadcast begins when the server's adapter begins to send more than acknowledgements. In a training, whose counters hold
more than its iterations' bytes, LTP's messages give the time, and half a sample interval is subtracted for TCP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from testbed.core import builtin_transport, system_text
from testbed.core.runs import metrics
from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, style
from testbed.report.study import Study

SERVER = 0
COLOURS = {"gather_s": style.JOBS[1], "broadcast_s": style.JOBS[0], "rest_s": "#CCCCCC"}
NAMES = {"gather_s": "gather", "broadcast_s": "broadcast", "rest_s": "computing"}


def table(study: Study) -> pd.DataFrame:
    """Return a row per run: its point, means over iterations of ``gather_s, broadcast_s, rest_s`` and ``iteration_s``,
    ``delivered`` and bytes.

    ``delivered`` is the fraction of gradient bytes (1 under stock TCP). Columns mark LTP with its defaults (``own``),
    LTP set to deliver all (``whole``), and the first TCP.

    The index is the run's position in ``study.runs``. Raises `LoadError` if LTP has no system to compare with.
    """
    rows = pd.DataFrame([_row(run) for run in study.runs])
    if rows.empty or not rows["lossy"].any() or rows["lossy"].all():
        raise LoadError(f"{study.id}: there are no results of both LTP and TCP; run experiments/{study.id}.toml")
    # Systems in the most points come first: a second file may add systems to some. The order is the same at all of them: the first is the reference.
    seen = list(dict.fromkeys(run.system for experiment in study.experiments for run in experiment.runs))
    points = Counter(name for experiment in study.experiments for name in {run.system for run in experiment.runs})
    order = {name: place for place, name in enumerate(sorted(seen, key=lambda name: -points[name]))}
    rows = rows.sort_values("system", key=lambda names: names.map(order), kind="stable")
    first = next(iter(tcp(rows)), None)
    return rows.assign(
        own=rows["system"] == lossy(study), whole=rows["system"] == whole(study), first_tcp=rows["system"] == first
    )


def _row(run: Run) -> dict[str, object]:
    plan, link, job = run.plan, run.plan.link, run.plan.jobs[0]
    wire = next(iter(plan.wires.values()), None)
    # The server ends an iteration once its kernel has the data to send; workers receive it later.
    workers = run.iterations[run.iterations["worker"] != SERVER]
    per = workers.groupby("iteration").agg(
        start=("start_s", "mean"), begun=("comm_start_s", "mean"), end=("end_s", "mean")
    )
    answered = _gathered_s(run, per) if job.trains else _answered_s(run, per) - plan.base_rtt_s
    broadcast = np.clip(answered, per["begun"], per["end"])
    return {
        "system": run.system, "lossy": not job.by_tcp, "stock": builtin_transport.plain(job.transport) and run.role == "baseline",
        "partial": job.by_tcp and not builtin_transport.plain(job.transport), "seed": run.seed, "rate_bps": link.rate_bps,
        "buffer_bytes": link.buffer_bytes, "marks": link.ecn_threshold is not None, "rto_ms": plan.rto_min_ms, "rtt_ms": round(plan.base_rtt_s * 1e3, 1),
        "loss": 0.0 if wire is None else wire.loss, "bytes": max(plan.jobs[0].bytes_per_worker[1:]),
        "gather_s": float((broadcast - per["begun"]).mean()), "broadcast_s": float((per["end"] - broadcast).mean()),
        "rest_s": float((per["begun"] - per["start"]).mean()), "iteration_s": float((per["end"] - per["start"]).mean()),
        "ideal_s": plan.jobs[0].ideal_s, "delivered": delivered(run), "dropped": dropped(run), "timeouts": run.manifest.measured.counters.tcp_timeouts,
    }  # fmt: skip


def _answered_s(run: Run, per: pd.DataFrame) -> np.ndarray:
    """When workers have acknowledged more than all iterations before held for them; an iteration's end, if no sample saw that."""
    job = run.plan.jobs[0]
    sent = run.flows[run.flows["flow"].str.startswith(f"{SERVER}-")].groupby("t_s")["bytes_acked"].sum()
    times, acked = sent.index.to_numpy(), sent.to_numpy()
    opened = len(job.hosts) - 1  # TCP counts one byte per handshake
    found = per["end"].to_numpy().copy()
    if not acked.any():  # the connections of its parameters are not sampled
        return _sent_s(run, per, found)
    for place, end in enumerate(found):
        later = np.flatnonzero(acked > place * job.bytes_per_worker[SERVER] + opened)
        if later.size:
            found[place] = min(end, times[later[0]])
    return np.asarray(found)


def _gathered_s(run: Run, per: pd.DataFrame) -> np.ndarray:
    """When the server has had the last gradients of each iteration that are to come; where TCP carries them, by its samples."""
    if run.plan.jobs[0].by_tcp or run.messages is None:
        return _answered_s(run, per) - run.plan.base_rtt_s - run.plan.sample_ns / 2e9
    came = run.messages[(run.messages["side"] == "receive") & (run.messages["stage"] == "gradient")]
    return np.asarray(came.groupby("iteration")["last_s"].max().reindex(per.index).fillna(per["end"]))


def _sent_s(run: Run, per: pd.DataFrame, found: np.ndarray) -> np.ndarray:
    """The time when the server's adapter has sent more than answers: a twentieth of its bytes in an iteration; the iteration's end, if no sample shows it."""
    nics = run.nics
    if nics is None:
        return found
    own = nics[nics["link"].str.startswith(f"{run.plan.jobs[0].hosts[SERVER]}-")]
    times, sent = own["t_s"].to_numpy(), own["bytes"].to_numpy()
    least = run.plan.jobs[0].bytes_per_worker[SERVER] / 20
    for place, (begun, end) in enumerate(zip(per["begun"], per["end"], strict=True)):
        before = np.interp(begun, times, sent)
        later = np.flatnonzero((times > begun) & (sent > before + least))
        if later.size:
            found[place] = min(end, times[later[0]])
    return found


def delivered(run: Run) -> float:
    """Return the delivered fraction of gradient bytes; 1 for a lossless transport."""
    found = metrics.delivered(run.messages)
    return 1.0 if found is None else found


def settled_s(run: Run) -> float:
    """Return the mean time in seconds between the starts of iterations, without the first, in which a transport finds
    its rates.

    If iterations overlap, the second is left out, too, because the exchange of the first ends in it. A run of two has
    only the second.
    """
    per = run.iterations.groupby("iteration").agg(start=("start_s", "min"), end=("end_s", "max"))
    first = min(1 if run.plan.jobs[0].window is None else 2, len(per) - 1)
    return float(per["end"].iloc[-1] - per["start"].iloc[first]) / (len(per) - first)


def dropped(run: Run) -> float:
    """Share of what came to the queues of links that was dropped there."""
    last = run.links.groupby("link")[["packets", "drops"]].max().sum()
    return float(last["drops"] / max(1, last["packets"] + last["drops"]))


def speed_ups(rows: pd.DataFrame, base: str, other: str) -> list[float]:
    """Iteration time of ``base`` ÷ that of ``other``, a ratio a seed."""
    wide = rows.pivot_table(index="seed", columns="system", values="iteration_s")
    if not {base, other} <= set(wide.columns):
        return []
    return [float(value) for value in (wide[base] / wide[other]).dropna()]


def best(rows: pd.DataFrame, systems: Sequence[str]) -> str:
    """The system with the shortest iterations; empty if there are none."""
    means = rows[rows["system"].isin(systems)].groupby("system")["iteration_s"].mean()
    return "" if means.empty else str(means.idxmin())


def lossy(study: Study) -> str:
    """The system whose gradients may lose, with its transport's own defaults; empty if it was not run."""
    return _with_options(study, "")


def whole(study: Study) -> str:
    """Return the system set to deliver every byte; empty if it was not run."""
    return _with_options(study, "fraction=1")


def by_tcp(study: Study) -> str:
    """Return the system that sends parameters by TCP; empty if it was not run."""
    return _with_options(study, "broadcast=tcp")


def _with_options(study: Study, options: str) -> str:
    """The first that loses with exactly these, or with a choice behind them (``broadcast=tcp:reno``); empty if there is none."""
    wanted = system_text.pairs(options)
    for run in study.runs:
        given = system_text.part(run.jobs[0].transport).options
        plain = tuple((key, system_text.name_of(value)) for key, value in given)
        if not run.jobs[0].by_tcp and wanted in (given, plain):
            return run.system
    return ""


def tcp(rows: pd.DataFrame) -> list[str]:
    """Stock TCPs, which deliver everything."""
    return list(dict.fromkeys(rows[rows["stock"]]["system"]))


def partial_tcp(rows: pd.DataFrame) -> list[str]:
    """TCP whose application does without a part of each gradient: it stops receiving early, or sends only a share."""
    return list(dict.fromkeys(rows[rows["partial"]]["system"]))


def delivered_by(rows: pd.DataFrame, system: str) -> float:
    """Share of the gradients that a system delivered, the mean of its runs."""
    return float(rows[rows["system"] == system]["delivered"].mean())


def bars(axis: Any, rows: pd.DataFrame) -> None:
    """A bar a system, from computing over gather to broadcast; next to it the speed-up over the first, the delivered share, and drops in queues."""
    systems = list(dict.fromkeys(rows["system"]))
    longest = rows["iteration_s"].max()
    for y, system in enumerate(systems):
        own = rows[rows["system"] == system]
        left = 0.0
        for part in ("rest_s", "gather_s", "broadcast_s"):
            width = 1e3 * float(own[part].mean())
            axis.barh(y, width, left=left, color=COLOURS[part], height=0.62)
            left += width
        axis.plot(1e3 * own["iteration_s"], np.full(len(own), y), "k|", markersize=9, markeredgewidth=1)
        gain = geometric_mean(speed_ups(rows, systems[0], system))
        arrived = float(own["delivered"].mean())
        label = ("" if y == 0 else f"{gain:.2f}×  ") + ("" if arrived == 1 else f"{arrived:.1%} delivered")
        lost = float(own["dropped"].mean())
        label += f"  {lost:.1%} dropped" if lost >= 5e-4 else ""
        axis.text(1e3 * (float(own["iteration_s"].max()) + 0.02 * longest), y, label.strip(), va="center", fontsize=8.5)
    axis.axvline(1e3 * float(rows["ideal_s"].iloc[0]), color=style.REFERENCE, linewidth=0.9, linestyle="--")
    axis.set_yticks(range(len(systems)), systems, fontsize=9)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.75e3 * longest)
    axis.locator_params(axis="x", nbins=6)
    axis.grid(visible=False, axis="y")


def label(axis: Any) -> None:
    """Names of what bars are made of, for a legend."""
    for part, colour in COLOURS.items():
        axis.barh(0, 0, color=colour, label=NAMES[part])


def figure(study: Study, rows: pd.DataFrame, lines: Sequence[str], columns: str, title: Any) -> Any:
    """Panels of `bars`: a row for each of ``lines``' values (a point of the sweep), a column for each of ``columns``."""
    points = rows[list(lines)].drop_duplicates().sort_values(list(lines))
    across = sorted(rows[columns].unique())
    count = rows["system"].nunique()
    drawn, axes = style.new_figure(
        len(points), len(across), figsize=(1.2 + 5.2 * len(across), 1.1 + len(points) * (0.9 + 0.32 * count))
    )
    for line, (_, point) in zip(axes, points.iterrows(), strict=True):
        here = rows[(rows[list(lines)] == point).all(axis="columns")]
        for axis, value in zip(line, across, strict=True):
            cell = here[here[columns] == value]
            if cell.empty:
                axis.set_visible(False)
                continue
            bars(axis, cell)
            axis.set_title(title(cell.iloc[0]), fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("mean iteration (ms)")
    label(axes[0, 0])
    drawn.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=3, fontsize=9)
    one = study.runs[0]
    drawing.caption(
        drawn,
        f"{drawing.count(len(one.jobs[0].hosts) - 1, 'worker')} and a server, {drawing.count(rows['seed'].nunique(), 'seed')} (ticks), {drawing.count(one.jobs[0].iterations, 'iteration')}; "
        f"{drawing.backend(one)}.",
        f"Means over workers; dashed: ideal, of the last of them. Gather and broadcast are told apart to {one.plan.sample_ns / 1e6:g} ms. Speed-ups are over the first system.",
    )
    return drawn
