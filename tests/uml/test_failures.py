"""What may go wrong in there: a clear message, the right exit code, nothing left."""

from __future__ import annotations

import contextlib
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.backends import uml
from testbed.backends.progress import Patience
from testbed.backends.usermode import kernel
from testbed.core.errors import EXIT_FAILED, EXIT_MACHINE, MachineError, TestbedError
from testbed.core.runs.events import Event, Iteration, Phase, Shares
from testbed.core.runs.plan import Plan
from tests.support import processes, runs
from tests.support.processes import HANG_S
from tests.support.runs import INTERRUPTIBLE, ROOT, cli, rounds

QUICK = ["--on", "uml", "--quiet", "--compute", "20ms", "--bytes", "1MB", "--iterations", "2", "--cc", "reno"]
LONG = ["--on", "uml", "--quiet", "--compute", "20ms", "--bytes", "1MB", "--iterations", "90000", "--cc", "reno"]
INSIDE = """
from pathlib import Path
from topologies.dumbbell import Dumbbell
class Mine(Dumbbell):
    def wire(self, n=2):
        if "User Mode Linux" in Path("/proc/cpuinfo").read_text():
            {what}
        super().wire(n)
topos = {{"mine": Mine}}
"""


def kernels() -> list[int]:
    """Our user-mode Linux kernels and their processes."""
    return [pid for pid, words in processes.below().items() if words[0] == "./linux"]


def folders() -> set[Path]:
    """Runs' folders but those that another's run holds."""
    ours = (os.getpid(), *processes.below())
    held = {}  # by whom, of each folder's inode
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.replace("-> ", "").split()
        held[int(words[5].rpartition(":")[2])] = int(words[4])
    found = set()
    for folder in Path("/tmp").glob(f"mltcp-{os.getuid()}-*"):
        with contextlib.suppress(FileNotFoundError):
            if held.get(folder.stat().st_ino, os.getpid()) in ours:
                found.add(folder)
    return found


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = folders()
    yield
    processes.until(lambda: not kernels(), kernels)
    processes.until(lambda: not folders() - before, folders)


def topology(folder: Path, what: str) -> str:
    (folder / "mine.py").write_text(INSIDE.format(what=what))
    return "./mine.py"


SPIN = "\n            while True: pass"
GREEDY = """
            import os
            if os.fork() == 0:
                held = [bytearray(b"x" * (1 << 20)) for _ in iter(int, 1)]
            os.wait()
            while True: pass
"""
COMPUTE = """
            import time
            from testbed.replay.computing import announced
            with announced("this topology"):
                for _ in range(60):
                    sum(range(10_000_000))
"""


def own_plan(folder: Path, what: str, **fields: Any) -> Plan:
    """One small run over a topology that does ``what`` inside."""
    topology(folder, what)
    return runs.one_plan(
        True, topo=str(folder / "mine.py"), compute="20ms", bytes="1MB", iterations=2, cc=["reno"], **fields
    )


def test_a_process_that_spins_meets_the_wall_limit(tmp_path: Path) -> None:
    done = cli(*QUICK, "--topo", topology(tmp_path, SPIN), "--wall-limit", "4s", cwd=tmp_path)
    assert done.returncode == EXIT_FAILED
    assert "4 s (--wall-limit)" in done.stderr
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_process_that_spins_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"virtual clock .*8 s of wall time.*network") as raised:
        uml.find().run(own_plan(tmp_path, SPIN), lambda event: None, Patience(set_up_s=8))
    assert "memory" not in str(raised.value)


def test_a_run_that_lacks_memory_is_ended(tmp_path: Path) -> None:
    # The guest's kernel kills a process, or searches without end for a page to free.
    with pytest.raises(TestbedError, match=r"guest kernel ran out of memory|guest has also used all of its memory"):
        uml.find().run(own_plan(tmp_path, GREEDY), lambda event: None, Patience())


def test_who_announces_computing_may_take_long(tmp_path: Path) -> None:
    """It takes some fifteen seconds of wall time, and no virtual time: with the patience for who spins it would be ended."""
    one = own_plan(tmp_path, COMPUTE)
    assert uml.find().run(one, lambda event: None, Patience(set_up_s=8))


def test_a_run_in_which_nothing_moves_any_more_is_ended() -> None:
    event = [{"at": "500ms", "link": "s1-s2", "state": "down"}]
    cut_off = runs.one_plan(jobs=1, compute="20ms", bytes="20MB", iterations=9, cc=["reno"], event=event)
    told: list[type[Event]] = []
    with pytest.raises(TestbedError, match=r"5 s of virtual time .*\[\[event\]\]"):
        uml.find().run(cut_off, lambda event: told.append(type(event)), Patience(idle_s=5))
    assert {Phase, Shares, Iteration} >= set(told) and told.count(Shares) >= 10


def test_a_panic_inside_is_told(tmp_path: Path) -> None:
    done = cli(*QUICK, "--topo", topology(tmp_path, "import os; os._exit(3)"), cwd=tmp_path)
    assert done.returncode == EXIT_FAILED
    assert "kernel panicked: not syncing: Attempted to kill init" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_may_have_killed_the_first_process_is_told(tmp_path: Path) -> None:
    done = cli(*QUICK, "--topo", topology(tmp_path, "import ctypes; ctypes.string_at(0)"), cwd=tmp_path)
    assert done.returncode == EXIT_FAILED and "vm.max_map_count" in done.stderr


def test_an_exception_inside_is_told(tmp_path: Path) -> None:
    done = cli(*QUICK, "--topo", topology(tmp_path, "raise RuntimeError('no such wire')"), cwd=tmp_path)
    assert done.returncode == EXIT_FAILED
    assert "no such wire" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("round_", rounds(usual=2))
def test_killed_at_any_point_it_leaves_nothing(number: signal.Signals, round_: int, tmp_path: Path) -> None:
    """Which the fixture looks after."""
    process = subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, str(ROOT / "testbed/run.py"), *LONG], cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(random.Random(f"kill {number} {round_}").uniform(0.3, 4))
    process.send_signal(number)
    process.wait()
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_killed_kernel_is_told(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, str(ROOT / "testbed/run.py"), *LONG], cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    processes.until(lambda: len(kernels()) > 1, process.poll)  # it has begun to start others
    os.kill(min(kernels()), signal.SIGKILL)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == EXIT_FAILED
    assert "was killed by SIGKILL" in errors


# As containers do: a filter of system calls that refuses ptrace, for this process and all that it starts.
WITHOUT_PTRACE = """
import ctypes, os, sys
STATEMENTS = [(0x20, 0, 0, 0), (0x15, 0, 1, 101), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]  # ptrace: EPERM
class Statement(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint16), ("statements", ctypes.POINTER(Statement))]
prctl = ctypes.CDLL(None, use_errno=True).prctl
program = Program(4, (Statement * 4)(*(Statement(*one) for one in STATEMENTS)))
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter has this architecture's numbers")
def test_where_ptrace_is_forbidden_the_flag_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PTRACE, str(ROOT / "testbed/run.py"), *QUICK],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = " ".join(done.stderr.split())
    assert done.returncode == EXIT_MACHINE, done.stderr
    assert "cannot trace its processes" in words and "--cap-add SYS_PTRACE" in words and "--on flow" in words
    assert "--security-opt seccomp=unconfined" in words


def test_no_kernel_and_a_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, cache = kernel.find(), tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    # It would be built; where nothing is on the PATH it cannot be.
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("SUDO_UID", None)
    done = cli(*QUICK, cwd=tmp_path, env=environment)
    assert done.returncode == EXIT_MACHINE and "there is no apt here" in done.stderr, done.stderr
    entry = cache / "mltcp" / "uml" / found.folder.name
    entry.mkdir(parents=True)
    (entry / "kernel.json").write_bytes(msgspec.json.encode(found.identity))
    shutil.copy(found.image, entry / "linux")
    with (entry / "linux").open("r+b") as image:
        image.seek(5000)
        image.write(b"garbage")
    with pytest.raises(MachineError, match="linux is damaged"):
        kernel.find()
    (entry / "kernel.json").write_text("{")
    with pytest.raises(MachineError, match="cannot be read"):
        kernel.find()
