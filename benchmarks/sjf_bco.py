"""SJF-BCO's simulation again (its figures 4 to 7), with the comparisons it lacks: a row for every schedule, as CSV.

    python benchmarks/sjf_bco.py OUT.csv [--seeds 10] [--first 1]

Settings: ``published`` (contention costs 15 % of an iteration at the most, as the report says of its own), communication ÷
computing from 0.1 to 1.5, and ``control`` (an uplink without limit, where what remains of a gain is order and search).
`python benchmarks/sjf_bco.py OUT.csv --tables` prints what stands in docs/scheduling.md.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import job_schedulers
from analysis.finding import graded, no_difference
from core import options
from core.placing import Request
from job_schedulers import Cluster
from theory import statistics
from theory.cluster import Servers, follow, measure, simulate
from theory.contention import Contended, Model, linear
from workloads import published_mix

ALPHA = 0.3
ALONE, SHARE = 0.05, 0.15  # published: what exchanges take alone, of computing; and at the most, of an iteration
SETTINGS = {"published": ALONE, "0.1": 0.1, "0.5": 0.5, "1": 1.0, "1.5": 1.5, "control": 0.5}
PLAIN = ("list_scheduling", "first_fit", "random", "tightest_fit", "lwf", "srsf:share=1", "srsf", "reservation", "fifo")
COLUMNS = (
    "setting",
    "servers",
    "seed",
    "scheduler",
    "trials",
    "makespan",
    "completion",
    "least",
    "most",
    "contention",
    "plan_s",
)
KAPPAS, LAMBDAS = (1, 2, 4, 8, 10, 16, 32), (1, 2, 4, 8)
PUBLISHED = {
    ("sjf_bco", 20): 535, ("list_scheduling", 20): 595, ("first_fit", 20): 719, ("random", 20): 1128,
    ("sjf_bco", 15): 715, ("list_scheduling", 15): 870, ("first_fit", 15): 963, ("random", 15): 1260,
    ("sjf_bco", 10): 939, ("list_scheduling", 10): 1160, ("first_fit", 10): 1404, ("random", 10): 1488,
    **{(f"sjf_bco:kappa={k}", 20): v for k, v in zip(KAPPAS, (626, 564, 541, 535, 700, 749, 736), strict=True)},
    **{(f"sjf_bco:kappa=1,lam={k}", 20): v for k, v in zip(LAMBDAS, (1043, 882, 730, 538), strict=True)},
}  # fmt: skip


def model(setting: str) -> Model:
    """Equation 8 in a setting."""
    most = SHARE / (1 - SHARE) / ALONE
    if setting == "published":
        return Model(published_mix.RATE_BPS, alpha=ALPHA, degradation=lambda alpha, k: min(most, linear(alpha, k)))
    return Model(math.inf if setting == "control" else published_mix.RATE_BPS, alpha=ALPHA)


def one(setting: str, servers: int, seed: int, scheduler: str) -> tuple[object, ...]:
    """A schedule, carried out."""
    requests: list[Request] = published_mix.jobs(seed, SETTINGS[setting])
    gpus = published_mix.servers(seed, servers)
    module, law = job_schedulers.find(scheduler.partition(":")[0]), model(setting)
    begun = time.process_time()
    assigned = module.schedule(
        requests, Cluster({"s1": gpus}, lambda _job: ["s1"]), law, options.parse(module.Options, scheduler), seed=seed
    )
    took = time.process_time() - begun
    machines = Servers(gpus)
    given, policy = follow(assigned, requests, machines)
    ran = simulate(given, machines, policy, Contended(law, len(machines.sizes)))
    assert ran is not None
    found, ends = measure(ran, machines), [row.end_s for row in ran]
    return (
        setting, servers, seed, scheduler, assigned.trials, found.makespan_s, found.mean_completion_s, min(ends), max(ends),
        found.max_contention, took,
    )  # fmt: skip


def rows(setting: str, seed: int) -> Iterator[tuple[object, ...]]:
    """Everything that is drawn of a setting and a seed."""
    for servers in (20, 15, 10):
        mine = one(setting, servers, seed, "sjf_bco")
        yield mine
        schedulers: tuple[str, ...] = (
            (*PLAIN, f"best_of:n={mine[4]}") if servers == 20 else (*PLAIN[:4], f"best_of:n={mine[4]}")
        )
        if servers == 20:
            schedulers += (f"best_of:n={mine[4]},policy=random", "sjf_bco:faffp=leastload")
            schedulers += tuple(f"sjf_bco:kappa={kappa}" for kappa in KAPPAS)
            schedulers += tuple(f"sjf_bco:kappa=1,lam={lam}" for lam in LAMBDAS)
        for scheduler in schedulers:
            yield one(setting, servers, seed, scheduler)


def read(path: Path) -> pd.DataFrame:
    """The rows, `best_of` under one name whatever its budget was."""
    table = pd.read_csv(path, dtype={"setting": str})
    table["scheduler"] = table["scheduler"].str.replace(r"^(best_of):n=\d+", r"\1", regex=True)
    return table


def tables(table: pd.DataFrame) -> None:
    """Makespan and mean completion over seeds, in slots, by setting."""
    for what in ("makespan", "completion"):
        for servers, part in table.groupby("servers", sort=False):
            print(f"\n{what}, {servers} servers\n")
            print("| | report |" + "".join(f" {setting} |" for setting in part["setting"].unique()))
            print("|---|---|" + "---|" * part["setting"].nunique())
            for scheduler, its in part.groupby("scheduler", sort=False):
                cells = []
                for setting in part["setting"].unique():
                    values = its[its["setting"] == setting][what]
                    low, high = statistics.ends(list(values)) if len(values) else (math.nan, math.nan)
                    cells.append(f"{values.mean():.0f} ({low:.0f}–{high:.0f})")
                published = PUBLISHED.get((str(scheduler), int(str(servers))), "–") if what == "makespan" else "–"
                print(f"| `{scheduler}` | {published} | " + " | ".join(cells) + " |")
    print(f"\nseeds: {table.groupby('setting')['seed'].nunique().to_dict()}; schedules SJF-BCO tried, in the mean:")
    print(table[table.scheduler == "sjf_bco"].groupby(["setting", "servers"], sort=False)["trials"].mean())


def verdicts(table: pd.DataFrame) -> None:
    """A verdict for each claim of figures 4 to 7 and setting, from makespans compared seed by seed."""
    print("\n| claim |" + "".join(f" {setting} |" for setting in SETTINGS))
    print("|---|" + "---|" * len(SETTINGS))
    rivals = ("list_scheduling", "first_fit", "random", "tightest_fit", "srsf:share=1", "reservation", "best_of")
    lines = {f"SJF-BCO ends before `{rival}` (fig. 4)": ("sjf_bco", rival) for rival in rivals}
    lines |= {f"λ = {more} ends before λ = {less} (fig. 7)": (f"sjf_bco:kappa=1,lam={more}", f"sjf_bco:kappa=1,lam={less}")
              for less, more in itertools.pairwise(LAMBDAS)}  # fmt: skip
    lines |= {"κ = 8 ends before κ = 1 (fig. 5)": ("sjf_bco:kappa=8", "sjf_bco:kappa=1"),
              "κ = 8 ends before κ = 32 (fig. 5)": ("sjf_bco:kappa=8", "sjf_bco:kappa=32")}  # fmt: skip
    spans = {setting: its.pivot_table(index="seed", columns=["scheduler", "servers"], values="makespan")
             for setting, its in table.groupby("setting")}  # fmt: skip
    for claim, (better, worse) in lines.items():
        cells = [_cell(spans[setting][better, 20] / spans[setting][worse, 20]) for setting in SETTINGS]
        print(f"| {claim} | " + " | ".join(cells) + " |")
    for more, less in ((20, 15), (15, 10)):
        cells = [_cell(spans[setting]["sjf_bco", more] / spans[setting]["sjf_bco", less]) for setting in SETTINGS]
        print(f"| SJF-BCO ends earlier on {more} servers than on {less} (fig. 6) | " + " | ".join(cells) + " |")
    for rival in rivals[:3]:
        saved = {setting: {count: 1 - spans[setting]["sjf_bco", count] / spans[setting][rival, count] for count in (10, 20)}
                 for setting in SETTINGS}  # fmt: skip
        cells = [_cell((1 - one[10]) / (1 - one[20])) for one in saved.values()]
        print(f"| its ratio to `{rival}` is lower on 10 servers than on 20 (fig. 6) | " + " | ".join(cells) + " |")
    best = {setting: min(KAPPAS, key=lambda k: spans[setting][f"sjf_bco:kappa={k}", 20].mean()) for setting in SETTINGS}
    print("| best κ in the mean (report: 8) | " + " | ".join(map(str, best.values())) + " |")


def _cell(ratios: pd.Series[float]) -> str:
    """A ratio that the claim says is below 1, its interval, and what follows."""
    low, high = statistics.ends(list(ratios))
    word = "no difference" if no_difference((low, high)) else graded(high < 1, ratios.mean() < 1 < high)
    return f"{ratios.mean():.2f} ({low:.2f}–{high:.2f}) {word}"


def main() -> int:
    """Write the rows, seed by seed, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--tables", action="store_true")
    parsed = parser.parse_args()
    if parsed.tables:
        tables(found := read(parsed.out))
        verdicts(found)
        return 0
    with parsed.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for seed in range(parsed.first, parsed.first + parsed.seeds):
            for setting in SETTINGS:
                writer.writerows(rows(setting, seed))
                file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
