"""Runs of stock protocols with their published curves: the measurement, the formula's prediction, and the accepted difference.

The plan of a run identifies its curve. A long flow is measured while all flows send, without the first quarter of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models import known_curves as curves
from testbed.models.frames import frame, payload_share
from testbed.report.study import Study

SKIPPED = 0.25  # skipped fraction of the time in which all flows send
LONG_RTO_MS = 200.0


@dataclass(frozen=True)
class Curve:
    """A published curve: axes, formula, and the relative tolerance within which a testbed must agree."""

    title: str
    x: str
    point: str  # ``loss {:g} %``
    y: str
    formula: str
    tolerance: float
    rows: Callable[[Run], Iterator[tuple[float, float, float]]]  # x, measured, expected


def table(study: Study) -> pd.DataFrame:
    """``curve, x, point, system, seed, measured, expected, ratio, tolerance, rto_ms``; raises `LoadError` without a run of a known curve."""
    rows = [row for run in study.runs for row in _rows(run)]
    if not rows:
        raise LoadError(f"{study.id}: there are no runs of a known curve. Run experiments/known.toml.")
    return pd.DataFrame(rows).sort_values(["curve", "x", "rto_ms", "seed"], kind="stable", ignore_index=True)


def goodput(study: Study) -> pd.DataFrame:
    """Return ``senders, rto_ms, seed, goodput`` of each incast, goodput as a fraction of the link over all blocks;
    empty without incast."""
    rows = [
        {"senders": len(run.jobs[0].hosts) - 1, "rto_ms": run.plan.rto_min_ms, "seed": run.seed,
         "goodput": _block_s(run) / float(_blocks_s(run).mean())}
        for run in study.runs if _name(run) == "incast"
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["senders", "rto_ms", "seed", "goodput"])


def _rows(run: Run) -> Iterator[dict[str, object]]:
    name = _name(run)
    for x, measured, expected in CURVES[name].rows(run) if name else ():
        yield {
            "curve": name, "x": x, "point": CURVES[name].point.format(x), "system": run.system, "seed": run.seed, "measured": measured, "expected": expected,
            "ratio": measured / expected, "tolerance": CURVES[name].tolerance, "rto_ms": run.plan.rto_min_ms,
        }  # fmt: skip


def _name(run: Run) -> str:
    """The curve that a run is for; empty: none."""
    job, link = run.jobs[0], run.plan.link
    if len(job.hosts) > 2:
        return "incast"
    if link.ecn_threshold is not None and job.cc.name == "reno":
        return "red"
    return job.cc.name if job.cc.name in CURVES else ""


def _loss(run: Run) -> float:
    return max((wire.loss for wire in run.plan.wires.values()), default=0.0)


def _span(run: Run) -> tuple[float, float]:
    """Return the time (start and end, in s) in which all flows send, without the skipped part."""
    by_job = run.iterations[run.iterations["worker"] == 0].groupby("job")
    begin, end = float(by_job["comm_start_s"].min().max()), float(by_job["end_s"].max().min())
    return begin + SKIPPED * (end - begin), end


def _goodputs(run: Run) -> list[float]:
    """Payload in bit/s of each flow, in that time."""
    begin, end = _span(run)
    acked = run.flows.pivot_table(index="t_s", columns=["job", "flow"], values="bytes_acked")
    within = acked[(acked.index >= begin) & (acked.index <= end)]
    if len(within) < 2:
        raise LoadError(f"{run.path}: fewer than two samples have all flows sending. Give the jobs more bytes.")
    return list(8 * (within.iloc[-1] - within.iloc[0]) / (within.index[-1] - within.index[0]))


def _queue(run: Run) -> pd.DataFrame:
    """Samples of the bottleneck's queue in that time, of the direction that data takes."""
    begin, end = _span(run)
    most = run.links.groupby("link")["bytes"].max().idxmax()
    return run.links[(run.links["link"] == most) & run.links["t_s"].between(begin, end)]


def _window(run: Run) -> float:
    """Mean window in segments: goodput × round trip."""
    segment = 8 * payload_share(run.plan.link.mtu) * frame(run.plan.link.mtu)
    return float(np.mean(_goodputs(run))) * run.plan.base_rtt_s / segment


def _over_loss(formula: Callable[[float, float], float]) -> Callable[[Run], Iterator[tuple[float, float, float]]]:
    def rows(run: Run) -> Iterator[tuple[float, float, float]]:
        yield 100 * _loss(run), _window(run), formula(_loss(run), run.plan.base_rtt_s)

    return rows


def _bbr(run: Run) -> Iterator[tuple[float, float, float]]:
    share = sum(_goodputs(run)) / (run.rate_bps * payload_share(run.plan.link.mtu))
    yield 100 * _loss(run), share, curves.bbr_share(_loss(run))


def _dctcp(run: Run) -> Iterator[tuple[float, float, float]]:
    threshold = run.plan.link.ecn_threshold
    if threshold is not None:
        size = frame(run.plan.link.mtu)
        k, bdp = threshold.min_bytes / size, run.rate_bps * run.plan.base_rtt_s / 8 / size
        yield round(k, 3), float(_queue(run)["backlog_bytes"].mean()) / size, curves.dctcp_queue(k, bdp, len(run.jobs))


def _dcqcn(run: Run) -> Iterator[tuple[float, float, float]]:
    """The flow that gets least, as a share of an equal part."""
    found = _goodputs(run)
    yield len(found), min(found) * len(found) / sum(found), 1.0


def _red(run: Run) -> Iterator[tuple[float, float, float]]:
    threshold, queue = run.plan.link.ecn_threshold, _queue(run)
    if threshold is not None:
        above = (queue["backlog_bytes"] - threshold.min_bytes) / (threshold.max_bytes - threshold.min_bytes)
        p = float((threshold.probability * above.clip(0, 1) + (1 - threshold.probability) * (above >= 1)).mean())
        marks, packets = (float(queue[name].iloc[-1] - queue[name].iloc[0]) for name in ("ecn_marks", "packets"))
        if p > 0 and packets > 0:  # else there was no queue to mark
            yield len(run.jobs), marks / packets, curves.red_share(p)


def _block_s(run: Run) -> float:
    """A block of all senders at the link's rate, headers included."""
    sent = sum(run.jobs[0].bytes_per_worker[1:])
    return 8 * sent / payload_share(run.plan.link.mtu) / run.rate_bps


def _blocks_s(run: Run) -> npt.NDArray[np.float64]:
    """The time of each block: from the first sender's start until its receiver, rank 0, has all of it."""
    receives = run.iterations["worker"] == 0
    ended = run.iterations[receives].groupby("iteration")["end_s"].max()
    begun = run.iterations[~receives].groupby("iteration")["comm_start_s"].min()
    return np.asarray(ended - begun, dtype=float)


def _incast(run: Run) -> Iterator[tuple[float, float, float]]:
    """The blocks that waited for one timeout of the usual length."""
    block_s, rto_s = _block_s(run), run.plan.rto_min_ms / 1e3
    took = _blocks_s(run)
    stalled = took[(took > block_s + 0.5 * rto_s) & (took < block_s + 1.5 * rto_s)]
    if run.plan.rto_min_ms >= LONG_RTO_MS and len(stalled):
        yield len(run.jobs[0].hosts) - 1, block_s / float(stalled.mean()), curves.stalled_goodput(block_s, rto_s)


CURVES = {
    "reno": Curve("Reno over loss", "packets lost (%)", "loss {:g} %", "window (segments)", "1.22 ÷ √p", 0.15, _over_loss(lambda p, _: curves.reno_window(p))),
    "cubic": Curve("CUBIC over loss", "packets lost (%)", "loss {:g} %", "window (segments)", "RFC 9438, 5.1 × 1.23 (random losses)", 0.2, _over_loss(curves.cubic_window_random)),
    "bbr": Curve("BBR over loss", "packets lost (%)", "loss {:g} %", "goodput ÷ link", "1 − p", 0.15, _bbr),
    "dctcp": Curve("DCTCP's queue", "threshold K (frames)", "K = {:g} frames", "mean queue (frames)", "K + N − ¼ √(2N(C·RTT + K))", 0.15, _dctcp),
    "dcqcn": Curve("DCQCN's fair share", "flows", "{:g} flows", "least share × flows", "1", 0.15, _dcqcn),
    "red": Curve("ECN marks by RED", "flows", "{:g} flows", "packets marked ÷ all", "2p ÷ (1 + p), p of the queue", 0.25, _red),
    "incast": Curve("Incast: a block that stalls", "senders", "{:g} senders", "goodput ÷ link", "block ÷ (block + minimum RTO)", 0.1, _incast),
}  # fmt: skip
