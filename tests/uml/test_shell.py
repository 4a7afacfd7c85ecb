"""`mltcp shell` and `mltcp run --pause-at` under virtual time: the session of docs/how-to/shell.md, and the same bytes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.backends import uml, visit
from testbed.backends.progress import patience
from testbed.backends.visit import LeftError, Visit
from testbed.core.errors import EXIT_INTERRUPTED, EXIT_OK
from testbed.core.runs import rundir
from testbed.core.runs.events import Output, Prompt
from testbed.core.runs.shell import Answer, ShellRequest
from tests.support import processes
from tests.support.runs import ROOT, one_plan, run_plan
from tests.support.terminals import PROMPT, alike, recorded, session

Answering = Callable[[Prompt | Output], Answer]
SMALL: dict[str, Any] = {"jobs": 2, "iterations": 2, "compute": "50ms", "bytes": "3MB", "rate": "300mbit", "cc": ["reno"]}  # fmt: skip
FLAGS = [
    "--on",
    "uml",
    "--jobs",
    "2",
    "--iterations",
    "2",
    "--compute",
    "50ms",
    "--bytes",
    "3MB",
    "--rate",
    "300mbit",
    "--system",
    "reno",
]


def visited(*lines: str, **request: Any) -> tuple[dict[str, bytes], str]:
    """A run's tables, and what its shell printed, when these lines were typed."""
    typed, printed = iter(lines), []

    def answer(event: Prompt | Output) -> Answer:
        printed.append(event.text)
        return Answer(next(typed, None)) if isinstance(event, Prompt) else Answer()

    plan = one_plan(**SMALL)
    shell = Visit(ShellRequest(str(ROOT), **request), answer)
    files = rundir.unpack(uml.find().run(plan, lambda event: None, patience(plan), shell))
    return {name: content for name, content in files.items() if name.endswith(".csv")}, "".join(printed)


def undisturbed() -> dict[str, bytes]:
    files = run_plan(uml.find(), **SMALL).files
    return {name: content for name, content in files.items() if name.endswith(".csv")}


def test_a_run_from_the_shell_has_the_same_bytes() -> None:
    """Also where one looked, and where it paused."""
    reference = undisturbed()
    assert visited("run")[0] == reference
    tables, printed = visited("net", "links", "pause 200ms", "nodes", "run")
    assert tables == reference
    assert "l1 l1-eth0:s1-eth1" in printed and "l1 l2 r1 r2 s1 s2" in printed
    assert visited(at_start=False, pause_ns=10**8)[0] == reference  # the end of what is typed: it goes on


def test_waiting_for_an_answer_takes_no_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the kernel is not stopped at once: on a busy machine it asks for a while before."""

    def late(_pid: int, answer: Answering) -> Answering:
        def slow(event: Prompt | Output) -> Answer:
            time.sleep(1)
            return answer(event)

        return slow

    monkeypatch.setattr(visit, "while_stopped", late)
    assert visited("run", at_start=False, pause_ns=10**8)[0] == undisturbed()


def test_what_takes_time_comes_before_the_run() -> None:
    """Commands may take any time; the run begins later, with the network as they left it."""
    tables, printed = visited("l1 ping -i 5 -c 3 r1", "link s1 s2 down", "l1 ping -c 1 r1", "link s1 s2 up", "run")
    assert "3 received" in printed and "Unreachable" in printed
    assert tables["iterations.csv"].count(b"\n") == undisturbed()["iterations.csv"].count(b"\n")


def test_in_a_pause_time_goes_on_for_commands_that_wait() -> None:
    _, printed = visited("pause 100ms", "l1 ss -Htn state established", "l1 sleep 0.05", "pause 120ms", "run")
    assert "10.0.0.9:5001" in printed
    assert "the run is at 0.1" in printed


def test_nodes_keep_a_shell_as_in_mininet() -> None:
    _, printed = visited("l1 cd /tmp", "l1 pwd", "py l1.cmd('x=$((6*7)); echo $x')", "py net.get('r1').IP()", "sh echo outside",
                         "l1 false; echo code $?", "nonsense", "px print(l1.name)", "l1 sleep 100 &", "py l1.lastPid > 1", "run")  # fmt: skip
    for words in (
        "/tmp\n",
        "42\n",
        "10.0.0.9\n",
        "outside\n",
        "code 1\n",
        "Unknown command: nonsense",
        "l1\n",
        "True\n",
    ):
        assert words in printed


def test_left_it_leaves_no_results() -> None:
    with pytest.raises(LeftError) as left:
        visited("exit")
    assert not left.value.paused
    with pytest.raises(LeftError) as left:
        visited("pause 100ms", "exit")
    assert left.value.paused


def test_the_recorded_session(tmp_path: Path) -> None:
    """At a terminal: what docs/how-to/shell.md shows."""
    start, exchanges = recorded("how-to/shell.md", 0)
    _, *arguments = shlex.split(start)
    with session(arguments, tmp_path) as shell:
        printed = shell.until(PROMPT)
        for number, (line, wanted) in enumerate(exchanges):
            shell.type(line)
            last = number == len(exchanges) - 1
            printed = shell.rest() if last else shell.until(PROMPT)
            assert alike(printed, wanted), (line, printed)
    assert shell.process.returncode == EXIT_OK


def test_ctrl_c_ends_a_command_and_no_more(tmp_path: Path) -> None:
    with session(["shell", *FLAGS], tmp_path) as shell:
        shell.until(PROMPT)
        shell.type("l1 ping r1")  # without an end, at a second of virtual time each
        shell.until("icmp_seq=2")
        shell.type("\x03")
        assert "packets transmitted" in shell.until(PROMPT)
        shell.press("\x03", PROMPT)  # at the prompt it begins another line
        shell.type("exit")
        shell.rest()
    assert shell.process.returncode == EXIT_OK
    assert not list(tmp_path.rglob("manifest.json"))


def test_commands_from_a_pipe(tmp_path: Path) -> None:
    """With results that have a name of their own, and say what was typed."""
    command = [sys.executable, "-P", "-m", "testbed", "shell", *FLAGS, "--name", "x"]
    done = subprocess.run(
        command, input="l1 ping -c 1 r1\nrun\n", cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == EXIT_OK, done.stderr
    assert f"{PROMPT}l1 ping -c 1 r1\nPING 10.0.0.9" in done.stdout
    assert "typed-commands (I25)" in done.stdout and "Verdict: suspect" in done.stdout
    assert (tmp_path / "results/x-shell/reno/1/manifest.json").exists()


@pytest.mark.parametrize("after_s", [0.0, 1.0])
def test_killed_it_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    """While it waits for a line, and while a command runs."""
    before = set(processes.below())
    with session(["shell", *FLAGS], tmp_path) as shell:
        shell.until(PROMPT)
        if after_s:
            shell.type("l1 sleep 1000000")
            time.sleep(after_s)
        started = processes.below(shell.process.pid)
        shell.process.kill()
        shell.rest()
    processes.until(lambda: not set(processes.below()) - before, processes.below)
    assert not [path for path in Path("/tmp").glob(f"mltcp-{os.getuid()}-*") if _of(path, started)]
    assert not any(tmp_path.iterdir()) or not list(tmp_path.rglob("manifest.json"))


def _of(path: Path, started: dict[int, list[str]]) -> bool:
    """Whether one of these processes named that folder."""
    return any(str(path) in word for words in started.values() for word in words)


@pytest.mark.parametrize(
    ("command", "typed"), [(["run", "--pause-at", "100ms"], "exit\n"), (["shell"], "pause 100ms\nexit\n")]
)
def test_leaving_a_started_run_interrupts_it(tmp_path: Path, command: list[str], typed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "testbed", *command, *FLAGS], input=typed, cwd=tmp_path, capture_output=True,
        text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == EXIT_INTERRUPTED, done.stderr
    assert "its run ended without a verdict or files" in " ".join(done.stderr.split()) and "Verdict:" not in done.stdout
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_run_that_ends_before_its_pause_is_reported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "testbed", "run", "--pause-at", "10s", "--alone", "none", *FLAGS], cwd=tmp_path,
        input="exit\n", capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == EXIT_OK, done.stderr
    assert "no shell opened in reno/1, which ended before --pause-at 10s" in done.stderr


def test_round_trips_are_as_expected(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "testbed", "ping", "--on", "uml", "--jobs", "1", "--delay", "3ms"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == EXIT_OK, done.stderr
    assert done.stdout.splitlines()[2].split() == ["l1", "–", "6.004", "6.000"]
