"""A command at a pseudo-terminal, as somebody types into it, and the recorded sessions of the documentation."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import HANG_S
from tests.support.runs import ROOT

PROMPT = "mininet> "
SILENCE_S = 10.0  # after which a key is taken for lost


@dataclass
class Session:
    """A running command; ``text`` is what it has printed."""

    process: subprocess.Popen[bytes]
    master: int
    text: str = ""
    seen: int = field(default=0, repr=False)

    def until(self, wanted: str) -> str:
        """What it prints up to ``wanted``, for which this waits; fails at its end, or if it hangs."""
        deadline = time.monotonic() + HANG_S
        while (at := self.text.find(wanted, self.seen)) < 0:
            assert time.monotonic() < deadline, self.text
            assert self._more(), self.text
        printed, self.seen = self.text[self.seen : at], at + len(wanted)
        return printed

    def rest(self) -> str:
        """What it prints until it ends."""
        while self._more():
            pass
        printed, self.seen = self.text[self.seen :], len(self.text)
        self.process.wait()
        return printed

    def press(self, key: str, wanted: str) -> None:
        """Press a key, and again after each silence, until ``wanted`` is printed.

        Python's readline prints its prompt first and listens for signals a moment later, so that Ctrl-C may be lost.
        """
        deadline = time.monotonic() + HANG_S
        self.type(key)
        while self.text.find(wanted, self.seen) < 0:
            assert time.monotonic() < deadline, self.text
            if not self._more(SILENCE_S):
                self.type(key)
        self.until(wanted)

    def _more(self, within_s: float = HANG_S) -> bool:
        if not select.select([self.master], [], [], within_s)[0]:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # nobody has the terminal open any more
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def type(self, line: str) -> None:
        """Type a line, or a key such as Ctrl-C."""
        os.write(self.master, line.encode() if line < " " else f"{line}\n".encode())


@contextmanager
def session(arguments: Sequence[str], folder: Path) -> Iterator[Session]:
    """``mltcp`` with these arguments at a terminal of 100 columns; ended with the block."""
    master, slave = pty.openpty()
    mode = termios.tcgetattr(slave)
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "100"}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", sys.executable, "-P", "-m", "testbed", *arguments], cwd=folder,
        stdin=slave, stdout=slave, stderr=slave, env=environment,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Session(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def recorded(page: str, number: int) -> tuple[str, list[tuple[str, str]]]:
    """Of the session ``number`` of a page of docs/: how it was started, and each line that was typed with what was printed."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    start, *exchanges = blocks[number].split(PROMPT)
    typed = [exchange.partition("\n") for exchange in exchanges]
    return start.strip().removeprefix("$ "), [(line, printed) for line, _, printed in typed]


def alike(printed: str, wanted: str) -> bool:
    """Whether it is what was recorded, whatever its numbers and spaces are; a line with … stands for any lines."""
    pattern = r".*".join(map(re.escape, _normal(wanted).split(_normal("…"))))
    return re.fullmatch(pattern, _normal(printed), re.DOTALL) is not None


def _normal(text: str) -> str:
    return " ".join(re.sub(r"\d+(\.\d+)*", "0", text).split())
