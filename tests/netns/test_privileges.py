"""Under ``sudo``: a run in user-mode Linux is the caller's, and root is gone for good."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.backends import uml
from testbed.core.errors import EXIT_MACHINE, EXIT_OK, EXIT_REQUEST, MachineError
from testbed.linux import privileges
from tests.support.runs import ROOT

CALLER = pwd.getpwnam("nobody")
RUN = [str(ROOT / "testbed/run.py"), "--cc", "reno", "--jobs", "1", "--iterations", "2", "--compute", "5ms", "--bytes", "50kB"]  # fmt: skip

GIVE_UP = """\
import os
from testbed.linux import privileges
print("apart", privileges.without_root(lambda: repr(os.getresuid()).encode()).decode(), privileges.without_root(lambda: 1 / 0))
print("still", os.getresuid(), os.environ["HOME"])
privileges.give_up()
print("for good", os.getresuid(), os.getresgid(), os.environ["HOME"], sorted(name for name in os.environ if "XDG" in name))
for become in (lambda: os.setresuid(0, 0, 0), lambda: os.seteuid(0), lambda: os.setgroups([0]), lambda: os.setresgid(0, 0, 0)):
    try:
        become()
        print("root again")
    except PermissionError:
        pass
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm"))])
"""

# A topology file is a program: this one tells who it is, and tries to be root.
TOPOLOGY = """\
import os
from topologies.dumbbell import Dumbbell
def become_root(how, *ids):
    try:
        how(*ids)
    except PermissionError:
        pass
become_root(os.seteuid, 0)
become_root(os.setresuid, 0, 0, 0)
with open("who", "a") as told:
    print(os.getresuid(), file=told)
class Mine(Dumbbell):
    pass
topos = {"mine": Mine}
"""

CHOOSE = """\
import os, sys
from testbed import spec
from testbed.linux import privileges
from testbed.backends.usermode import kernel
from testbed.backends import choice
kernel.is_built = lambda: True
def read(flags):
    with open("who", "a") as told:
        print(os.getresuid(), file=told)
    return [spec.read(None, flags)]
print(choice.choose(read, {"cc": sys.argv[1:], "jobs": 1}), os.getresuid())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place that others may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="mltcp-test-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


def sudo(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """As `sudo` starts a command for nobody."""
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "SUDO_UID": str(CALLER.pw_uid), "SUDO_GID": str(CALLER.pw_gid),
        "SUDO_USER": CALLER.pw_name, "PYTHONPATH": str(ROOT), **more,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def readable() -> None:
    done = subprocess.run(
        ["setpriv", f"--reuid={CALLER.pw_uid}", f"--regid={CALLER.pw_gid}", "--clear-groups", "cat", *map(str, privileges.READ)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("this checkout cannot be read by others")


@pytest.fixture
def cache(folder: Path) -> Path:
    """The kernel's cache as the caller would have built it."""
    try:
        kernel = uml.find().kernel
    except MachineError as error:
        pytest.skip(str(error))
    shutil.copytree(kernel.folder, folder / "cache/mltcp/uml" / kernel.folder.name, symlinks=True)
    for path in [folder / "cache", *(folder / "cache").rglob("*")]:
        os.chown(path, CALLER.pw_uid, CALLER.pw_gid, follow_symlinks=False)
    return folder / "cache"


def test_root_is_given_up_for_good(folder: Path, readable: None) -> None:
    uid, gid = CALLER.pw_uid, CALLER.pw_gid
    mine = folder / "mine"
    mine.mkdir()
    os.chown(mine, uid, gid)
    done = sudo("-c", GIVE_UP, cwd=folder, XDG_CACHE_HOME="/root/.cache", XDG_CONFIG_HOME=str(mine / "not/there/yet"))
    assert done.stdout.splitlines() == [
        f"apart {(uid,) * 3} b''",
        "still (0, 0, 0) /root",
        f"for good ({uid}, {uid}, {uid}) ({gid}, {gid}, {gid}) {CALLER.pw_dir} ['XDG_CONFIG_HOME']",
        str(["0" * 16] * 2),
    ], done.stderr
    # Root without sudo, or root's own sudo, stays what it is.
    for more in ({"SUDO_UID": "0"}, {"SUDO_UID": ""}):
        assert "for good (0, 0, 0)" in sudo("-c", GIVE_UP, cwd=folder, **more).stdout


def test_a_run_under_sudo_is_the_callers(folder: Path, readable: None, cache: Path) -> None:
    foreign = {folder / "foreign": 0, folder / "other": 12345}
    for path, owner in foreign.items():
        path.write_text("not ours")
        os.chown(path, owner, owner)
    home = folder / "home"
    home.mkdir()
    (home / "small.toml").write_text('compute = "5ms"\nbytes = "50kB"\niterations = 2\njobs = 1\ncc = ["reno"]\n')
    (home / "foreign").write_text("root's, in the caller's own folder")
    os.chown(home, CALLER.pw_uid, CALLER.pw_gid)

    refused = sudo(*RUN, "--out", str(folder / "results"), cwd=home, XDG_CACHE_HOME=str(cache))
    assert refused.returncode == EXIT_REQUEST and "nothing can be written" in refused.stderr  # root's folder

    for words in (
        [*RUN, "--name", "run"],
        [str(ROOT / "testbed/run.py"), "--verify", "results/run/reno/1"],
        ["-m", "testbed", "sweep", "small.toml"],
        ["-m", "testbed", "kernel", "--if-missing"],
    ):
        done = sudo(*words, cwd=home, XDG_CACHE_HOME=str(cache))
        assert done.returncode == EXIT_OK, done.stderr
    made = [*(home / "results").rglob("*"), home / "results", *cache.rglob("*")]
    assert (home / "results/small/summary.json") in made
    owners = {path: (path.lstat().st_uid, path.lstat().st_gid) for path in made}
    assert {path: owner for path, owner in owners.items() if owner != (CALLER.pw_uid, CALLER.pw_gid)} == {}
    assert {path: path.stat().st_uid for path in foreign} == foreign
    assert (folder.stat().st_uid, (home / "foreign").stat().st_uid) == (0, 0)


def test_who_cannot_read_the_testbed_is_told_so(folder: Path, readable: None) -> None:
    secret = folder / "secret"
    secret.touch(mode=0o600)
    script = f"""\
import sys
from pathlib import Path
from testbed.linux import privileges
from testbed.cli import main
privileges.READ = (Path({str(secret)!r}),)
sys.exit(main(["run", "--jobs", "1"]))
"""
    done = sudo("-c", script, cwd=folder)
    assert done.returncode == EXIT_MACHINE
    assert done.stderr.startswith("error: ") and "`sudo`" in done.stderr and "--dry-run" in done.stderr
    assert f"{secret}: Permission denied" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture
def home(folder: Path) -> Path:
    """A folder of the caller's."""
    made = folder / "home"
    made.mkdir()
    os.chown(made, CALLER.pw_uid, CALLER.pw_gid)
    return made


MAIN = """\
import sys
from testbed.backends.usermode import kernel
from testbed.cli import main
kernel.is_built = lambda: True
sys.exit(main(sys.argv[1:]))
"""
NOWHERE = ["--out", "/proc/none"]  # refused once it is known what would be run, and where


@pytest.mark.parametrize(
    "words",
    [NOWHERE, [*NOWHERE, "--on", "uml"], [*NOWHERE, "--on", "flow"], ["--dry-run"], ["--dry-run", "--on", "host"]],
    ids=" ".join,
)
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_topology_file_cannot_be_root(command: str, words: list[str], home: Path, readable: None) -> None:
    (home / "mine.py").write_text(TOPOLOGY)
    (home / "small.toml").write_text('topo = "./mine.py"\njobs = 1\ncc = ["reno"]\n')
    done = sudo("-c", MAIN, command, "small.toml", *words, cwd=home)
    assert done.returncode == (EXIT_OK if "--dry-run" in words else EXIT_REQUEST), done.stderr
    assert set((home / "who").read_text().splitlines()) == {str((CALLER.pw_uid,) * 3)}


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_what_needs_root_asks_before_it_executes_a_topology_file(command: str, home: Path, readable: None) -> None:
    (home / "mine.py").write_text(TOPOLOGY)
    (home / "small.toml").write_text('topo = "./mine.py"\njobs = 1\ncc = ["reno"]\n')
    host = [command, "small.toml", "--on", "host"]
    done = sudo("-c", MAIN, *host, cwd=home)
    assert done.returncode == EXIT_REQUEST and "--allow-external-code" in done.stderr, done.stderr
    assert not (home / "who").exists() or str((0, 0, 0)) not in (home / "who").read_text().splitlines()
    done = sudo("-c", MAIN, *host, "--allow-external-code", *NOWHERE, cwd=home)
    assert done.returncode == EXIT_REQUEST and "--allow-external-code" not in done.stderr, done.stderr
    assert str((0, 0, 0)) in (home / "who").read_text().splitlines()


@pytest.mark.parametrize("words", [[], ["--dry-run"]], ids=["", "dry"])
def test_a_file_that_only_root_may_read_is_not_told_of(words: list[str], home: Path, readable: None) -> None:
    """Schedules need no root, and are read by the caller."""
    (home / "secret.toml").write_text('kind = "schedules"\nname = "secret word"\nservers = "secret word"\n')
    (home / "secret.toml").chmod(0o600)
    done = sudo("-m", "testbed", "sweep", "secret.toml", *words, cwd=home)
    assert done.returncode == EXIT_REQUEST and "Permission denied" in done.stderr, done.stderr
    assert "secret word" not in done.stderr


def test_only_what_needs_root_keeps_it(home: Path, readable: None) -> None:
    root, caller = "(0, 0, 0)", str((CALLER.pw_uid,) * 3)
    done = sudo("-c", CHOOSE, "reno", cwd=home)
    assert done.stdout == f"on `uml` {caller}\n", done.stderr
    assert set((home / "who").read_text().splitlines()) == {caller}
    (home / "who").unlink()
    (home / "mine.bpf.c").touch()  # eBPF, which user-mode Linux does not take
    done = sudo("-c", CHOOSE, "reno", "./mine.bpf.c", cwd=home)
    assert "on `host`: " in done.stdout and "mine.bpf.c" in done.stdout and done.stdout.endswith(f" {root}\n"), done
    who = (home / "who").read_text().splitlines()
    assert who[0] == caller and who[-1] == root  # what it says of itself decides, and it says that without root
