"""What a run's ``verdict.json`` says: whether it can be trusted, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Word = Literal["valid", "suspect", "invalid"]
Status = Literal["ok", "suspect", "invalid", "not evaluated", "not applicable"]
ORDER: tuple[Word, ...] = ("valid", "suspect", "invalid")


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One invariant (docs/fidelity.md): its value, its limits (``{"suspect above": 0.02}``), and what follows."""

    id: str
    name: str
    value: float | int | None
    limit: dict[str, float] | None
    status: Status
    note: str = ""


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
