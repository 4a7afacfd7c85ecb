"""The closing tables of an experiment, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from rich.text import Text

from testbed.core.placing import Metrics
from testbed.core.runs.findings import Active, Interleaved, InterleavingUnknown, NotInterleaved
from testbed.core.runs.metrics import STEADY_ITERATIONS, interleaved_needs
from testbed.core.runs.summary import Ends, JobResult, Result, Summary
from testbed.core.runs.verdict import Word, worst
from testbed.core.terminal import Cell, Column, Sheet
from testbed.core.text import count, decimal, plain

UNKNOWN = "–"
COLOURS = {"valid": "green", "suspect": "yellow", "invalid": "red"}
TIMES = {
    "makespan_s": "makespan\n(s)", "mean_completion_s": "completion\nmean (s)", "p95_completion_s": "p95\n(s)",
    "mean_queueing_s": "queueing\nmean (s)", "mean_slowdown": "slow-\ndown", "max_rho": "worst\nunfairness", "jain": "Jain",
}  # fmt: skip


def closing_table(summary: Summary) -> Sheet:
    """One row per congestion control; times in seconds, intervals at 95 % over seeds."""
    last = f"{_last(summary)}\n(s)"
    headings = ["mean\n(s)", "p50\n(s)", "p99\n(s)", last, "speed-up\nmean", "speed-up\np99"]
    several = any(row.jobs > 1 for row in summary.results)  # one job interleaves with none
    columns = [Column(), *(Column(heading, right=True) for heading in headings)]
    columns += [Column("inter-\nleaved", right=True)] * several + [Column("verdict")]
    rows: list[list[Cell]] = []
    for row in summary.results:
        base = row is summary.results[0]
        rows.append([
            plain(_name(row, summary)),
            _number(row.mean_s),
            _number(row.p50_s),
            _number(row.p99_s),
            _number(row.last10_mean_s) + (f"\n{row.last10_mean_s / row.ideal_s:.3f}×ideal" if row.ideal_s is not None else ""),
            UNKNOWN if base else _times(row.speedup_mean, row.speedup_mean_ci95),
            UNKNOWN if base else _times(row.speedup_p99, row.speedup_p99_ci95),
            *([_interleaved(row)] if several else []),
            _verdict(row.verdicts),
        ])  # fmt: skip
    return Sheet(columns, rows, _title(summary))


def legend(summary: Summary) -> Iterator[str]:
    """The meanings of the words that the tables contain, a line each."""
    if any(isinstance(finding, Interleaved | NotInterleaved) for row in summary.results for finding in row.findings):
        needed = interleaved_needs(summary.results[0].iterations)
        yield (
            "interleaved = from this iteration on, every job stays within 5 % of its isolated time, up to the end of the run and for at "
            f"least {count(needed, 'iteration')}"
            + ("; the median, and in how many seeds" if _seeds(summary) > 1 else "")
        )
    elif any(isinstance(finding, InterleavingUnknown) for row in summary.results for finding in row.findings):
        yield "interleaved = unknown: no isolated time was measured (--isolated-runs)"
    if any(isinstance(finding, Active) and finding.at for row in summary.results for finding in row.findings):
        yield "p99 includes the iterations before MLTCP is active"
    if (found := next((row.schedule for row in summary.results if row.schedule is not None), None)) is not None:
        alone = "measured in isolation" if found.alone == "measured" else "the ideal"
        yield f"slow-down = a job's completion ÷ {alone}, on the fewest servers that hold it"
        yield "ρ, Jain = how fair that is; p = jobs on the fullest link"


def jobs_table(summary: Summary) -> Sheet | None:
    """Return a table with a row for each job; None if all jobs are equal."""
    first = summary.results[0].per_job
    if len({(job.trace, job.workers, job.ideal_s) for job in first}) <= 1:
        return None
    headings = (
        "mean\n(s)", "p99\n(s)", f"{_last(summary)}\n(s)", "isolated\n(s)", "ideal\n(s)", "speed-up\nmean", "speed-up\np99",
    )  # fmt: skip
    rows = []
    for row in summary.results:
        base = row is summary.results[0]
        for job in row.per_job:
            references = (job.isolated_s, job.ideal_s)
            rows.append([
                plain(_format_system(job, row, summary)),
                plain(f"{job.job}: {job.trace} × {job.workers}"),
                *map(_number, (job.mean_s, job.p99_s, job.last10_mean_s)),
                *(UNKNOWN if value is None else _number(value) for value in references),
                UNKNOWN if base else _times(job.speedup_mean, job.speedup_mean_ci95),
                UNKNOWN if base else _times(job.speedup_p99, job.speedup_p99_ci95),
            ])  # fmt: skip
    columns = [Column(), Column("job"), *(Column(heading, right=True) for heading in headings)]
    return Sheet(columns, rows, names=2)


def _format_system(job: JobResult, row: Result, summary: Summary) -> str:
    """The system as typed; with the job's own congestion control, where the jobs take turns with several (``a+b``)."""
    name = _name(row, summary)
    return f"{name}: {job.congestion}" if "+" in row.system and job.congestion else name


def gpus_tables(summary: Summary) -> list[Sheet]:
    """Return the tables of schedule metrics; empty if no job requests GPUs."""
    found = {_name(row, summary): row.schedule for row in summary.results if row.schedule is not None}
    return metrics_tables(found) if found else []


def metrics_tables(
    rows: Mapping[str, Metrics], title: str = "", more: Mapping[str, Sequence[str]] | None = None
) -> list[Sheet]:
    """Return two tables with a row for each schedule: times of jobs, and use of GPUs with ``more`` columns."""
    more = more or {}
    idle = ("idle (GPU-h)\nfragment", "\nwaiting", "\ncontended")
    times, used = [], []
    for number, (name, metrics) in enumerate(rows.items()):
        numbers, hours = asdict(metrics), metrics.idle_gpu_h
        times.append([plain(name), *(decimal(numbers[column]) for column in TIMES)])
        used.append([
            plain(name), f"{metrics.utilisation:.0%}", f"{metrics.max_contention}",
            *(decimal(round(value, 9), 3) for value in (hours.fragment, hours.waiting, hours.contention)), *(column[number] for column in more.values()),
        ])  # fmt: skip
    return [
        Sheet([Column(), *(Column(heading, right=True) for heading in TIMES.values())], times, title),
        Sheet(
            [
                Column(),
                *(Column(heading, right=True) for heading in ("GPUs\nheld", "jobs on a\nlink (max)", *idle, *more)),
            ],
            used,
        ),
    ]


def _last(summary: Summary) -> str:
    """What `last10_mean_s` is the mean of: ``last 10``, or as many iterations as there are."""
    return f"last {min(STEADY_ITERATIONS, summary.results[0].iterations)}"


def _title(summary: Summary) -> str:
    row = summary.results[0]
    fewest = min((job.iterations for job in row.per_job if job.iterations), default=row.iterations)
    several = f"{fewest} to " if fewest < row.iterations else ""
    return (
        f"{summary.experiment} on {summary.backend}: {count(row.jobs, 'job')}, {several}{count(row.iterations, 'iteration')}, "
        f"{count(_seeds(summary), 'seed')}"
    )


def _seeds(summary: Summary) -> int:
    """Of the system that has most."""
    return max(len(row.seeds) for row in summary.results)


def _number(value: float) -> str:
    return f"{value:.3f}"


def _times(value: float, interval: Ends | None) -> str:
    text = f"{value:.2f}×"
    return text if interval is None else f"{text}\n{interval[0]:.2f}–{interval[1]:.2f}"


def _interleaved(row: Result) -> str:
    several = len(row.seeds) > 1
    for stated in row.findings:
        match stated:
            case Interleaved():
                at = UNKNOWN if stated.at is None else decimal(stated.at, 6)
                return f"{at}\n{stated.seeds} of {stated.of}" if several else at
            case NotInterleaved():
                return f"never\n0 of {len(row.seeds)}" if several else "never"
    return UNKNOWN


def _name(row: Result, summary: Summary) -> str:
    """The system; with its job scheduler where there are several."""
    several = len({result.scheduler for result in summary.results}) > 1
    return f"{row.scheduler}: {row.system}" if several else row.system


def _verdict(verdicts: Sequence[Word]) -> Text:
    found = worst(verdicts)
    return Text(found, style=COLOURS[found])
