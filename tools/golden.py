"""Record and check the bytes that a refactoring must not change.

    .venv/bin/python tools/golden.py record        # write tests/data/golden/digests.json
    .venv/bin/python tools/golden.py check         # run again and compare; code 1: other bytes, 3: another kernel
    .venv/bin/python tools/golden.py check 02-mltcp-reno 22-events

Runs every plan of ``tests/data/golden/*.toml`` in user-mode Linux, with one seed, and digests the tables: each without
its header and without the column that names the system. Together the plans use every topology, congestion control,
collective, scheduler and queue. Another build of the user-mode kernel gives other bytes, so its identity is recorded
and compared first.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLANS = ROOT / "tests" / "data" / "golden"
DIGESTS = PLANS / "digests.json"
TABLES = ("iterations.csv", "operations.csv", "links.csv", "flows.csv")
NAMES_THE_SYSTEM = ("cc", "system")
# The same words, the same bytes; an image also holds when it was built.
KERNEL = ("version", "source", "config_sha256", "compiler")

Digests = dict[str, str]  # of each table of a plan's runs, by "<run>/<table>"


def measured(table: str) -> bytes:
    """A table's rows without its header and without the column that names the system."""
    header, *rows = csv.reader(io.StringIO(table))
    kept = [index for index, name in enumerate(header) if name not in NAMES_THE_SYSTEM]
    return "".join(",".join(row[index] for index in kept) + "\n" for row in rows).encode()


def same_kernel(recorded: Mapping[str, str], kernel: Mapping[str, str]) -> bool:
    return all(recorded[key] == kernel[key] for key in KERNEL)


def digests_of(experiment: Path) -> tuple[Digests, dict[str, str]]:
    """Return the digests of all runs below an experiment's folder (one system, one seed), and the kernel that made
    them."""
    found: Digests = {}
    kernel: dict[str, str] = {}
    for manifest in sorted(experiment.rglob("manifest.json")):
        run = manifest.parent
        words = run.relative_to(experiment).parts
        name = "/".join(words[:2]) if words[0] == "isolated" else "contended"
        for table in TABLES:
            found[f"{name}/{table}"] = hashlib.sha256(measured((run / table).read_text())).hexdigest()
        identity = json.loads(manifest.read_text())["uml"]
        kernel = {key: identity[key] for key in sorted(identity) if isinstance(identity[key], str)}
    return found, kernel


def carry_out(plan: Path, out: Path, source: Path | None = None) -> tuple[Digests, dict[str, str]]:
    """Run one plan as a user would, on the kernel of ``source`` or the usual one."""
    command = [sys.executable, str(ROOT / "testbed" / "run.py"), str(plan), "--on", "uml", "--alone", "first",
               "--name", plan.stem, "--out", str(out), "--quiet",
               *(() if source is None else ("--linux-source", str(source)))]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 4):
        raise SystemExit(f"{plan.name}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return digests_of(out / plan.stem)


def run_all(
    names: Sequence[str], parallel: int, source: Path | None = None
) -> tuple[dict[str, Digests], dict[str, str]]:
    """The digests of these plans (all, if none is named), and the kernel that ran them."""
    plans = sorted(PLANS / f"{name}.toml" for name in names) if names else sorted(PLANS.glob("*.toml"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(parallel) as pool:
        results = list(pool.map(lambda plan: carry_out(plan, Path(folder), source), plans))
    kernels = {json.dumps(kernel, sort_keys=True) for _, kernel in results}
    assert len(kernels) == 1, "two kernels in one go"
    return {plan.stem: digests for plan, (digests, _) in zip(plans, results, strict=True)}, results[0][1]


def differences(before: Mapping[str, Digests], now: Mapping[str, Digests]) -> list[str]:
    """Return a line for each table that differs."""
    keys = [(plan, table) for plan in sorted({*before, *now}) for table in sorted({*before.get(plan, {}), *now.get(plan, {})})]  # fmt: skip
    return [
        f"{plan}: {table} is not what it was"
        for plan, table in keys
        if before.get(plan, {}).get(table) != now.get(plan, {}).get(table)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "check"])
    parser.add_argument("plans", nargs="*", help="plans to run (default: all)")
    parser.add_argument("-j", "--parallel", type=int, default=len(os.sched_getaffinity(0)))
    parsed = parser.parse_args()
    if parsed.action == "record" and DIGESTS.exists():
        parser.error(
            f"{DIGESTS.relative_to(ROOT)} exists already. If a change of its bytes is intended, remove the file and state the reason in the commit"
        )
    now, kernel = run_all(parsed.plans, parsed.parallel)
    if parsed.action == "record":
        DIGESTS.write_text(json.dumps({"kernel": kernel, "plans": now}, indent=1) + "\n")
        print(f"{len(now)} plans recorded in {DIGESTS.relative_to(ROOT)}")
        return 0
    recorded = json.loads(DIGESTS.read_text())
    if not same_kernel(recorded["kernel"], kernel):
        print(f"recorded with {recorded['kernel']}, run with {kernel}: other bytes are to be expected", file=sys.stderr)
        return 3
    lines = differences({plan: recorded["plans"].get(plan, {}) for plan in parsed.plans or recorded["plans"]}, now)
    print("\n".join(lines) or f"{len(now)} plans: the same bytes")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
