"""The archive of bytecode that user-mode Linux imports from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.usermode import bytecode
from testbed.core.environment import PACKAGES
from testbed.linux import uml_start

SITE = [path for path in sys.path if path.endswith("-packages")]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MLTCP_CACHE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only modules of the archive."""
    folder = tmp_path / "modules"
    (folder / "pair").mkdir(parents=True)
    (folder / "pair/__init__.py").write_text("from pair.part import VALUE\n")
    (folder / "pair/part.py").write_text("VALUE = 1\n")
    (folder / "broken.py").write_text("x = (\n")  # for another Python, as some packages have them
    files = {"pair": "pair/__init__.py", "pair.part": "pair/part.py", "broken": "broken.py"}
    monkeypatch.setattr(
        bytecode, "_modules", lambda _packages: {name: str(folder / file) for name, file in files.items()}
    )
    return folder


def value(archive: Path) -> str:
    """What the package `pair` of an archive holds, if its files are not in the path; one module is imported after the archive was closed."""
    code = (
        "import sys; from testbed.linux.uml_start import Finder\n"
        "with open(sys.argv[1], 'rb') as archive:\n"
        "    sys.meta_path.insert(0, Finder(archive))\n"
        "    import pair.part\n"
        "del sys.modules['pair.part'], sys.modules['pair']\n"
        "import pair; print(pair.VALUE, pair.__path__, pair.part.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(archive)], env={"PYTHONPATH": PACKAGES},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_modules_are_imported_from_the_archive(cache: Path, modules: Path, tmp_path: Path) -> None:
    bytecode.put(tmp_path / "archive", [])
    part = modules / "pair/part.py"
    shown = f"['{part.parent}'] {part}"
    part.rename(part.with_suffix(".gone"))
    assert value(tmp_path / "archive") == f"1 {shown}"
    with (tmp_path / "archive").open("rb") as archive:
        assert bytecode._read(archive).keys() == {"pair", "pair.part"}


def test_only_a_file_that_has_changed_is_compiled_again(
    cache: Path, modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytecode.put(tmp_path / "first", [])
    [kept] = (cache / "mltcp/bytecode").iterdir()
    before = kept.stat().st_ino
    bytecode.put(tmp_path / "second", [])
    assert kept.stat().st_ino == before
    (modules / "pair/part.py").write_text("VALUE = 23\n")
    compiled = []
    loader = bytecode.importlib.machinery.SourceFileLoader  # type: ignore[attr-defined]

    class Seen(loader):  # type: ignore[misc, valid-type]
        def get_code(self, name: str) -> object:
            compiled.append(name)
            return super().get_code(name)

    monkeypatch.setattr("importlib.machinery.SourceFileLoader", Seen)
    bytecode.put(tmp_path / "third", [])
    assert compiled == ["pair.part", "broken"] and value(tmp_path / "third").startswith("23 ")


def test_a_process_that_replaces_the_archive_meanwhile_does_no_harm(
    cache: Path, modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands start at once, after a file has changed."""
    bytecode.put(tmp_path / "first", [])
    [kept] = (cache / "mltcp/bytecode").iterdir()
    (modules / "pair/part.py").write_text("VALUE = 23\n")
    found = bytecode._modules([])

    def other(packages: object) -> dict[str, str]:
        monkeypatch.setattr(bytecode, "_modules", lambda _packages: dict(reversed(found.items())))
        bytecode.put(tmp_path / "second", [])  # with the same codes at other places
        return found

    monkeypatch.setattr(bytecode, "_modules", other)
    bytecode.put(tmp_path / "third", [])
    assert value(tmp_path / "third").startswith("23 ") and kept.exists()


@pytest.mark.parametrize("harm", ["cut", "writable", "other"])
def test_an_archive_that_cannot_be_trusted_is_written_again(
    cache: Path, modules: Path, tmp_path: Path, harm: str
) -> None:
    bytecode.put(tmp_path / "first", [])
    [kept] = (cache / "mltcp/bytecode").iterdir()
    if harm == "cut":
        kept.write_bytes(kept.read_bytes()[:30])
    elif harm == "other":
        kept.write_bytes(b"something else")
    else:
        kept.chmod(0o666)
    bytecode.put(tmp_path / "second", [])
    assert value(tmp_path / "second").startswith("1 ") and kept.stat().st_mode & 0o022 == 0


def test_a_cache_that_cannot_be_written_is_not_needed(cache: Path, modules: Path, tmp_path: Path) -> None:
    cache.write_text("a file, not a folder")
    bytecode.put(tmp_path / "archive", [])
    assert value(tmp_path / "archive").startswith("1 ")


def test_the_guest_imports_only_from_the_archive(cache: Path, tmp_path: Path) -> None:
    """All that every run imports is there, with files of the same names inside on every machine."""
    bytecode.put(tmp_path / "archive", SITE)
    with (tmp_path / "archive").open("rb") as archive:
        index = uml_start.read_index(archive)
    assert {"testbed.linux.uml_init", "testbed.linux.run_in_kernel", "mininet.net", "msgspec"} <= index.keys()
    assert index["testbed.linux.network"][1] == "/run/mltcp/checkout/testbed/linux/network.py"


def test_archives_of_removed_files_are_removed(
    cache: Path, modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytecode.put(tmp_path / "first", [])
    gone = modules.rename(tmp_path / "moved")
    files = {"pair": str(gone / "pair/__init__.py"), "pair.part": str(gone / "pair/part.py")}
    monkeypatch.setattr(bytecode, "_modules", lambda _packages: files)
    bytecode.put(tmp_path / "second", ["another environment"])
    [kept] = (cache / "mltcp/bytecode").iterdir()
    assert (tmp_path / "second").readlink() == kept


def test_import_locks_are_back_after_the_block() -> None:
    bootstrap = sys.modules["_frozen_importlib"]
    before = {name: getattr(bootstrap, name) for name in uml_start.WithoutLocks.NAMES}
    with uml_start.WithoutLocks():
        assert bootstrap._ModuleLockManager is uml_start.NoLock
        import colorsys  # noqa: F401, PLC0415
    assert before == {name: getattr(bootstrap, name) for name in uml_start.WithoutLocks.NAMES}
