"""``cc``: where loaded congestion controls are held, which is root's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.cli import cc, main
from testbed.core.errors import EXIT_MACHINE, EXIT_OK, EXIT_REQUEST, MachineError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="folders of several users: root makes them")
ANOTHER = 65534


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cc, "PINS", tmp_path / "mltcp")
    return tmp_path / "mltcp"


def another_users(pins: Path) -> None:
    pins.mkdir(mode=0o700)
    os.chown(pins, ANOTHER, ANOTHER)


def writable(pins: Path) -> None:
    pins.mkdir()
    pins.chmod(0o777)


def a_groups(pins: Path) -> None:
    pins.mkdir()
    pins.chmod(0o775)


def a_link(pins: Path) -> None:
    pins.with_name("other").mkdir(mode=0o700)
    pins.symlink_to(pins.with_name("other"))


def a_file(pins: Path) -> None:
    pins.touch()


def a_pipe(pins: Path) -> None:
    os.mkfifo(pins)


@pytest.mark.parametrize("make", [another_users, writable, a_groups, a_link, a_file, a_pipe])
def test_a_folder_that_is_not_roots_alone_is_refused(
    pins: Path, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    make(pins)
    with pytest.raises(MachineError, match=str(pins)):
        cc._check_private(make=True)
    for command in (["status"], ["unload", "mltcp_reno"]):
        assert main(["cc", *command]) == EXIT_MACHINE
        assert str(pins) in capsys.readouterr().err
    assert pins.lstat()  # it is the user's to remove


def test_the_folder_is_made_for_root_alone(pins: Path) -> None:
    cc._check_private()
    assert not pins.exists()
    mask = os.umask(0)
    try:
        cc._check_private(make=True)
    finally:
        os.umask(mask)
    assert (pins.stat().st_uid, stat.S_IMODE(pins.stat().st_mode)) == (0, 0o700)
    pins.chmod(0o755)  # others could only look
    cc._check_private(make=True)
    assert stat.S_IMODE(pins.stat().st_mode) == 0o700
    assert main(["cc", "status"]) == EXIT_OK
    assert main(["cc", "unload", "mltcp_reno"]) == EXIT_REQUEST
