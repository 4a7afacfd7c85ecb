"""A disk that is full while results are written: one paragraph, and nothing half-written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.core.errors import TestbedError
from testbed.core.runs import rundir


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB, with an older run."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "small", str(folder)], check=True)
    try:
        rundir.store({"a": b"old"}, folder / "x/reno/1", folder)
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    with rundir.filled(folder / "x/figures", folder) as aside:
        (aside / "a.png").write_bytes(bytes(200_000))


@pytest.mark.parametrize(
    "write",
    [
        lambda out: rundir.store({"a": b"new", "b": bytes(200_000)}, out / "x/reno/1", out),
        lambda out: rundir.store({"a": b"new", "b": bytes(200_000)}, out / "x/cubic/1", out),
        lambda out: rundir.write_text(out / "x/summary.json", "x" * 200_000, out),
        fill,
    ],
    ids=["in place of an older run", "a new one", "a file", "figures"],
)
def test_nothing_half_written_stays(small: Path, write: Callable[[Path], None]) -> None:
    with pytest.raises(TestbedError, match="No space left on device") as error:
        write(small)
    assert "\n" not in str(error.value)
    assert [str(path.relative_to(small)) for path in small.rglob("*") if path.is_file()] == ["x/reno/1/a"]
    assert (small / "x/reno/1/a").read_text() == "old"
    assert not list(small.rglob(f"*{rundir.PARTIAL}*"))
