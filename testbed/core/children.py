"""Processes that this one starts, and that end with it, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from testbed.core import interruption

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2
PATIENCE_S = 120.0  # seconds for a program to end its children after a signal to end
GRACE_S = 5.0  # seconds for a program to end without a further signal: Ctrl-C in a terminal reaches it, too

_libc = ctypes.CDLL(None)  # loaded before a process forks


def end_with(number: int) -> None:
    """Have this process sent a signal when its parent ends.

    For the kernel the parent is the thread that started this process.
    """
    _libc.prctl(PR_SET_PDEATHSIG, number)


def end_with_sudo() -> None:
    """End this process when its parent sudo is killed; sudo cannot forward SIGKILL."""
    if "SUDO_UID" in os.environ:
        end_with(signal.SIGTERM)


def ended_with() -> int:
    """Return the signal number set by `end_with`; 0 if there is none (prctl(2), PR_GET_PDEATHSIG)."""
    number = ctypes.c_int()
    _libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value


def ends_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a ``preexec_fn`` after which the kernel sends the new process signal ``number`` when this process ends."""
    parent = os.getpid()

    def begin() -> None:
        end_with(number)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return begin


# End of file on stdin without a byte: the owner of the group is gone.
ENDER = """
import os, signal, sys
if not sys.stdin.read():
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
"""


@contextlib.contextmanager
def ended_with_us(group: int) -> Iterator[None]:
    """Should this process be killed, so is every process of that group: a small one watches it."""
    command = [sys.executable, "-I", "-S", "-c", ENDER, str(group)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as ender:
        assert ender.stdin is not None
        try:
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):
                ender.stdin.write(b"ended")
                ender.stdin.flush()


def run(
    command: Sequence[str], *, env: Mapping[str, str], stdin: int | None = None, stdout: IO[str] | int | None = None,
    stderr: IO[str] | None = None, in_terminal: bool = False,
) -> int:  # fmt: skip
    """Run ``command`` to its end and return its exit code, as `subprocess` reports it. Raises `OSError` if it cannot
    be started.

    If this process receives a signal to end, it ends the command first: by SIGTERM, then by SIGKILL. If this process is
    killed, the kernel sends the command SIGTERM. ``in_terminal``: the command stays in this process's group, so that
    signals of the terminal reach it.
    """
    with interruption.deferred():
        process = subprocess.Popen(
            command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=not in_terminal,
            preexec_fn=ends_with_parent(signal.SIGTERM),  # noqa: PLW1509
        )  # fmt: skip
    try:
        return process.wait()
    except BaseException:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S if in_terminal else 0)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
        raise
