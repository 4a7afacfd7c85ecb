"""The number of sender stalls behind a figure, in a few words (I18 of docs/reference/invariants.md)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from testbed.core.runs.load import load_run
from testbed.core.text import count

KINDS = {
    "TCPTimeouts": "retransmission timeouts", "TCPLossProbes": "tail loss probes", "TCPSpuriousRTOs": "spurious timeouts",
}  # fmt: skip


def describe_stalls(runs: Iterable[Path]) -> str:
    """The stalls that the runs of a figure have recorded, summed; older runs have no record."""
    manifests = [load_run(path).manifest for path in runs]
    recorded = [manifest.measured.tcp for manifest in manifests if manifest.measured.tcp is not None]
    if not recorded:
        return "not recorded"
    stalls = ", ".join(f"{sum(counts.get(kind, 0) for counts in recorded)} {name}" for kind, name in KINDS.items())
    missing = len(manifests) - len(recorded)
    return f"{stalls} in {count(len(recorded), 'run')}" + (f"; not recorded in {missing}" if missing else "")
