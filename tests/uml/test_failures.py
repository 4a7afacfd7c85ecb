"""What may go wrong in there: a clear message, the right exit code, nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import kernel
from testbed.errors import EXIT_FAILED, EXIT_MACHINE
from tests.runs import INTERRUPTIBLE, ROOT, cli

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


def processes() -> list[str]:
    """User-mode Linux kernels and their processes on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"./linux":
            found.append(path.parent.name)
    return sorted(found)


def folders() -> list[Path]:
    return list(Path("/tmp").glob(f"mltcp-{os.getuid()}-*"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = processes()
    yield
    deadline = time.monotonic() + 5
    while processes() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes() == before


def topology(folder: Path, what: str) -> str:
    (folder / "mine.py").write_text(INSIDE.format(what=what))
    return "./mine.py"


def test_a_process_that_spins_meets_the_wall_limit(tmp_path: Path) -> None:
    spinning = topology(tmp_path, "\n            while True: pass")
    done = cli(*QUICK, "--topo", spinning, "--wall-limit", "4s", cwd=tmp_path)
    assert done.returncode == EXIT_FAILED
    assert "wall limit of 4 s ended the run" in done.stderr and "clock stands still" in done.stderr
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_panic_inside_is_told(tmp_path: Path) -> None:
    done = cli(*QUICK, "--topo", topology(tmp_path, "import os; os._exit(3)"), cwd=tmp_path)
    assert done.returncode == EXIT_FAILED
    assert "kernel panicked: not syncing: Attempted to kill init" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_exception_inside_is_told(tmp_path: Path) -> None:
    done = cli(*QUICK, "--topo", topology(tmp_path, "raise RuntimeError('no such wire')"), cwd=tmp_path)
    assert done.returncode == EXIT_FAILED
    assert "no such wire" in done.stderr


def test_what_that_kernel_lacks_is_told(tmp_path: Path) -> None:
    done = cli(*QUICK[:-1], "vegas", cwd=tmp_path)
    assert done.returncode == EXIT_MACHINE
    assert "has no vegas; it has reno, cubic" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_killed_at_any_point_it_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    before = folders()
    for wait_s in (0.6, 2.0):
        process = subprocess.Popen(
            [*INTERRUPTIBLE, sys.executable, str(ROOT / "testbed/run.py"), *LONG], cwd=tmp_path,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(wait_s)
        process.send_signal(number)
        process.wait(10)
    assert not list(tmp_path.rglob("manifest.json"))
    deadline = time.monotonic() + 5
    while folders() != before and time.monotonic() < deadline:  # after SIGKILL another process removes it
        time.sleep(0.05)
    assert folders() == before


def test_a_killed_kernel_is_told(tmp_path: Path) -> None:
    before = processes()
    process = subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, str(ROOT / "testbed/run.py"), *LONG], cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (new := set(processes()) - set(before)):
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(min(int(pid) for pid in new), signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == EXIT_FAILED
    assert "was killed by SIGKILL" in errors


def test_no_kernel_and_a_damaged_one(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("SUDO_UID", None)
    done = cli(*QUICK, cwd=tmp_path, env=environment)
    assert done.returncode == EXIT_MACHINE and "`make kernel` builds it" in done.stderr
    found = kernel.find()
    entry = cache / "mltcp" / "uml" / found.folder.name
    entry.mkdir(parents=True)
    (entry / "kernel.json").write_text(json.dumps(found.identity))
    shutil.copy(found.image, entry / "linux")
    with (entry / "linux").open("r+b") as image:
        image.seek(5000)
        image.write(b"garbage")
    done = cli(*QUICK, cwd=tmp_path, env=environment)
    assert done.returncode == EXIT_MACHINE and "linux is damaged" in done.stderr
    (entry / "kernel.json").write_text("{")
    done = cli(*QUICK, cwd=tmp_path, env=environment)
    assert done.returncode == EXIT_MACHINE and "cannot be read" in done.stderr
