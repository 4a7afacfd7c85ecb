"""Kernel, modules and library of a second build: the bytes that ``kernel/uml/release.json`` names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from testbed.backends.usermode import kernel, shipped


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_second_build_has_the_bytes_of_the_release(tmp_path: Path) -> None:
    found = kernel.find(shipped.release()).identity
    if not shipped.is_release(found):
        pytest.skip(f"only {shipped.release().compiler} gives the release's bytes, and {found.compiler} is here")
    assert shipped.built_here() == shipped.release()
    empty = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "testbed", "kernel", "--build"], env=empty, check=True)
    told = [sys.executable, "-m", "testbed.backends.usermode.shipped"]
    second = subprocess.run(told, env=empty, check=True, capture_output=True).stdout
    assert msgspec.json.decode(second, type=shipped.Release) == shipped.release()
