"""A page in headless Chromium, as a phone shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.processes import HANG_S

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE = 390
POLICY = (
    """<meta http-equiv="Content-Security-Policy" content="default-src data: 'unsafe-inline'">"""  # else a complaint
)
LOOK = """<script>addEventListener("load", () => parent.postMessage([innerWidth, document.documentElement.scrollWidth], "*"))</script>"""
FRAME = f"""<iframe src="page.html" style="width: {PHONE}px; height: 844px"></iframe>
<script>onmessage = heard => document.title = JSON.stringify(heard.data)</script>"""  # no window is as narrow as a phone


def looked_at(page: str, folder: Path) -> tuple[list[int], list[str]]:
    """A page on a phone: the window's width and the document's, and what the console says (of anything loaded, too)."""
    (folder / "page.html").write_text(page.replace("<head>", f"<head>{POLICY}", 1) + LOOK)
    (folder / "frame.html").write_text(FRAME)
    done = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--hide-scrollbars",
         "--virtual-time-budget=5000", f"--user-data-dir={folder / 'profile'}", "--dump-dom", (folder / "frame.html").as_uri()],
        capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    found = re.search(r"<title>(\[.*?\])</title>", done.stdout)
    assert found, done.stderr
    return json.loads(found[1]), [line for line in done.stderr.splitlines() if "CONSOLE" in line]
