"""The assignment of GPUs to jobs over time: several job schedulers on one list of jobs, compared by SJF-BCO's model."""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli import flags
from testbed.core.errors import EXIT_OK, RequestError, within
from testbed.core.units import Duration, Rate

if TYPE_CHECKING:
    from testbed.models.contention import Model

USUAL = ("sjf_bco", "list_scheduling", "first_fit", "random")
MOST_GPUS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "jobs",
        nargs="?",
        help="job list: CSV with the columns job, gpus, iterations, gradient_bytes, compute_s (or trace) and arrival_s; TOML; or a log of Slurm (sacct), Acme, Philly, Helios or PAI",
    )
    parser.add_argument("--servers", type=int, default=10, metavar="N", help="number of servers (default: %(default)s)")
    parser.add_argument(
        "--gpus", default="4,8,16,32", metavar="LIST",
        help="GPUs of each server: a list, repeated as needed, or drawn:LIST, sampled by the seed (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", default="10gbit", metavar="RATE", help="uplink rate of each server (default: %(default)s)"
    )
    parser.add_argument(
        "--scheduler", "--place", nargs="+", action="extend", metavar="NAME",
        help=f"job schedulers, NAME or NAME:option=value,…; `list` prints all of them (default: {' '.join(USUAL)})",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=float, metavar="FRACTION",
        help="fraction of the GPUs that Poisson arrivals request (default: the list's arrival times)",
    )  # fmt: skip
    flags.add(parser, "keep_duty")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of all random choices (default: %(default)s)"
    )
    parser.add_argument(
        "--figures", metavar="FOLDER", help="folder for a PNG per scheduler: GPUs and uplinks over time (default: none)"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    traffic = parser.add_argument_group("with --emulate or --on flow")
    traffic.add_argument(
        "--emulate",
        action="store_true",
        help="emulation of every schedule with real traffic, next to the prediction (--on uml)",
    )
    traffic.add_argument(
        "--on", choices=("flow",), help="flow: every iteration of the jobs as flows on --topo, with each --system"
    )
    traffic.add_argument(
        "--system", nargs="+", action="extend", metavar="NAME", help="systems that carry the traffic (default: reno)"
    )
    traffic.add_argument(
        "--set", action="append", metavar="PATH=VALUE", help="field of the experiment by its path, with --emulate"
    )
    traffic.add_argument(
        "--topo", default="cluster",
        help="topology NAME[,ARGUMENTS] or ./mine.py[,ARGUMENTS], with --on flow (default: %(default)s)",
    )  # fmt: skip
    traffic.add_argument(
        "--until", metavar="TIME", help="end of the simulation, with --on flow (default: the end of all jobs)"
    )
    traffic.add_argument("--out", metavar="FOLDER", help="results folder, with --emulate (default: results)")
    traffic.add_argument(
        "-j",
        "--parallel",
        type=int,
        default=1,
        metavar="N",
        help="concurrent runs, with --emulate (default: %(default)s)",
    )
    traffic.add_argument(
        "--dry-run", action="store_true", help="list of runs, folders and expected time, with --emulate; nothing is run"
    )
    flags.add_again(traffic)
    advanced = parser.add_argument_group(flags.ADVANCED)
    advanced.add_argument(
        "--intra-server-rate", default="inf", metavar="RATE", help="rate inside a server, b_i (default: %(default)s)"
    )
    advanced.add_argument(
        "--reduce-rate",
        default="inf",
        metavar="RATE",
        help="rate at which a GPU adds gradients, C (default: %(default)s)",
    )
    for old, name in (("--intra", "intra_server_rate"), ("--reduce", "reduce_rate")):
        parser.add_argument(old, dest=name, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    advanced.add_argument(
        "--alpha", type=float, default=0.3,
        help="α of the contention cost f = k + α (k − 1), beyond sharing (default: %(default)s)",
    )  # fmt: skip
    advanced.add_argument(
        "--xi1", type=float, default=1.0, help="ξ1 of k = max(1, ξ1 p), for p jobs on an uplink (default: %(default)s)"
    )
    advanced.add_argument(
        "--xi2", default="0s", metavar="TIME", help="overhead of an iteration for each server (default: %(default)s)"
    )
    advanced.add_argument(
        "--slot", metavar="TIME", help="length of a time slot, as in the paper (default: continuous time)"
    )
    advanced.add_argument(
        "--format", metavar="NAME|./mine.py", help="format of the job list (default: recognized by its contents)"
    )


def run(parsed: argparse.Namespace) -> int:
    from testbed.cli.schedule import output as told
    from testbed.core import options, progress, terminal
    from testbed.core.heartbeat import Counter, Heartbeat
    from testbed.core.placing import Gpu
    from testbed.core.text import count, plain
    from testbed.models.cluster import Servers
    from testbed.planning import schedules
    from testbed.schedulers import job
    from testbed.traces import job_lists

    names = parsed.scheduler or list(USUAL)
    if names == ["list"]:
        for name in job.names():
            has = options.meanings(options.declared(job.find(name).Options))
            print(plain(f"{name}: {has}" if has else name))
        return EXIT_OK
    if parsed.jobs is None:
        raise RequestError(
            "schedule: name a job list, such as jobs.csv. `mltcp schedule --help` describes its columns."
        )
    if len(set(names)) < len(names):
        raise RequestError(f"--scheduler: {' '.join(names)} names a scheduler twice. Name each one once.")
    for name in names:
        with within("--scheduler"):
            job.parse(name)
    if stray := [
        name
        for name in ("system", "set", "out", "again", "renew", "dry_run")
        if getattr(parsed, name) and not (parsed.emulate or (parsed.on and name == "system"))
    ]:
        raise RequestError(
            f"--{stray[0].replace('_', '-')} needs --emulate (--system also works with --on flow). Add --emulate, or leave it out."
        )
    model, rate = _model(parsed)
    sizes = _sizes(parsed.servers, parsed.gpus, parsed.seed)
    if not 0 <= parsed.seed <= 2**31:
        raise RequestError(f"--seed: {parsed.seed} is not between 0 and 2147483648. Give another seed.")
    found = job_lists.read(Path(parsed.jobs), rate, parsed.seed, parsed.format, keep_duty=bool(parsed.keep_duty))
    with within(parsed.jobs):
        found = found.fitting(sum(sizes))
    requests = list(found.requests)
    if parsed.load is not None:
        if not 0 < parsed.load <= 100:
            raise RequestError(
                f"--load: {parsed.load:g} is not above 0 and at most 100. Give for instance 0.8, for 80 % of the GPUs."
            )
        with within("--load"):
            requests = job_lists.poisson(requests, sum(sizes), parsed.load, parsed.seed)
    gpus = tuple(Gpu(f"h{host}", slot) for host, size in enumerate(sizes, 1) for slot in range(size))
    if parsed.on:
        from testbed.cli.schedule import flow_backend

        if parsed.emulate:
            raise RequestError(
                "--on flow and --emulate are both given: one computes, the other runs. Leave out one of them."
            )
        systems = parsed.system or ["reno"]
        counter = Counter(len(names) * len(systems), "schedules")
        with Heartbeat(counter.line):
            flowed = flow_backend.carry_out(
                requests, sizes, model, names, systems, parsed.topo, parsed.until, parsed.seed, counter.advance
            )
        flow_backend.show(flowed, sizes, parsed.topo, found, as_json=parsed.json)
        return EXIT_OK
    if parsed.until is not None or parsed.topo != "cluster":
        raise RequestError("--until and --topo need --on flow. Add it, or leave them out.")
    results, counter, current = [], Counter(len(names), "schedules"), ""

    def jobs_ended(done: int, total: int) -> None:
        nonlocal current
        current = f"; {done} of {total} jobs have ended in the schedule under way"

    with progress.listening(jobs_ended), Heartbeat(lambda: f"{counter.line()}{current}"):
        for name in names:
            begun = time.perf_counter()
            with within(name):
                carried = schedules.carry_out(name, requests, gpus, model, parsed.seed)
            results.append(told.Result(name, carried, time.perf_counter() - begun))
            counter.advance()
    if parsed.emulate:
        from testbed.cli import dry_run
        from testbed.cli.schedule import emulate, run_missing

        runs = emulate.planned(
            Path(parsed.jobs), requests, sizes, model, [one.scheduler for one in results], parsed.system or ["reno"],
            parsed.seed, parsed.set or [],
        )  # fmt: skip
        out = Path(parsed.out or "results")
        if parsed.dry_run:
            plans = [one for one in runs[1] if one.alone is None]
            if parsed.json:
                print(json.dumps(dry_run.document(plans, out, run_missing.BACKEND)))
            else:
                print(plain(dry_run.total(plans, out, run_missing.BACKEND)))
            return EXIT_OK
        predicted = {one.scheduler: one.carried for one in results}
        found_runs = emulate.carry_out(runs, requests, predicted, out, parsed.parallel, flags.again(parsed))
        results = [replace(one, emulated=tuple(found_runs[one.scheduler])) for one in results]
    if parsed.json:
        print(json.dumps(told.document(sizes, model, results, found), allow_nan=False))
    else:
        console = terminal.console()
        title = f"{count(len(requests), 'job')}, {count(len(sizes), 'server')}, {count(len(gpus), 'GPU')}, {parsed.rate} each"
        for sheet in [*told.table(results, title), *([told.beside(results)] if parsed.emulate else [])]:
            sheet.print(console)
        told.print_origin(console, found)
    if parsed.figures is not None:
        from testbed.report import gantt

        for path in gantt.draw(
            {one.scheduler: one.carried.ran for one in results}, Servers(gpus), Path(parsed.figures)
        ):
            if not parsed.json:
                print(plain(path))
    return EXIT_OK


def _model(parsed: argparse.Namespace) -> tuple[Model, int]:
    from testbed.models.contention import Model

    for name, low in (("alpha", 0.0), ("xi1", 0.0)):
        value = getattr(parsed, name)
        if not low <= value <= 1000:
            raise RequestError(f"--{name}: {value:g} is not between {low:g} and 1000")
    rates = {}
    for name in ("rate", "intra_server_rate", "reduce_rate"):
        text = getattr(parsed, name)
        with within(f"--{name.replace('_', '-')}"):
            rates[name] = math.inf if text == "inf" and name != "rate" else float(Rate.parse(text))
        if not rates[name]:
            raise RequestError(f"--{name.replace('_', '-')}: at 0 bit/s nothing arrives. Give a larger rate.")
    times = {}
    for name in ("xi2", "slot"):
        text = getattr(parsed, name)
        with within(f"--{name}"):
            times[name] = Duration.parse(text) / 1e9 if text is not None else 0.0
    if parsed.slot is not None and not times["slot"]:
        raise RequestError("--slot: 0 is not a length. Give a longer slot, or leave it out for continuous time.")
    model = Model(
        rates["rate"],
        rates["intra_server_rate"],
        rates["reduce_rate"],
        parsed.alpha,
        parsed.xi1,
        times["xi2"],
        slot_s=times["slot"],
    )
    return model, int(rates["rate"])


def _sizes(count: int, text: str, seed: int) -> list[int]:
    """GPUs of each server."""
    drawn = text.startswith("drawn:")
    listed = text.removeprefix("drawn:")
    try:
        sizes = [int(one) for one in listed.split(",")]
    except ValueError as error:
        raise RequestError(
            f"--gpus: {text!r} is not a list of numbers. Write for instance 4,8,16,32 or drawn:4,8."
        ) from error
    if not all(1 <= one <= MOST_GPUS for one in sizes):
        raise RequestError(
            f"--gpus: {min(sizes) if min(sizes) < 1 else max(sizes)} GPUs of a server are not between 1 and {MOST_GPUS}. Give another number."
        )
    if not 1 <= count <= MOST_GPUS or count * max(sizes) > MOST_GPUS:
        raise RequestError(
            f"--servers: {count} servers have fewer than 1 or more than {MOST_GPUS} GPUs in all. Give another number."
        )
    draw = random.Random(f"servers {seed}")
    return [draw.choice(sizes) if drawn else sizes[number % len(sizes)] for number in range(count)]
