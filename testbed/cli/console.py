"""Show the progress of an experiment: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from testbed.backends import pace
from testbed.campaign.driver import Wanted
from testbed.core import terminal
from testbed.core.heartbeat import Heartbeat, duration
from testbed.core.runs import events
from testbed.core.runs.plan import Plan
from testbed.core.text import count, paragraph, plain, shown
from testbed.spec import backend_names

BAR = 24
PRIOR_S = 10.0  # seconds of estimated time that weigh as much as measured time in the estimate
COLOURS = ("blue", "dark_orange", "green", "magenta", "cyan", "yellow", "white", "bright_black")


class Progress:
    """An observer of an experiment's events; a context manager, because a live display must be closed."""

    def __init__(self, plans: list[Plan], console: Console, backend: str, *, quiet: bool) -> None:
        """``backend``: where the runs are, as in --on."""
        self.plans, self.console, self.backend, self.quiet = plans, console, backend, quiet
        self.done = 0
        self.begun = self.run_begun = time.monotonic()
        record = pace.read()
        self.weights = [pace.expected_s(plan, backend, record) for plan in plans]
        self.live: Live | None = None
        self.heartbeat = Heartbeat(self._line, self._print, active=not quiet and not console.is_terminal)
        self._reset(plans[0])

    def __enter__(self) -> Progress:
        if not self.quiet and self.console.is_terminal:
            self.live = Live(self._render(), console=self.console, refresh_per_second=4, transient=True)
            self.live.start()
        elif not self.quiet:
            self._print(f"{count(len(self.plans), 'run')}, about {self._left()}")
        self.heartbeat.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.heartbeat.__exit__()
        if self.live is not None:
            self.live.stop()

    def hide(self) -> None:
        """Leave the terminal to others, until `show`."""
        if self.live is not None:
            self.live.stop()

    def show(self) -> None:
        if self.live is not None:
            self.live.start()

    def _reset(self, plan: Plan) -> None:
        self.plan, self.phase, self.repeated = plan, "starting", False
        self.times: dict[int, list[float]] = {job.job: [] for job in plan.jobs}  # of ended iterations
        self.workers = {job.job: 1 if self.backend == "flow" else len(job.hosts) for job in plan.jobs}
        self.reported: dict[tuple[int, int], list[events.Iteration]] = {}  # of iterations that some workers have ended
        self.ends: dict[int, float] = {}  # of each job's last ended iteration
        self.shares: dict[int, float] = {}

    def __call__(self, plan: Plan, event: events.Said) -> None:
        match event:
            case events.Started():
                self._reset(plan)
                self.run_begun = time.monotonic()
            case events.Phase(text=words, long=long):
                self.phase = shown(words)
                if long and self.live is None:
                    self._say(Text(f"{_title(plan)}: {self.phase}"))
            case events.Iteration(job=job) if job in self.times:
                self._ended(event)
            case events.Shares(bps=bps):
                self.shares = {job: _share(plan, by_link) for job, by_link in bps.items()}
            case events.Repeated(because=because):
                self._say(Text(f"{_title(plan)}: invalid ({'; '.join(because)}), and run again"))
                self._reset(plan)
                self.repeated = True
            case events.There():
                self.done += 1
            case events.Stored(verdict=verdict):
                if not self.repeated:
                    pace.note(plan, self.backend, time.monotonic() - self.run_begun)
                self.done += 1
                self._finish(plan, verdict)
        if self.live is not None:
            self.live.update(self._render())

    def _ended(self, event: events.Iteration) -> None:
        """An iteration of a job ends with its slowest worker, and begins at the end of the one before (`metrics.iteration_times`)."""
        reported = self.reported.setdefault((event.job, event.iteration), [])
        reported.append(event)
        if len(reported) == self.workers[event.job]:
            end_s = max(one.end_s for one in reported)
            self.times[event.job].append(end_s - self.ends.get(event.job, min(one.start_s for one in reported)))
            self.ends[event.job] = end_s
            del self.reported[event.job, event.iteration]

    def _finish(self, plan: Plan, verdict: str) -> None:
        times = [value for job in plan.jobs for value in self.times[job.job][: job.iterations]]
        mean = f"mean iteration {sum(times) / len(times):.3f} s, " if times else ""
        line = Text(f"{_title(plan)}: {mean}{verdict} ({time.monotonic() - self.run_begun:.0f} s; {self._left()} left)")
        self._say(line)

    def _say(self, line: Text) -> None:
        if self.quiet:
            return
        if self.live is not None:
            self.live.console.print(line, highlight=False)
        else:
            terminal.say(self.console, line.plain)

    def _print(self, line: str) -> None:
        terminal.say(self.console, line)

    def _line(self) -> str:
        """The count and the time left, without a terminal."""
        if self.done == len(self.plans):
            return f"{self.done} of {count(len(self.plans), 'run')} done; summing up"
        return f"{self.done} of {count(len(self.plans), 'run')} done, about {self._left()} left ({_title(self.plan)}: {self.phase})"

    def _left(self) -> str:
        current = 0.0
        if self.done < len(self.plans):
            shares = [len(self.times[job.job]) / job.iterations for job in self.plan.jobs if job.leave_ns is None]
            current = self.weights[self.done] * min(1.0, min(shares, default=0.0))
        past = sum(self.weights[: self.done]) + current
        elapsed_s = time.monotonic() - self.begun
        return duration((sum(self.weights) - past) * (elapsed_s + PRIOR_S) / (past + PRIOR_S))

    def _render(self) -> Group:
        table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
        for heading in ("job", "iteration", "last", "ideal", "share of the link"):
            table.add_column(heading, justify="left" if heading.startswith("share") else "right")
        for job in self.plan.jobs:
            times = self.times[job.job]
            share = min(1.0, self.shares.get(job.job, 0.0))
            table.add_row(
                str(job.job),
                f"{min(len(times), job.iterations)}/{job.iterations}",
                f"{times[-1]:.3f} s" if times else "–",
                f"{job.ideal_s:.3f} s" if job.ideal_s is not None else "–",
                Text("█" * round(share * BAR), style=COLOURS[job.job % len(COLOURS)])
                + Text(f" {share:.0%}", style="dim"),
            )
        head = Text.assemble(
            (f"run {min(self.done + 1, len(self.plans))} of {len(self.plans)}  ", "bold"), _title(self.plan),
            (f"  {self.phase}, about {self._left()} left", "dim"),
        )  # fmt: skip
        return Group(head, table)


def _share(plan: Plan, bps: Mapping[str, float]) -> float:
    """A job's share of the bottleneck that it fills most, in its busier direction."""
    return max(
        (rate / plan.bottlenecks[link].rate_bps for link, rate in bps.items() if link in plan.bottlenecks), default=0.0
    )


def _title(plan: Plan) -> str:
    alone = "" if plan.alone is None else f", job {plan.alone} ({plan.jobs[0].trace}) in isolation"
    return plain(f"{plan.system.label} seed {plan.seed}{alone}")


def _path(plan: Plan) -> Path:
    """The path of its results below the results folder."""
    return Path(plan.experiment) / plan.folder


class Count:
    """Observes a sweep: a bar on a terminal, and a line for every run; a context manager."""

    def __init__(
        self, runs: Sequence[Wanted], console: Console, *, quiet: bool, show_backends: bool, lanes: int = 1
    ) -> None:
        """``lanes``: the number of concurrent runs; ``show_backends``: print the machine of each run."""
        self.console, self.quiet, self.show_backends, self.lanes = console, quiet, show_backends, lanes
        self.out = runs[0].out if runs else Path()
        record = pace.read()
        self.weights = {
            _path(run.plan): pace.expected_s(run.plan, backend_names.parse(run.spec.on)[0], record) / lanes
            for run in runs
        }
        self.total, self.ended, self.done = len(runs), 0, 0.0
        self.begun, self.run_begun, self.repeated = time.monotonic(), dict[Path, float](), set[Path]()
        columns = (TextColumn("{task.completed}/{task.total} runs"), BarColumn(), TextColumn("{task.description}"))
        self.progress = Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self.bar = self.progress.add_task("", total=len(runs))
        self.heartbeat = Heartbeat(self._line, self._say, active=not quiet and not console.is_terminal)

    def __enter__(self) -> Count:
        self.progress.start()
        if self.total and not self.quiet:
            self._say(f"{count(self.total, 'run')} to do, about {duration(self.left_s)}")
        self.heartbeat.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.heartbeat.__exit__()
        self.progress.stop()

    def __call__(self, plan: Plan, event: events.Said) -> None:
        match event:
            case events.Started():
                self.run_begun[_path(plan)] = time.monotonic()
            case events.Repeated():
                self.repeated.add(_path(plan))
            case events.Phase(text=words, long=True) if not self.quiet:
                self._say(f"{self.out / _path(plan)}: {shown(words)}")
            case events.GivenUp(because=because):
                self._say(paragraph(f"given up: {because}"))
            case events.There():
                self._advance(plan)
            case events.Stored(backend=backend, verdict=verdict):
                self._note(plan, backend)
                self._advance(plan)
                self._ended(plan, backend, verdict)
            case events.Failed(backend=backend):
                self._advance(plan)
                self._ended(plan, backend, "failed")

    def _note(self, plan: Plan, backend: str) -> None:
        """Record the wall time of the run for later estimates.

        Concurrent runs slow each other down and are not recorded.
        """
        begun = self.run_begun.get(_path(plan))
        if self.lanes == 1 and begun is not None and _path(plan) not in self.repeated:
            pace.note(plan, backend, time.monotonic() - begun)

    @property
    def left_s(self) -> float:
        """Estimate the remaining time in seconds: the estimate of the remaining runs × measured ÷ estimated time of
        the finished ones."""
        elapsed_s = time.monotonic() - self.begun if self.ended else 0.0
        return (sum(self.weights.values()) - self.done) * (elapsed_s + PRIOR_S) / (self.done + PRIOR_S)

    def _line(self) -> str:
        """The count and the time left, without a terminal."""
        return f"{self.ended} of {count(self.total, 'run')} done, about {duration(self.left_s)} left"

    def _advance(self, plan: Plan) -> None:
        self.ended += 1
        self.done += self.weights.get(_path(plan), 0.0)
        self.progress.update(self.bar, advance=1, description=f"about {duration(self.left_s)} left")

    def _ended(self, plan: Plan, backend: str, how: str) -> None:
        if not self.quiet:
            at = f" (on {backend})" if self.show_backends and backend_names.is_remote(backend) else ""
            self._say(plain(f"{self.out / _path(plan)}: {how}{at}"))

    def _say(self, line: str) -> None:
        for part in line.split("\n"):
            terminal.say(self.progress.console, part)
