"""How far `--on flow` is from `--on uml`, mix by mix (benchmarks/flow_mixes/mixes.toml; docs/twin.md).

``python -m benchmarks.flow_validation --emulate`` runs what benchmarks/flow_mixes/measured.csv lacks under virtual time, one run after
the other, and adds its rows; it can be interrupted and goes on where it ended. Without ``--emulate`` the flow simulator computes all
mixes anew and the errors are printed.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import testbed

HERE = Path(__file__).parent / "flow_mixes"
MEASURED = HERE / "measured.csv"
COLUMNS = ("mix", "system", "seed", "job", "mean_s", "settled_mean_s", "verdict")


@dataclass(frozen=True)
class Mix:
    """Jobs on a network; ``fields`` are an experiment's."""

    name: str
    held_out: bool
    fields: dict[str, Any]


def mixes() -> list[Mix]:
    content = tomllib.loads((HERE / "mixes.toml").read_text())
    common = {name: value for name, value in content.items() if name != "mix"}
    return [_mix(common, dict(each)) for each in content["mix"]]


def _mix(common: dict[str, Any], own: dict[str, Any]) -> Mix:
    jobs = []
    for job in own.pop("job"):
        job = dict(job)
        copies = job.pop("copies", 1)
        if job.get("trace", "").endswith(".json"):
            job["trace"] = str(HERE / job["trace"])
        jobs += [job] * copies
    return Mix(own.pop("name"), own.pop("set") == "held out", {**common, **own, "job": jobs})


def means(iterations: pd.DataFrame) -> Iterator[tuple[int, float, float]]:
    """Of each job: its mean iteration, and that of the second half of its iterations."""
    own = iterations[iterations["worker"] == 0].sort_values("iteration")
    for job, rows in own.groupby("job"):
        times = (rows["end_s"] - rows["start_s"]).to_numpy()
        yield int(str(job)), float(times.mean()), float(times[len(times) // 2 :].mean())


def emulate() -> None:
    """Run what is missing, the first seed of all mixes first."""
    if not MEASURED.exists():
        MEASURED.write_text(",".join(COLUMNS) + "\n")
    with MEASURED.open(newline="") as file:
        there = {(row["mix"], row["system"], int(row["seed"])) for row in csv.DictReader(file)}
    every = mixes()
    for seed in range(1, max(mix.fields["seeds"] for mix in every) + 1):
        for mix in every:
            for system in mix.fields["system"]:
                if (mix.name, system, seed) in there or seed > mix.fields["seeds"]:
                    continue
                asked = mix.fields | {"system": [system], "seeds": [seed], "on": "uml"}
                with tempfile.TemporaryDirectory() as folder:
                    results = testbed.run(out=folder, **asked)
                    rows = [
                        (mix.name, system, seed, job, f"{mean_s:.6f}", f"{settled_s:.6f}", results.verdict)
                        for job, mean_s, settled_s in means(results.table("iterations"))
                    ]
                with MEASURED.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows)
                print(f"{mix.name}, {system}, seed {seed}: {results.verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emulate", action="store_true", help="runs that are missing, under virtual time")
    asked = parser.parse_args()
    if asked.emulate:
        emulate()


if __name__ == "__main__":
    main()
