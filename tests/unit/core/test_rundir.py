import contextlib
import gzip
import io
import lzma
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core import folders
from testbed.core.errors import RequestError, TestbedError
from testbed.core.runs import rundir
from tests.support import processes
from tests.support.properties import examples


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

    def fail(name: str, destination: Path, above: int) -> None:
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
    with folders.opened(tmp_path, tmp_path) as fd, rundir._partial(fd) as (living, _):
        rundir.sweep(tmp_path)
        assert (tmp_path / living).is_dir()
    assert not dead.exists()
    rundir.sweep(tmp_path / "nowhere")


KILLED_WHILE_WRITING = """
import os, pathlib, signal, sys
from testbed.core.runs import rundir
target = pathlib.Path(sys.argv[1])
def die(*_, **__):
    assert any(rundir.PARTIAL in path.name for path in target.parent.iterdir())
    os.kill(os.getpid(), signal.SIGKILL)
if target.suffix:
    os.rename = die
    rundir.write_text(target, "{}")
else:
    rundir._put = die
    rundir.store({"a": b"1"}, target)
"""


@pytest.mark.parametrize("name", ["1", "summary.json"])
def test_killed_while_writing_it_leaves_nothing(tmp_path: Path, name: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / name)], check=False)
    assert done.returncode == -signal.SIGKILL
    processes.until(lambda: not entries(tmp_path), lambda: entries(tmp_path))


def test_a_file_is_complete_or_absent(tmp_path: Path) -> None:
    rundir.write_text(tmp_path / "summary.json", "{}")
    assert entries(tmp_path) == ["summary.json"]
    with pytest.raises(TestbedError, match="could not be written"):
        rundir.write_text(tmp_path / "summary.json" / "below.json", "{}")


def test_a_folder_is_filled_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "figures" / name).write_text("old")
    with rundir.filled(tmp_path / "figures", tmp_path) as aside:
        (aside / "a.png").write_text("new")
        assert (tmp_path / "figures" / "a.png").read_text() == "old"
    assert {path.name: path.read_text() for path in (tmp_path / "figures").iterdir()} == {
        "a.png": "new",
        "b.png": "old",
    }


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with a file, that no run may touch; beside ``results``."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "victim").write_text("untouched")
    (tmp_path / "results").mkdir()
    return folder


def fill(folder: Path, out: Path) -> None:
    with rundir.filled(folder, out) as aside:
        (aside / "victim").write_text("overwritten")


@pytest.mark.parametrize(
    ("link", "write"),
    [
        ("x", lambda out: rundir.store({"victim": b""}, out / "x/reno/1", out)),
        ("x/reno", lambda out: rundir.store({"victim": b""}, out / "x/reno/1", out)),
        ("x/reno/1", lambda out: rundir.store({"victim": b""}, out / "x/reno/1", out)),
        ("x/figures", lambda out: fill(out / "x/figures", out)),
        ("x", lambda out: rundir.write_text(out / "x/victim", "", out)),
    ],
    ids=["experiment", "congestion control", "seed", "figures", "a file"],
)
def test_results_are_not_written_through_a_link(elsewhere: Path, link: str, write: Callable[[Path], None]) -> None:
    out = elsewhere.parent / "results"
    (out / link).parent.mkdir(parents=True, exist_ok=True)
    (out / link).symlink_to(elsewhere)
    with pytest.raises(RequestError, match="is a link"):
        write(out)
    assert entries(elsewhere) == ["victim"]
    assert (elsewhere / "victim").read_text() == "untouched"


def test_a_link_is_found_before_anything_runs(elsewhere: Path) -> None:
    out = elsewhere.parent / "results"
    folders.check(out / "x/reno/1", out)
    (out / "x").symlink_to(elsewhere)
    with pytest.raises(RequestError, match="is a link"):
        folders.check(out / "x/reno/1", out)


def test_the_way_to_the_results_may_be_a_link(elsewhere: Path) -> None:
    out = elsewhere.parent / "link"
    out.symlink_to(elsewhere)
    rundir.store({"a": b"1"}, out / "x/1", out)
    assert (elsewhere / "x/1/a").read_text() == "1"


def test_a_file_in_the_place_of_a_link_is_the_runs_own(elsewhere: Path) -> None:
    out = elsewhere.parent / "results"
    (out / "summary.json").symlink_to(elsewhere / "victim")
    rundir.write_text(out / "summary.json", "{}")
    assert not (out / "summary.json").is_symlink()
    assert (elsewhere / "victim").read_text() == "untouched"


def test_names_of_what_is_written_aside_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor would what lies there be followed."""
    (tmp_path / "victim").write_text("untouched")
    names = {rundir._aside("a") for _ in range(10)}
    assert len(names) == 10
    foreseen = names.pop()
    monkeypatch.setattr(rundir, "_aside", lambda name: foreseen)
    (tmp_path / foreseen).symlink_to(tmp_path / "victim")
    with pytest.raises(TestbedError, match="File exists"):
        rundir.write_text(tmp_path / "a", "")
    assert (tmp_path / "victim").read_text() == "untouched"


def members(*infos: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in infos:
            tar.addfile(info)
    return buffer.getvalue()


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "content",
    [
        members(member("a", tarfile.SYMTYPE, "/etc/passwd")),
        members(member("a", tarfile.LNKTYPE, "b")),
        members(member("a", tarfile.LNKTYPE, "a")),
        members(member("a", tarfile.FIFOTYPE)),
        members(member("a", tarfile.DIRTYPE)),
        members(*(member(str(number), tarfile.REGTYPE) for number in range(100))),
        lzma.compress(members(member("a", tarfile.REGTYPE))),
        gzip.compress(members(member("a", tarfile.REGTYPE))),
        archive(a="1" * 2000)[:1024],
        b"no archive" * 100,
        b"",
    ],
    ids=["link", "hard link", "itself", "fifo", "folder", "many", "xz", "gzip", "cut", "junk", "nothing"],
)
def test_what_no_run_hands_over_is_one_error(content: bytes) -> None:
    with pytest.raises(TestbedError, match="the run returned"):
        rundir.unpack(content)


@given(st.lists(st.tuples(st.integers(0, 1535), st.integers(0, 255)), min_size=1, max_size=8))
@examples(500)
def test_a_damaged_archive_is_one_error_or_files(changes: list[tuple[int, int]]) -> None:
    content = bytearray(archive(a="1", b="2"))
    for at, value in changes:
        content[at] = value
    # Its sum is right again: damage is not what it finds.
    content[148:156] = b"%06o\0 " % (256 + sum(content[:148]) + sum(content[156:512]))
    with contextlib.suppress(TestbedError):
        rundir.unpack(bytes(content))
