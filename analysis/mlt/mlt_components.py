"""MLT taken apart: bounded loss, bands that drop, every path; alone and together, against TCP with priorities as BytePS has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed import transports
from testbed.core import system_text
from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, phases, style
from testbed.report.study import Study

ID = "mlt-components"
POSITION = 270
TITLE = "What each part of MLT gains"
TEXT = (
    "Speed of an iteration beside that of TCP with partitions and priorities as BytePS has them; a panel for each least timeout of the kernel, dots are "
    "seeds; to the right, if it was run, switches that mark and drop from less on. A: a share of a message may be missing; B: bands by layer, and switches that drop what is not important; C: every path in turn, for TCP by routers; none of them: MLT's rate alone, all of it by one path and in one band; hashed: addresses that routers hash, as they do random ports; a share sent: of each gradient as much as MLT has to deliver, and all parameters, of which MLT may go without as much unless they arrive whole; apart: control has a band of its own, which without B it has not; by marks: with DLCP's rate; published tags: by the median of single numbers, by which 98 % of the packets count as important; DLCP: with its rate by marks. Grey: as "
    "published (PyTorch, 64 GPUs, VGG16). Behind a bar: the share of the gradients that arrived, and of all packets what queues dropped."
)
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
LITTLE = 5e-4  # is not told
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


Speeds = dict[str, dict[int, float]]  # by part and seed, ÷ the baseline of that seed


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
