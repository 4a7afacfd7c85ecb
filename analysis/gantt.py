"""A schedule drawn: GPUs over time, and below how many jobs share the fullest uplink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.figure import Figure

from core.errors import RequestError
from core.text import file_name
from theory.cluster import Ran, Servers

COLOURS = colormaps["tab20"]


def draw(schedules: Mapping[str, Sequence[Ran]], servers: Servers, folder: Path) -> list[Path]:
    """A PNG for each; raises `RequestError` if it cannot be written."""
    rows = {gpu: row for row, gpu in enumerate(servers.gpus)}
    until = max(one.end_s for ran in schedules.values() for one in ran)
    paths = []
    for name, ran in schedules.items():
        figure = Figure(figsize=(9, 6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [4, 1]})
        for job in ran:
            for first, count in _runs(sorted(rows[gpu] for gpu in job.gpus)):
                above.broken_barh(
                    [(job.start_s, job.end_s - job.start_s)], (first, count),
                    facecolor=COLOURS(job.request.job % 20), edgecolor="white", linewidth=0.2,
                )  # fmt: skip
        for row in range(1, len(servers.gpus)):
            if servers.of[row] != servers.of[row - 1]:
                above.axhline(row, color="black", linewidth=0.4)
        above.set(ylabel="GPU, server by server", ylim=(0, len(servers.gpus)), xlim=(0, until), title=name)
        times, most = contention(ran)
        below.step(times, most, where="post", color="black")
        below.set(xlabel="time (s)", ylabel="jobs on the\nfullest uplink", ylim=(0, None))
        path = folder / f"schedule-{file_name(name)}.png"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=120)
        except OSError as error:
            raise RequestError(f"--figures: {path} cannot be written: {error.strerror}") from error
        paths.append(path)
    return paths


def contention(ran: Sequence[Ran]) -> tuple[list[float], list[int]]:
    """How many jobs that span servers share the fullest uplink, from each time on."""
    events: list[tuple[float, int, str]] = []
    for one in ran:
        hosts = {gpu.host for gpu in one.gpus}
        if len(hosts) > 1:
            events += [(at, step, host) for host in hosts for at, step in ((one.start_s, 1), (one.end_s, -1))]
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
