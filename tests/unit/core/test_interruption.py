"""Who is asked to end ends, also where Python lost the exception."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import testbed.cli
import testbed.transports.cli
from testbed.backends.progress import Patience, Watch
from testbed.campaign import driver
from testbed.core import interruption
from testbed.core.errors import EXIT_INTERRUPTED, EXIT_OK
from tests.support import processes
from tests.support.runs import INTERRUPTIBLE

ROOT = Path(__file__).parents[3]
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    with contextlib.suppress(KeyboardInterrupt):
        interruption.check()


@pytest.mark.parametrize("number", NUMBERS)
def test_what_an_import_swallowed_is_raised_again(number: signal.Signals) -> None:
    for each in NUMBERS:
        signal.signal(each, signal.SIG_DFL)
    interruption.listen()
    with contextlib.suppress(BaseException):  # as a library's import may
        os.kill(os.getpid(), number)
    watch = Watch(Patience(), lambda event: None, virtual=True)
    with pytest.raises(KeyboardInterrupt, match="interrupted" if number == signal.SIGINT else "terminated"):
        watch.check_progress()
    interruption.listen()  # of the next command nobody has asked that
    watch.check_progress()


def test_what_a_shell_ignores_stays_ignored() -> None:
    """A command in the background of a shell hears no Ctrl-C, one behind nohup no closed terminal."""
    script = "from testbed.core import interruption; interruption.listen(); import os, signal\n"
    for name in ("INT", "HUP"):
        told = f"os.kill(os.getpid(), signal.SIG{name}); interruption.check(); print('goes on')"
        ignoring = ["env", f"--ignore-signal={name}", sys.executable, "-c", script + told]
        assert subprocess.run(ignoring, capture_output=True, text=True, check=False).stdout == "goes on\n"


COMMANDS = {  # what each says once it has begun to wait
    "testbed": ["run", "--on", "flow", "--jobs", "8", "--iterations", "100000", "--alone", "none"],
    "workloads": ["record", "--", "sh", "-c", "echo waits >&2; exec sleep 600"],
    "testbed.transports": [
        "tcp",
        "receive",
        "--bind",
        "127.0.0.2",
        "--peer",
        "127.0.0.3",
        "--port",
        "7399",
        "--wait",
        "600s",
    ],
}


@contextlib.contextmanager
def started(words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A command of this checkout in a group of its own, which is over after the block."""
    process = subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, "-P", "-m", *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("package", COMMANDS)
def test_an_interrupted_command_ends_with_its_code(package: str, tmp_path: Path) -> None:
    """Each package's commands, from its import on."""
    with started([package, *COMMANDS[package]], tmp_path) as process:
        assert process.stderr is not None
        if package != "testbed.transports":  # which waits without a word
            process.stderr.readline()
            time.sleep(1)  # until it waits for what it started
        else:
            time.sleep(3)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == EXIT_INTERRUPTED, errors
        assert "Traceback" not in errors


@pytest.mark.parametrize("command", [testbed.cli.main, testbed.transports.cli.main])
def test_every_main_ends_with_the_code_of_an_interruption(
    command: Callable[[list[str]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_anything: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", asked)
    assert command(["schema"]) == EXIT_INTERRUPTED


def test_a_command_that_ends_keeps_its_code() -> None:
    assert interruption.guarded(lambda: EXIT_OK) == EXIT_OK


def test_an_interruption_while_python_compiles_text_ends_with_its_code(tmp_path: Path) -> None:
    """Of a module (``python -m``) Python notes it by itself, and would end by SIGINT."""
    program = "import sys\nfrom testbed.core import interruption\nsys.exit(interruption.guarded(lambda: exec('raise KeyboardInterrupt')))\n"
    (tmp_path / "interrupted.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == EXIT_INTERRUPTED


def test_only_an_interruption_among_runs_says_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def computing() -> int:
        raise KeyboardInterrupt

    def running() -> int:
        with interruption.keeping("finished runs"):
            return computing()

    for command, kept in ((computing, False), (running, True), (computing, False)):
        interruption.listen()
        assert interruption.guarded(command) == EXIT_INTERRUPTED
        assert ("finished runs" in capsys.readouterr().err) is kept


JOBS = "gpu_num,submit_time,duration\n" + "".join(
    f"{1 + n % 8},2020-04-01 {n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d},{60 + n * 13 % 900}\n"
    for n in range(20_000)
)


@pytest.mark.parametrize(
    ("words", "runs"),
    [(["schedule", "jobs.csv", "--servers", "20", "--gpus", "8"], False), (COMMANDS["testbed"], True)],
)
def test_a_computed_schedule_has_no_runs_to_keep(words: Sequence[str], runs: bool, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    with started(["testbed", *words], tmp_path) as process:
        if runs:
            assert process.stderr is not None
            process.stderr.readline()
        time.sleep(2)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == EXIT_INTERRUPTED, errors
        assert (driver.KEPT in errors) is runs, errors


BUILD = """
import sys
from pathlib import Path
from testbed.core import start
from testbed.transports.datagram import native
from testbed.transports.datagram.native.__main__ import main
native.path = lambda: Path(sys.argv[1])
sys.exit(start.ended(main))
"""


@pytest.mark.parametrize("number", NUMBERS)
def test_an_interrupted_build_of_the_core_ends_with_its_code(number: signal.Signals, tmp_path: Path) -> None:
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(f"#!/bin/sh\n: > {tmp_path}/begun\nexec sleep 60\n")
    compiler.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, "-c", BUILD, tmp_path / "built" / "core.so"], env=environment, start_new_session=True,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            processes.until((tmp_path / "begun").exists, process.poll)
            os.killpg(process.pid, number)
            _, errors = process.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == EXIT_INTERRUPTED, errors
    assert "Traceback" not in errors
    assert not list((tmp_path / "built").iterdir())


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("moment", "code"),
    [
        ("sys.meta_path.insert(0, type('Finder', (), {'find_spec': lambda *_: end()})())", EXIT_INTERRUPTED),  # its first import
        ("atexit.register(end)", EXIT_OK),  # while Python exits
    ],
    ids=["import", "exit"],
)  # fmt: skip
def test_a_command_is_guarded_from_its_first_import_to_its_exit(
    moment: str, code: int, number: signal.Signals, tmp_path: Path
) -> None:
    program = (
        "import atexit, os, sys\nfrom testbed.core import start\n"
        f"def end():\n    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != 'Finder']\n    os.kill(os.getpid(), {int(number)})\n"
        f"def work():\n    {moment}\n    import wave\n    return {EXIT_OK}\nsys.exit(start.ended(work))\n"
    )
    done = subprocess.run(
        [*INTERRUPTIBLE, sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
