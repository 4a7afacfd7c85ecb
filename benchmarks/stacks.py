"""Repeat the runs of `experiments/stacks.toml` in ns-3, and in htsim if its source is given, for the figure ``stacks``.

``python -m benchmarks.stacks results [--htsim PATH]``, after ``mltcp sweep experiments/stacks.toml``. Each run is repeated
with its jobs' starts and compute times, and the same rate, frames, buffer and marks. ns-3 is the PyPI package ``ns3``, in
a separate environment below ``build/``; PATH is a checkout of github.com/Broadcom/csg-htsim. Both need g++.

Writes ``analysis/beyond/stacks.csv``, from which the figure is drawn without either, and the mean iterations of `VARIANTS`,
which change one thing at a time, next to it.
Runs are kept below ``build/stacks`` and not repeated. Needs no privilege.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pandas as pd

from benchmarks import virtual_time
from testbed.core.environment import ROOT
from testbed.core.runs.load import Run
from testbed.report.study import load_study

BUILD = Path(ROOT) / "build" / "stacks"
TABLE, VARIED = Path(ROOT) / "analysis/beyond/stacks.csv", Path(ROOT) / "analysis/beyond/stacks.variants.csv"
ETHERNET = 14
NS3_MODULES = ("core", "network", "internet", "point-to-point", "traffic-control")
LINE = re.compile(r"\d+ \d+ \d+ \d+ \d+")  # others are htsim's own
# by stack: the changed property, and its settings (those of the C++ programs)
VARIANTS: dict[str, dict[str, dict[str, int]]] = {
    "ns-3": {"no delayed ACKs": {"delayed_acks": 0}, "window cut at once": {"gradual_cwr": 0}},
    "htsim": {
        "slow start after idle": {"slow_start_after_idle": 1},
        "frames of 9 kB": {"mtu": 9000, "buffer_packets": 34, "mark_packets": 7},
        "marks at departure": {"mark_at_dequeue": 1},
        "marks at departure (RTT 0.3 ms)": {"mark_at_dequeue": 1, "link_delay_ns": 50_000},
    },
}
VARIED_IN_NS3 = [(8, 1), (8, 2), (8, 3)]  # jobs and seed: a run takes 10 to 15 s of processor time there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of results that holds the runs of experiments/stacks.toml")
    parser.add_argument(
        "--htsim", type=Path, metavar="PATH", help="checkout of csg-htsim (default: no comparison with htsim)"
    )
    parser.add_argument("--no-variants", action="store_true", help="only the runs, without variants")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="number of concurrent runs (default: 1)")
    asked = parser.parse_args()
    runs = load_study(asked.results, "stacks").runs
    if not runs:
        sys.exit(
            f"{asked.results} holds no runs of experiments/stacks.toml. Run them first: mltcp sweep experiments/stacks.toml"
        )
    programs = {"ns-3": build_ns3()}
    if asked.htsim is not None:
        programs["htsim"] = BUILD / "htsim"
        virtual_time.build_htsim(asked.htsim, "stacks_htsim.cpp", programs["htsim"], ("ecnqueue.cpp",))
    with ThreadPoolExecutor(asked.jobs) as pool:
        parts = list(pool.map(lambda one: _repeat(*one), _wanted(runs, programs, plain=asked.no_variants)))
    mean = ["stack", "variant", "jobs", "arm", "seed"]
    repeated = pd.concat(parts).assign(mean_s=lambda rows: rows["end_s"] - rows["start_s"])
    varied = repeated.groupby(mean, sort=False)["mean_s"].mean().reset_index()
    _keep(repeated[repeated["variant"] == ""].drop(columns=["variant", "mean_s"]), TABLE, programs)
    if not asked.no_variants:
        _keep(varied[varied["variant"] != ""], VARIED, programs)


def _keep(found: pd.DataFrame, table: Path, stacks: Collection[str]) -> None:
    """Replace the rows of ``stacks``, and leave those of others."""
    if table.is_file():
        others = pd.read_csv(table)
        found = pd.concat([others[~others["stack"].isin(list(stacks))], found])
    found.to_csv(table, index=False, float_format="%.4f")
    print(f"{table}: {len(found)} rows")


def build_ns3() -> Path:
    """The program of ns-3, compiled against the package."""
    virtual_time.install_ns3()
    (package,) = virtual_time.NS3.glob("lib/python3*/site-packages/ns3")
    libraries = [next((package / "lib64").glob(f"libns3*-{name}.so")) for name in NS3_MODULES]
    options = ["-std=c++20", f"-I{package / 'include'}", *map(str, libraries), f"-Wl,-rpath,{package / 'lib64'}"]
    virtual_time.build("stacks_ns3.cpp", BUILD / "ns3", options, f"ns-3 in {package}")
    return BUILD / "ns3"


def _wanted(
    runs: list[Run], programs: Mapping[str, Path], *, plain: bool
) -> list[tuple[Run, str, Path, str, dict[str, int]]]:
    """Return every run in every stack, and its variants: run, stack, program, variant, changed settings."""
    found = []
    for stack, program in programs.items():
        for run in runs:
            slow = stack == "ns-3" and (len(run.jobs), run.seed) not in VARIED_IN_NS3
            varied = {} if plain or slow else VARIANTS[stack]
            found += [(run, stack, program, variant, changed) for variant, changed in {"": {}, **varied}.items()]
    return sorted(found, key=lambda one: (bool(one[3]), one[0].seed))  # the runs themselves first


def _repeat(run: Run, stack: str, program: Path, variant: str, changed: Mapping[str, int]) -> pd.DataFrame:
    """One run in another stack: ``stack, variant, jobs, arm, seed, job, iteration, start_s, comm_start_s, end_s``."""
    settings = {**_settings(run), **changed}
    command = [str(program), *(f"{name}={value}" for name, value in settings.items())]
    given = _draws(run)
    name = sha256("\n".join([program.read_bytes().hex(), *command, given]).encode()).hexdigest()[:16]
    kept = BUILD / "runs" / f"{name}.txt"
    if not kept.is_file():
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("\n".join(line for line in done.stdout.splitlines() if LINE.fullmatch(line)))
    found = pd.read_csv(
        io.StringIO(kept.read_text()), sep=" ", names=["job", "iteration", "start_s", "comm_start_s", "end_s"]
    )
    found[["start_s", "comm_start_s", "end_s"]] /= 1e9
    arm = "paper" if settings["mltcp"] else "base"
    found = found.sort_values(["job", "iteration"])
    named = {"stack": stack, "variant": variant, "jobs": len(run.jobs), "arm": arm, "seed": run.seed}
    print(
        f"{stack} {variant or 'as it is'}: {len(run.jobs)} jobs, {arm}, seed {run.seed}: mean {(found['end_s'] - found['start_s']).mean():.3f} s",
        flush=True,
    )
    return pd.concat([pd.DataFrame(named, index=found.index), found], axis="columns")


def _settings(run: Run) -> dict[str, int]:
    """Return the settings of a run for the programs. Exits if they cannot repeat it."""
    link, job = run.plan.link, run.jobs[0]
    frame = link.mtu + ETHERNET
    if run.plan.topology != "dumbbell" or len(job.hosts) != 2 or job.channels != 1 or link.ecn_threshold is None:
        sys.exit(f"{run.path}: only jobs of one flow on a dumbbell that marks can be repeated in other simulators.")
    return {
        "rate_bps": link.rate_bps, "mtu": link.mtu, "buffer_packets": link.buffer_bytes // frame,
        "mark_packets": link.ecn_threshold.min_bytes // frame, "bytes": max(job.bytes_per_worker),
        "mltcp": int(run.role == "treatment"),
    }  # fmt: skip


def _draws(run: Run) -> str:
    """A line a job: its start and the compute time of each iteration, in ns."""
    rows = run.iterations[run.iterations["worker"] == 0].sort_values(["job", "iteration"])
    lines = []
    for _, mine in rows.groupby("job"):
        times = [mine["start_s"].iloc[0], *(mine["comm_start_s"] - mine["start_s"])]
        lines.append(" ".join(str(round(1e9 * seconds)) for seconds in times))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
