"""Record other load on this machine during a run, by `testbed.linux.sampling.ticker` outside the run's namespaces.

The ticker ends with the run, even if the run is killed. It adds ``disturbances.csv`` to a run's archive. For the manifest it
reports what was recorded, and what could not be.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from testbed.core.environment import PACKAGES
from testbed.core.runs import documents, rows, rundir
from testbed.core.runs.events import Event, Start
from testbed.core.runs.manifest import Recorded
from testbed.linux.sampling import ticker
from testbed.linux.sampling.ticker import Account, Disturbance

TABLE, ACCOUNT = "disturbances.csv", "disturbances.json"
DISTURBED_ITERATIONS = "disturbed_iterations.csv"  # table of disturbed iterations (`testbed.core.runs.disturbed`)
PATIENCE_S = 60.0  # seconds for the ticker to end on a busy machine


@dataclass
class Recording:
    """A running one; None: none could be started."""

    process: subprocess.Popen[str] | None
    reason: str = ""
    start_ns: int | None = None

    def observe(self, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return ``on_event`` extended to note the start of the first iteration."""

        def hear(event: Event) -> None:
            if isinstance(event, Start):
                self.start_ns = event.start_ns
            on_event(event)

        return hear

    def added_to(self, archive: bytes) -> bytes:
        """End the recording, and return the run's archive with it."""
        account = self._account()
        start_ns = self.start_ns
        disturbances = [one for one in account.noted if start_ns is not None and one.end_ns > start_ns]
        if start_ns is None:
            account.refused.append("the run did not say when it began")
        files = {TABLE: table(disturbances, start_ns or 0), ACCOUNT: documents.encode(recorded_by(account))}
        return rundir.pack(files, archive)

    def _account(self) -> Account:
        if self.process is None:
            return Account(refused=[self.reason])
        try:
            out, _ = self.process.communicate(timeout=PATIENCE_S)
            return ticker.read(out)
        except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
            return Account(refused=[f"the recorder ended early: {type(error).__name__}: {error}"])


@contextlib.contextmanager
def recorded() -> Iterator[Recording]:
    """Record until the block ends."""
    command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-P", "-m", "testbed.linux.sampling.ticker"]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": PACKAGES, "LC_ALL": "C.UTF-8"}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        yield Recording(None, f"the recorder could not be started: {error}")
        return
    try:
        yield Recording(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def table(disturbances: list[Disturbance], start_ns: int) -> bytes:
    """``disturbances.csv`` (docs/reference/file-formats.md), on the run's own axis of time."""
    found = (
        rows.Disturbance(
            (one.start_ns - start_ns) / 1e9, (one.end_ns - start_ns) / 1e9, one.core, one.kind, one.waited_ns / 1e9
        )
        for one in disturbances
    )
    return rows.text(rows.Disturbance, found, decimals=6).encode()


def recorded_by(account: Account) -> Recorded:
    """The manifest's entry about the recording."""
    return Recorded(
        cores=tuple(account.cores),
        period_s=ticker.PERIOD_NS / 1e9,
        noted_from_s=ticker.NOTED_NS / 1e9,
        ticks=account.ticks,
        cpu_s=account.cpu_s,
        refused=tuple(account.refused),
    )
