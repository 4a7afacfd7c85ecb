"""What one sees while an experiment runs: a live table on a terminal, plain lines elsewhere."""

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

from core.runs import events
from core.runs.plan import Plan
from core.text import paragraph, plain, shown
from testbed.campaign.driver import Wanted
from testbed.spec.place import is_remote

BAR = 24
COLOURS = ("blue", "dark_orange", "green", "magenta", "cyan", "yellow", "white", "bright_black")


class Progress:
    """Observes an experiment's events; a context manager, since a live display must be ended."""

    def __init__(self, plans: list[Plan], console: Console, *, quiet: bool) -> None:
        self.plans, self.console, self.quiet = plans, console, quiet
        self.done = 0
        self.begun = time.monotonic()
        # Seconds a plan would take if nothing got in the way: how the time left is weighed.
        self.weights = [3 + plan.expected_s for plan in plans]
        self.live: Live | None = None
        self._reset(plans[0])

    def __enter__(self) -> Progress:
        if not self.quiet and self.console.is_terminal:
            self.live = Live(self._render(), console=self.console, refresh_per_second=4, transient=True)
            self.live.start()
        elif not self.quiet:
            self.console.print(f"{len(self.plans)} runs, about {self._left()}", highlight=False)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.live is not None:
            self.live.stop()

    def _reset(self, plan: Plan) -> None:
        self.plan, self.phase = plan, "starting"
        self.times: dict[int, list[float]] = {job.job: [] for job in plan.jobs}
        self.shares: dict[int, float] = {}

    def __call__(self, plan: Plan, event: events.Said) -> None:
        match event:
            case events.Started():
                self._reset(plan)
                self.run_begun = time.monotonic()
            case events.Phase(text=words):
                self.phase = shown(words)
            case events.Iteration(rank=0, job=job) if job in self.times:
                self.times[job].append(event.duration_s)
            case events.Shares(bps=bps):
                self.shares = {job: _share(plan, by_link) for job, by_link in bps.items()}
            case events.Repeated(because=because):
                self._say(Text(f"{_title(plan)}: invalid ({'; '.join(because)}), and run again"))
                self._reset(plan)
            case events.There():
                self.done += 1
            case events.Stored(verdict=verdict):
                self.done += 1
                self._finish(plan, verdict)
        if self.live is not None:
            self.live.update(self._render())

    def _finish(self, plan: Plan, verdict: str) -> None:
        times = [value for job in plan.jobs for value in self.times[job.job][: job.iterations]]
        mean = sum(times) / len(times) if times else float("nan")
        line = Text(
            f"{_title(plan)}: mean iteration {mean:.3f} s, {verdict} "
            f"({time.monotonic() - self.run_begun:.0f} s; {self._left()} left)"
        )
        self._say(line)

    def _say(self, line: Text) -> None:
        if self.quiet:
            return
        if self.live is not None:
            self.live.console.print(line, highlight=False)
        else:
            self.console.print(line, highlight=False, soft_wrap=True)

    def _left(self) -> str:
        elapsed = time.monotonic() - self.begun
        # Contention makes runs longer than ideal: scale by what has been seen so far.
        current = 0.0
        if self.done < len(self.plans):
            shares = [len(self.times[job.job]) / job.iterations for job in self.plan.jobs if job.leave_ns is None]
            current = self.weights[self.done] * min(1.0, min(shares, default=0.0))
        past = sum(self.weights[: self.done]) + current
        pace = elapsed / past if past > 5 else 1.2
        return f"{max(0.0, (sum(self.weights) - past) * pace):.0f} s"

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
    alone = "" if plan.alone is None else f", job {plan.alone} ({plan.jobs[0].trace}) alone"
    return plain(f"{plan.system.label} seed {plan.seed}{alone}")


class Count:
    """Observes a sweep: a bar on a terminal, and a line for every run; a context manager."""

    def __init__(self, runs: Sequence[Wanted], console: Console, *, quiet: bool, places: bool) -> None:
        self.console, self.quiet, self.places = console, quiet, places
        self.out = runs[0].out if runs else Path()
        self.weight, self.done, self.begun = sum(run.plan.expected_s + 3 for run in runs), 0.0, time.monotonic()
        columns = (TextColumn("{task.completed}/{task.total} runs"), BarColumn(), TextColumn("{task.description}"))
        self.progress = Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self.bar = self.progress.add_task("", total=len(runs))

    def __enter__(self) -> Count:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def __call__(self, plan: Plan, event: events.Said) -> None:
        match event:
            case events.GivenUp(because=because):
                self._say(paragraph(f"given up: {because}"))
            case events.There():
                self._advance(plan)
            case events.Stored(place=place, verdict=verdict):
                self._advance(plan)
                self._ended(plan, place, verdict)
            case events.Failed(place=place):
                self._advance(plan)
                self._ended(plan, place, "failed")

    def _advance(self, plan: Plan) -> None:
        self.done += plan.expected_s + 3
        left_s = (time.monotonic() - self.begun) * (self.weight - self.done) / self.done
        self.progress.update(self.bar, advance=1, description=f"about {left_s:.0f} s left")

    def _ended(self, plan: Plan, place: str, how: str) -> None:
        if not self.quiet:
            at = f" (on {place})" if self.places and is_remote(place) else ""
            self._say(plain(f"{self.out / plan.experiment / plan.folder}: {how}{at}"))

    def _say(self, line: str) -> None:
        self.progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
