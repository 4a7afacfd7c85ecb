import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from testbed import rundir
from testbed.errors import TestbedError


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_stored_whole(tmp_path: Path) -> None:
    rundir.store(rundir.unpack(archive(a="1", b="2")), tmp_path / "reno" / "1")
    assert entries(tmp_path / "reno" / "1") == ["a", "b"]
    assert entries(tmp_path / "reno") == ["1"]


def test_an_older_run_is_replaced_whole(tmp_path: Path) -> None:
    rundir.store({"a": b"1", "b": b"1"}, tmp_path / "1")
    rundir.store({"a": b"2"}, tmp_path / "1")
    assert entries(tmp_path / "1") == ["a"]
    assert entries(tmp_path) == ["1"]


def test_an_older_run_is_kept_whole_if_the_new_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rundir.store({"a": b"1"}, tmp_path / "1")

    def fail(folder: Path, destination: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundir, "_put", fail)
    with pytest.raises(TestbedError, match="No space left"):
        rundir.store({"a": b"2"}, tmp_path / "1")
    assert (tmp_path / "1" / "a").read_text() == "1"
    assert entries(tmp_path) == ["1"]


@pytest.mark.parametrize("name", ["x__y", "..__x"])
def test_an_archive_cannot_write_elsewhere(name: str) -> None:
    with pytest.raises(TestbedError, match="not a plain file"):
        rundir.unpack(archive(**{name: "1"}))


def test_what_a_dead_writer_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    dead = tmp_path / "reno" / f".1{rundir.PARTIAL}1"
    dead.mkdir(parents=True)
    (dead / "x").write_text("half")
    os.utime(dead, (0, 0))  # a new one might be about to be locked
    with rundir._partial(tmp_path / "living") as living:
        rundir.sweep(tmp_path)
        assert living.is_dir()
    assert not dead.exists()
    rundir.sweep(tmp_path / "nowhere")


KILLED_WHILE_WRITING = """
import os, pathlib, signal, sys
from testbed import rundir
target = pathlib.Path(sys.argv[1])
def die(*_):
    assert any(rundir.PARTIAL in path.name for path in target.parent.iterdir())
    os.kill(os.getpid(), signal.SIGKILL)
if target.suffix:
    rundir.give_to_caller = die
    rundir.write_text(target, "{}")
else:
    rundir._put = die
    rundir.store({"a": b"1"}, target)
"""


@pytest.mark.parametrize("name", ["1", "summary.json"])
def test_killed_while_writing_it_leaves_nothing(tmp_path: Path, name: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / name)], check=False)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while entries(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not entries(tmp_path)


def test_a_file_is_complete_or_absent(tmp_path: Path) -> None:
    rundir.write_text(tmp_path / "summary.json", "{}")
    assert entries(tmp_path) == ["summary.json"]
    with pytest.raises(TestbedError, match="could not be written"):
        rundir.write_text(tmp_path / "none" / "summary.json", "{}")


def test_under_sudo_results_belong_to_who_typed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned: list[tuple[str, int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, u, g, follow_symlinks: owned.append((Path(path).name, u, g)))
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "100")
    rundir.write_text(tmp_path / "summary.json", "{}")
    assert [entry[1:] for entry in owned] == [(1000, 100)]
