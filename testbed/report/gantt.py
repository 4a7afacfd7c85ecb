"""Draw a schedule: GPUs over time, and below it the number of jobs on the fullest uplink."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from testbed.core import folders
from testbed.core.errors import RequestError
from testbed.core.placing import Gpu, Stint
from testbed.core.text import decimal, file_name
from testbed.models.cluster import Ran, Servers

COLOURS = colormaps["tab20"]
LEGIBLE = 0.025  # fraction of an axis in which a number is legible
MOST_NAMES = 24


def draw(schedules: Mapping[str, Sequence[Ran]], servers: Servers, folder: Path) -> list[Path]:
    """A PNG for each; raises `RequestError` if it cannot be written."""
    rows = {gpu: row for row, gpu in enumerate(servers.gpus)}
    until = max(one.end_s for ran in schedules.values() for one in ran)
    paths = []
    for name, ran in schedules.items():
        figure = Figure(figsize=(9, 6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [4, 1]})
        for job in ran:
            for stint in job.held:
                _held(above, job, stint, rows, LEGIBLE * until)
        _name_servers(above, servers)
        above.set(xlim=(0, until))
        above.set_title(f"{name}: makespan {decimal(max(job.end_s for job in ran))} s", loc="left", fontweight="bold")
        times, most = contention(ran)
        below.step(times, most, where="post", color="black")
        below.set(
            xlabel="time (s); numbers are jobs, the scale is that of the slowest schedule",
            ylabel="jobs on the\nfullest uplink",
            ylim=(0, None),
        )
        below.yaxis.set_major_locator(MaxNLocator(integer=True))
        for axis in (above, below):
            axis.spines[["top", "right"]].set_visible(False)
        path = folder / f"schedule-{file_name(name)}.png"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=120)
            folders.put(path, content.getvalue())
        except OSError as error:
            raise RequestError(f"--figures: {path} cannot be written: {error.strerror}") from error
        paths.append(path)
    return paths


def _held(axis: Axes, job: Ran, stint: Stint, rows: Mapping[Gpu, int], legible_s: float) -> None:
    """Draw the GPUs that a job holds for a time, with its number if it fits."""
    lasts = stint.end_s - stint.start_s
    for first, count in _runs(sorted(rows[gpu] for gpu in stint.gpus)):
        axis.broken_barh(
            [(stint.start_s, lasts)], (first, count), facecolor=COLOURS(job.request.job % 20), edgecolor="white", linewidth=0.4,
        )  # fmt: skip
        if lasts >= legible_s and count >= LEGIBLE * len(rows):
            middle = stint.start_s + lasts / 2, first + count / 2
            axis.text(*middle, f"{job.request.job}", ha="center", va="center", fontsize=8)


def _name_servers(axis: Axes, servers: Servers) -> None:
    """Draw lines between servers, with their names if they fit."""
    borders = [row for row in range(1, len(servers.gpus)) if servers.of[row] != servers.of[row - 1]]
    for row in borders:
        axis.axhline(row, color="black", linewidth=0.4)
    axis.set_ylim(0, len(servers.gpus))
    if len(borders) < MOST_NAMES:
        edges = [0, *borders, len(servers.gpus)]
        axis.set_yticks([(low + high) / 2 for low, high in itertools.pairwise(edges)])
        axis.set_yticklabels([f"{servers.gpus[low].host} ({high - low})" for low, high in itertools.pairwise(edges)])
        axis.set_ylabel("server (GPUs)")
    else:
        axis.set_ylabel("GPU, server by server")


def contention(ran: Sequence[Ran]) -> tuple[list[float], list[int]]:
    """Return the number of multi-server jobs on the fullest uplink, from each time in seconds on."""
    events: list[tuple[float, int, str]] = []
    for stint in (stint for job in ran for stint in job.held):
        hosts = {gpu.host for gpu in stint.gpus}
        if len(hosts) > 1:
            events += [(at, step, host) for host in hosts for at, step in ((stint.start_s, 1), (stint.end_s, -1))]
    on: dict[str, int] = {}
    found: dict[float, int] = {0.0: 0}
    for at, step, host in sorted(events):
        on[host] = on.get(host, 0) + step
        found[at] = max(on.values())
    return list(found), list(found.values())


def _runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring rows as one: where each begins, and how many there are."""
    found: list[tuple[int, int]] = []
    for row in rows:
        if found and sum(found[-1]) == row:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((row, 1))
    return found
