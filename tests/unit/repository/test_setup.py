"""`tools/setup.sh`: a package that cannot be installed stops it, by name; Python's come in the versions that were tested."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
TOOLS = (
    "sh",
    "dirname",
    "mktemp",
    "rm",
    "tail",
    "env",
    "cat",
    "cksum",
    "touch",
    "chmod",
)  # what the script itself uses
NO_NETWORK = "#!/bin/sh\necho 'E: Unable to fetch some archives' >&2\nexit 100\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One on a machine where nothing is missing: every tool is a stub, of which a test takes some away."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "bin").mkdir()
    text = (ROOT / "tools/setup.sh").read_text()
    assert text.count(PATH) == 1 and "/usr/bin/python3 " in text
    folder = f"{tmp_path}/bin"
    text = text.replace(PATH, f"PATH={folder}\n").replace(
        "for candidate in /usr/bin/python3 ", f"for candidate in {folder}/python3 "
    )
    for line in (ROOT / "tools/setup.sh").read_text().partition("needs='\n")[2].partition("'\n")[0].split():
        what, _, _ = line.partition(":")
        if what.startswith("/"):
            text = text.replace(f"\n{what}:", f"\n{folder}/{Path(what).name}:")
        stub(tmp_path, Path(what).name)
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    stub(tmp_path, "sshd")
    stub(tmp_path, "bpftool")
    stub(tmp_path, "id", "#!/bin/sh\necho 0\n")
    # Its environment: `venv` makes a folder with a `pip`.
    stub(
        tmp_path,
        "python3",
        '#!/bin/sh\n[ "$2" != venv ] || { mkdir -p .venv/bin; ln -sf ../../bin/true .venv/bin/pip; }\n',
    )
    stub(tmp_path, "true")
    (tmp_path / "bin/mkdir").symlink_to("/bin/mkdir")
    (tmp_path / "bin/ln").symlink_to("/bin/ln")
    (tmp_path / "tools/setup.sh").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tools/requirements.txt").touch()
    return tmp_path


def stub(checkout: Path, name: str, text: str = "#!/bin/sh\n") -> None:
    path = checkout / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def setup(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(checkout / "tools/setup.sh"), *words], capture_output=True, text=True, check=False, env={}
    )


def test_nothing_missing_needs_no_apt(checkout: Path) -> None:
    done = setup(checkout)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "installing Python packages into .venv\n"
    assert setup(checkout).stdout == ""  # the second time there is nothing to do


@pytest.mark.parametrize(
    "apt",
    [NO_NETWORK, '#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n', "#!/bin/sh\nexit 0\n"],
    ids=["no network", "no right", "claims to have done it"],
)
def test_a_package_that_cannot_be_installed_stops_it_by_name(checkout: Path, apt: str) -> None:
    for name in ("bison", "sparse"):
        (checkout / "bin" / name).unlink()
    stub(checkout, "apt-get", apt)
    done = setup(checkout)
    assert done.returncode == 3
    assert done.stdout == "installing system packages: bison sparse\n"
    last = done.stderr.splitlines()[-1]
    assert last.startswith("not installed, and needed: bison sparse") and "apt-get install bison sparse" in last
    for line in apt.splitlines():
        if line.startswith("echo"):
            assert line.split("echo ")[1].split(" >&2")[0].strip("'\"") in done.stderr
    assert not (checkout / ".venv").exists()
    assert setup(checkout, "--python").returncode == 0  # which needs none of them


def test_an_index_out_of_date_does_not_matter_if_all_could_be_installed(checkout: Path) -> None:
    (checkout / "bin/bison").unlink()
    stub(
        checkout,
        "apt-get",
        f'#!/bin/sh\n[ "$2" != update ] || exit 100\ntouch {checkout}/bin/bison; chmod +x {checkout}/bin/bison\n',
    )
    done = setup(checkout)
    assert done.returncode == 0, done.stderr


def test_without_apt_it_names_what_is_missing(checkout: Path) -> None:
    (checkout / "bin/bison").unlink()
    done = setup(checkout)
    assert done.returncode == 3 and done.stderr.splitlines()[1:] == ["  bison"]


def pip(checkout: Path, refuses: str, why: str) -> Path:
    """A `pip` that fails where an argument is ``refuses``, for a reason; what it is asked for is noted in the file returned."""
    said = checkout / "said"
    words = f'#!/bin/sh\necho "$@" >>{said}\ncase "$*" in *" {refuses} "*) echo "{why}" >&2; exit 1;; esac\n'
    stub(checkout, "true", words)
    return said


def test_packages_come_in_the_versions_that_were_tested(checkout: Path) -> None:
    said = pip(checkout, "never", "")
    assert setup(checkout).returncode == 0
    first, second = said.read_text().splitlines()
    assert {"--require-hashes", "--no-deps", ":all:", "tools/requirements.txt"} <= {*first.split()}
    assert {"--no-deps", "--no-build-isolation", "-e"} <= {
        *second.split()
    }  # the project itself, for which nothing is fetched


@pytest.mark.parametrize(
    "why",
    [
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        "ERROR: No matching distribution found for numpy==2.4.6",
    ],
    ids=["another file", "withheld"],
)
def test_a_package_that_is_not_the_tested_one_stops_it(checkout: Path, why: str) -> None:
    """An index that withholds a version gets no further than one that has another file."""
    said = pip(checkout, "--require-hashes", why)
    done = setup(checkout)
    assert done.returncode == 3 and "MLTCP_UNPINNED=1" in done.stderr and why in done.stderr
    assert len(said.read_text().splitlines()) == 1
    assert setup(checkout).returncode == 3  # and is not taken for done


def test_hashes_can_be_done_without_if_the_user_says_so(checkout: Path) -> None:
    said = pip(checkout, "never", "")
    command = ["/bin/sh", str(checkout / "tools/setup.sh")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"MLTCP_UNPINNED": "1"})
    assert done.returncode == 0 and "MLTCP_UNPINNED" in done.stderr
    (only,) = said.read_text().splitlines()
    assert "--require-hashes" not in only


def test_every_version_has_the_hashes_of_its_files() -> None:
    """And the file names no index: where packages come from is the user's."""
    text = (ROOT / "tools/requirements.txt").read_text()
    lines = (ROOT / "tools/constraints.txt").read_text().splitlines()
    entries = text.replace("\\\n", " ").splitlines()
    pins = [entry.split() for entry in entries if entry and not entry.startswith("#")]
    assert sorted(pin[0] for pin in pins) == sorted(line for line in lines if line and not line.startswith("#"))
    for _, *hashes in pins:
        assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
    assert "://" not in text


def test_every_package_that_is_asked_for_has_a_version() -> None:
    """With what it needs itself, and what builds the project: the set-up resolves nothing."""
    lines = (ROOT / "tools/constraints.txt").read_text().splitlines()
    said = dict(line.split("==") for line in lines if not line.startswith("#"))
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    todo = [*project["dependencies"], *project["optional-dependencies"]["dev"], *document["build-system"]["requires"]]
    seen = set[str]()
    while todo:
        asked = Requirement(todo.pop())
        if canonicalize_name(asked.name) in seen or (asked.marker and not asked.marker.evaluate({"extra": ""})):
            continue
        seen.add(canonicalize_name(asked.name))
        assert canonicalize_name(asked.name) in said, asked
        with contextlib.suppress(metadata.PackageNotFoundError):
            todo += metadata.requires(asked.name) or []


def test_the_project_is_installed_by_what_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the files that a box has when its packages are installed; the install is a path, not a copy of content."""
    for folder in ("testbed", "tools"):
        (tmp_path / folder).mkdir()
    for file in ("pyproject.toml", "README.md", "tools/wheel_hook.py", "testbed/__init__.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    monkeypatch.setitem(sys.modules, "editables", None)  # what another layout of pyproject.toml would need
    monkeypatch.chdir(tmp_path)
    hatchling = pytest.importorskip("hatchling.build")
    name = hatchling.build_editable(str(tmp_path))
    with zipfile.ZipFile(tmp_path / name) as archive:
        (path,) = [one for one in archive.namelist() if ".dist-info/" not in one]
        assert archive.read(path).decode().split() == [str(tmp_path)]
