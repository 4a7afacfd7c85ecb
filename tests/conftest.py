"""Tiers: ``tests/unit`` needs nothing, ``tests/netns`` needs root and this machine's kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine makes no test fail: speed is measured in benchmarks/.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")

ROOT = Path(__file__).parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "netns" in item.path.parts:
            item.add_marker(pytest.mark.netns)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root: run `make test`, which uses sudo"))


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT
