"""Something with a higher priority than all else stops a core for 60 ms, now and then: it is found, marked, and moves no number it should not."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed import spec
from testbed.campaign.tasks import Completed, Task, carry_out
from testbed.core.runs import disturbed
from testbed.core.runs.events import Said, Start
from testbed.planning import plan
from tests.support import processes
from tests.support.runs import ATTEMPTS, Result

pytestmark = pytest.mark.alone

HOG_NS = 60_000_000
ITERATIONS, SETTLED = 24, 5
HOGS = 4  # each touches an iteration or two of a job: less than a fifth of them
# The network takes a small part of the machine; two jobs begin apart, so far that 60 ms do not bring them together.
CALM: dict[str, Any] = {
    "compute": "350ms", "bytes": "875kB", "rate": "50mbit", "buffer": "8ms", "iterations": ITERATIONS,
    **({"rto_min": "20ms"} if Path("/proc/sys/net/ipv4/tcp_rto_min_us").exists() else {}),
}  # fmt: skip
LONE = {"jobs": 1, "cc": ["reno"], **CALM}
APART = {"jobs": 2, "cc": ["mltcp_reno"], "start_offsets": "0ms,250ms", **CALM}
# Told when to run and for how long; says from when to when it did.
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
for line in sys.stdin:
    begin, length = map(int, line.split())
    time.sleep(max(0, begin - time.monotonic_ns()) / 1e9)
    begun = time.monotonic_ns()
    while time.monotonic_ns() < begun + length:
        pass
    print(begun, time.monotonic_ns(), flush=True)
"""


@dataclass(frozen=True)
class Hogged:
    """A run, and where on its axis of time which core was taken."""

    result: Result
    hogs: tuple[tuple[float, float, int], ...]

    @property
    def iterations(self) -> pd.DataFrame:
        return self.result.table("iterations.csv")

    @property
    def noted(self) -> pd.DataFrame:
        return self.result.table("disturbances.csv")

    @property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for row in json.loads(self.result.files["verdict.json"])["invariants"]:
            found.setdefault(row["id"], []).append(row)
        return found

    @property
    def trouble(self) -> list[str]:
        """What the network broke where nothing disturbed it."""
        rows = [row for name in ("I3", "I4", "I6") for row in self.rows[name]]
        return [f"{row['name']}: {row['value']}" for row in rows if row["status"] in ("suspect", "invalid")]

    @property
    def settled_s(self) -> float:
        """Mean of the settled iterations that nothing touched."""
        rows = self.iterations[self.iterations["iteration"] >= SETTLED]
        return disturbed.undisturbed(rows, self.noted).undisturbed_mean_s


@contextlib.contextmanager
def hogs() -> Iterator[list[subprocess.Popen[str]]]:
    """One on each core that waits to be told."""
    made = [
        subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-c", HOG, str(core)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for core in sorted(os.sched_getaffinity(0))
    ]  # fmt: skip
    try:
        yield made
    finally:
        for one in made:
            one.kill()
            one.communicate()


def run(fields: dict[str, Any], count: int) -> Hogged:
    """A run in which ``count`` times, at random, a core is taken for 60 ms."""
    one = next(each for each in plan.plans(plan.resolve(spec.read(None, fields))) if each.alone is None)
    start_ns = 0
    with hogs() as waiting:

        def hear(event: Said) -> None:
            nonlocal start_ns
            if not isinstance(event, Start):
                return
            start_ns = event.start_ns
            draw = random.Random(f"hogs {count}")
            moments = sorted(draw.uniform(0.5, ITERATIONS * 0.5 - 1) for _ in range(count))
            for number, at_s in enumerate(moments):
                hog = waiting[number % len(waiting)]
                assert hog.stdin is not None
                hog.stdin.write(f"{start_ns + int(at_s * 1e9)} {HOG_NS}\n")
                hog.stdin.flush()

        outcome = carry_out(Task(one, "host", retries=0), hear=hear)
        assert isinstance(outcome, Completed), outcome
        result = Result(outcome.files)
        taken = []
        for core, hog in zip(sorted(os.sched_getaffinity(0)), waiting, strict=True):
            assert hog.stdin is not None and hog.stdout is not None
            hog.stdin.close()
            for line in hog.stdout:
                begin, end = ((int(word) - start_ns) / 1e9 for word in line.split())
                taken.append((begin, end, core))
            hog.stdin = None
    return Hogged(result, tuple(sorted(taken)))


@pytest.fixture(scope="module", autouse=True)
def real_time() -> None:
    """What the machine refuses its own programs, no test can ask for."""
    script = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))"
    if subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody have a real-time priority (SCHED_FIFO)")


def test_each_hog_is_found_and_what_it_touched_is_marked() -> None:
    hogged = run(APART, HOGS)
    assert len(hogged.hogs) == HOGS
    account = hogged.result.manifest["disturbances"]
    if account["refused"]:
        pytest.skip(f"this machine tells not everything: {'; '.join(account['refused'])}")
    assert account["cpu_s"] < 0.1 * account["ticks"] * account["period_s"]
    late = hogged.noted[(hogged.noted["kind"] != "ksoftirqd") & (hogged.noted["waited_s"] >= 0.04)]
    for begin, end, core in hogged.hogs:
        assert ((late["core"] == core) & (late["start_s"] < end) & (late["end_s"] > begin)).any(), (begin, core)
    # Those whose bytes were on the way at that time, and of the others only what something else touched.
    rows = hogged.iterations
    listed = set(map(tuple, hogged.result.table("disturbed_iterations.csv").to_numpy().tolist()))
    sends = rows[rows["bytes"] > 0]
    for begin, end, _core in hogged.hogs:
        met = sends[(sends["comm_start_s"] < end) & (sends["end_s"] > begin)]
        assert set(zip(met["job"], met["iteration"], strict=True)) <= listed
    share = hogged.rows["I21"][0]
    assert share["value"] == pytest.approx(len(listed) / (2 * ITERATIONS))
    assert share["status"] == ("invalid" if share["value"] > 0.2 else "ok")


@pytest.mark.parametrize(
    "fields", [pytest.param(LONE, id="a lone job"), pytest.param(APART, id="MLTCP-Reno", marks=pytest.mark.long)]
)
def test_without_what_was_touched_the_mean_is_an_undisturbed_runs(fields: dict[str, Any]) -> None:
    """Where the network kept its invariants otherwise: that is what these are for."""
    trouble: list[str] = []
    apart: list[float] = []
    for _ in range(ATTEMPTS):
        calm, hogged = run(fields, 0), run(fields, HOGS)
        trouble = calm.trouble + hogged.trouble
        if not trouble and calm.rows["I21"][0]["value"] == 0 and hogged.rows["I21"][0]["value"] <= 0.2:
            assert hogged.rows["I21"][0]["value"] > 0
            apart.append(abs(hogged.settled_s / calm.settled_s - 1))
            if apart[-1] <= 0.01:
                return
    assert not apart, apart
    pytest.skip(f"this machine disturbed {ATTEMPTS} pairs of runs otherwise, too: {'; '.join(trouble)}")


def test_killed_with_a_run_the_recorder_is_gone() -> None:
    """Whatever it had started, too: a process of its own for every core."""
    script = (
        "from testbed import spec\nfrom testbed.planning import plan\nfrom testbed.backends.progress import Patience\nfrom testbed.backends.host import Host\n"
        f"one = plan.plans(plan.resolve(spec.read(None, {LONE | {'iterations': 1000}!r})))[0]\n"
        "Host().run(one, lambda event: print(type(event).__name__, flush=True), Patience())\n"
    )

    def tickers() -> list[int]:
        return [pid for pid, words in processes.below().items() if "testbed.linux.sampling.ticker" in words]

    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any(line == "Iteration\n" for line in running.stdout)
        assert len(tickers()) == 1 + len(os.sched_getaffinity(0))
        running.kill()
    processes.until(lambda: not tickers(), tickers)
