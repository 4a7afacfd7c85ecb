"""How many examples a property gets."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100  # hypothesis' own


def examples(usual: int) -> settings:
    """So many, where a hundred would take too long or be too few; in `make test-long` as many times more as there of others."""
    return settings(max_examples=usual * settings().max_examples // USUAL)
