"""The same bytes, whoever runs it, wherever, beside whatever else."""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.backends import uml
from testbed.backends.usermode import kernel
from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.core.runs.load import TABLES
from testbed.linux import features
from testbed.transports.datagram import native
from tests.support.runs import DEFAULT, ROOT, cli, one_plan, run_plan, some

# Random loss, jitter and marking: everything the kernel draws a number for.
RANDOM: dict[str, Any] = {
    "cc": ["mltcp_reno"], "iterations": 3, "compute": "50ms", "bytes": "3MB", "rate": "300mbit",
    "delay": "1ms", "jitter": "0.2ms", "loss": "0.3%", "ecn": "10kB,60kB,20%", "noise": "2%", "buffer": "100kB",
}  # fmt: skip
# The same of a transport of its own, whose packets a thread of each worker makes.
LOSSY: dict[str, Any] = {
    "system": ["ltp"], "topo": "star", "jobs": 1, "workers": 4, "collective": "parameter_server", "iterations": 3, "compute": "5ms",
    "bytes": "300kB", "rate": "300mbit", "delay": "2ms", "jitter": "0.2ms", "loss": "1%", "noise": "2%", "buffer": "100kB",
}  # fmt: skip
MLT = {
    **LOSSY,
    "system": ["mlt"],
    "topo": "leafspine,2,2,2",
    "collective": "sharded_parameter_server",
}  # with bands that drop, and every path
ASKED = {"mltcp_reno": RANDOM, "ltp": LOSSY, "mlt": MLT}
EVERY = {**ASKED, "optireduce": {**LOSSY, "system": ["optireduce"]}}
BOTH = pytest.mark.parametrize("system", some(ASKED, "mltcp_reno", mark=pytest.mark.slow))


def flags(system: str) -> list[str]:
    pairs = ((f"--{key}", value if isinstance(value, list) else [value]) for key, value in EVERY[system].items())
    return ["--on", "uml", "--quiet", "--name", "x", *(str(word) for key, words in pairs for word in (key, *words))]


FLAGS = flags("mltcp_reno")


@functools.cache
def reference(system: str = "mltcp_reno") -> dict[str, bytes]:
    return tables(run_plan(uml.find(), **DEFAULT | ASKED[system]).files)


def tables(files: dict[str, bytes]) -> dict[str, bytes]:
    assert files.keys() >= set(TABLES)
    return {name: content for name, content in files.items() if name.endswith(".csv")}


def run(
    out: Path, system: str = "mltcp_reno", *, script: Path = ROOT / "testbed/run.py", **options: object
) -> dict[str, bytes]:
    done = subprocess.run(
        [*options.pop("before", []), sys.executable, str(script), *flags(system), "--alone", "none", "--out", str(out)],  # type: ignore[misc]
        capture_output=True, text=True, check=False, **options,  # type: ignore[call-overload]
    )  # fmt: skip
    assert "Verdict" in done.stdout, done.stderr
    return tables({path.name: path.read_bytes() for path in (out / "x" / system / "1").iterdir()})


def test_it_lost_and_marked_at_random() -> None:
    links = reference()["links.csv"].decode().splitlines()
    assert any(int(line.split(",")[5]) > 0 for line in links[1:])
    assert reference()["flows.csv"].decode().splitlines()[-1].split(",")[7] != "0"


def test_it_lost_of_gradients_alone_or_of_both() -> None:
    messages = pd.read_csv(io.BytesIO(reference("ltp")["messages.csv"]))
    assert set(messages[messages["missing"] > 0]["stage"]) == {"gradient"}
    assert messages["resent"].sum() > 0
    messages = pd.read_csv(io.BytesIO(reference("mlt")["messages.csv"]))
    assert set(messages[messages["missing"] > 0]["stage"]) == {"gradient", "parameter"}


@pytest.mark.parametrize("system", some(ASKED, "mltcp_reno", "mlt", mark=pytest.mark.slow))
def test_two_at_a_time_are_identical(system: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            results = list(pool.map(lambda _: run_plan(uml.find(), **DEFAULT | ASKED[system]).files, range(3)))
        finally:
            busy.kill()
            busy.wait()
    for files in results:
        assert tables(files) == reference(system)


@BOTH
def test_another_seed_is_another_run(system: str) -> None:
    assert tables(run_plan(uml.find(), seed=2, **DEFAULT | ASKED[system]).files) != reference(system)


def test_how_often_one_looks_does_not_matter() -> None:
    """Who samples does not move the clock: all times agree to the nanoseconds that it takes to hear what each job got."""
    seldom = run_plan(uml.find(), **DEFAULT | RANDOM | {"sample_interval": "70ms"}).files
    often = run_plan(uml.find(), **DEFAULT | RANDOM | {"sample_interval": "1ms"}).files
    assert often["flows.csv"].count(b"\n") > 50 * seldom["flows.csv"].count(b"\n")
    for name in ("iterations.csv", "operations.csv"):
        here, there = (pd.read_csv(io.BytesIO(files[name])) for files in (seldom, often))
        pd.testing.assert_frame_equal(here, there, rtol=0, atol=2e-8)


@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.long) for size in (0, 4_100, 9_000)), 32_000])
def test_the_environment_does_not_matter(size: int, tmp_path: Path) -> None:
    environment = {key: os.environ[key] for key in ("HOME", "PATH", "XDG_CACHE_HOME") if key in os.environ}
    filling = {f"FILLING_{i}": "x" * min(1000, size - 1000 * i) for i in range((size + 999) // 1000)}
    assert run(tmp_path, env={**environment, **filling}, cwd=tmp_path) == reference()


@pytest.fixture
def strange_checkout(tmp_path: Path) -> Path:
    """A copy of the checkout, at a path with blanks and letters beyond ASCII, without an environment of its own."""
    copy = tmp_path / "ein Prüfstand, 測試"
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", "ls-files", "-z"], capture_output=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.decode().split("\0")[:-1]:
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


def test_any_path_read_only(strange_checkout: Path, tmp_path: Path) -> None:
    for path in [strange_checkout, *strange_checkout.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert run(tmp_path / "out", script=strange_checkout / "testbed/run.py", cwd=tmp_path) == reference()
    finally:
        for path in [strange_checkout, *strange_checkout.rglob("*")]:
            path.chmod(0o755)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@BOTH
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: what runs here is unprivileged already")
def test_an_unprivileged_user_gets_the_same(system: str, strange_checkout: Path, open_folder: Path) -> None:
    """As `nobody`, with the checkout, what is built there, the kernel and Python where it may read them."""
    base = open_folder
    core = native.build()
    shutil.copytree(core.parent, strange_checkout / "build" / core.parent.name)
    shutil.move(strange_checkout, base)
    strange_checkout = base / strange_checkout.name
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    if subprocess.run([*nobody, sys.executable, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip(f"`nobody` may not run {sys.executable}: a checkout in a home folder that others may not enter")
    cache = base / "cache"
    found = kernel.find()
    found.modules()
    shutil.copytree(found.folder, cache / "mltcp" / "uml" / found.folder.name, symlinks=True)
    out = base / "out"
    out.mkdir()
    for folder in (cache, out):
        subprocess.run(["chmod", "-R", "a+rwX", str(folder)], check=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(base), "XDG_CACHE_HOME": str(cache)}
    got = run(out, system, script=strange_checkout / "testbed/run.py", cwd=out, env=environment, before=nobody)
    assert got == reference(system)


@pytest.mark.parametrize(
    "system", some(["mltcp_reno", "ltp", "mlt", "optireduce"], "mltcp_reno", mark=pytest.mark.slow)
)
def test_verify_repeats_a_run(system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, system, cwd=tmp_path)
    folder = tmp_path / "x" / system / "1"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["uml"]["version"] and manifest["uml"]["compiler"] and len(manifest["digest"]) == 64
    assert main(["run", "--verify", str(folder)]) == EXIT_OK
    assert "identical to the byte" in capsys.readouterr().out
    (folder / "flows.csv").write_text((folder / "flows.csv").read_text().replace("1", "2", 1))
    assert main(["run", "--verify", str(folder)]) == EXIT_REQUEST
    assert "were changed after the run" in capsys.readouterr().err
    assert main(["run", "--verify", str(tmp_path)]) == EXIT_REQUEST
    assert "holds several runs" in capsys.readouterr().err


def test_auto_goes_where_it_can(tmp_path: Path) -> None:
    """Delay where this kernel has no netem, or nobody is root: user-mode Linux, and it says how fast."""
    flags = [word for word in FLAGS if word not in ("--on", "uml")]
    done = cli(*[word for word in flags if word != "--quiet"], cwd=tmp_path)
    assert done.returncode == EXIT_OK, done.stderr
    if os.geteuid() != 0 or not features.supported("netem"):
        assert "x on uml: 2 jobs" in done.stdout
        assert "wall time (2 runs)" in done.stdout


def test_a_plan_says_all_there_is_to_repeat() -> None:
    assert one_plan(**DEFAULT | RANDOM).wires["s2-r1"].loss == 0.003


def test_a_run_is_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what it has stored: the same verdict, whatever stood there; not if its tables are others."""
    folder = tmp_path / "x/mltcp_reno/1"
    assert cli(*FLAGS, "--out", str(tmp_path), cwd=tmp_path).returncode == EXIT_OK
    first = (folder / "verdict.json").read_text()
    changed = json.loads(first)
    (folder / "verdict.json").write_text(json.dumps({**changed, "verdict": "invalid"}))
    assert main(["judge", str(tmp_path)]) == EXIT_OK
    said = capsys.readouterr().out
    assert f"{folder}: invalid, now {changed['verdict']}" in said and "2 runs judged" in said
    assert (folder / "verdict.json").read_text() == first
    (folder / "links.csv").write_text("t_s\n")
    assert main(["judge", str(folder)]) == EXIT_REQUEST
    assert "run it again" in capsys.readouterr().err
    assert (folder / "verdict.json").read_text() == first
