"""The kernel's cache and its builder, on a source tree whose makefile only pretends."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.backends.usermode import build as kernel_build
from testbed.backends.usermode import kernel
from testbed.backends.usermode.source import EDITS, Origin, edit
from testbed.cli import main
from testbed.core.errors import (
    EXIT_INTERRUPTED,
    EXIT_MACHINE,
    EXIT_OK,
    EXIT_REQUEST,
    MachineError,
    RequestError,
    TestbedError,
)
from tests.support import processes
from tests.support.runs import INTERRUPTIBLE, some

ROOT = Path(__file__).parents[3]
MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 7
allnoconfig:
\t@cp $(KCONFIG_ALLCONFIG) $(O)/.config
linux:
\t@echo "  CC file.o"; touch {tree}.begun; while [ -e {tree}.hold ]; do sleep 0.1; done
\t@echo kernel; echo "int main(void) { return 0; }" | gcc -x c -o $(O)/linux -; mkdir -p $(O)/arch
modules:
\t@if [ -n "$(M)" ]; then touch $(M)/tcp_mltcp_reno.ko; fi
"""
RANDOM = """\
enum { CRNG_RESEED_START_INTERVAL = HZ, CRNG_RESEED_INTERVAL = 60 * HZ };
static void extract_entropy(void *buf, size_t len);
a() { extract_entropy(key, sizeof(key)); extract_entropy(base_crng.key, sizeof(base_crng.key)); }
b() { extract_entropy(base_crng.key, sizeof(base_crng.key)); }
static void extract_entropy(void *buf, size_t len) {}
"""


def fake_tree(folder: Path) -> Path:
    """One whose build says ``begun`` by a file beside it, and takes as long as ``hold`` is there."""
    files = {
        "Makefile": MAKEFILE.replace("{tree}", str(folder)),
        "arch/um/Kconfig": "config HZ\n\tint\n\tdefault 100\n",
        "arch/um/include/linux/time-internal.h": "#define TIMER_MULTIPLIER 256\n#define TIMER_MIN_DELTA  500\n",
        "arch/arm/Kconfig": "",
        "drivers/char/random.c": RANDOM,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if shutil.which("gcc") is None or shutil.which("flex") is None:
        pytest.skip("no compiler here: run `make setup`")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    return tmp_path / "cache" / "mltcp" / "uml"


def building(tree: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "testbed", "kernel", "--linux-source", str(tree)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def partial(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir() and not (path / "kernel.json").exists()]


def nothing_left(cache: Path) -> None:
    """Soon: where a build is killed, the process that watches it removes what there is."""
    processes.until(lambda: not partial(cache), lambda: partial(cache))


def quiet(line: str) -> None:
    pass


def test_built_once_and_found(tmp_path: Path, cache: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    said: list[str] = []
    built = kernel.ensure(tree, said.append)
    assert built.identity.version == "6.12.7" and "sha256" in built.identity.source
    assert "built in" in said[-1]
    assert kernel.ensure(tree, pytest.fail) == built == kernel.find()
    assert (built.modules() / "tcp_mltcp_reno.ko").exists() and (built.modules() / "preload.so").exists()
    # What modules are built with is kept, the rest is not; the tree itself is as it was.
    assert not (built.folder / "source/drivers").exists() and not (built.folder / "source/arch/arm").exists()
    assert "default 100\n" in (tree / "arch/um/Kconfig").read_text()
    assert "default 1000\n" in (built.folder / "source/arch/um/Kconfig").read_text()
    # A product that is damaged is built again, and what belongs to git alone changes nothing.
    (built.modules() / "preload.so").write_text("")
    assert (built.modules() / "preload.so").stat().st_size > 1000
    (tree / ".git").mkdir()
    (tree / ".git/index").write_text("x")
    assert kernel.ensure(tree, pytest.fail) == built
    # Another source is another entry.
    (tree / "arch/um/Kconfig").write_text("# changed\nconfig HZ\n\tint\n\tdefault 100\n")
    assert kernel.ensure(tree, quiet).folder != built.folder


def test_a_tarball_will_do(tmp_path: Path, cache: Path) -> None:
    fake_tree(tmp_path / "linux-6.12.7")
    with tarfile.open(tmp_path / "linux.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "linux-6.12.7", "linux-6.12.7")
    assert kernel.ensure(tmp_path / "linux.tar.xz", quiet).identity.version == "6.12.7"


def test_a_killed_build_is_made_good(tmp_path: Path, cache: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    (held := Path(f"{tree}.hold")).touch()
    with building(tree) as build:
        processes.until(Path(f"{tree}.begun").exists, build.poll)
        build.send_signal(signal.SIGKILL)
    nothing_left(cache)
    held.unlink()
    assert kernel.ensure(tree, quiet) == kernel.find()


def test_what_a_power_failure_left_is_removed_by_the_next_command(tmp_path: Path, cache: Path) -> None:
    built = kernel.ensure(fake_tree(tmp_path / "linux"), quiet)
    half = [cache / "6.12.7-0123456789ab" / "source", built.folder / "modules" / "0123456789ab"]
    for folder in half:
        folder.mkdir(parents=True)
    assert kernel.find() == built
    assert not half[0].parent.exists()
    (built.modules() / "complete").unlink()
    built.modules()
    assert not half[1].exists()
    half[0].mkdir(parents=True)
    with kernel_build.locked(cache / "lock"):  # a build in progress
        kernel.find()
        assert half[0].exists()


AUTOMATIC = """
import sys
from testbed.core import interruption
from testbed.backends.usermode import kernel
interruption.listen()
sys.exit(interruption.guarded(lambda: int(bool(kernel.build_apart("--linux-source", sys.argv[1])))))
"""
ENDS = [(number, whom) for number in ("INT", "TERM", "HUP", "KILL") for whom in ("command", "group", "builder")]


@pytest.mark.parametrize(("name", "whom"), some(ENDS, ("INT", "group"), ("TERM", "command"), ("KILL", "command")))
def test_an_automatic_build_that_is_ended_leaves_nothing(tmp_path: Path, cache: Path, name: str, whom: str) -> None:
    tree, number = fake_tree(tmp_path / "linux"), getattr(signal, f"SIG{name}")
    (held := Path(f"{tree}.hold")).touch()
    before = set(processes.below())
    command = [*INTERRUPTIBLE, sys.executable, "-c", AUTOMATIC, str(tree)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        processes.until(Path(f"{tree}.begun").exists, process.poll)
        if whom == "group":
            os.killpg(process.pid, number)
        else:
            builders = [
                pid
                for pid, words in processes.below(process.pid).items()
                if words[-4:-1] == ["kernel", "--if-missing", "--linux-source"]
            ]
            os.kill(process.pid if whom == "command" else builders[0], number)
        _, errors = process.communicate(timeout=processes.HANG_S)
    assert "Traceback" not in errors
    if name != "KILL" and whom != "builder":
        assert process.returncode == EXIT_INTERRUPTED
        assert not partial(cache)  # at once
    nothing_left(cache)
    processes.until(lambda: set(processes.below()) <= before, processes.below)
    held.unlink()


def test_two_builds_at_once_become_one(tmp_path: Path, cache: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    (held := Path(f"{tree}.hold")).touch()
    with building(tree) as first:
        processes.until(Path(f"{tree}.begun").exists, first.poll)
        with building(tree) as second:
            assert second.stdout is not None
            while "another build is in progress" not in (line := second.stdout.readline()):
                assert line, "the second ended without waiting"
            held.unlink()
            said = [build.communicate()[0] for build in (first, second)]
    assert (first.returncode, second.returncode) == (EXIT_OK, EXIT_OK)
    assert ["built in" in text for text in said] == [True, False]


def test_a_damaged_entry_is_built_again(tmp_path: Path, cache: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    built = kernel.ensure(tree, quiet)
    content = built.image.read_bytes()
    built.image.write_text("garbage")
    with pytest.raises(MachineError, match=r"linux is damaged.*make kernel"):
        kernel.find()
    assert kernel.ensure(tree, quiet).image.read_bytes() == content
    (built.folder / "kernel.json").write_text("{")
    with pytest.raises(MachineError, match="cannot be read"):
        kernel.find()
    kernel.ensure(tree, quiet)
    kernel.find()


@pytest.mark.parametrize("name", ["kernel.json", "linux"])
def test_an_entry_with_a_pipe_is_not_waited_for(tmp_path: Path, cache: Path, name: str) -> None:
    built = kernel.ensure(fake_tree(tmp_path / "linux"), quiet)
    (built.folder / name).unlink()
    os.mkfifo(built.folder / name)
    with pytest.raises(MachineError):
        kernel.find()


def test_root_runs_nothing_that_others_could_have_changed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = kernel.ensure(fake_tree(tmp_path / "linux"), quiet)
    monkeypatch.setattr(kernel, "_is_owned_by", lambda entry, users: 4242 in users)  # it is somebody else's
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(MachineError, match=r"another user"):
        kernel.find()
    monkeypatch.setenv("SUDO_UID", "4242")  # whoever typed sudo: found, for a process that has given up root
    assert kernel.find() == built
    for use in (built.modules, lambda: built.own_module(tmp_path / "tcp_mine.c")):
        with pytest.raises(MachineError, match="Root does not run such a kernel"):
            use()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    monkeypatch.setattr(kernel, "_is_owned_by", lambda entry, users: pytest.fail("only root need care"))
    assert built.modules().is_dir()


def test_who_can_change_an_entry(tmp_path: Path, cache: Path) -> None:
    entry = kernel.ensure(fake_tree(tmp_path / "linux"), quiet).folder
    assert kernel._is_owned_by(entry, {os.geteuid()}) and not kernel._is_owned_by(entry, {os.geteuid() + 1})
    (entry / "linux").chmod(0o777)
    assert not kernel._is_owned_by(entry, {os.geteuid()})


def test_a_name_never_becomes_part_of_a_makefile(tmp_path: Path, cache: Path) -> None:
    built = kernel.ensure(fake_tree(tmp_path / "linux"), quiet)
    source = tmp_path / "tcp_$(shell touch proof).c"
    source.write_text("")
    with pytest.raises(RequestError, match="tcp_NAME"):
        built.own_module(source)


def test_what_the_source_does_not_offer_is_named(tmp_path: Path, cache: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    (tree / "Makefile").write_text(
        MAKEFILE.replace("@cp", "@grep -v NET_SCH_RED").replace(" $(O)/.config", " > $(O)/.config")
    )
    with pytest.raises(MachineError, match="does not take CONFIG_NET_SCH_RED=y"):
        kernel.ensure(tree, quiet)
    assert not kernel.is_there()


def test_a_failing_build_shows_its_last_words(tmp_path: Path, cache: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    (tree / "Makefile").write_text(MAKEFILE.replace("echo kernel", "echo all wrong; exit 1"))
    with pytest.raises(TestbedError, match="all wrong"):
        kernel.ensure(tree, quiet)
    (tree / "Makefile").write_text(MAKEFILE.replace("echo kernel", "echo x: No space left on device; exit 1"))
    with pytest.raises(MachineError, match="disk is full"):
        kernel.ensure(tree, quiet)


def test_a_cache_without_room_is_named_before_anything_is_built(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3 << 29))
    with pytest.raises(
        MachineError, match=r"takes 4 GiB below .*; 1\.5 GiB are free\. Make room, or set XDG_CACHE_HOME"
    ):
        kernel.ensure(fake_tree(tmp_path / "linux"), quiet)
    assert not list(cache.glob("*/source"))


def test_a_cache_that_is_full_is_named(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = kernel.ensure(fake_tree(tmp_path / "linux"), quiet)

    def full(path: Path, words: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(MachineError, match=r"cannot be written: No space left on device .*chosen.*Make room"):
        kernel.choose(built)


def test_a_source_that_is_not_as_expected(tmp_path: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    (tree / "drivers/char/random.c").write_text("nothing of the kind")
    with pytest.raises(MachineError, match=r"random\.c "):
        edit(tree)


def test_every_edit_holds(tmp_path: Path) -> None:
    tree = fake_tree(tmp_path / "linux")
    edit(tree)
    text = (tree / "drivers/char/random.c").read_text()
    assert text.count("os_getrandom(") == 3 and "1000000 * HZ" in text
    assert "TIMER_MULTIPLIER 1\n" in (tree / "arch/um/include/linux/time-internal.h").read_text()
    assert len({one.file for one in EDITS}) == 3


@pytest.mark.parametrize(
    ("makefile", "words"),
    [
        ("VERSION = 5\nPATCHLEVEL = 15\nSUBLEVEL = 1\n", "is Linux 5.15; 6.1 is the oldest"),
        ("all:\n\techo\n", "names no version"),
    ],
)
def test_a_tree_that_will_not_do(makefile: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(makefile)
    with pytest.raises(RequestError, match=words):
        Origin.find(tmp_path)


def test_a_file_that_is_no_tarball(tmp_path: Path, capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    (tmp_path / "x.tar").write_text("no tar")
    assert main(["kernel", "--linux-source", str(tmp_path / "x.tar")]) == EXIT_REQUEST
    assert "not a tarball of Linux' source" in capsys.readouterr().err
    with tarfile.open(tmp_path / "y.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("y/readme"), io.BytesIO())
    assert main(["kernel", "--linux-source", str(tmp_path / "y.tar")]) == EXIT_REQUEST
    assert main(["kernel", "--linux-source", str(tmp_path / "none")]) == EXIT_REQUEST
    assert "neither a tarball nor a tree" in capsys.readouterr().err


def test_missing_tools_are_named(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_build, "PATH", str(tmp_path))
    assert main(["kernel"]) == EXIT_MACHINE
    words = capsys.readouterr().err
    assert "bison" in words and "gcc" in words and "make setup" in words


def test_no_room(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(10, 9, 1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(MachineError, match=r"takes 4 GiB below .*; 0\.0 GiB are free"):
        kernel.ensure(fake_tree(tmp_path / "linux"), quiet)


def test_a_cache_that_is_not_ours(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/sys")  # where nobody may write, root included
    with pytest.raises(MachineError, match="XDG_CACHE_HOME"):
        kernel.ensure(fake_tree(tmp_path / "linux"), quiet)


def test_blanks_in_the_cache_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    with pytest.raises(MachineError, match="no blanks"):
        kernel.ensure(fake_tree(tmp_path / "linux"), quiet)


def test_no_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(MachineError, match=r"no apt here.*--linux-source"):
        Origin.find(None)


def test_dkms_builds_every_module() -> None:
    """dkms.conf and Kbuild find what is in the folder, so that a congestion control is a file there."""
    sources = sorted(path.stem for path in (ROOT / "kernel").glob("tcp_*.c"))
    read = 'cd / && . "$1/dkms.conf" && printf "%s\\n" "${BUILT_MODULE_NAME[@]}" && echo "${#DEST_MODULE_LOCATION[@]}"'
    told = subprocess.run(["bash", "-c", read, "bash", ROOT / "kernel"], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [*sources, str(len(sources))]
    rules = ["make", "-s", "-f", "-", f"src={ROOT / 'kernel'}"]
    shown = subprocess.run(
        rules,
        input="include $(src)/Kbuild\nall:\n\t@echo $(sort $(obj-m))\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == [f"{name}.o" for name in sources]
