"""The flow-level twin: what simulating a cluster costs, against its size.

``python -P benchmarks/twin.py [--seconds 20] [--gpus 1000 3000 10000]``: jobs of 20 GPUs in the mean on servers of 8, placed at random on leaves
and spines 2:1, iterations of 0.5 to 2 s of which communicating alone takes a tenth; processor time per simulated second, and the slope of its
logarithm over that of the GPUs. ``--png FILE`` draws it.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from testbed.congestion import catalogue
from testbed.core.placing import Gpu, Request
from testbed.models import cluster_flow_simulator, compiled, flow_weights
from testbed.models.cluster import Servers, Start, State
from testbed.networks.flow_network import FlowNetwork
from testbed.report import drawing, style
from topologies.leafspine import LeafSpine

RATE_BPS, SERVER, LEAF = 100e9, 8, 32


def jobs(gpus: int, seed: int) -> list[Request]:
    """Return as many random jobs as fit on ``gpus`` GPUs."""
    draw, found = np.random.default_rng(seed), list[Request]()
    while True:
        wants, iteration_s = int(np.clip(draw.geometric(1 / 20), 2, 128)), float(draw.uniform(0.5, 2))
        if sum(one.gpus for one in found) + wants > gpus:
            return found
        found.append(Request(len(found), wants, 10**6, int(0.1 * iteration_s * RATE_BPS / 16), 0.9 * iteration_s))


def cost(gpus: int, system: str, seconds: float) -> tuple[float, int]:
    """Processor seconds per simulated second, and iterations."""
    requests = jobs(gpus, 1)
    servers = Servers(tuple(Gpu(f"h{number // SERVER}", number % SERVER) for number in range(gpus)))
    order = np.random.default_rng(2).permutation(gpus)
    at = np.cumsum([0, *(one.gpus for one in requests)])

    def policy(state: State) -> Iterator[Start]:
        for number in list(state.waiting):
            yield number, np.sort(order[at[number] : at[number + 1]])

    count = gpus // SERVER
    network = FlowNetwork(LeafSpine(-(-count // LEAF), LEAF // 2, LEAF, 2), RATE_BPS)
    control = catalogue.parse(system, "recommended")
    begun = time.process_time()
    found = cluster_flow_simulator.simulate(
        requests,
        servers,
        policy,
        network,
        flow_weights.force(control),
        until_s=seconds,
        mltcp_active_from=flow_weights.mltcp_active_from(control),
    )
    return (time.process_time() - begun) / seconds, len(found.times_s)


def draw(path: Path, gpus: list[int], costs: dict[str, list[float]]) -> None:
    """Cost over size, both logarithmic; dashed: as GPUs to the power of 1.3."""
    figure, axes = style.new_figure(1, 1, figsize=(6.4, 4))
    axis = axes[0, 0]
    for colour, (system, each) in zip(style.JOBS, costs.items(), strict=False):
        axis.plot(gpus, [1e3 * cost for cost in each], "o-", color=colour, label=system)
    first = 1e3 * max(each[0] for each in costs.values())
    axis.plot(gpus, [first * (size / gpus[0]) ** 1.3 for size in gpus], "--", color=style.REFERENCE, label="GPUs^1.3")
    for which in (axis.xaxis, axis.yaxis):
        drawing.plain_log(which)
    axis.set(xlabel="GPUs", ylabel="processor time per simulated second (ms)", title="What simulating a cluster costs")
    axis.legend()
    style.save(figure, path.with_suffix(""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000])
    parser.add_argument("--png", type=Path)
    parsed = parser.parse_args()
    compiled.compile_all()
    cost(64, "mltcp_reno", 1.0)
    drawn: dict[str, list[float]] = {}
    for system in ("reno", "mltcp_reno"):
        costs = drawn[system] = []
        for gpus in parsed.gpus:
            each, iterations = cost(gpus, system, parsed.seconds)
            costs.append(each)
            print(f"{system:12} {gpus:6} GPUs: {each * 1e3:8.2f} ms of processor per second, {iterations} iterations")
        if len(costs) > 1:
            slope = np.polyfit(np.log(parsed.gpus), np.log(costs), 1)[0]
            print(f"{system:12} cost goes as GPUs^{slope:.2f}")
    if parsed.png:
        draw(parsed.png, parsed.gpus, drawn)
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
