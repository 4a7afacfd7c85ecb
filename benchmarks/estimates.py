"""Error of run time estimates: ``python -m benchmarks.estimates [NUMBER …] [--list] [--most SECONDS]``.

Runs the README's commands without root, one after the other, each to an empty results folder, and prints the time that
``--dry-run`` expects, wall time and processor time, and their ratios. On a busy machine compare with processor time: a
run keeps one core busy. NUMBER selects commands by their number in ``--list``; ``--most`` leaves out those that are
expected to take longer.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from testbed.core.environment import ROOT

FACTOR = 2.0  # within which estimates are to be


def commands() -> Iterator[list[str]]:
    """The README's commands that have a dry run in JSON and need no root, as arguments of this Python."""
    for line in Path(ROOT, "README.md").read_text().splitlines():
        words = shlex.split(line, comments=True) if line.startswith("mltcp ") else []
        if words[1:2] in (["run"], ["sweep"], ["calibrate"]) and not any("<" in word for word in words):
            yield ["-m", "testbed", *(part for word in words[1:] for part in _expanded(word))]


def _expanded(word: str) -> list[str]:
    """Expand a pattern to file names, as a shell does."""
    return sorted(str(path.relative_to(ROOT)) for path in Path(ROOT).glob(word)) if "*" in word else [word]


def expected_s(command: list[str]) -> float:
    """The time that the command's dry run predicts."""
    done = subprocess.run(
        [sys.executable, *command, "--dry-run", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout.splitlines()[-1])["expected_s"])


def took_s(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of the command."""
    with tempfile.TemporaryDirectory() as out:
        before, begun = _used_s(), time.perf_counter()
        subprocess.run(
            [sys.executable, *command, "--out", out], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )  # fmt: skip
        return time.perf_counter() - begun, _used_s() - before


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER")
    parser.add_argument("--list", action="store_true", help="list of the commands and their expected times")
    parser.add_argument(
        "--most", type=float, metavar="SECONDS", help="largest expected time of a command to run, in seconds"
    )
    parsed = parser.parse_args()
    ratios: list[tuple[float, float]] = []
    for number, command in enumerate(commands(), 1):
        if parsed.numbers and number not in parsed.numbers:
            continue
        expected = expected_s(command)
        print(f"{number:2} {shlex.join(command)}\n   expected {expected:7.1f} s", end="", flush=True)
        if parsed.list or (parsed.most is not None and expected > parsed.most):
            print()
            continue
        wall, used = took_s(command)
        ratios.append((expected / wall, expected / used))
        print(
            f", wall {wall:7.1f} s (ratio {expected / wall:.2f}), processor {used:7.1f} s (ratio {expected / used:.2f})",
            flush=True,
        )
    if ratios:
        for name, found in zip(("wall", "processor"), zip(*ratios, strict=True), strict=True):
            close = sum(1 / FACTOR <= ratio <= FACTOR for ratio in found)
            print(f"{close} of {len(found)} estimates are within a factor of {FACTOR:g} of {name} time")


if __name__ == "__main__":
    main()
