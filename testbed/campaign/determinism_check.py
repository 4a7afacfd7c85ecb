"""Check that runs give the same results on other workers: repeat a random fraction of them, and compare the bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from math import ceil

import msgspec

from testbed.campaign.driver import Wanted
from testbed.campaign.executors import Executor
from testbed.campaign.tasks import Completed, Failed, Outcome, Task
from testbed.core.runs.load import load_run
from testbed.core.runs.manifest import Manifest
from testbed.spec import backend_names

DRAWN = "verify"  # any draw will do, but always the same


def drawn(runs: Sequence[Wanted], share: float) -> list[Wanted]:
    """A share of the runs under virtual time, one at least."""
    exact = [run for run in runs if not backend_names.in_real_time(run.spec.on)]
    return random.Random(DRAWN).sample(exact, min(len(exact), ceil(share * len(exact))))


def differing(runs: Sequence[Wanted], free: Sequence[Executor]) -> list[str]:
    """The run directories whose repetition has other bytes than the stored ones, or failed, and then the reason."""
    waiting, idle = list(runs), list(free)
    running: dict[Future[Outcome], tuple[Executor, Wanted]] = {}
    found = []
    while waiting or running:
        while waiting and idle:
            run, executor = waiting.pop(), idle.pop()
            stored = load_run(run.folder).manifest
            running[
                executor.submit(Task(stored.plan, run.spec.on, retries=0, capacity_bps=stored.measured.capacity_bps))
            ] = (
                executor,
                run,
            )
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            executor, run = running.pop(future)
            idle.append(executor)
            outcome = future.result()
            if isinstance(outcome, Failed):
                found.append(f"{run.folder} (failed: {outcome.error})")
            elif _digest(outcome) != load_run(run.folder).manifest.digest:
                found.append(str(run.folder))
    return found


def _digest(outcome: Completed) -> str:
    return msgspec.json.decode(outcome.files["manifest.json"], type=Manifest).digest
