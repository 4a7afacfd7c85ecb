"""Runs that a command of schedules needs, under virtual time: those that are not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed import backends
from testbed.campaign import driver
from testbed.campaign.driver import Wanted
from testbed.campaign.executors import local
from testbed.campaign.stored import folders
from testbed.campaign.stored.folders import Again
from testbed.cli.console import Count
from testbed.core import locks, terminal
from testbed.core.errors import RequestError
from testbed.core.runs import rundir
from testbed.linux import privileges
from testbed.planning.plan import Planned

BACKEND = "uml"


def carry_out(planned: Sequence[Planned], out: Path, parallel: int, again: Again = "never") -> list[Wanted]:
    """Run what is missing, isolated runs first, store it below ``out``, and return all runs with several jobs, in order.

    Raises the error of the first failed run.
    """
    if parallel < 1:
        raise RequestError(f"-j {parallel}: at least one run at a time")
    privileges.give_up()
    rundir.check_writable(out)
    with locks.held(out) as held:
        return _carried_out(folders.named(planned, out, locks=held), out, parallel, again)


def _carried_out(planned: Sequence[Planned], out: Path, parallel: int, again: Again) -> list[Wanted]:
    every = driver.wanted(planned, out)
    runs = [run for run in every if run.plan.alone is None]
    needed = {folder for run in runs for folder in run.needs}
    wanted = [run for run in every if run.plan.alone is None or run.folder in needed]
    backend = backends.find(BACKEND, [run.plan for run in wanted])

    work = folders.select_work(wanted, [], lambda _run: [backend], again)
    missing = work.todo
    if missing:
        with (
            local.lanes({BACKEND: backend}, parallel) as lanes,
            Count(missing, terminal.errors(), quiet=False, show_backends=False, lanes=parallel) as count,
        ):
            driver.drive(missing, lanes, count, is_there=work.is_there, kept=work.kept)
    return runs
