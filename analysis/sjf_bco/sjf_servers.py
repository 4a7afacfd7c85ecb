"""SJF-BCO's Fig. 6: the makespan by the number of servers."""

from __future__ import annotations

import itertools
from math import nan
from pathlib import Path

from testbed.core.runs.schedules import Setting
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, schedules, style
from testbed.report.finding import Finding, graded, no_difference
from testbed.report.schedules import MINE, REPORT
from testbed.report.study import Study

ID = "sjf-servers"
POSITION = 400
PAPER = schedules.PAPER
TITLE = "SJF-BCO: the makespan by the number of servers"
TEXT = (
    "Lines are means over seeds (dots) of each job scheduler; dashed with diamonds the report's values, which are of the published setting; scales "
    "differ from setting to setting. Servers are drawn from 4, 8, 16 and 32 GPUs."
)
FALLS = "The makespan falls as servers are added."
GAIN = "SJF-BCO's gain over list scheduling and first fit is largest on ten servers."
SOURCES = {
    FALLS: f"Fig. 6 [published]; {REPORT}",
    GAIN: f"Fig. 6 [published]: 19 and 33 % on 10 servers, 10 and 26 % on 20 (over random placement it is the other way round); {REPORT}",
}
CONTROLS = {
    FALLS: "makespans that stay as they are when servers are added",
    GAIN: "uplinks without limit (b_e → ∞), where order and search alone remain",
}
RIVALS = ("list_scheduling", "first_fit", "random")
GAINED_ON = ("list_scheduling", "first_fit")
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
    return drawing.save(figure, computed.table.assign(published=marks), out, ID)


def find(study: Study) -> list[Finding]:
    """For each setting: the fall, and where the gain is largest."""
    return schedules.findings(
        study, SOURCES, {FALLS: lambda setting: _falls(study, setting), GAIN: lambda setting: _gain(study, setting)}
    )


def _falls(study: Study, setting: Setting) -> Finding:
    table = schedules.require_schedules(study).table
    spans = {name: [schedules.values(table, setting.name, name, count) for count in COUNTS] for name in (MINE, *RIVALS)}
    steps = {
        name: [list(schedules.ratio(more, fewer)) for fewer, more in itertools.pairwise(found)]
        for name, found in spans.items()
    }
    surely = all(schedules.below_one(step) for found in steps.values() for step in found)
    on_the_whole = all(schedules.below_one(schedules.ratio(found[-1], found[0])) for found in spans.values())
    own = max(steps[MINE], key=geometric_mean)
    means = "; ".join(
        f"{schedules.short(name)} {', '.join(f'{one.mean():.0f}' for one in found)} s (published {', '.join(map(str, PUBLISHED[name]))})"
        for name, found in spans.items()
    )
    return Finding(
        f"{FALLS} {schedules.describe_setting(setting)}", SOURCES[FALLS], f"mean makespan on {', '.join(map(str, COUNTS))} servers: {means}",
        geometric_mean(own), "of SJF-BCO's makespan is left at the smaller of the two steps", log_interval(own), len(own),
        graded(surely, on_the_whole, alike=all(no_difference(ratio_ends(one)) for found in steps.values() for one in found)),
        "reproduced if with each of the four schedulers the makespan surely falls from 10 to 15 servers and from 15 to 20, partly if from 10 to 20",
        (),
    )  # fmt: skip


def _gain(study: Study, setting: Setting) -> Finding:
    """Ratios of makespans on ten servers ÷ those on 15, and on 20: below 1 where ten gain most."""
    table = schedules.require_schedules(study).table
    beyond: dict[tuple[str, int], list[float]] = {}
    said = []
    for rival in GAINED_ON:
        shares = {
            count: schedules.ratio(*(schedules.values(table, setting.name, name, count) for name in (MINE, rival)))
            for count in COUNTS
        }
        beyond |= {(rival, count): list(schedules.ratio(shares[10], shares[count])) for count in COUNTS[1:]}
        gains = ", ".join(f"{1 - geometric_mean(found):.0%}" for found in shares.values())
        told = ", ".join(f"{1 - own / other:.0%}" for own, other in zip(PUBLISHED[MINE], PUBLISHED[rival], strict=True))
        said.append(f"over {schedules.short(rival)} {gains} (published {told})")
    rival, count = max(beyond, key=lambda pair: geometric_mean(beyond[pair]))
    nearest = beyond[rival, count]
    clear = [schedules.below_one(found) for found in beyond.values()]
    return Finding(
        f"{GAIN} {schedules.describe_setting(setting)}", SOURCES[GAIN],
        f"SJF-BCO's makespan is shorter by, on {', '.join(map(str, COUNTS))} servers: {'; '.join(said)}",
        geometric_mean(nearest), f"its ratio to {schedules.short(rival)} on 10 servers ÷ that on {count}", log_interval(nearest), len(nearest),
        graded(all(clear), any(clear), alike=all(no_difference(ratio_ends(found)) for found in beyond.values())),
        "reproduced if SJF-BCO's makespan ÷ the rival's is surely lower on 10 servers than on 15 and on 20, against both rivals; partly if in one of these "
        "four cases", (),
    )  # fmt: skip
