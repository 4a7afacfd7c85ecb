"""``mltcp calibrate``: the cost of contention on a network, for each system, as constants of SJF-BCO's model.

One to five jobs share the uplinks of the same two to six servers, with varying amounts of communication. Their starts are
random, and their periods differ by up to a tenth. Half of the cells is held out. Existing runs are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli import flags
from testbed.core import text
from testbed.core.errors import EXIT_OK, RequestError, within
from testbed.core.units import Duration, Rate, Size

if TYPE_CHECKING:
    from testbed.core.runs.load import Run
    from testbed.models.calibration import Calibration, Took

USUAL = ("reno", "cubic", "mltcp_reno")
COMPUTE_S = 0.01
VARIES = 0.1  # largest relative variation of a period
MOST_SEEDS = 100


@dataclass(frozen=True)
class Grid:
    """The settings to run: every combination of the fields, for each system and seed."""

    p: tuple[int, ...]
    servers: tuple[int, ...]
    ratios: tuple[float, ...]
    iterations: int


WHOLE = Grid((1, 2, 3, 4, 5), (2, 3, 4, 6), (0.25, 0.5, 1.0), 40)
QUICK = Grid((1, 2, 4), (2, 3), (0.5, 1.0), 20)


@dataclass(frozen=True)
class Point:
    """Some jobs over some servers' uplinks."""

    p: int
    servers: int
    ratio: float
    seed: int

    def fields(self, systems: Sequence[str], rate: Rate, iterations: int) -> dict[str, Any]:
        """Return the fields of the experiment.

        Rings over k servers put 2 (k − 1) / k of a tensor's bytes on each uplink.
        """
        draw = random.Random(f"calibrate {self.p} {self.servers} {self.ratio} {self.seed}")
        size = self.ratio * COMPUTE_S * rate / 8 * self.servers / (2 * (self.servers - 1))
        periods = [draw.uniform(1 - VARIES, 1 + VARIES) for _ in range(self.p)]
        return {
            "name": f"p{self.p}-over{self.servers}-ratio{self.ratio:g}-{rate.exact}-seed{self.seed}", "topo": ",".join(["cluster", *[str(self.p)] * self.servers]),
            "workers": self.servers, "collective": "ring", "rate": rate.exact, "mtu": 9000, "buffer": "1ms", "rto_min": "5ms",
            "start_offsets": "uniform", "iterations": iterations, "system": list(systems), "seed": self.seed, "on": "uml",
            "job": [
                {"compute": Duration(round(COMPUTE_S * period * 1e9)).exact, "bytes": Size(round(size * period)).exact}
                for period in periods
            ],
        }  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Fit alpha, xi1 and xi2 of the contention model to runs under virtual time, and report its error in other runs."
    )
    parser.add_argument("--system", nargs="+", action="extend", metavar="NAME", help=f"systems to fit (default: {' '.join(USUAL)})")  # fmt: skip
    parser.add_argument(
        "--rate", default="10gbit", metavar="RATE", help="uplink rate of each server (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        metavar="N",
        help="number of seeds; intervals need 3 or more (default: %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer settings and iterations: minutes instead of more than an hour"
    )
    parser.add_argument(
        "-j", "--parallel", type=int, default=1, metavar="N", help="concurrent runs (default: %(default)s)"
    )
    parser.add_argument("--out", metavar="FOLDER", default="results", help="results folder (default: %(default)s)")
    flags.add_again(parser)
    parser.add_argument(
        "--figures",
        metavar="FOLDER",
        help="folder for predicted and measured times of each setting, as PNG and CSV (default: none)",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    parser.add_argument(
        "--dry-run", action="store_true", help="list of runs, folders and expected time; nothing is run"
    )


def run(parsed: argparse.Namespace) -> int:
    from testbed import spec
    from testbed.backends import pace
    from testbed.cli.schedule import run_missing
    from testbed.core.heartbeat import duration
    from testbed.core.runs.load import load_run
    from testbed.core.text import plain
    from testbed.models.calibration import calibrate
    from testbed.planning import plan

    systems, grid = parsed.system or list(USUAL), QUICK if parsed.quick else WHOLE
    if not 1 <= parsed.seeds <= MOST_SEEDS:
        raise RequestError(f"--seeds: {parsed.seeds} are not between 1 and {MOST_SEEDS}")
    with within("--rate"):
        rate = Rate.parse(parsed.rate)
    points = [
        Point(p, servers, ratio, seed)
        for seed, p, servers, ratio in itertools.product(range(1, parsed.seeds + 1), grid.p, grid.servers, grid.ratios)
    ]
    asked = [spec.make(point.fields(systems, rate, grid.iterations), {}, "calibrate") for point in points]
    planned, out = [plan.planned(one) for one in asked], Path(parsed.out) / "calibrate"
    if parsed.dry_run:
        todo = [one for _, plans in planned for one in plans if one.alone is None]
        expected_s = pace.total_s(todo, run_missing.BACKEND) / max(1, parsed.parallel)
        if parsed.json:
            print(
                json.dumps({"folder": str(out), "runs": len(todo), "expected_s": round(expected_s, 1), **asdict(grid)})
            )
            return EXIT_OK
        cells = "; ".join(f"{name} {', '.join(map(str, getattr(grid, name)))}" for name in ("p", "servers", "ratios"))
        print(f"{text.count(len(todo), 'run')}: {cells}")
        print(plain(f"Total: {text.count(len(todo), 'run')}, about {duration(expected_s)}. Results: {out}"))
        return EXIT_OK
    runs = run_missing.carry_out(planned, out, parsed.parallel, flags.again(parsed))
    took: dict[str, list[Took]] = {system: [] for system in systems}
    for wanted, point in zip(runs, [point for point in points for _ in systems], strict=True):
        one = load_run(wanted.folder)
        took[one.system].append(_took(one, point))
    found = {system: calibrate(own) for system, own in took.items()}
    if parsed.figures is not None:
        from testbed.report import calibration

        calibration.draw(took, Path(parsed.figures))
    if parsed.json:
        print(json.dumps({"rate_bps": int(rate), "seeds": parsed.seeds, "results": [_to_dict(*one) for one in found.items()]}, allow_nan=False))  # fmt: skip
    else:
        _show(found, parsed.seeds)
    return EXIT_OK


def _took(run: Run, point: Point) -> Took:
    """Its iteration times in steady state."""
    from testbed.core.runs.measured import ideals_s
    from testbed.models.calibration import Took

    table, ideals = run.times, ideals_s(run)
    settled = table.iloc[len(table) // 2 :].mean()
    stretches = [float(settled[job.job]) / ideal for job, ideal in zip(run.jobs, ideals, strict=True)]
    beyond = [float(settled[job.job]) - ideal for job, ideal in zip(run.jobs, ideals, strict=True)]
    job = run.jobs[0]
    ratio = round(ideals[0] / (job.compute_ns / 1e9) - 1, 2)
    return Took(point.seed, point.p, point.servers, ratio, sum(stretches) / len(stretches), sum(beyond) / len(beyond))


def _to_dict(system: str, found: Calibration) -> dict[str, Any]:
    return {"system": system, **asdict(found)}


def _show(found: dict[str, Calibration], seeds: int) -> None:
    from testbed.core import terminal
    from testbed.core.terminal import Column, Sheet

    headings = ("α", "ξ1", "ξ2\n(µs)", "error where\nnot fitted", "the\nworst", "f for\nmost jobs")
    rows = [
        [
            text.plain(system), f"{fitted.alpha.value:.2f}", f"{fitted.xi1.value:.2f}", f"{fitted.xi2_s.value * 1e6:.0f}",
            f"{fitted.error.value:.1%}", f"{fitted.worst:.0%}", f"{fitted.crowded.value:.2f}",
        ]
        for system, fitted in found.items()
    ]  # fmt: skip
    console = terminal.console()
    columns = [Column(), *(Column(heading, right=True) for heading in headings)]
    Sheet(columns, rows, "Equation 8, fitted to half of the cells").print(console)
    for system, fitted in found.items():
        terminal.say(console, f"{system}: α {fitted.alpha}, ξ1 {fitted.xi1}, f {fitted.crowded}; schedule --alpha {fitted.alpha.value:.2f} --xi1 {fitted.xi1.value:.2f} --xi2 {fitted.xi2_s.value * 1e6:.0f}us")  # fmt: skip
        terminal.say(console, f"{system}: {text.count(fitted.fitted, 'cell')} fitted, {fitted.held_out} held out.")
    terminal.say(console, f"95 % intervals over {text.count(seeds, 'seed')}.")
