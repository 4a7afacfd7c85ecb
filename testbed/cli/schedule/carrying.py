"""Runs that a command of schedules needs, under virtual time: those that are not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from core.errors import RequestError
from core.runs import rundir
from testbed import substrates
from testbed.campaign import driver
from testbed.campaign.driver import Wanted
from testbed.campaign.executors import local
from testbed.campaign.provenance import is_there
from testbed.cli.console import Count
from testbed.linux import privileges
from testbed.planning.plan import Planned

PLACE = "uml"


def carry_out(planned: Sequence[Planned], out: Path, parallel: int, *, quiet: bool) -> list[Wanted]:
    """Every run with all of its jobs, in order, stored below ``out``, after those of jobs alone that it needs; raises the error of the first that fails."""
    if parallel < 1:
        raise RequestError(f"-j {parallel}: at least one run at a time")
    privileges.give_up()
    rundir.check_writable(out)
    every = driver.wanted(planned, out)
    runs = [run for run in every if run.plan.alone is None]
    needed = {folder for run in runs for folder in run.needs}
    wanted = [run for run in every if run.plan.alone is None or run.folder in needed]
    substrate = substrates.find(PLACE, [run.plan for run in wanted])

    def there(run: Wanted) -> bool:
        return is_there(run.plan, run.folder, substrate)

    missing = [run for run in wanted if run.waits or not there(run)]
    if missing:
        with (
            local.lanes({PLACE: substrate}, parallel) as lanes,
            Count(missing, Console(stderr=True), quiet=quiet, places=False) as count,
        ):
            driver.drive(missing, lanes, count, is_there=there)
    return runs
