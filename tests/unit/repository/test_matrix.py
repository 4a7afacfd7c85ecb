"""What `make matrix` would try, without trying it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import matrix


def test_every_kernel_source_from_the_oldest_that_works() -> None:
    listed = "linux-source-5.10 - old\nlinux-source-6.12 - new\nlinux-source-6.1 - stable\nlinux-source - whichever\n"
    assert matrix.linux_packages(listed) == ["linux-source-6.1", "linux-source-6.12"]


def test_every_python_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, names in (("a", ("python3.12", "python3.9", "python3-config")), ("b", ("python3.12", "python3.14"))):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    monkeypatch.setattr(matrix, "FOLDERS", (str(tmp_path / "a"), str(tmp_path / "b")))
    assert matrix.pythons() == [tmp_path / "a/python3.12", tmp_path / "b/python3.14"]


def test_a_source_of_ones_own_stands_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "FOLDERS", ())
    assert [name for name, _ in matrix.checks(Path("linux-6.18.tar.xz"))] == ["linux-6.18.tar.xz"]
