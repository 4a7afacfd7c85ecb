"""SJF-BCO's Fig. 6: the makespan by the number of servers."""

from __future__ import annotations

import itertools
from math import nan
from pathlib import Path

from testbed.report import drawing, schedules, style
from testbed.report.schedules import MINE
from testbed.report.study import Study

ID = "sjf-servers"
POSITION = 400
TITLE = "With twice the servers SJF-BCO's makespan falls to 0.61 (published: 0.57)"
TEXT = (
    "Lines are means over seeds (dots) of each job scheduler; dashed with diamonds the paper's values, which are of the published setting; scales "
    "differ from setting to setting. Servers have 4, 8, 16 or 32 GPUs, at random."
)
COUNTS = (10, 15, 20)
PUBLISHED = {
    MINE: (939, 715, 535), "list_scheduling": (1160, 870, 595), "first_fit": (1404, 963, 719), "random": (1488, 1260, 1128),
}  # fmt: skip


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-servers.{png,pdf,csv}``; the data: a row for each schedule."""
    computed = schedules.require_schedules(study)
    names = list(dict.fromkeys(computed.table["scheduler"]))
    figure, columns = schedules.panels(computed, 1, 3.8)
    for setting, (axis,) in columns.items():
        for name, colour in zip(names, itertools.cycle(style.JOBS), strict=False):
            rows = computed.table[(computed.table["setting"] == setting) & (computed.table["scheduler"] == name)]
            drawing.trend(axis, rows, "servers", "makespan_s", colour, label=schedules.short(name))
            if setting == schedules.published_in(computed) and name in PUBLISHED:
                axis.plot(COUNTS, PUBLISHED[name], "D--", color=colour, linewidth=0.8, markersize=4, alpha=0.7)
        axis.set_xticks(COUNTS)
        axis.set_xlabel("servers")
        axis.set_ylim(0, None)
    first = next(iter(columns.values()))[0]
    first.set_ylabel("makespan (s)")
    axis.legend(loc="lower left", fontsize=8)
    schedules.caption(figure, computed)
    published = {
        (name, count): slots for name, found in PUBLISHED.items() for count, slots in zip(COUNTS, found, strict=True)
    }
    marks: list[float] = [
        published.get(key, nan) for key in zip(computed.table["scheduler"], computed.table["servers"], strict=True)
    ]
    rows = computed.table.assign(published=marks)
    own = rows[rows["scheduler"] == MINE].set_index(["setting", "servers", "seed"])["makespan_s"]
    spans = [own.get(at, nan) for at in zip(rows["setting"], rows["servers"], rows["seed"], strict=True)]
    return drawing.save(figure, rows.assign(of_sjf_bco=spans / rows["makespan_s"]), out, ID)
