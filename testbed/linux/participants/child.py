"""A process of a run, and the protocol to it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn, Protocol, TypeVar

from testbed.core.environment import PACKAGES
from testbed.core.errors import TestbedError
from testbed.linux import netns
from testbed.linux.participants.copies import Copy

SELECTABLE = 1024  # select(2) accepts smaller descriptors only


def child_environment() -> dict[str, str]:
    """What processes of a run see of the caller's environment: nothing but where the code is."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": PACKAGES,
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }


@dataclass(frozen=True)
class Module:
    """One of our modules as a process: a separate Python that starts fast, or a fork of this one."""

    name: str
    copied: bool = False

    @property
    def words(self) -> list[str]:
        return [sys.executable, "-S", "-P", "-m", self.name]


def ending(code: int) -> str:
    """How a process ended, by its exit code; negative: the signal that killed it."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


class Process(Protocol):
    """Of `subprocess.Popen` what `Child` asks."""

    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def kill(self) -> None: ...


class Words(Protocol):
    """The stderr of a process; read after it has ended."""

    def fileno(self) -> int: ...
    def seek(self, offset: int, /) -> object: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...


class Child:
    """A process of the run that communicates in lines of JSON; ``what`` names it in messages."""

    def __init__(
        self, what: str, command: list[str] | Module, *, namespace: int | None = None, pass_fds: list[int] | None = None,
        environment: dict[str, str] | None = None, reading: int | None = None, words: Words | None = None,
    ) -> None:  # fmt: skip
        """``reading``: where it answers, if not on stdout, which then goes where ``words`` takes it, as stderr does."""
        self.what, self.reading = what, reading
        self.pending = b""
        self.errors: Words = words or tempfile.TemporaryFile(dir="/dev/shm")  # noqa: SIM115 (closed by `close`)
        try:
            with netns.entered(namespace) if namespace is not None else contextlib.nullcontext():
                self.process: Process
                if isinstance(command, Module) and command.copied:
                    self.process = Copy(command.name, self.errors.fileno(), pass_fds or [])
                else:
                    self.process = subprocess.Popen(
                        command.words if isinstance(command, Module) else command, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE if reading is None else self.errors.fileno(), stderr=self.errors.fileno(),
                        env=child_environment() | (environment or {}), pass_fds=pass_fds or [],
                    )  # fmt: skip
        except OSError as error:
            raise TestbedError(f"{what} cannot be started: {error}") from error

    def fileno(self) -> int:
        if self.reading is not None:
            return self.reading
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def tell(self, message: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.died()

    def lines(self) -> list[Any]:
        """The complete lines that it has written; waits for some. Raises `TestbedError` if the process has ended."""
        data = os.read(self.fileno(), 65536)
        if not data:
            self.died()
        *complete, self.pending = (self.pending + data).split(b"\n")
        return [json.loads(line) for line in complete]

    def died(self) -> NoReturn:
        """Describe how the process ended."""
        code = self.process.wait()
        self.errors.seek(0)
        words = self.errors.read().decode(errors="replace").strip().splitlines()
        early = " too early: it must go on until the run ends" if code == 0 else ""
        raise TestbedError(f"{self.what} {ending(code)}{early}" + (f": {words[-1]}" if words else ""))

    def was_killed(self) -> bool:
        return (self.process.poll() or 0) < 0

    def kill(self) -> None:
        """Without waiting for it."""
        self.process.kill()

    def close(self) -> None:
        """Kill it and close everything that led to it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if self.reading is not None:
            os.close(self.reading)


class HasFile(Protocol):
    """An object with a file descriptor."""

    def fileno(self) -> int: ...


File = TypeVar("File", bound=HasFile)


def readable(files: Sequence[File], patience_s: float) -> list[File]:
    """Return the files that can be read now, in the given order; wait for the first at most ``patience_s``.

    Descriptors from `SELECTABLE` on need poll(2), which rounds ``patience_s`` up to milliseconds.
    """
    if all(file.fileno() < SELECTABLE for file in files):
        return select.select(files, [], [], patience_s)[0]
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    found = {descriptor for descriptor, _ in poll.poll(1000 * patience_s)}
    return [file for file in files if file.fileno() in found]
