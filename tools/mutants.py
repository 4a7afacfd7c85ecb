"""Measure whether the tests detect faults: ``make mutants`` (ARGS="--only f-constant", ARGS=--list).

``tools/mutants.toml`` holds 40 deliberate faults. For each one, in a copy of the checkout, the unit tests of its area
run, then three short runs in user-mode Linux (``tests/data/mutants/*.toml``), which must be valid and give the same
bytes as without the fault. The first failure ends it. A surviving fault is checked by the quick set: no claim may get
another verdict.

The copy, its kernel modules and ``results.csv`` lie below ``build/mutants``. A stopped command continues with the next
fault: a row stays while the fault and its file are the same, and for a survivor while the checkout is the same. Exit
code 1: less than 90 % are caught, or one fault is undecided or does not build.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as `python tools/mutants.py`

from testbed.backends.usermode import kernel  # noqa: E402
from testbed.core import children  # noqa: E402
from tools import golden  # noqa: E402

FAULTS = ROOT / "tools" / "mutants.toml"
BUILD = ROOT / "build" / "mutants"
TREE = BUILD / "tree"
RESULTS, REFERENCE = BUILD / "results.csv", BUILD / "reference.json"
PLANS = Path("tests/data/mutants")
RUNS = ("congestion", "transports", "schedulers")
TABLES = (*golden.TABLES, "messages.csv")
# Files that can change the result of a fault.
SOURCES = (
    "kernel/",
    "testbed/",
    "topologies/",
    "workloads/",
    "analysis/",
    "tests/",
    "vagrant/",
    "experiments/",
    "pyproject.toml",
)
LEAST_CAUGHT = 0.9
LIMIT_S = 180.0
HANGS = 3.0  # factor of a stage's duration without a fault
NO_LIMIT_S = 24 * 3600.0
CAUGHT, SURVIVED, UNDECIDED, DOES_NOT_BUILD = "caught", "survived", "undecided", "does not build"


@dataclass(frozen=True)
class Mutant:
    """One fault: ``new`` replaces ``old`` in ``file``."""

    id: str
    area: str
    file: str
    old: str
    new: str
    breaks: str

    def applied(self, text: str) -> str:
        """The file's text with the fault; raises `ValueError` unless the fault applies exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.id}: {self.file} holds {self.old!r} {count} times, and it must hold it once.")
        return text.replace(self.old, self.new)

    def key(self) -> str:
        """Changes with the fault and with its file."""
        return hashlib.sha256(f"{astuple(self)} {(ROOT / self.file).read_text()}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Row:
    """The result of one fault."""

    mutant: str
    result: str
    caught_by: str
    seconds: float
    file: str
    breaks: str
    key: str
    tree: str


@dataclass(frozen=True)
class Reference:
    """The runs without a fault: their bytes, and how long each stage took."""

    tree: str
    digests: dict[str, dict[str, str]]
    seconds: dict[str, float]


class StageError(Exception):
    """A stage noticed something; the message names it."""


class BuildError(Exception):
    """The fault does not compile."""


class LimitError(Exception):
    """The time is up, after so many seconds in this stage."""

    def __init__(self, stage: str, seconds: float) -> None:
        super().__init__(stage)
        self.stage, self.seconds = stage, seconds


def read(path: Path = FAULTS) -> tuple[dict[str, list[str]], list[Mutant]]:
    """The unit tests of each area, and the faults."""
    found = tomllib.loads(path.read_text())
    return found["area"], [Mutant(**one) for one in found["mutant"]]


def tracked() -> list[str]:
    """The checkout's files, whether committed or not."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def copy_tree() -> str:
    """Update the copy, without any fault; return a digest of `SOURCES`."""
    digest = hashlib.sha256()
    names = tracked()
    wanted = set(names)
    for name in names:
        content = (ROOT / name).read_bytes()
        if name.startswith(SOURCES):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        target = TREE / name
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    for path in [path for path in TREE.rglob("*") if path.is_file() and path.suffix != ".pyc"]:
        name = str(path.relative_to(TREE))
        if name.startswith(SOURCES) and name not in wanted:
            path.unlink()
    return digest.hexdigest()[:12]


def copy_kernel() -> None:
    """The user-mode kernel in a separate cache, so that modules with a fault stay out of the usual one."""
    found = kernel.find()
    target = BUILD / "cache" / "mltcp" / "uml" / found.folder.name
    if not (target / "kernel.json").is_file():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(
            found.folder, target, symlinks=True, ignore=lambda folder, _: ["modules"] if Path(folder) == found.folder else []
        )  # fmt: skip
        (target / "modules").mkdir(exist_ok=True)


def environment() -> dict[str, str]:
    """Commands find the copy, and their own cache."""
    own = {"PYTHONPATH": str(TREE), "XDG_CACHE_HOME": str(BUILD / "cache")}
    return {key: value for key, value in os.environ.items() if key != "MLTCP_CACHE"} | own


def run(words: Sequence[str], limit_s: float, stage: str) -> tuple[int, str]:
    """Run Python in the copy; its exit code and output. Raises `LimitError`."""
    process = subprocess.Popen(
        [sys.executable, *words], cwd=TREE, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    with process, children.ended_with_us(process.pid):
        try:
            output, _ = process.communicate(timeout=max(1.0, limit_s))
        except subprocess.TimeoutExpired as error:
            raise LimitError(stage, limit_s) from error
        finally:
            end(process)
    return process.returncode, output


def end(process: subprocess.Popen[str]) -> None:
    """End a command and all that it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def faulty(mutant: Mutant) -> Iterator[None]:
    """The copy has this fault."""
    path = TREE / mutant.file
    sound = path.read_text()
    path.write_text(mutant.applied(sound))
    try:
        yield
    finally:
        path.write_text(sound)


def build(file: str, limit_s: float) -> None:
    """Build the requirements of tests and runs, as `make setup` does, and the product of ``file``.

    Raises `BuildError`.
    """
    steps = [["-m", "testbed.transports.datagram.native"]]
    if file.startswith("kernel/"):
        steps.append(["-c", "from testbed.backends.usermode import kernel; kernel.find().modules()"])
    elif file.endswith(".py"):
        steps.append(["-c", f"compile(open({file!r}).read(), {file!r}, 'exec')"])
    for words in steps:
        code, output = run(words, limit_s, "build")
        if code:
            raise BuildError(output[-2000:])


def unit_tests(paths: Sequence[str], limit_s: float) -> None:
    """Raises `StageError` with the first test that fails."""
    words = ["-m", "pytest", "--slow", *paths, "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    code, output = run([*words, "-n", str(len(os.sched_getaffinity(0))), "--dist", "loadgroup"], limit_s, "unit")
    if failed := re.search(r"^FAILED (\S+)", output, re.MULTILINE):
        raise StageError(failed[1])
    if code:
        raise BuildError(output[-2000:])  # no test was reached


def short_run(name: str, limit_s: float) -> dict[str, str]:
    """The digests of one run's tables; raises `StageError` where it fails or is not valid."""
    out = BUILD / "runs"
    shutil.rmtree(out / name, ignore_errors=True)
    plan = str(PLANS / f"{name}.toml")
    code, _ = run(["testbed/run.py", plan, "--on", "uml", "--name", name, "--out", str(out)], limit_s, f"run {name}")
    if code not in (0, 4):
        raise StageError(f"run {name}: code {code}")
    digests = {}
    for verdict in sorted((out / name).rglob("verdict.json")):
        if (found := json.loads(verdict.read_text())["verdict"]) != "valid":
            raise StageError(f"run {name}: {found}")
        for table in (verdict.parent / table for table in TABLES):
            if table.is_file():
                content = golden.measured(table.read_text())
                digests[str(table.relative_to(out / name))] = hashlib.sha256(content).hexdigest()
    return digests


def quick_set(experiments: Sequence[str]) -> dict[str, str]:
    """The verdict of each claim; the sweep's exit code is one of them."""
    out = TREE / "results" / "quick"
    shutil.rmtree(out, ignore_errors=True)
    cores = str(len(os.sched_getaffinity(0)))
    code, _ = run(["-m", "testbed", "sweep", *experiments, "--quick", "--on", "uml", "-j", cores, "--out", str(out)], NO_LIMIT_S, "quick set")  # fmt: skip
    run(["-m", "analysis", "report", str(out), "--out", str(out / "report.html"), "--figures", str(out / "figures")], NO_LIMIT_S, "quick set")  # fmt: skip
    found = {"exit code of the sweep": str(code)}
    if (claims := out / "claims.csv").is_file():
        with claims.open(newline="") as file:
            found |= {
                row.get("id") or f"{row['figure']}: {row['claim']}": row["verdict"] for row in csv.DictReader(file)
            }
    return found


def reference(tree: str, areas: Mapping[str, Sequence[str]], chosen: Sequence[Mutant]) -> Reference:
    """Check that the checkout without a fault passes every stage of these faults. Else no fault can be judged.

    Runs have to repeat to the byte. Otherwise a difference in bytes does not indicate a fault.
    """
    made = Reference(tree, {}, {})
    with contextlib.suppress(OSError, ValueError, TypeError):
        if (kept := Reference(**json.loads(REFERENCE.read_text()))).tree == tree:
            made = kept
    build("kernel/mltcp.h", NO_LIMIT_S)
    stages: dict[str, Callable[[], dict[str, str] | None]] = {
        f"run {name}": partial(short_run, name, NO_LIMIT_S) for name in RUNS
    }
    stages |= {
        f"unit {area}": partial(unit_tests, areas[area], NO_LIMIT_S) for area in sorted({one.area for one in chosen})
    }
    for stage, call in stages.items():
        if stage in made.seconds:
            continue
        begun = time.monotonic()
        try:
            found = call()
            if found is not None and call() != found:
                raise StageError("two runs have other bytes")
        except (StageError, BuildError) as error:
            raise SystemExit(f"{stage}: the checkout fails it without any fault ({error}). Mend that first.") from error
        if found is not None:
            made.digests[stage] = found
        made.seconds[stage] = round((time.monotonic() - begun) / (1 if found is None else 2), 1)
        REFERENCE.write_text(json.dumps(asdict(made), indent=1) + "\n")
        print(f"without a fault: {stage} passes, {made.seconds[stage]:.0f} s", flush=True)
    return made


def tried(mutant: Mutant, areas: Mapping[str, Sequence[str]], sound: Reference, limit_s: float) -> tuple[str, str]:
    """The result, and what caught the fault."""
    ends = time.monotonic() + limit_s

    def left() -> float:
        return ends - time.monotonic()

    with faulty(mutant):
        try:
            build(mutant.file, left())
            unit_tests(areas[mutant.area], left())
            for name in RUNS:
                digests = short_run(name, left())
                if digests != sound.digests[f"run {name}"]:
                    raise StageError(f"run {name}: other bytes")
        except StageError as error:
            return CAUGHT, str(error)
        except BuildError as error:
            print(f"{mutant.id} does not build:\n{error}", file=sys.stderr)
            return DOES_NOT_BUILD, ""
        except LimitError as error:
            # A fault that makes a stage hang is caught; a slow machine gives no result.
            stage = f"unit {mutant.area}" if error.stage == "unit" else error.stage
            hangs = error.seconds >= HANGS * sound.seconds.get(stage, math.inf)
            return (CAUGHT, f"{stage}: hangs") if hangs else (UNDECIDED, f"{stage}: time is up")
    return SURVIVED, ""


def survivor(mutant: Mutant, experiments: Sequence[str], sound: Mapping[str, str]) -> tuple[str, str]:
    """Check a surviving fault by the quick set."""
    with faulty(mutant):
        build(mutant.file, NO_LIMIT_S)
        found = quick_set(experiments)
    changed = [claim for claim in sound if found.get(claim) != sound[claim]]
    return (CAUGHT, f"quick set: {changed[0]}") if changed else (SURVIVED, "")


def kept_rows() -> dict[str, Row]:
    """Return the rows of the last command, by mutant."""
    if not RESULTS.is_file():
        return {}
    with RESULTS.open(newline="") as file:
        return {row["mutant"]: Row(**{**row, "seconds": float(row["seconds"])}) for row in csv.DictReader(file)}  # type: ignore[arg-type]


def still_holds(row: Row | None, mutant: Mutant, tree: str) -> bool:
    """Return True if the fault need not be tried again."""
    if row is None or row.key != mutant.key():
        return False
    return row.result == CAUGHT or (row.result == SURVIVED and row.tree == tree)


def write_rows(rows: Mapping[str, Row], order: Sequence[Mutant]) -> None:
    """Replace the file atomically, so that a stop leaves it complete."""
    new = RESULTS.with_suffix(".new")
    with new.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        writer.writerows(astuple(rows[mutant.id]) for mutant in order if mutant.id in rows)
    new.replace(RESULTS)


def summary(rows: Sequence[Row]) -> tuple[str, bool]:
    """A table and a closing line; and whether enough faults are caught."""
    lines = [f"{row.mutant:26} {row.result:15} {row.seconds:7.1f} s  {row.caught_by}".rstrip() for row in rows]
    caught = sum(row.result == CAUGHT for row in rows)
    lines.append(f"{caught} of {len(rows)} faults are caught ({100 * caught / max(1, len(rows)):.0f} %).")
    for row in rows:
        if row.result != CAUGHT:
            lines.append(f"{row.mutant} ({row.result}): {row.breaks} {row.file}")
    decided = all(row.result in (CAUGHT, SURVIVED) for row in rows)
    return "\n".join(lines), decided and caught >= LEAST_CAUGHT * len(rows)


def main() -> int:
    areas, mutants = read()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list of the faults; nothing is run")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="ID",
        choices=[mutant.id for mutant in mutants],
        help="faults to test (default: all)",
    )
    parser.add_argument("--again", action="store_true", help="repetition of faults that are in results.csv")
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT_S,
        metavar="S",
        help="time limit of each fault in seconds (default: %(default)s)",
    )
    parser.add_argument("--no-quick-set", action="store_true", help="no quick set for surviving faults")
    parser.add_argument(
        "--experiments", nargs="+", metavar="TOML", help="experiments of the quick set (default: experiments/*.toml)"
    )
    asked = parser.parse_args()
    chosen = [mutant for mutant in mutants if not asked.only or mutant.id in asked.only]
    if asked.list:
        print("\n".join(f"{mutant.id:26} {mutant.file}: {mutant.breaks}" for mutant in chosen))
        return 0
    BUILD.mkdir(parents=True, exist_ok=True)
    tree = copy_tree()
    copy_kernel()
    rows = kept_rows()
    to_try = [mutant for mutant in chosen if asked.again or not still_holds(rows.get(mutant.id), mutant, tree)]
    if to_try:
        sound = reference(tree, areas, to_try)
    for mutant in to_try:
        begun = time.monotonic()
        result, caught_by = tried(mutant, areas, sound, asked.limit)
        rows[mutant.id] = Row(
            mutant.id, result, caught_by, round(time.monotonic() - begun, 1), mutant.file, mutant.breaks, mutant.key(), tree
        )  # fmt: skip
        write_rows(rows, mutants)
        print(f"{mutant.id}: {result} {caught_by}".rstrip(), flush=True)
    alive = [mutant for mutant in to_try if rows[mutant.id].result == SURVIVED]
    if alive and not asked.no_quick_set:
        experiments = asked.experiments or sorted(
            str(path.relative_to(ROOT)) for path in ROOT.glob("experiments/*.toml")
        )
        print(
            f"{len(alive)} survivors meet the quick set ({len(experiments)} experiments), after the checkout.",
            flush=True,
        )
        claims = quick_set(experiments)
        for mutant in alive:
            result, caught_by = survivor(mutant, experiments, claims)
            rows[mutant.id] = Row(**{**asdict(rows[mutant.id]), "result": result, "caught_by": caught_by})
            write_rows(rows, mutants)
    text, enough = summary([rows[mutant.id] for mutant in chosen])
    print(text)
    print(f"Table: {RESULTS.relative_to(ROOT)}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
