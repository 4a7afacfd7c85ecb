"""A page in headless Chromium that a test runs scripts in, by the DevTools protocol over a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.browser import BROWSER
from tests.support.processes import HANG_S

_STARTER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class Page:
    """A tab. Methods return once the browser has done what was asked."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest, self._number = b"", 0
        self.console: list[str] = []  # errors and whatever else the page says there
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        done = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + HANG_S
        while not self.run(condition):
            assert time.monotonic() < end, f"not so after {HANG_S} s: {condition}; the console: {self.console}"
            time.sleep(0.02)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        data = json.dumps(asked).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            told = self._read()
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                return dict(told["result"])
            if told.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                self.console.append(json.dumps(told["params"])[:2000])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], HANG_S)
            piece = os.read(self._answers, 1 << 20) if ready else b""
            assert piece, "the browser does not answer"
            self._rest += piece
        told, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(told))


@contextlib.contextmanager
def page(folder: Path, *flags: str) -> Iterator[Page]:
    """A new tab of a browser whose profile is in ``folder``; it ends with the block."""
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()

    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}",
        "--no-first-run", *flags,
    ]  # fmt: skip
    # Chromium reads commands from descriptor 3 and writes answers to 4. Numbers from 20 on are in no one's way meanwhile.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out)]
    starter = [sys.executable, "-c", _STARTER, *map(str, ends), *command]
    with open(folder / "chromium.log", "wb") as log:
        process = subprocess.Popen(starter, pass_fds=ends, stdout=log, stderr=log)
    try:
        for end in (theirs_in, theirs_out, *ends):
            os.close(end)
        yield Page(commands, answers)
    finally:
        os.close(commands)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
