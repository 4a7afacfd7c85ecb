"""A user's request for one experiment: backend, name of its folder, execution, and summary.

The command line and the Python interface use it; neither this module nor its callees print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import spec
from testbed.backends import Backend, choice
from testbed.backends.choice import Choice
from testbed.campaign import driver
from testbed.campaign.driver import Wanted
from testbed.campaign.executors import Here, Observer
from testbed.campaign.stored import folders as stored
from testbed.campaign.stored.folders import Again, Work
from testbed.core import folders, locks
from testbed.core.errors import RequestError, within_unless_named
from testbed.core.locks import Locks
from testbed.core.runs import rundir
from testbed.core.runs.plan import Plan
from testbed.core.runs.summary import Summary
from testbed.linux import privileges
from testbed.planning.plan import Planned
from testbed.spec import Spec, backend_names

Tell = Callable[[str], None]
Progress = Callable[[Work], AbstractContextManager[Observer]]  # of the runs to do


@dataclass(frozen=True)
class Request:
    """One experiment: a file, the ``fields`` that override it, and the results folder ``out``."""

    file: str | None
    fields: dict[str, Any]
    out: Path
    linux_source: Path | None = None

    def read(self, fields: dict[str, Any]) -> list[Spec]:
        """The experiment with other ``fields``; raises `RequestError`."""
        asked = spec.read(self.file, fields)
        if "," in asked.on:
            raise RequestError(f"--on {asked.on}: several machines share the runs of a sweep (`mltcp sweep`).")
        if self.linux_source is not None and backend_names.in_real_time(asked.on):
            raise RequestError(f"--linux-source is for --on uml; on `{asked.on}` the kernel is the machine's own.")
        return [asked]

    def choice(self, *, dry_run: bool = False) -> Choice:
        """Choose the backend and the runs, and check that results can be written."""
        root = privileges.caller() is not None
        if dry_run:
            privileges.give_up()
        with within_unless_named(self.file):
            chosen = choice.choose(self.read, self.fields, self.linux_source)
        if not (root and dry_run and backend_names.in_real_time(chosen.backend)):  # that run would write as root
            rundir.check_writable(self.out)
        return chosen

    def resolve_backend(self, chosen: Choice) -> tuple[Choice, Backend]:
        """Return the backend, ready for runs. Raises `MachineError`."""
        with within_unless_named(self.file):
            return choice.settle(chosen, self.read, self.fields, self.linux_source)

    def named(self, chosen: Choice, held: Locks | None = None, tell: Tell = lambda _: None) -> list[Planned]:
        """Return the experiment with the name of its folder; ``tell`` is called if another experiment holds the usual
        name."""
        file = None if "name" in self.fields else self.file
        return stored.named(chosen.planned, self.out, file, elsewhere=chosen.elsewhere, locks=held, tell=tell)

    def plans(self, chosen: Choice) -> list[Plan]:
        """Return every run, under the name that the experiment folder would have."""
        return [plan for _, plans in self.named(chosen) for plan in plans]

    def carry_out(
        self, chosen: Choice, backend: Backend, progress: Progress, finish: Callable[[Summary, Sequence[Wanted]], None],
        *, again: Again = "never", retries: int | None = None, tell: Tell = lambda _: None,
    ) -> tuple[Summary, list[Wanted]]:  # fmt: skip
        """Run what is missing and summarise; ``finish`` is called while the experiment folder is locked.

        Raises the first run's error.
        """
        with locks.held(self.out) as held:
            planned = self.named(chosen, held, tell)
            for run in driver.wanted(planned, self.out):
                folders.check(run.folder, self.out)
                folders.check(run.experiment / "figures", self.out)
            work = stored.work(planned, self.out, lambda _run: [backend], again)
            with progress(work) as observe:
                lanes = [Here(backend, observe)]
                driver.drive(work.todo, lanes, observe, retries=retries, is_there=work.is_there, kept=work.kept)
            runs = work.summed_up(planned[0][0])
            summary = driver.sum_up(runs)
            finish(summary, runs)
        return summary, runs
