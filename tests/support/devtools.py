"""A page in headless Chromium, driven by DevTools messages over a pipe: real clicks and keys, no port, no waiting by time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.browser import BROWSER
from tests.support.processes import HANG_S

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "PageUp": 33, "PageDown": 34, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}  # fmt: skip
UNTIL = """new Promise(found => { const look = () => (%s) ? found(true) : requestAnimationFrame(look); look(); })"""


class Page:
    """One tab. Coordinates are CSS pixels."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.to_browser, self.from_browser = to_browser, from_browser
        self.numbers = itertools.count(1)
        self.heard = b""
        self.console: list[str] = []  # errors, warnings, and what was refused
        self.session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        """A command's result; raises `AssertionError` where the browser refuses it."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.heard:
            assert select.select([self.from_browser], [], [], HANG_S)[0], "the browser does not answer"
            piece = os.read(self.from_browser, 1 << 16)
            assert piece, "the browser ended"
            self.heard += piece
        first, _, self.heard = self.heard.partition(b"\0")
        return dict(json.loads(first))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"].get("exception", {}).get("description")))
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.console.append(str(params["args"]))

    def resize(self, width: int, height: int = 844) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def open(self, url: str, ready: str) -> None:
        """Load ``url`` in the place of what is there, and wait until ``ready`` (an expression) is true."""
        self.send("Page.navigate", url="about:blank")  # else another fragment of the same page does not load it
        self.until("location.href == 'about:blank'")
        self.send("Page.navigate", url=url)
        self.until(f"location.href != 'about:blank' && document.readyState == 'complete' && ({ready})")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is, a promise awaited."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait for ``condition``; a page that loads meanwhile is looked at anew."""
        while True:
            found = self.send("Runtime.evaluate", expression=UNTIL % condition, awaitPromise=True)
            if "exceptionDetails" not in found:
                return

    def click(self, selector: str, across: float = 0.5) -> None:
        """Click an element, ``across`` its width."""
        x, y = self.value(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView({{block: 'center'}});"
            f" const box = one.getBoundingClientRect(); return [box.left + {across} * box.width, box.top + box.height / 2]; }})()"
        )
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            self.send(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind != "mouseMoved" else "none", buttons=buttons, clickCount=1
            )  # fmt: skip

    def press(self, *keys: str) -> None:
        for key in keys:
            code = KEYS.get(key, ord(key[0].upper()))
            text = {} if key in KEYS else {"text": key}
            self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A tab of a browser of its own, whose profile is in ``folder``; the browser is gone afterwards."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    words = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}", "about:blank",
    ]  # fmt: skip
    script = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'  # the pipes have these numbers
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", str(commands), str(answers), *words],
        pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(commands)
    os.close(answers)
    try:
        page = Page(to_browser, from_browser)
        yield page
        page.session = None
        with contextlib.suppress(AssertionError, OSError):
            page.send("Browser.close")
    finally:
        os.close(to_browser)  # at which it ends, too
        os.close(from_browser)
        process.wait(HANG_S)
