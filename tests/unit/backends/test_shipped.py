"""Which kernel runs take: the chosen one, the shipped one, then the cache's; and what is said where none will do."""

from __future__ import annotations

import lzma
import os
import platform
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed import spec
from testbed.backends import choice, uml
from testbed.backends.usermode import build, kernel, shipped
from testbed.cli import main
from testbed.core.errors import EXIT_MACHINE, EXIT_OK, EXIT_REQUEST, MachineError
from testbed.transports.datagram import native
from tests.unit.backends.test_kernel import cache, fake_tree, quiet

__all__ = ["cache"]  # a fixture


@pytest.fixture
def installed(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> kernel.Kernel:
    """An installation that ships a kernel, and an empty cache."""
    monkeypatch.setattr(kernel, "SHIPPED", tmp_path / "content/uml")
    built = kernel.ensure(fake_tree(tmp_path / "linux"), quiet)
    entry = tmp_path / "content/uml" / built.folder.name
    for file in (built.folder / "kernel.json", built.image, *built.modules().iterdir()):
        to = entry / file.relative_to(built.folder)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)
    shutil.rmtree(built.folder)
    return kernel.find()


def test_the_shipped_one_is_used(installed: kernel.Kernel, tmp_path: Path) -> None:
    assert installed.is_shipped and installed.folder == kernel.shipped()
    assert (installed.modules() / "preload.so").exists()
    assert uml.Uml(installed).identity().shipped
    newer = fake_tree(tmp_path / "newer")
    (newer / "Makefile").write_text((newer / "Makefile").read_text().replace("SUBLEVEL = 7", "SUBLEVEL = 8"))
    built = kernel.ensure(newer, quiet)  # as `run --linux-source` does
    assert kernel.find() == installed and kernel.find(built.identity) == built


def test_one_that_was_built_to_be_used_is_used(
    installed: kernel.Kernel, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = str(tmp_path / "linux")
    assert main(["kernel"]) == EXIT_OK and "shipped with this installation" in capsys.readouterr().out
    assert main(["kernel", "--build", "--linux-source", tree]) == EXIT_OK
    assert "not the kernel of the release" in capsys.readouterr().out
    own = kernel.find()
    assert not own.is_shipped and own.folder.parent == cache
    assert uml.Uml(own).identity().content == uml.Uml(installed).identity().content  # the same bytes
    own.image.write_text("garbage")
    with pytest.raises(MachineError, match=r"chosen for runs .* is damaged.*mltcp kernel --build.*--shipped"):
        kernel.find()
    assert main(["kernel", "--shipped"]) == EXIT_OK
    assert kernel.find() == installed


def test_without_a_shipped_one_none_can_be_asked_for(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "--shipped"]) == EXIT_REQUEST
    assert "ships no kernel" in capsys.readouterr().err


def test_a_wrong_checksum_is_refused_and_nothing_built(installed: kernel.Kernel) -> None:
    installed.image.write_text("garbage")
    with pytest.raises(MachineError, match=r"shipped kernel is refused: .*SHA-256.*--force-reinstall.*--build"):
        kernel.find()
    assert kernel.is_built()  # a run builds none in its place


@pytest.fixture
def wheel(installed: kernel.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a kernel inside, for a checkout that has none."""
    file = tmp_path / "mltcp_testbed-1.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("testbed/__init__.py", "")
        for path in (path for path in installed.folder.rglob("*") if path.is_file()):
            archive.write(path, f"testbed/content/uml/{path.relative_to(installed.folder.parent)}")
    monkeypatch.setattr(kernel, "SHIPPED", tmp_path / "checkout/uml")
    return file


def test_a_checkout_uses_a_wheels_kernel(wheel: Path, cache: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert main(["kernel", "--wheel", str(wheel)]) == EXIT_OK
    found = kernel.find()
    assert found.folder.parent == cache and kernel.is_there() and not found.is_shipped
    assert (found.modules() / "preload.so").exists() and os.access(found.image, os.X_OK)
    (tmp_path / "tcp_mine.c").touch()
    with pytest.raises(MachineError, match=r"must be compiled.*mltcp kernel --build"):
        found.own_module(tmp_path / "tcp_mine.c")
    assert main(["kernel", "--build", "--linux-source", str(tmp_path / "linux")]) == EXIT_OK
    assert kernel.find().folder == found.folder and kernel.find().has_headers
    wheel.unlink()
    assert main(["kernel", "--if-missing", "--wheel", str(wheel)]) == EXIT_OK  # there is one


def test_a_wheel_that_is_named_is_used(wheel: Path, tmp_path: Path) -> None:
    newer = fake_tree(tmp_path / "newer")
    (newer / "Makefile").write_text((newer / "Makefile").read_text().replace("SUBLEVEL = 7", "SUBLEVEL = 8"))
    assert main(["kernel", "--build", "--linux-source", str(newer)]) == EXIT_OK
    assert main(["kernel", "--wheel", str(wheel)]) == EXIT_OK
    assert not kernel.find().has_headers


@pytest.mark.parametrize(
    "error", [RuntimeError("encrypted"), NotImplementedError("compression"), lzma.LZMAError("corrupt")]
)
def test_a_wheel_that_cannot_be_read_is_refused(error: Exception, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_archive: zipfile.ZipFile, _name: str) -> bytes:
        raise error

    monkeypatch.setattr(zipfile.ZipFile, "read", read)
    assert main(["kernel", "--wheel", str(wheel)]) == EXIT_REQUEST


def test_a_wheel_of_other_sources_leaves_nothing(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel, "compute_digest", lambda files: "another")
    assert main(["kernel", "--wheel", str(wheel)]) == EXIT_REQUEST
    assert "was built with another configuration" in capsys.readouterr().err
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_a_wheel_whose_modules_differ_leaves_nothing(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel, "_modules_are_whole", lambda folder: False)
    assert main(["kernel", "--wheel", str(wheel)]) == EXIT_MACHINE
    assert "kernel/ was changed since" in capsys.readouterr().err
    assert [path.name for path in cache.iterdir()] == ["lock"]


@pytest.mark.parametrize("content", [None, b"no archive", b"pure"])
def test_what_is_no_wheel_with_a_kernel_is_refused(
    content: bytes | None, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mltcp_testbed-1.whl"
    if content == b"pure":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("testbed/content/uml/../../../outside/kernel.json", "{}")
    elif content is not None:
        file.write_bytes(content)
    assert main(["kernel", "--wheel", str(file)]) == EXIT_REQUEST
    assert str(file) in capsys.readouterr().err.replace("\n", "")
    assert not cache.exists() or [path.name for path in cache.iterdir()] == ["lock"]


def test_modules_that_are_damaged_are_refused(installed: kernel.Kernel) -> None:
    (installed.modules() / "preload.so").write_text("")
    with pytest.raises(MachineError, match=r"modules of the shipped kernel .* damaged"):
        installed.modules()


def test_ones_own_module_needs_a_kernel_that_was_built_here(installed: kernel.Kernel, tmp_path: Path) -> None:
    (tmp_path / "tcp_mine.c").touch()
    with pytest.raises(MachineError, match=r"must be compiled.*mltcp kernel --build"):
        installed.own_module(tmp_path / "tcp_mine.c")


def test_a_file_system_that_runs_no_programs(
    installed: kernel.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(f_flag=os.ST_NOEXEC, f_blocks=1 << 31, f_bfree=1 << 30, f_bavail=1 << 30, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    with pytest.raises(MachineError, match=r"mounted noexec.*XDG_CACHE_HOME.*--on flow"):
        kernel.find()
    (tmp_path / "linux/Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 9\nlinux: fail\n")
    with pytest.raises(MachineError, match=r"mounted noexec"):  # before anything is compiled
        kernel.ensure(tmp_path / "linux", quiet)
    with pytest.raises(
        MachineError, match=r"/dev/shm, /tmp, /var/tmp: each has too little free space, or is mounted noexec"
    ):
        uml._memory_folder(500)


def test_memory_goes_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's /dev/shm has 64 MB."""
    free = {"/dev/shm": 64 << 20, "/tmp": 1 << 30, "/var/tmp": 1 << 40}
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_flag=0, f_bavail=free[str(path)] // 4096, f_frsize=4096)
    )
    assert (uml._memory_folder(20), uml._memory_folder(500), uml._memory_folder(2000)) == (
        "/dev/shm",
        "/tmp",
        "/var/tmp",
    )


def read(flags: dict[str, Any]) -> list[spec.Spec]:
    return [spec.read(None, {"cc": ["reno"], **flags})]


@pytest.mark.parametrize(
    ("machine", "largest", "says"), [("aarch64", sys.maxsize, "Linux aarch64"), ("x86_64", 2**31 - 1, "32-bit")]
)
def test_a_machine_that_is_none_for_it_gets_the_simulator(
    machine: str, largest: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "maxsize", largest)
    found = choice.choose(read, {})
    assert found.backend == "flow" and says in str(found) and "x86_64 Linux only" in str(found)
    with pytest.raises(MachineError, match=r"x86_64 Linux only.*--on flow"):
        uml.find()
    assert main(["run", "--on", "uml", "--cc", "reno"]) == EXIT_MACHINE
    assert "--on flow" in " ".join(capsys.readouterr().err.split())


def test_the_release_names_a_kernel_of_this_configuration() -> None:
    """Else build it (`mltcp kernel --build`), and write kernel/uml/release.json (`python -m testbed.backends.usermode.shipped`)."""
    assert shipped.release().config_sha256 == kernel._config_digest()


def test_the_tag_says_which_c_library_is_needed(cache: Path) -> None:
    library = native.build()
    tag = shipped.platform_tag([library])
    assert tag.startswith("manylinux_2_") and tag.endswith("_x86_64")
    build.check_executable(library)  # and it may be loaded
