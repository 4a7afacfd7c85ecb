"""Every command, given what nobody means: one paragraph, code 2 or 3, soon, and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Program, what stands before the hostile argument, and after it.
COMMANDS: dict[str, tuple[str, list[str], list[str]]] = {
    "run FILE": ("testbed", ["run"], ["--dry-run"]),
    "run --topo": ("testbed", ["run", "--dry-run", "--topo"], []),
    "run --topo .py": ("testbed", ["run", "--dry-run", "--topo"], [".py"]),
    "run --trace": ("testbed", ["run", "--dry-run", "--trace"], []),
    "run --place": ("testbed", ["run", "--dry-run", "--place"], []),
    "run --job": ("testbed", ["run", "--dry-run", "--job"], []),
    "run --cc": ("testbed", ["run", "--dry-run", "--cc"], []),
    "run --rate": ("testbed", ["run", "--dry-run", "--rate"], []),
    "run --name": ("testbed", ["run", "--dry-run", "--name"], []),
    "run --on": ("testbed", ["run", "--dry-run", "--on"], []),
    "run --set": ("testbed", ["run", "--dry-run", "--set"], []),
    "run --start-offsets": ("testbed", ["run", "--dry-run", "--start-offsets"], []),
    "run --verify": ("testbed", ["run", "--verify"], []),
    "sweep": ("testbed", ["sweep", "--dry-run"], []),
    "judge": ("testbed", ["judge"], []),
    "cc load": ("testbed", ["cc", "load"], []),
    "cc unload": ("testbed", ["cc", "unload"], []),
    "import": ("workloads", ["import"], ["-o", "imported.json"]),
    "import -o": ("workloads", ["import", "table.csv", "-o"], []),
    "show": ("workloads", ["show"], []),
    "show --out": ("workloads", ["show", "s2", "--out"], []),
    "record --out": ("workloads", ["record", "-o"], ["--", "true"]),
    "figures": ("analysis", ["figures"], []),
    "report": ("analysis", ["report"], []),
    "compare": ("analysis", ["compare"], ["."]),
}


@pytest.fixture(scope="module")
def hostile_words(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hostile")
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    return {
        "no UTF-8": "caf\udce9", "empty": "", "NUL": "a\0b", "5000 characters": "x" * 5000, "5000 of .json": "x" * 4995 + ".json",
        "a folder": str(folder), "a FIFO": str(fifo), "an endless device": "/dev/zero", "digits": "9" * 5000,
        "an escape": "\x1b]0;x\x07", "a path": "../" * 1000 + "etc/passwd", "mathtext": "$\\frac{$",
    }  # fmt: skip


def answers(name: str, lines: list[list[str]], folder: Path) -> list[dict[str, object]]:
    """What ``python -m NAME`` says to each of these command lines, in a process with little memory."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.hostile"], input=json.dumps([name, *lines]), env=environment, cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(lines), f"no answer to {lines[len(found)]!a:.300}: {done.stderr[-3000:]}"
    return found


def check(line: list[str], found: dict[str, object], codes: tuple[int, ...]) -> None:
    said = str(found["said"])
    assert found["code"] in codes, (line, found)
    assert "Traceback" not in said
    assert said.strip(), line
    assert len(said.strip().splitlines()) <= 12, said
    assert len(said) < 5000, (line, said)
    assert "x" * 81 not in said, (line, said)
    assert "9" * 81 not in said, (line, said)
    assert not {"\x1b", "\0"} & {*said, *str(found["printed"])}, (line, found)
    assert "\0" not in said, (line, said)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_argument(command: str, hostile_words: dict[str, str], tmp_path: Path) -> None:
    program, before, after = COMMANDS[command]
    (tmp_path / "table.csv").write_text("operation,kind\n")
    if after == [".py"]:
        lines = [[*before, word + ".py"] for word in hostile_words.values()]
    else:
        lines = [[*before, word, *after] for word in hostile_words.values()]
    # Where a name is odd but possible: there is nothing to draw, or `true` trains nothing.
    codes = (1, 2) if program == "analysis" or command == "record --out" else (2, 3)
    for line, found in zip(lines, answers(program, lines, tmp_path), strict=True):
        check(line, found, codes)


def trace(**change: object) -> str:
    operations = [{"id": "a", "kind": "compute", "duration": "1ms"}, {"id": "b", "kind": "all_reduce", "bytes": "1MB"}]
    whole = {"version": 1, "name": "t", "model": "m", "source": {"kind": "synthetic"}, "operations": operations}
    return json.dumps(whole | change)


def many(count: int) -> list[dict[str, str]]:
    return [{"id": f"c{number}", "kind": "compute", "duration": "1us"} for number in range(count)]


FILES = {
    "dots.toml": "a" + ".a" * 100_000 + " = 1\n",
    "digits.toml": f"jobs = {'9' * 5000}\n",
    "deep.toml": f"cc = {'[' * 20_000}{']' * 20_000}\n",
    "large.toml": "# " + "x" * 2_000_000 + "\n",
    "nul.toml": 'trace = "a\\u0000b"\n',
    "list.toml": '[sweep]\nrate = ["100mbit", ["1gbit"]]\nname = "x"\n',
    "lists.toml": '[sweep]\njobs = [2, [3, [4]]]\n',
    "named.toml": 'name = ["x"]\n[sweep]\njobs = [2, 3]\n',
    "job.toml": '[sweep]\njob = [[["s2"]], ["s2", ["s2"]]]\n',
    "many.toml": "[sweep]\n" + "".join(f"{field} = {list(range(1, 61))}\n" for field in ("jobs", "seed", "mtu", "seeds")),
    "base.toml": 'base = "/dev/zero"\n',
    "long.toml": f'base = "{"x" * 5000}"\n',
    "place.toml": 'place = "/dev/zero"\n',
    "rate0.json": trace(native_rate="0bit"),
    "rate1.json": trace(native_rate="1bit", operations=[{"id": "b", "kind": "all_reduce", "bytes": "1GB"}]),
    "timeless.json": trace(operations=[{"id": "a", "kind": "compute", "duration": "0ns"}]),
    "many.json": trace(operations=many(20_001)),
    "deep.json": "[" * 100_000,
}  # fmt: skip


def test_hostile_files_and_values(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    os.mkfifo(tmp_path / "pipe.json")
    run, sweep = ["run", "--dry-run"], ["sweep", "--dry-run"]
    lines = [[*sweep, name] for name in FILES if name.endswith(".toml")]
    lines += [[*run, "--keep-duty", "--trace", f"./{name}"] for name in (*FILES, "pipe.json") if name.endswith(".json")]
    lines += [[*run, "--place", name] for name in ("/dev/zero", "pipe.json", "dots.toml", "deep.json")]
    lines += [[*run, "--job", job] for job in ("cmd:echo 'odd", 'ddp:"', "cmd:", "s2,workers=" + "9" * 5000)]
    lines += [[*run, "--bytes", "1e999999999B", "--compute", "1s"], [*run, "--compute", "1e99999999999999999999s"]]
    lines += [[*run, "--cc", f"cassini:step={step}"] for step in ("1e999999999", "1e-999999999", "1/0")]
    lines += [[*run, "--set", "link.s1-s2.rate=" + "9" * 5000 + "%"], [*run, "--topo", "dumbbell," + "9" * 4200]]
    lines += [[*run, "--set", "jobs" + ".a" * 50_000 + "=1"]]
    for line, found in zip(lines, answers("testbed", lines, tmp_path), strict=True):
        check(line, found, (2, 3))


def test_hostile_traces_are_shown_or_refused(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    os.mkfifo(tmp_path / "pipe.json")
    refused = [
        ["show", f"./{name}"] for name in (*FILES, "pipe.json") if name.endswith(".json") and name != "rate1.json"
    ]
    refused += [["show", "s2", "--rate", "0bit"], ["show", "s2", "--workers", "9" * 5000]]
    for line, found in zip(refused, answers("workloads", refused, tmp_path), strict=True):
        check(line, found, (2,))
    (tmp_path / "markup.json").write_text(trace(name="$\\frac{$[/nope]../up", model="\x1b]0;x\x07"))
    (tmp_path / "most.json").write_text(trace(operations=many(20_000)))
    shown = answers("workloads", [["show", "./markup.json"], ["show", "./most.json"]], tmp_path)
    assert [(one["code"], one["said"]) for one in shown] == [(0, "")] * 2
    assert not any("\x1b" in str(one["printed"]) for one in shown)
    assert {path.name for path in tmp_path.glob("*.png")} == {"frac_nope_.._up.png", "t.png"}
