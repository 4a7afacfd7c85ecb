"""What `make release` checks, and what it writes where no package is needed: version, notes, checksums."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

import testbed
from testbed.backends.usermode import kernel, shipped
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, MachineError, RequestError
from tools import checksums, release

ROOT = Path(__file__).parents[3]
TODAY = datetime.date(2027, 3, 4)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of the files that matter, with everything committed."""
    root = tmp_path / "tree"
    for name in (*release.PLACES, "CHANGELOG.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    changelog = (
        (root / "CHANGELOG.md")
        .read_text()
        .replace(release.UNRELEASED, f"{release.UNRELEASED}\n### Added\n\n- An entry.\n", 1)
    )
    (root / "CHANGELOG.md").write_text(changelog)
    git(root, "init", "-q")
    commit(root)
    return root


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")


def test_the_version_is_written_everywhere(tree: Path) -> None:
    release.set_version("77.8.9", tree, TODAY)
    assert release.version(tree) == "77.8.9"
    assert all("77.8.9" in (tree / name).read_text() for name in release.PLACES)
    assert "## [Unreleased]\n\n## [77.8.9] - 2027-03-04\n" in (tree / "CHANGELOG.md").read_text()
    with pytest.raises(RequestError, match=r"has a section 77\.8\.9 already"):
        release.set_version("77.8.9", tree, TODAY)
    with pytest.raises(RequestError, match=r"'1\.0' is no version"):
        release.set_version("1.0", tree, TODAY)


def test_a_tree_that_is_ready_is_released(tree: Path) -> None:
    release.set_version("77.8.9", tree, TODAY)
    with pytest.raises(RequestError, match=r"changes that are not committed: .*CHANGELOG\.md"):
        release.check(tree)
    commit(tree)
    assert release.check(tree).startswith("# MLTCP testbed 77.8.9 (2027-03-04)\n")
    git(tree, "tag", "v77.8.9")  # the workflow runs on the tag's commit
    assert release.check(tree)


def test_everything_that_is_amiss_is_named(tree: Path) -> None:
    release.set_version("77.8.9", tree, TODAY)
    commit(tree)
    git(tree, "tag", "v77.8.9")
    (tree / "CHANGELOG.md").write_text("# Changelog\n")
    (tree / "codemeta.json").write_text("{}\n")
    commit(tree)
    (tree / "new").touch()
    with pytest.raises(RequestError) as caught:
        release.check(tree)
    for fault in (
        "not committed: new.",
        "codemeta.json does not name version 77.8.9",
        "no section '## [77.8.9] - DATE'",
        "v77.8.9 names another",
    ):
        assert fault in str(caught.value)


def test_this_checkout_names_one_version() -> None:
    assert release.version() == testbed.__version__


def test_a_dirty_tree_is_refused_on_the_command_line(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "new").touch()
    monkeypatch.setattr(release.check, "__defaults__", (tree,))
    assert release.main(["--dry"]) == EXIT_REQUEST and "cannot be released" in capsys.readouterr().err
    release.set_version("77.8.9", tree, TODAY)
    commit(tree)
    assert release.main(["--dry"]) == EXIT_OK and "# MLTCP testbed 77.8.9" in capsys.readouterr().out


def test_notes_are_one_page() -> None:
    entries = "".join(f"- Number {number} of\n  many. With details.\n" for number in range(40))
    page = release.notes("1.2.3", "2027-03-04", f"### Added\n\n{entries}\n### Fixed\n\n- `a.b` works. See c.\n")
    lines = page.splitlines()
    assert "- Number 0 of many." in lines and "- `a.b` works." in lines and "details" not in page
    assert f"- {40 - release.ENTRIES} more in CHANGELOG.md." in lines and len(lines) < 60


def test_another_kernel_is_not_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = msgspec.structs.replace(shipped.release(), compiler="gcc 99", image_sha256="0")
    monkeypatch.setattr(kernel, "find", lambda prefer: kernel.Kernel(tmp_path, other))
    with pytest.raises(MachineError, match=r"another kernel .* by gcc 99\. Build .*linux-source"):
        release.build(tmp_path / "dist")
    monkeypatch.setattr(kernel, "find", lambda prefer: kernel.Kernel(tmp_path, shipped.release()))
    monkeypatch.setattr(shipped, "built_here", lambda: msgspec.structs.replace(shipped.release(), modules_sha256="0"))
    with pytest.raises(MachineError, match="other modules"):
        release.build(tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a").write_text("a")
    (tmp_path / "b").write_text("b")
    checksums.write(tmp_path)

    def code() -> int:
        command = ["sha256sum", "-c", "--strict", "SHA256SUMS"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert code() == 0
    (tmp_path / "b").write_text("c")
    assert code() == 1
