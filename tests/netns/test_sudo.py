"""Under `sudo`: what a run on this machine's kernel has made is the caller's, and nothing else changes hands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.core import folders
from testbed.core.errors import EXIT_INVALID, EXIT_OK, EXIT_REQUEST
from testbed.core.runs import rundir
from tests.support.runs import cli, some

CALLER, OTHER = 4242, 4343
RUN = ["--on", "host", "--retries", "0", "--jobs", "1", "--cc", "reno", "--compute", "300ms", "--bytes", "1MB", "--iterations", "5", "--rate", "100mbit"]  # fmt: skip


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as ``/tmp`` is, with files of other users; and whoever types ``sudo`` is none of them."""
    monkeypatch.setenv("SUDO_UID", str(CALLER))
    monkeypatch.setenv("SUDO_GID", str(CALLER))
    folder = tmp_path / "shared"
    for path in (folder / "other/below", folder / "roots"):
        path.mkdir(parents=True)
        (path / "file").write_text("")
    for path in (folder / "other", *(folder / "other").rglob("*")):
        os.chown(path, OTHER, OTHER)
    folder.chmod(0o1777)
    return folder


def owners(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_uid, path.lstat().st_gid) for path in (folder, *folder.rglob("*"))}


@pytest.mark.parametrize("out", some(["made/by/us", ".", "other"], "made/by/us", "."))
def test_a_run_changes_no_other_owner(shared: Path, out: str) -> None:
    before = owners(shared)
    done = cli(*RUN, "--name", "x", "--out", str(shared / out), cwd=shared)
    assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
    after = owners(shared)
    assert {path: after[path] for path in before} == before
    made = {path: owner for path, owner in after.items() if path not in before}
    assert (shared / out / "x/reno/1/manifest.json") in made and (shared / out / "x/summary.json") in made
    assert (shared / out / "x/figures/interleaving.png") in made
    assert set(made.values()) == {(CALLER, CALLER)}


@pytest.mark.parametrize("link", ["x", "x/reno", "x/figures", "x/isolated"])
def test_a_link_in_the_results_is_refused_before_anything_runs(shared: Path, link: str) -> None:
    (shared / "results" / link).parent.mkdir(parents=True, exist_ok=True)
    (shared / "results" / link).symlink_to(shared / "other")
    before = owners(shared)
    done = cli(*RUN, "--jobs", "2", "--name", "x", cwd=shared)  # of two jobs one also runs in isolation
    assert done.returncode == EXIT_REQUEST and "is a link" in done.stderr and "Traceback" not in done.stderr
    assert owners(shared) == before


def test_a_link_made_meanwhile_is_not_followed(shared: Path) -> None:
    out = shared / "results"
    rundir.store({"a": b""}, out / "x/reno/1", out)
    before = owners(shared / "other")
    with folders.opened(out / "x/reno", out) as fd:
        (out / "x").rename(out / "y")
        (out / "x").symlink_to(shared / "other")
        folders.write(fd, "b", b"")
    assert owners(shared / "other") == before and (out / "y/reno/b").exists()
