"""Settings that fit this machine's clock: rate, buffer and minimum RTO from a run's measured capacity and disturbances.

A plan is never changed for the clock it runs against. The result is a line of flags that the user can paste.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from testbed.backends import Backend
from testbed.campaign.executors.reach import Reach
from testbed.campaign.tasks import Failed, Outcome, Task, carry_out
from testbed.core import input_files, text
from testbed.core.errors import EXIT_FAILED, MachineError, RequestError
from testbed.core.runs.load import Run, load_run
from testbed.core.runs.plan import Plan
from testbed.core.runs.verdict import Verdict
from testbed.core.units import Rate, Size
from testbed.planning.plan import planned
from testbed.spec import sweep
from testbed.spec.backend_names import is_remote

HEADROOM = 4.0  # capacity of the unshaped path ÷ need of the experiment; I2 requires 3
TRIALS, TRIAL_ITERATIONS = 6, 4
DISTURBED = "I21"  # fails at any rate where other programs take the cores
FRAMES, WINDOW_S = 34, 0.1  # frames in a window that judge its rate within I3's 3 %
AGAIN = 0.5  # factor for a rate that failed although the path carries it
SLOWEST_BPS = 1_000_000
RTO_MIN_SINCE = (6, 11)
LONGEST_BUFFER_S, LONGEST_RTO_S = 0.020, 0.200
MOST_BYTES = input_files.MEGABYTE  # of an experiment's file
OWN = ("--rate", "--buffer", "--rto-min", "--bytes", "--job")
_BYTES = re.compile(r"(\bbytes=)([^,]+)")


@dataclass(frozen=True)
class Proposal:
    """Times in seconds; no minimum RTO where the kernel has no such setting."""

    rate_bps: float
    buffer_s: float
    rto_min_s: float | None

    @property
    def flags(self) -> list[str]:
        rto = [] if self.rto_min_s is None else ["--rto-min", f"{self.rto_min_s * 1e3:g}ms"]
        return ["--rate", f"{self.rate_bps / 1e6:g}mbit", "--buffer", f"{self.buffer_s * 1e3:g}ms", *rto]


def propose(
    plan: Plan, capacity_bps: float | None, disturbances: pd.DataFrame, kernel: str, *, was_invalid: bool
) -> Proposal:
    """Return flags for a plan like this, from the measurements of one of its runs.

    The rate leaves the machine headroom. The buffer holds the burst after an ordinary pause. The minimum RTO exceeds
    the longest pause plus a full buffer, so that neither causes a timeout.
    """
    fits = 1.0 if not capacity_bps or not plan.needed_bps else capacity_bps / (HEADROOM * plan.needed_bps)
    share = min(fits, AGAIN if was_invalid else 1.0)
    rate_bps = max(SLOWEST_BPS, _nice(plan.link.rate_bps * share, down=True))
    waited = disturbances["waited_s"].to_numpy() if len(disturbances) else np.zeros(1)
    asked_s = plan.link.buffer_bytes * 8 / plan.link.rate_bps
    frames_s = 4 * (plan.link.mtu + 14) * 8 / rate_bps
    buffer_s = _nice(max(asked_s, frames_s, min(float(np.percentile(waited, 95)), LONGEST_BUFFER_S)), down=False)
    rto_s = min(LONGEST_RTO_S, _nice(2 * (float(waited.max()) + buffer_s), down=False))
    return Proposal(rate_bps, buffer_s, max(rto_s, 0.005) if _version(kernel) >= RTO_MIN_SINCE else None)


def _nice(value: float, *, down: bool) -> float:
    """The nearest of 1, 2, 5, 10, … that is no more (no less) than this."""
    tens = 10.0 ** np.floor(np.log10(value))
    steps = [step * tens for step in (1, 2, 5, 10)]
    exact = 1 + 1e-9  # tolerance for rounding
    return float(
        max(step for step in steps if step <= value * exact)
        if down
        else min(step for step in steps if step * exact >= value)
    )


def _version(kernel: str) -> tuple[int, int]:
    """From the output of `uname`, or a manifest: ``Linux 6.11.2 …``."""
    found = re.search(r"(\d+)\.(\d+)", kernel)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def lines(folder: Path, todo: Sequence[Plan], command: Sequence[str], *, root: bool | None = None) -> list[str]:
    """Commands to try after an invalid result against a real clock, which can be pasted.

    ``command`` has the format of `provenance.command_line`. ``root``: whether root ran it (default: as now).
    """
    runs = [(plan, load_run(folder / plan.folder)) for plan in todo]
    broken = [(plan, run) for plan, run in runs if run.verdict.verdict == "invalid"]
    words = list(command[2 if command[1:2] == ["run"] else 1 :])
    if not broken:
        return []
    exact = [] if any(job.program for plan in todo for job in plan.jobs) else [
        f"exact, on any machine: {text.command('run', *_without(words, ('--on',)), '--on', 'uml')}"
    ]  # fmt: skip
    plan, run = broken[0]
    proposal = _for(plan, run)
    sized = fewer_bytes(words, proposal.rate_bps / plan.link.rate_bps)
    if sized is None:
        return exact
    on = _value(words, "--on")
    as_root = (os.geteuid() == 0 if root is None else root) and not (on and is_remote(on))
    again = (*_without(words, OWN), *([] if on else ["--on", "host"]), *proposal.flags, *sized)
    return [f"try: {text.command('run', *again, root=as_root)}", *exact]


def fitting(
    file: str, given: Mapping[str, Any], reach: Reach, backend: Backend, hear: Callable[[str], None]
) -> list[str]:
    """The flags with which a backend holds the experiment of ``file``; none if it holds it without changes.

    A measurement gives a rate. A short run at that rate confirms it. If that run fails or is invalid, half the rate is
    tried, down to the rate where 100 ms hold too few frames to judge it (I3). A run that the machine disturbed (I21) is
    repeated once. ``hear`` is called with a line for each. Raises `MachineError` if no rate is held.
    """
    plan = _contended(file, given)
    if reach.failed:
        raise MachineError(f"{backend.name}: the run that measures the capacity of this machine failed: {reach.failed}")
    carried_bps = reach.bps[plan.link.mtu]
    if carried_bps >= HEADROOM * plan.needed_bps:
        return []
    lowest_bps = _nice(FRAMES * (plan.link.mtu + 14) * 8 / WINDOW_S, down=False)
    rates = [
        propose(plan, carried_bps * AGAIN**halved, reach.disturbances, reach.kernel, was_invalid=False)
        for halved in range(TRIALS)
    ]
    disturbed = False
    for proposed in dict.fromkeys(rate for rate in rates if rate.rate_bps >= lowest_bps):
        sized = fewer_bytes([file], proposed.rate_bps / plan.link.rate_bps)
        if sized is None:
            raise RequestError(f"{file}: no flag lowers the bytes of its jobs, so no lower rate fits. Use --on uml.")
        words = [*proposed.flags, *sized]
        fields = {
            flag.removeprefix("--").replace("-", "_"): value
            for flag, value in zip(words[::2], words[1::2], strict=True)
        }
        trial = _contended(file, {**given, **fields, "iterations": TRIAL_ITERATIONS})
        for _ in range(2):
            word, broken = _judged(carry_out(Task(trial, backend.name, retries=0), backend))
            because = f" ({', '.join(sorted(broken))})" if broken else ""
            hear(f"{plan.experiment} at {Rate(trial.link.rate_bps)} on `{backend.name}`: {word}{because}")
            if word in ("valid", "suspect"):
                return words
            disturbed = DISTURBED in broken
            if not disturbed:
                break
    why = "other programs keep the machine busy (I21)" if disturbed else "the machine forwards too little"
    raise MachineError(
        f"{backend.name}: {file} is not valid there at any rate down to {Rate(int(lowest_bps))}: {why}. Try again when it is "
        "idle, or use --on uml."
    )


def _judged(outcome: Outcome) -> tuple[str, set[str]]:
    """Return the verdict of a trial, and the invariants that make it invalid.

    Raises errors that are not due to the run.
    """
    if isinstance(outcome, Failed):
        if outcome.error.exit_code != EXIT_FAILED:
            raise outcome.error
        return "failed", set()
    verdict = msgspec.json.decode(outcome.files["verdict.json"], type=Verdict)
    return outcome.verdict, {row.id for row in verdict.invalid}


def _contended(file: str, given: Mapping[str, Any]) -> Plan:
    """Return the plan with all jobs and the last-named system, of an experiment without a sweep."""
    (asked,) = sweep.read(file, dict(given))
    _, plans = planned(asked)
    return next(one for one in reversed(plans) if one.alone is None)


def _for(plan: Plan, run: Run) -> Proposal:
    noted = run.disturbances if run.disturbances is not None else pd.DataFrame({"waited_s": []})
    return propose(plan, run.manifest.measured.capacity_bps, noted, run.manifest.kernel, was_invalid=True)


def fewer_bytes(words: Sequence[str], share: float) -> list[str] | None:
    """Flags by which synthetic jobs send this share of their bytes, for every flag that sets bytes.

    None where no flag can do it: a file that sweeps bytes or jobs.
    """
    size, jobs = _value(words, "--bytes"), _values(words, "--job")
    for file in (word for word in words if word.endswith(".toml")):
        try:
            document = tomllib.loads(input_files.read_text(file, MOST_BYTES))
        except (input_files.FileError, ValueError):  # gone since
            return None
        if {"bytes", "job"} & {*document.get("sweep", {}), *document.get("sweep", {}).get("zip", {})}:
            return None
        size, jobs = size or document.get("bytes"), jobs or document.get("job", [])
    sized = [] if size is None else ["--bytes", _scaled(size, share)]
    return sized + [
        word for job in jobs for word in ("--job", _BYTES.sub(lambda at: at[1] + _scaled(at[2], share), job))
    ]


def _scaled(size: str, share: float) -> str:
    return f"{max(1, round(int(Size.parse(size)) * share / 1000)):g}kB"


def _values(words: Sequence[str], flag: str) -> list[str]:
    """All values of a flag, which may be given several times."""
    split = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{flag}=") else [word])]
    return [after for word, after in pairwise(split) if word == flag]


def _value(words: Sequence[str], flag: str) -> str | None:
    """Return the value of ``flag`` in ``words``; None if it is missing."""
    for number, word in enumerate(words):
        if word == flag:
            return words[number + 1] if number + 1 < len(words) else None
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _without(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words of a command without these flags and their values."""
    kept, skip = list[str](), False
    for word in words:
        if skip or word in flags:
            skip = word in flags and not skip
        elif not any(word.startswith(f"{flag}=") for flag in flags):
            kept.append(word)
    return kept
