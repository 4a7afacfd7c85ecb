"""The closing table of an experiment, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from rich.console import Group
from rich.table import Table
from rich.text import Text

from core.placing import Metrics
from core.runs.metrics import STEADY_ITERATIONS
from core.runs.summary import Ends, Result, Summary
from core.runs.verdict import Word, worst
from core.text import plain

SPEC_WIDTH = 34  # of a congestion control with parameters; what is longer goes on below
COLOURS = {"valid": "green", "suspect": "yellow", "invalid": "red"}
TIMES = {
    "makespan_s": "makespan\n(s)", "mean_completion_s": "completion\nmean (s)", "p95_completion_s": "p95\n(s)",
    "mean_queueing_s": "queueing\nmean (s)", "mean_slowdown": "slow-\ndown", "max_rho": "largest\nρ", "jain": "Jain",
}  # fmt: skip


def closing_table(summary: Summary) -> Table:
    """One row per congestion control; times in seconds, intervals at 95 % over seeds."""
    table = Table(
        box=None, title=Text(plain(_title(summary))), title_style="bold", title_justify="left", pad_edge=False,
        padding=(0, 1, 0, 0), header_style="dim",
    )  # fmt: skip
    table.add_column("", max_width=SPEC_WIDTH, overflow="fold")
    for heading in ("mean\n(s)", "p50\n(s)", "p99\n(s)", f"{_last(summary)}\n(s)", "speed-up\nmean", "speed-up\np99"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("inter-\nleaved", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in summary.results:
        base = row is summary.results[0]
        table.add_row(
            Text(plain(_name(row, summary))),
            _number(row.mean_s),
            _number(row.p50_s),
            _number(row.p99_s),
            _number(row.steady_s) + (f"\n{row.steady_s / row.ideal_s:.3f}×ideal" if row.ideal_s is not None else ""),
            "–" if base else _times(row.speedup_mean, row.speedup_mean_ci95),
            "–" if base else _times(row.speedup_p99, row.speedup_p99_ci95),
            _interleaved(row),
            _verdict(row.verdicts),
        )
    return table


def reference_line(summary: Summary) -> str:
    """What the times compare with."""
    row = summary.results[-1]
    alone = f"; measured alone {_number(row.alone_s)} s ({row.system})" if row.alone_s else ""
    learned = f". {row.system} has F in force from iteration {row.learned_at}" if row.learned_at is not None else ""
    ideal = "No ideal is known" if row.ideal_s is None else f"Ideal iteration {_number(row.ideal_s)} s"
    return f"{ideal}{alone}{learned}."


def legend(summary: Summary) -> str:
    """What the tables' words mean, in a line or two."""
    several = len(summary.results[0].seeds) > 1
    text = "Interleaved: the first iteration from which every job stays within 5 % of its time alone"
    text += " (the median, and in how many seeds)." if several else "."
    if any(row.learned_at is not None for row in summary.results):
        text += " F in force: MLTCP has learned what an iteration is; before that it is its base, and p99 holds those iterations, too."
    if (found := next((row.schedule for row in summary.results if row.schedule is not None), None)) is not None:
        alone = "measured alone" if found.alone == "measured" else "the ideal"
        text += f" Slow-down: a job's completion ÷ {alone}, on the fewest servers that hold it. ρ, Jain: how fair that is. p: jobs on the fullest link."
    return text


def jobs_table(summary: Summary) -> Table | None:
    """The jobs of an experiment, each by itself; None if they are all alike."""
    first = summary.results[0].per_job
    if len({(job.trace, job.workers, job.ideal_s) for job in first}) == 1:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("job", max_width=SPEC_WIDTH, overflow="fold")
    table.add_column("")
    for heading in (
        "mean\n(s)",
        "p99\n(s)",
        f"{_last(summary)}\n(s)",
        "alone\n(s)",
        "ideal\n(s)",
        "speed-up\nmean",
        "speed-up\np99",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in summary.results:
        base = row is summary.results[0]
        for job in row.per_job:
            references = (job.alone_s, job.ideal_s)
            table.add_row(
                Text(plain(f"{job.job}: {job.trace} × {job.workers}")),
                Text(plain(_name(row, summary) if job.system == row.system else job.system)),
                *map(_number, (job.mean_s, job.p99_s, job.steady_s)),
                *("–" if value is None else _number(value) for value in references),
                "–" if base else _times(job.speedup_mean, job.speedup_mean_ci95),
                "–" if base else _times(job.speedup_p99, job.speedup_p99_ci95),
            )
    return table


def gpus_tables(summary: Summary) -> Group | None:
    """What became of jobs that hold GPUs; None if none of them do."""
    found = {_name(row, summary): row.schedule for row in summary.results if row.schedule is not None}
    return metrics_tables(found) if found else None


def metrics_tables(
    rows: Mapping[str, Metrics], title: str = "", more: Mapping[str, Sequence[str]] | None = None
) -> Group:
    """Two tables with a row for each schedule, narrow enough for a terminal: what jobs took, and how GPUs were used, with ``more`` columns
    of that."""
    times, used = _titled(plain(title), rows), _titled("", rows)
    more = more or {}
    for heading in TIMES.values():
        times.add_column(heading, justify="right", no_wrap=True)
    idle = ("idle (GPU-h)\nfragment", "\nwaiting", "\ncontended")
    for heading in ("GPUs\nheld", "largest\np", *idle, *more):
        used.add_column(heading, justify="right", no_wrap=True)
    for number, (name, metrics) in enumerate(rows.items()):
        numbers, hours = asdict(metrics), metrics.idle_gpu_h
        times.add_row(Text(plain(name)), *(f"{numbers[column]:.4g}" for column in TIMES))
        used.add_row(
            Text(plain(name)), f"{metrics.utilisation:.0%}", f"{metrics.max_contention}",
            *(f"{round(value, 9):.3g}" for value in (hours.fragment, hours.waiting, hours.contention)), *(column[number] for column in more.values()),
        )  # fmt: skip
    return Group(times, used)


def _titled(title: str, names: Iterable[str]) -> Table:
    found = Table(
        box=None,
        title=Text(title) if title else None,
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
    )
    found.add_column("", overflow="fold", min_width=min(16, max(map(len, names))))
    return found


def _last(summary: Summary) -> str:
    """What `steady_s` is the mean of: ``last 10``, or as many iterations as there are."""
    return f"last {min(STEADY_ITERATIONS, summary.results[0].iterations)}"


def _title(summary: Summary) -> str:
    row = summary.results[0]
    seeds = len(row.seeds)
    return (
        f"{summary.experiment} on {summary.substrate}: {_count(row.jobs, 'job')}, "
        f"{_count(row.iterations, 'iteration')}, {_count(seeds, 'seed')}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _times(value: float, interval: Ends | None) -> str:
    text = f"{value:.2f}×"
    return text if interval is None else f"{text}\n{interval[0]:.2f}–{interval[1]:.2f}"


def _interleaved(row: Result) -> str:
    if row.interleaved_at is None:
        return "never" if len(row.seeds) == 1 else f"–\n{row.interleaved_in}"
    text = f"{row.interleaved_at:g}"
    return text if len(row.seeds) == 1 else f"{text}\n{row.interleaved_in}"


def _name(row: Result, summary: Summary) -> str:
    """The system; with its job scheduler where there are several."""
    several = len({result.scheduler for result in summary.results}) > 1
    return f"{row.scheduler}: {row.system}" if several else row.system


def _verdict(verdicts: Sequence[Word]) -> Text:
    found = worst(verdicts)
    return Text(found, style=COLOURS[found])
