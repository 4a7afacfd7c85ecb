"""The README's first command on this machine's real clock, several times, next to user-mode Linux: results and reasons.

``sudo .venv/bin/python tools/real_clock.py [TIMES] [--busy] [FLAGS…]``. By ``sudo`` the reference on `uml` runs as the
caller, with the caller's kernel. Root itself needs a separate kernel (``mltcp kernel``). ``--busy`` keeps one core busy
meanwhile. Further flags go to every run (``--rate 100mbit``). Results stay in ``build/real_clock``; the table is Markdown.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMMAND = ["testbed/run.py", "--topo", "dumbbell", "--jobs", "4"]
BUSY = "while True: pass"


def main(words: list[str]) -> None:
    times = int(words.pop(0)) if words and words[0].isdecimal() else 10
    busy = "--busy" in words
    flags = [word for word in words if word != "--busy"]
    out = ROOT / "build/real_clock"
    shutil.rmtree(out, ignore_errors=True)
    with _busy(busy):
        reference = _run("uml", out / "uml", flags)
        print(f"{times} times {'with one core kept busy' if busy else 'quiet'}: {' '.join([*COMMAND, *flags])}\n")
        print(
            "| run | attempts | verdict | disturbed | Reno last 10 ÷ ideal | without disturbed | MLTCP-Reno | without disturbed | why |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        _row("uml", reference)
        usable = 0
        for number in range(1, times + 1):
            found = _run("host", out / f"host{number}", flags)
            usable += found["summary"]["verdict"] != "invalid"
            _row(f"host {number}", found)
    print(f"\nNot invalid after --retries: {usable} of {times}")


@contextlib.contextmanager
def _busy(wanted: bool) -> Iterator[None]:
    """One core kept busy; ends with this process, however that ends."""
    if not wanted:
        yield
        return
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-c", BUSY]) as hog:
        try:
            yield
        finally:
            hog.kill()


def _run(backend: str, out: Path, flags: list[str]) -> dict[str, Any]:
    """One experiment: its summary, and of each of its runs the manifest and the verdict."""
    command = [
        sys.executable,
        *COMMAND,
        *flags,
        "--on",
        backend,
        "--out",
        str(out),
        "--name",
        "one",
        "--json",
        "--quiet",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    runs = [
        {"manifest": json.loads(path.read_text()), "verdict": json.loads((path.parent / "verdict.json").read_text())}
        for path in sorted((out / "one").rglob("manifest.json"))
    ]
    return {"summary": json.loads(done.stdout), "runs": runs}


def _row(name: str, found: dict[str, Any]) -> None:
    summary, runs = found["summary"], found["runs"]
    disturbed = [row.get("disturbed_iterations", 0) / (row["jobs"] * row["iterations"]) for row in summary["results"]]
    numbers = [
        text
        for row in summary["results"]
        for text in (_ratio(row, "last10_mean_s"), _ratio(row, "undisturbed_last10_mean_s"))
    ]
    attempts = "/".join(str(len(run["manifest"]["attempts"])) for run in runs)
    why = sorted(
        {
            f"{row['id']} {row['name']} {row['value']:.3g}"
            for run in runs
            for row in run["verdict"]["invariants"]
            if row["status"] == summary["verdict"] != "valid"
        }
    )
    share = ", ".join(f"{each:.0%}" for each in disturbed)
    print(
        f"| {name} | {attempts} | {summary['verdict']} | {share} | {' | '.join(numbers)} | {'; '.join(why)} |",
        flush=True,
    )


def _ratio(row: dict[str, Any], key: str) -> str:
    return f"{row[key] / row['ideal_s']:.3f}" if row.get(key) else "–"


if __name__ == "__main__":
    main(sys.argv[1:])
