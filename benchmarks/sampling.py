"""The cost of sampling: ``sudo .venv/bin/python -m benchmarks.sampling [REVISION]``.

256 flows every 10 ms, by this checkout and by REVISION, alternately. On this machine's kernel: the sampler's processor
time from its manifest, per flow and sample, and as a share of the run. In user-mode Linux: the relative time saved by a
run that samples once a second.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import revisions

BEFORE = "40ed5b8"
ROUNDS, FLOWS = 3, 256
REQUEST = (
    "--jobs", "8", "--channels", "32", "--compute", "400ms", "--bytes", "2MB", "--iterations", "6", "--system", "reno", "--alone", "none",
    "--retries", "0", "--name", "sampling",
)  # fmt: skip


def main() -> None:
    revision, took = revisions.in_turn(BEFORE, ROUNDS, sampled)
    for name, found in took.items():
        each_us, share = (median(column) for column in zip(*found, strict=True))
        print(f"{name:12} {each_us:6.2f} us a flow and sample, {share:.1%} of a core ({FLOWS} flows every 10 ms)")
    here, before = (median(us for us, _ in took[name]) for name in (revisions.HERE, revision))
    print(f"ratio        {here / before:6.2f}")
    revision, seconds = revisions.in_turn(BEFORE, ROUNDS, virtual)
    for name, found in seconds.items():
        often, seldom = (median(column) for column in zip(*found, strict=True))
        print(f"{name:12} {often:6.2f} s under virtual time, {1 - seldom / often:.1%} of it for sampling")


def sampled(tree: Path) -> tuple[float, float]:
    """Processor time of the sampler: in us for each flow and sample, and ÷ the time of the run."""
    with tempfile.TemporaryDirectory() as out:
        manifest = _manifest(tree, out, "--on", "host")
        cost = manifest["measured"]["sampler"]
        return cost["cpu_s"] * 1e6 / cost["samples"] / FLOWS, cost["cpu_s"] / cost["wall_s"]


def virtual(tree: Path) -> tuple[float, float]:
    """Wall seconds of the run in user-mode Linux, and of one that samples once a second."""
    found = []
    for sample in ("10ms", "1s"):
        with tempfile.TemporaryDirectory() as out:
            found.append(float(_manifest(tree, out, "--on", "uml", "--sample", sample)["wall_s"]))
    often, seldom = found
    return often, seldom


def _manifest(tree: Path, out: str, *words: str) -> dict[str, Any]:
    revisions.run(tree, *REQUEST, *words, "--out", out, check=False)  # whether it is valid does not matter here
    [manifest] = Path(out).rglob("manifest.json")
    document: dict[str, Any] = json.loads(manifest.read_text())
    return document


if __name__ == "__main__":
    main()
