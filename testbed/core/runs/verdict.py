"""The content of a run's ``verdict.json``: whether its results are valid, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Word = Literal["valid", "suspect", "invalid"]
Status = Literal["ok", "suspect", "invalid", "not evaluated", "not applicable"]
ORDER: tuple[Word, ...] = ("valid", "suspect", "invalid")


SLUGS = {
    "I1": "settings",
    "I2": "spare-capacity",
    "I3": "link-rate",
    "I4": "work-conservation",
    "I5": "stray-loss",
    "I6": "phase-lateness",
    "I7": "cpu-load",
    "I8": "base-rtt",
    "I9": "trace-bytes",
    "I10": "repeatability",
    "I11": "lone-job-ideal",
    "I12": "clock-drift",
    "I13": "skipped-ebpf",
    "I14": "seeded-paths",
    "I15": "events",
    "I16": "mltcp-active",
    "I17": "flow-limits",
    "I18": "tcp-timeouts",
    "I19": "receiver-drops",
    "I20": "host-links",
    "I21": "disturbed-iterations",
    "I22": "failed-jobs",
    "I23": "flow-model-range",
    "I24": "host-datagram-drops",
    "I25": "typed-commands",
}  # names of invariants on the terminal and in reports (docs/reference/invariants.md)


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One invariant (docs/reference/invariants.md): its value, its limits (``{"suspect above": 0.02}``), and what follows."""

    id: str
    name: str
    value: float | int | None
    limit: dict[str, float] | None
    status: Status
    note: str = ""

    @property
    def label(self) -> str:
        """Return the name and id of the invariant: ``link-rate (I3)``."""
        return f"{SLUGS[self.id]} ({self.id})" if self.id in SLUGS else self.id


class Verdict(msgspec.Struct, frozen=True):
    """The worst of its invariants."""

    version: int
    verdict: Word
    invariants: tuple[Row, ...]

    @property
    def invalid(self) -> list[Row]:
        """The invariants that make it so."""
        return [row for row in self.invariants if row.status == "invalid"]


def worst(verdicts: Iterable[Word]) -> Word:
    """The worst of these."""
    return max(verdicts, key=ORDER.index)
