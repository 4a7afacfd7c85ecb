"""The parts of MLT: bounded loss, priority queues that drop, packet spraying; separately and together, against TCP with BytePS's priorities."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from testbed import transports
from testbed.core import system_text
from testbed.core.runs.load import LoadError, Run
from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-components"
POSITION = 270
TITLE = (
    "MLT's parts together gain 1.16 times over TCP with priorities (published: 1.70); TCP on sprayed paths gains 1.11"
)
TEXT = (
    "Speed of an iteration relative to TCP with partitions and priorities (as BytePS has them), means with 95 % intervals over seeds. Left: the parts of MLT, with the published values. "
    "Right: other baselines and variants. The minimum RTO hardly matters; switches that mark from 12 kB on favour MLT."
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
NAMES = {
    UNMARKED: "TCP CUBIC", SHARE: "TCP sends 90 %", SPRAYED_TCP: "TCP, routers spray", SPRAYED_SHARE: "TCP sends 90 %, routers spray",
    BARE: "rate control alone", "A": "A: bounded loss", "B": "B: priority queues, selective drops", "C": "C: packet spraying",
    APART: "A, own queue for control", RATED: "A, own queue, DLCP's rate", APART_C: "C, own queue for control", UNDROPPED: "A+B, no selective drops",
    TAGGED_B: "A+B, published tags", RANDOM_B: "A+B, random drops", HASHED: "A+B, hashed addresses", KEPT: "A+B+C, lossless parameters", OLDER: "DLCP (rate by marks)",
}  # fmt: skip
MARKERS = ((style.JOBS[0], "o"), (style.JOBS[1], "s"), (style.JOBS[2], "D"))
MAIN = (BARE, "A", "B", "A+B", "C", "C+B", "A+B+C")
# Images/s of VGG16 (published figure, values read from the drawing); B alone is not among them.
PUBLISHED = {"BytePS": 232, "A": 305, "A+B": 325, "C": 358, "C+B": 372, "A+B+C": 394}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-components.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    one = study.runs[0]
    note = (
        f"{drawing.count(len(one.jobs[0].hosts), 'worker')}, each a server, too; {one.jobs[0].trace}, {drawing.setting(one)}; "
        f"{drawing.count(rows['seed'].nunique(), 'seed')} (dots), the last of {drawing.count(one.jobs[0].iterations, 'iteration')}."
    )
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """A row a part, a marker for each minimum RTO and marking threshold, and what was published."""
    rows = tables[ID]
    found = {
        str(key): (_speeds(cell), _condition(cell.iloc[0])) for key, cell in rows.groupby(["shallow", "rto_ms"], sort=False)
    }  # fmt: skip
    shown = [part for part in PARTS if any(part in speeds for speeds, _ in found.values())]
    sides = [[part for part in shown if part in MAIN], [part for part in shown if part not in MAIN]]
    figure, axes = style.new_figure(1, 2, figsize=(12.5, 1.5 + 0.42 * max(map(len, sides))), sharex=True)
    for axis, parts, title in zip(axes[0], sides, ("Parts of MLT", "Baselines and variants"), strict=True):
        for place, ((speeds, label), (colour, marker)) in enumerate(zip(found.values(), MARKERS, strict=False)):
            aside = (place - (len(found) - 1) / 2) * 0.22
            for y, part in enumerate(parts):
                drawing.across(axis, y + aside, list(speeds.get(part, {}).values()), colour, marker=marker)
            axis.plot([], [], marker, color=colour, label=label)
        values = [PUBLISHED.get(part, nan) / PUBLISHED["BytePS"] for part in parts]
        axis.plot(
            values, range(len(parts)), "x", color=style.REFERENCE, markersize=7, markeredgewidth=1.6, label="published"
        )
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_yticks(range(len(parts)), [NAMES.get(part, part) for part in parts])
        axis.set_ylim(len(parts) - 0.5, -0.5)
        axis.set(title=title, xlabel="speed ÷ that of TCP with priorities")
        axis.grid(visible=False, axis="y")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    return figure


def _condition(row: pd.Series[Any]) -> str:
    return f"minimum RTO {row['rto_ms']:g} ms, marks from {row['marks_bytes'] / 1e3:g} kB"


Speeds = dict[str, dict[int, float]]  # by part and seed, ÷ the baseline of that seed


def _speeds(rows: pd.DataFrame) -> Speeds:
    took: dict[str, dict[int, float]] = {}
    for part, seed, iteration_s in zip(rows["part"], rows["seed"], rows["iteration_s"], strict=True):
        took.setdefault(part, {})[seed] = iteration_s
    base = took.pop("BytePS", {})
    return {part: {seed: base[seed] / s for seed, s in mine.items() if seed in base} for part, mine in took.items()}


def _table(study: Study) -> pd.DataFrame:
    """``system, role, part, seed, rto_ms, marks_bytes, shallow, iteration_s, delivered, dropped, reordered``; raises `LoadError` without both TCP and MLT."""
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
    """The parts of MLT that a run has, by the options of its transport."""
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
