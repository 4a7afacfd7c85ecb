"""MLT taken apart: bounded loss, bands that drop, every path; alone and together, against TCP with priorities as BytePS has them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from testbed import transports
from testbed.core import system_text
from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval, pairs, ratio_ends
from testbed.report import drawing, phases, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "mlt-components"
POSITION = 270
PAPER = "MLT"
TITLE = "What each part of MLT gains"
TEXT = (
    "Speed of an iteration beside that of TCP with partitions and priorities as BytePS has them; a panel for each least timeout of the kernel, dots are "
    "seeds; to the right, if it was run, switches that mark and drop from less on. A: a share of a message may be missing; B: bands by layer, and switches that drop what is not important; C: every path in turn, for TCP by routers; none of them: MLT's rate alone, all of it by one path and in one band; hashed: addresses that routers hash, as they do random ports; a share sent: of each gradient as much as MLT has to deliver, and all parameters, of which MLT may go without as much unless they arrive whole; apart: control has a band of its own, which without B it has not; by marks: with DLCP's rate; published tags: by the median of single numbers, by which 98 % of the packets count as important; DLCP: with its rate by marks. Grey: as "
    "published (PyTorch, 64 GPUs, VGG16). Behind a bar: the share of the gradients that arrived, and of all packets what queues dropped."
)
ORDER = "Each part adds to the speed: A, A+B, C, C+B, A+B+C in this order."
WHOLE = "All of MLT is faster than BytePS."
SPRAYED = (
    "With every path in turn for both and nothing missing MLT is faster than TCP, which has to put packets in order."
)
DROPS = "Where queues are short it is a gain that switches drop what is not important."
SOURCES = {
    ORDER: "MLT, components [published figure]",
    WHOLE: "MLT, components [published figure]: 394 against 232 images/s, VGG16",
    SPRAYED: "ours; MLT, abstract [published]: updates may come in any order",
    DROPS: "MLT, its rule for switches; ours as an experiment",
}
CONTROLS = {
    ORDER: "parts that gain the other way round",
    WHOLE: "an MLT that takes as long as TCP",
    SPRAYED: "an MLT that takes as long as TCP",
    DROPS: "switches that gain nothing by it",
}
SPRAYED_TCP = "TCP, C"
SHARE, SPRAYED_SHARE = "TCP, a share sent", "TCP, C, a share sent"
UNMARKED = "BytePS, CUBIC"
HASHED, TAGGED, OLDER = "A+B, hashed", "A+B+C, published tags", "DLCP"
APART, RATED, APART_C = "A, control apart", "A, control apart, by marks", "C, control apart"
BARE = "none of them"
KEPT, UNDROPPED = "A+B+C, parameters whole", "A+B, no drops"
TAGGED_B, RANDOM_B = "A+B, published tags", "A+B, drops at random"
BASES = ("BytePS", UNMARKED, SHARE, SPRAYED_TCP, SPRAYED_SHARE)
PARTS = (
    *BASES,
    BARE,
    "A",
    APART,
    RATED,
    "B",
    UNDROPPED,
    "A+B",
    TAGGED_B,
    RANDOM_B,
    HASHED,
    "C",
    APART_C,
    "C+B",
    "A+B+C",
    KEPT,
    TAGGED,
    OLDER,
)
BESIDE = {
    HASHED: "over addresses that routers hash",
    KEPT: "with whole parameters",
    TAGGED: "with packets tagged as published",
    OLDER: "DLCP, its form before",
}
SHARES = {SHARE: "over TCP that sends only the share", SPRAYED_SHARE: "over the same by every path"}
LITTLE = 5e-4  # is not told
SAME = 1e-6  # of an iteration: what is written of times is rounded
# Images/s of VGG16 (published figure, values read from the drawing); B alone is not among them.
PUBLISHED = {"BytePS": 232, "A": 305, "A+B": 325, "C": 358, "C+B": 372, "A+B+C": 394}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-components.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    deep, shallow = rows[~rows["shallow"]], rows[rows["shallow"]]
    panels = [deep[deep["rto_ms"] == rto] for rto in sorted(deep["rto_ms"].unique(), reverse=True)]
    panels += [shallow] * (not shallow.empty)
    most = max(panel["part"].nunique() for panel in panels)
    figure, axes = style.new_figure(1, len(panels), figsize=(1.6 + 5.4 * len(panels), 1.3 + 0.42 * most))
    for axis, panel in zip(axes[0], panels, strict=True):
        _bars(axis, panel)
        axis.set_ylim(most - 1.5, -0.5)  # bars as thick, however few
        first = panel.iloc[0]
        marks = f", marks from {first['marks_bytes'] / 1e3:g} kB" if first["shallow"] else ""
        axis.set(title=f"least timeout {first['rto_ms']:g} ms{marks}", xlabel="speed ÷ that of TCP with priorities")
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.count(len(one.jobs[0].hosts), 'worker')}, each a server, too; {one.jobs[0].trace}, {drawing.setting(one)}; "
        f"{drawing.count(rows['seed'].nunique(), 'seed')} (dots), {drawing.count(one.jobs[0].iterations, 'iteration')}, of which the last counts: in the second the exchange of the first ends, which finds its rates.",
    )
    return drawing.save(figure, rows, out, ID)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """The order of the parts, all of them against TCP, every path against TCP's, and what drops gain where queues are short."""
    rows = _table(study)
    shallow, rows = rows[rows["shallow"]], rows[~rows["shallow"]]
    speeds = {float(str(rto)): _speeds(mine) for rto, mine in rows.groupby("rto_ms", sort=False)}
    return [
        _order(study, rows, speeds), _whole(study, rows, speeds), _sprayed(study, rows, speeds), _drops(study, shallow),
    ]  # fmt: skip


Speeds = dict[str, dict[int, float]]  # by part and seed, ÷ the baseline of that seed


def _order(study: Study, rows: pd.DataFrame, speeds: dict[float, Speeds]) -> Finding:
    parts = [part for part in PUBLISHED if part != "BytePS"]
    steps = {
        (rto, before, after): ratios
        for rto, mine in speeds.items()
        for before, after in pairwise(parts)
        if (ratios := _ratios(mine, after, before))
    }
    if len(steps) < len(speeds) * (len(parts) - 1):
        return not_measured(ORDER, SOURCES[ORDER], "not every part was run alone")
    means = [geometric_mean(ratios) for ratios in steps.values()]
    least = min(steps, key=lambda step: geometric_mean(steps[step]))
    return Finding(
        ORDER, SOURCES[ORDER],
        "speed ÷ TCP's: " + "; ".join(
            f"{observed.with_interval(list(values.values()))} {part} (least timeout {rto:g} ms)"
            for rto, mine in speeds.items() for part, values in sorted(mine.items(), key=lambda of: geometric_mean(list(of[1].values())))
        )
        + _same(rows, [part for part in PARTS if part not in BASES]),
        min(means), f"× from {least[1]} to {least[2]}, the smallest step, {least[0]:g} ms", log_interval(steps[least]), len(steps[least]),
        graded(all(ratio_ends(ratios)[0] > 1 for ratios in steps.values()), all(mean > 1 for mean in means)),
        "reproduced if each step is surely a gain at every least timeout, partly if in the mean",
        study.paths,
    )  # fmt: skip


def _whole(study: Study, rows: pd.DataFrame, speeds: dict[float, Speeds]) -> Finding:
    gains = {rto: list(mine["A+B+C"].values()) for rto, mine in speeds.items() if "A+B+C" in mine}
    if not gains:
        return not_measured(WHOLE, SOURCES[WHOLE], "all of MLT was not run beside TCP")
    least = min(gains, key=lambda rto: geometric_mean(gains[rto]))
    ends = [ratio_ends(ratios)[0] > 1 for ratios in gains.values()]
    return Finding(
        WHOLE, SOURCES[WHOLE],
        "speed ÷ TCP's: " + "; ".join(f"{observed.with_interval(ratios)} (least timeout {rto:g} ms)" for rto, ratios in gains.items())
        + "".join(
            f"; {said} {observed.with_interval(list(mine[part].values()))} ({rto:g} ms)"
            for part, said in BESIDE.items() for rto, mine in speeds.items() if part in mine
        )
        + _over_shares(speeds)
        + f"; published: {PUBLISHED['A+B+C'] / PUBLISHED['BytePS']:.2f}"
        + _same(rows, ["A+B+C"]),
        geometric_mean(gains[least]), f"× as fast, least timeout {least:g} ms", log_interval(gains[least]), len(gains[least]),
        graded(all(ends), any(ends)),
        "reproduced if surely faster at every least timeout, partly if at one",
        study.paths,
    )  # fmt: skip


def _sprayed(study: Study, rows: pd.DataFrame, speeds: dict[float, Speeds]) -> Finding:
    gains = {rto: ratios for rto, mine in speeds.items() if (ratios := _ratios(mine, "C+B", SPRAYED_TCP))}
    if not gains:
        return not_measured(SPRAYED, SOURCES[SPRAYED], "TCP was not sprayed, or MLT not run with nothing missing")
    missing = {rto: ratios for rto, mine in speeds.items() if (ratios := _ratios(mine, "A+B+C", SPRAYED_TCP))}
    least = min(gains, key=lambda rto: geometric_mean(gains[rto]))
    own = {rto: list(mine[SPRAYED_TCP].values()) for rto, mine in speeds.items() if SPRAYED_TCP in mine}
    alone = {
        (said, rto): ratios
        for said, by, base in (("with bands, C+B ÷ B", "C+B", "B"), ("in one band, C ÷ none", "C", BARE))
        for rto, mine in speeds.items()
        if (ratios := _ratios(mine, by, base))
    }
    late = rows.loc[rows["part"] == SPRAYED_TCP, "reordered"]
    return Finding(
        SPRAYED, SOURCES[SPRAYED],
        "speed ÷ that of TCP over every path: " + "; ".join(f"{observed.with_interval(ratios)} (least timeout {rto:g} ms)" for rto, ratios in gains.items())
        + "; where a tenth may be missing: " + "; ".join(f"{observed.with_interval(ratios)} ({rto:g} ms)" for rto, ratios in missing.items())
        + "; TCP gains by it: " + "; ".join(f"{observed.with_interval(ratios)}× ({rto:g} ms)" for rto, ratios in own.items())
        + f"; its senders noticed {late.mean():.0f} packets a run out of order"
        + "".join(f"; C alone, where nothing may be missing ({said}): {_format_ratios(ratios)} ({rto:g} ms)" for (said, rto), ratios in alone.items())
        + _same(rows, ["C+B", "A+B+C"]),
        geometric_mean(gains[least]), f"× as fast as TCP over every path, least timeout {least:g} ms", log_interval(gains[least]), len(gains[least]),
        graded(all(ratio_ends(ratios)[0] > 1 for ratios in gains.values()), any(ratio_ends(ratios)[0] > 1 for ratios in gains.values()), alike=all(no_difference(ratio_ends(ratios)) for ratios in gains.values())),
        "reproduced if surely faster at every least timeout, partly if at one",
        study.paths,
    )  # fmt: skip


def _drops(study: Study, rows: pd.DataFrame) -> Finding:
    """Of bounded loss over bands by one path, as what queues gain by dropping shows without other paths: with drops ÷ without."""
    mine = _speeds(rows) if "BytePS" in set(rows["part"]) else {}
    gains = _ratios(mine, "A+B", UNDROPPED)
    if not gains:
        return not_measured(DROPS, SOURCES[DROPS], "switches with short queues were not run with and without drops")
    beside = {part: _ratios(mine, part, UNDROPPED) for part in (TAGGED_B, RANDOM_B)}
    lost = rows.groupby("part")["dropped"].mean()
    return Finding(
        DROPS, SOURCES[DROPS],
        f"speed with drops ÷ without: {observed.with_interval(gains)}, {lost['A+B']:.1%} of all packets dropped"
        + "".join(f"; {observed.with_interval(ratios)} {part}, {lost[part]:.1%}" for part, ratios in beside.items() if ratios)
        + "; ÷ TCP's: " + ", ".join(f"{observed.with_interval(list(values.values()))} {part}" for part, values in mine.items()),
        geometric_mean(gains), "× as fast as without", log_interval(gains), len(gains),
        graded(ratio_ends(gains)[0] > 1, geometric_mean(gains) > 1.001, alike=no_difference(ratio_ends(gains))),
        "reproduced if surely faster, partly if in the mean", study.paths,
    )  # fmt: skip


def _ratios(mine: Speeds, part: str, base: str) -> list[float]:
    """How much faster a part is than another, a ratio a seed; none if one of them was not run."""
    return [speed / other for speed, other in pairs(mine.get(part, {}), mine.get(base, {}))]


def _over_shares(speeds: dict[float, Speeds]) -> str:
    """What may miss a share of each gradient, beside TCP that sends no more than has to arrive."""
    text = ""
    for base, said in SHARES.items():
        told = [
            f"{observed.with_interval(ratios)} {part} ({rto:g} ms)"
            for part in ("A", "A+B", "A+B+C", KEPT)
            for rto, mine in speeds.items()
            if (ratios := _ratios(mine, part, base))
        ]
        text += f"; {said}: {', '.join(told)}" if told else ""
    return text


def _format_ratios(ratios: list[float]) -> str:
    low, high = ratio_ends(ratios)
    return f"{observed.with_interval(ratios)}×" + (", cannot tell" if low <= 1 <= high else "")


def _same(rows: pd.DataFrame, parts: list[str]) -> str:
    """Which parts take as long whatever the seed: an interval of their ratios says how far the other one varies."""

    def alike(part: str) -> bool:
        by = rows[rows["part"] == part].groupby("rto_ms")["iteration_s"]
        return bool((by.count() > 1).all() and (by.max() - by.min() <= SAME * by.mean()).all())

    found = [part for part in parts if part in set(rows["part"]) and alike(part)]
    return "; the same in every seed, so that the interval is the baseline's: " + "; ".join(found) if found else ""


def _speeds(rows: pd.DataFrame) -> Speeds:
    took: dict[str, dict[int, float]] = {}
    for part, seed, iteration_s in zip(rows["part"], rows["seed"], rows["iteration_s"], strict=True):
        took.setdefault(part, {})[seed] = iteration_s
    base = took.pop("BytePS")
    return {part: {seed: base[seed] / s for seed, s in mine.items() if seed in base} for part, mine in took.items()}


def _bars(axis: Any, rows: pd.DataFrame) -> None:
    """A bar a part; beside it what was published, and what arrived."""
    speeds = _speeds(rows)
    parts = [part for part in PARTS if part in speeds]
    for y, part in enumerate(parts):
        values = list(speeds[part].values())
        mean = geometric_mean(values)
        axis.barh(y - 0.18, mean, height=0.34, color=style.JOBS[0])
        axis.plot(values, [y - 0.18] * len(values), "o", color="black", markersize=3)
        mine = rows[rows["part"] == part]
        arrived, lost = mine["delivered"].mean(), mine["dropped"].mean()
        axis.annotate(
            f"{mean:.2f}"
            + ("" if arrived == 1 else f", {arrived:.1%} arrived")
            + (f", {lost:.1%} dropped" if lost >= LITTLE else ""),
            (max(mean, *values), y - 0.18),
            textcoords="offset points",
            xytext=(6, -3),
            fontsize=8,
        )
        if part not in PUBLISHED:
            continue
        axis.barh(y + 0.18, PUBLISHED[part] / PUBLISHED["BytePS"], height=0.34, color="#CCCCCC")
        axis.annotate(
            f"{PUBLISHED[part] / PUBLISHED['BytePS']:.2f} published", (PUBLISHED[part] / PUBLISHED["BytePS"], y + 0.18),
            textcoords="offset points", xytext=(6, -3), fontsize=8, color="#888888",
        )  # fmt: skip
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(range(len(parts)), parts)
    axis.set_xlim(0, 2.8)
    axis.grid(visible=False, axis="y")


def _table(study: Study) -> pd.DataFrame:
    """``system, role, part, seed, rto_ms, marks_bytes, shallow, iteration_s, delivered, dropped, reordered``; raises `LoadError` without TCP and MLT beside each other."""
    rows = pd.DataFrame([_row(run) for run in study.runs])
    if rows.empty or "BytePS" not in set(rows["part"]) or rows["part"].nunique() < 2:
        raise LoadError(f"{ID}: there are no results of both MLT and TCP; run experiments/{ID}.toml")
    rows["shallow"] = rows["marks_bytes"] < rows["marks_bytes"].max()
    return rows.sort_values("part", key=lambda parts: parts.map(list(PARTS).index), kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any]:
    return {
        "system": run.system, "role": run.role, "part": _part(run), "seed": run.seed, "rto_ms": run.plan.rto_min_ms,
        "marks_bytes": 0 if (threshold := run.plan.link.ecn_threshold) is None else threshold.min_bytes,
        "iteration_s": phases.settled_s(run), "delivered": phases.delivered(run), "dropped": phases.dropped(run),
        "reordered": sum((run.manifest.measured.tcp or {}).get(name, 0) for name in ("TCPSACKReorder", "TCPRenoReorder", "TCPTSReorder")),
    }  # fmt: skip


def _part(run: Run) -> str:
    """What of MLT a run has, by the options of its transport."""
    part = system_text.part(run.jobs[0].transport)
    options = dict(part.options)
    if run.jobs[0].by_tcp:
        if transports.parse(run.jobs[0].transport).options.send_fraction < 1:
            return SPRAYED_SHARE if run.jobs[0].routers_spray else SHARE
        if not run.jobs[0].cc.traits.needs_marks:
            return UNMARKED
        return SPRAYED_TCP if run.jobs[0].routers_spray else "BytePS"
    if (whole := part.name.upper()) in PARTS:
        return whole
    if options.get("parameters") == "whole":
        return KEPT
    if "tag" in options:
        if options.get("spray") != "off":
            return TAGGED
        return TAGGED_B if options["tag"] == "element-median" else RANDOM_B
    if options.get("bands") == "1+apart":
        if options.get("tolerance") == "0":
            return APART_C
        return RATED if "rate" in options else APART
    if options.get("bands") == "4":
        return UNDROPPED
    if options.get("spray", "").startswith("hashed"):
        return HASHED
    parts = [
        part
        for part, option, off in (("A", "tolerance", "0"), ("B", "bands", "1"), ("C", "spray", "off"))
        if options.get(option) != off
    ]
    return {"": BARE, "B+C": "C+B"}.get("+".join(parts), "+".join(parts))
