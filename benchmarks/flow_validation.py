"""Error of `--on flow` relative to `--on uml`, by mix (benchmarks/flow_mixes/mixes.toml;
docs/explanation/flow-simulator.md).

``python -m benchmarks.flow_validation --emulate`` runs the mixes that are missing in benchmarks/flow_mixes/measured.csv
under virtual time, one after the other, and adds their rows; it can be interrupted and continues at the next start.
Without ``--emulate`` the flow simulator computes every measured mix, and benchmarks/flow_mixes/errors.csv is written
again. ``--markdown`` prints the table of docs/explanation/flow-simulator.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import testbed
from testbed import spec
from testbed.backends import flow
from testbed.backends.progress import patience
from testbed.core.runs import rundir
from testbed.core.runs.plan import Plan
from testbed.models import validated_range
from testbed.planning import plan

HERE = Path(__file__).parent / "flow_mixes"
MEASURED, ERRORS = HERE / "measured.csv", HERE / "errors.csv"
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
    """Yield each job with its mean iteration in seconds, and that of the second half of its iterations."""
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


@dataclass(frozen=True)
class Compared:
    """The gain of a mix, mean iteration under the first system ÷ under the second, in the mean over jobs."""

    mix: str
    set: str
    outside: str  # names of the bounds that it is outside of
    seeds: int
    measured: float
    computed: float
    measured_settled: float
    computed_settled: float

    @property
    def error(self) -> float:
        return self.computed / self.measured - 1


def compare(mix: Mix, measured: pd.DataFrame) -> Compared:
    """Seed for seed: starts are the same."""
    seeds = sorted(measured.groupby("seed")["system"].nunique().loc[lambda systems: systems == 2].index)
    plans = [
        one
        for one in plan.plans(plan.resolve(spec.read(None, mix.fields | {"on": "flow"})))
        if one.seed in seeds
    ]  # fmt: skip
    rows = [(one.system.label, one.seed, *each) for one in plans for each in means(_simulated(one))]
    computed = pd.DataFrame(rows, columns=["system", "seed", "job", "mean_s", "settled_mean_s"])
    emulated = measured[measured["seed"].isin(seeds)]
    outside = dict.fromkeys(reason.bound for one in plans for reason in validated_range.check(one))
    gains = [gain(table, column) for column in ("mean_s", "settled_mean_s") for table in (emulated, computed)]
    return Compared(mix.name, "held out" if mix.held_out else "fitting", " ".join(outside), len(seeds), *gains)


def _simulated(one: Plan) -> pd.DataFrame:
    files = rundir.unpack(flow.FlowLevel().run(one, lambda _: None, patience(one)))
    return pd.read_csv(io.BytesIO(files["iterations.csv"]))


def gain(table: pd.DataFrame, column: str) -> float:
    by_job = table.groupby(["system", "job"])[column].mean()
    return float((by_job["reno"] / by_job["mltcp_reno"]).mean())


def judge() -> None:
    """Compute every mix that was measured with both systems, and write and print the errors."""
    measured = pd.read_csv(MEASURED)
    with ERRORS.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            (
                "mix",
                "set",
                "outside",
                "seeds",
                "gain_uml",
                "gain_flow",
                "error",
                "settled_gain_uml",
                "settled_gain_flow",
            )
        )
        for mix in mixes():
            own = measured[measured["mix"] == mix.name]
            if own["system"].nunique() < len(mix.fields["system"]):
                continue
            found = compare(mix, own)
            numbers = (found.measured, found.computed, found.error, found.measured_settled, found.computed_settled)
            rows.writerow((found.mix, found.set, found.outside, found.seeds, *(f"{number:.3f}" for number in numbers)))
            file.flush()
    print(markdown())


def markdown() -> str:
    """Return a table of the errors, inside the validated range and outside."""
    with ERRORS.open(newline="") as file:
        table = list(csv.DictReader(file))
    lines = ["| mixes | number | mean | median | 90th percentile | largest |", "|---|---|---|---|---|---|"]
    inside = [row for row in table if not row["outside"]]
    for name, rows in (
        ("inside the range", inside),
        ("– for fitting", [row for row in inside if row["set"] == "fitting"]),
        ("– held out", [row for row in inside if row["set"] != "fitting"]),
        ("outside", [row for row in table if row["outside"]]),
    ):
        errors = np.array([_off(row) for row in rows])
        numbers = (errors.mean(), np.median(errors), np.quantile(errors, 0.9), errors.max())
        lines.append(f"| {name} | {len(errors)} | " + " | ".join(f"{100 * number:.1f} %" for number in numbers) + " |")
    return "\n".join(lines)


def _off(row: dict[str, str]) -> float:
    return abs(float(row["error"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emulate", action="store_true", help="execution of missing runs, under virtual time")
    parser.add_argument("--markdown", action="store_true", help="table of the errors as last computed")
    asked = parser.parse_args()
    if asked.markdown:
        print(markdown())
    elif asked.emulate:
        emulate()
    else:
        judge()


if __name__ == "__main__":
    main()
