"""A cluster's jobs as flows: every iteration of every job on a network of servers, while jobs arrive, get GPUs, end and free them.

A policy selects the GPUs and the order of jobs (`testbed.models.cluster`). The flows of all jobs give the iteration times (`testbed.models.flow_simulator`). A
job's ring enters each of its servers once; all of its flows are as fast as the slowest.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.core.placing import Gpu, Request, Stint
from testbed.models import contention, maxmin
from testbed.models.cluster import Policy, Ran, Servers, State, Stop, Wake
from testbed.models.flow_simulator import FlowJob, Loop, Node
from testbed.models.maxmin import Floats
from testbed.models.weight_function import Force
from testbed.networks.flow_network import FlowNetwork

BATCH_S = 0.02  # rates are computed anew every so often


@dataclass(frozen=True)
class Came:
    """The outcome of a job up to the end of the simulated time."""

    request: Request
    start_s: float | None  # None: it had not started
    end_s: float | None  # None: it still ran
    iterations: int
    mean_s: float  # of its iterations; 0: none has ended
    isolated_s: float  # the same on these GPUs, in isolation
    gpus: tuple[Gpu, ...]  # by rank; none: it had not started
    links: tuple[int, ...]  # of the network, that its ring crosses

    @property
    def servers(self) -> int:
        """Return the number of servers on which it ran."""
        return len({gpu.host for gpu in self.gpus})


@dataclass(frozen=True)
class Flowed:
    """All jobs, and the times of all ended iterations, in s."""

    jobs: tuple[Came, ...]
    times_s: Floats
    slowdowns: Floats  # of each of these: ÷ alone
    lasted_s: float  # seconds until the last job ended, or the simulation was cut off
    events: int

    @property
    def whole(self) -> bool:
        """Return True if every job has ended."""
        return all(job.end_s is not None for job in self.jobs)

    def ran(self, requests: Sequence[Request]) -> tuple[Ran, ...]:
        """The jobs of these ``requests`` that had arrived, as the event loop of a cluster has them.

        Contention follows from which jobs crossed which links, and when. A job that was cut off counts with the mean of its ended iterations,
        to the last.
        """
        there = [
            (asked, job) for asked, job in zip(requests, self.jobs, strict=True) if asked.arrival_s <= self.lasted_s
        ]
        ends = [self.lasted_s if job.end_s is None else job.end_s for _, job in there]
        held = [_held(job, end_s) for (_, job), end_s in zip(there, ends, strict=True)]
        met = contention.met(held, [job.links for _, job in there])
        return tuple(
            Ran(
                asked, job.gpus, end_s if job.start_s is None else job.start_s, end_s, own.most, (), own.mean, stints,
                job.end_s is not None,
            )
            for (asked, job), end_s, stints, own in zip(there, ends, held, met, strict=True)
        )  # fmt: skip


def _held(job: Came, end_s: float) -> tuple[Stint, ...]:
    if job.start_s is None:
        return ()
    iterations = job.iterations if job.end_s is not None else (end_s - job.start_s) / (job.mean_s or job.isolated_s)
    return (Stint(job.gpus, job.start_s, end_s, iterations),)


def simulate(
    requests: Sequence[Request], servers: Servers, policy: Policy, network: FlowNetwork, force: Force, *, until_s: float,
    mltcp_active_from: int = 0, intra_bps: float = np.inf, batch_s: float = BATCH_S, seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Flowed:  # fmt: skip
    """Simulate jobs under ``policy`` with flows on ``network``, up to ``until_s`` or until all jobs have ended.

    ``say`` is called before loops are compiled, which takes long. Iterations begin when their jobs do. Raises
    `ValueError` for a policy that stops jobs.
    """
    rates = network.capacity
    longest = network.longest
    asked = [
        FlowJob((Node(request.compute_s), Node(1.0, (0,), ())), force=force, mltcp_active_from=mltcp_active_from)
        for request in requests
    ]
    places = [count for request in requests for count in (0, longest * request.gpus if request.gpus > 1 else 0)]
    loop = Loop(asked, rates, keep=False, wait=True, places=places, batch_s=batch_s, say=say)
    loop.state.wanted[:] = [request.iterations for request in requests]
    state = State(servers, requests, 0.0, [], {}, np.ones(len(servers.gpus), dtype=bool), servers.sizes.copy(), {}, {})
    arrivals = sorted(((request.arrival_s, number) for number, request in enumerate(requests)), reverse=True)
    draw = random.Random(f"paths {seed}")
    gpus: dict[int, np.ndarray] = {}
    starts, ends, alone = dict[int, float](), dict[int, float](), np.ones(len(requests))
    on, crossed = dict[int, tuple[Gpu, ...]](), dict[int, tuple[int, ...]]()  # of those too that have ended
    rows = list[Floats]()
    while True:
        state.arrived = []
        while arrivals and arrivals[-1][0] <= state.now_s:
            state.arrived.append(arrivals.pop()[1])
        state.waiting.update(dict.fromkeys(state.arrived))
        for action in policy(state):
            if isinstance(action, Stop):
                raise ValueError("it stops jobs in between, and flows run through")
            if isinstance(action, Wake):
                continue  # for policies that stop jobs
            number, own = action
            del state.waiting[number]
            state.take(own)
            gpus[number], starts[number], state.ends_s[number] = own, state.now_s, np.inf
            on[number] = tuple(servers.gpus[gpu] for gpu in own)
            alone[number], crossed[number] = _put(
                loop, number, requests[number], servers.of[own], network, rates, intra_bps, draw
            )
            loop.begin(number, state.now_s)
        if state.now_s >= until_s or (not arrivals and not gpus):
            break
        following = min(arrivals[-1][0] if arrivals else until_s, until_s)
        while loop.now_s < following:
            loop.advance(following)
            rows.append(loop.rows()[0])
            if loop.ended_jobs():
                break
        state.now_s = loop.now_s
        state.ended = [number for number in gpus if not loop.state.runs[number]]
        for number in state.ended:
            own = gpus.pop(number)
            ends[number] = state.now_s
            state.give_back(own)
            del state.ends_s[number]
            state.done[number] = Ran(requests[number], (), starts[number], ends[number], 0, ())
    ended = np.concatenate(rows) if rows else np.zeros((0, 5))
    of, times = ended[:, 0].astype(np.int64), ended[:, 4] - ended[:, 2]
    counts = np.bincount(of, minlength=len(requests))
    sums = np.bincount(of, times, minlength=len(requests))
    jobs = tuple(
        Came(request, starts.get(number), ends.get(number), int(counts[number]), float(sums[number] / max(1, counts[number])), float(alone[number]),
             on.get(number, ()), crossed.get(number, ()))
        for number, request in enumerate(requests)
    )  # fmt: skip
    return Flowed(jobs, times, times / alone[of], state.now_s, int(loop.state.counts[3]))


def _put(
    loop: Loop, number: int, request: Request, of: np.ndarray, network: FlowNetwork, rates: Floats, intra_bps: float, draw: random.Random
) -> tuple[float, tuple[int, ...]]:  # fmt: skip
    """A job's ring on its servers; how long an iteration takes there alone, and which links it crosses."""
    ring = list(dict.fromkeys(of.tolist()))
    bits = 2 * 8 * request.gradient_bytes * (request.gpus - 1) / request.gpus
    compute, flow = 2 * number, 2 * number + 1
    if len(ring) == 1 or not bits:
        loop.state.amount[compute] = request.compute_s + bits / intra_bps
        return max(float(loop.state.amount[compute]), 1e-9), ()
    times: dict[int, float] = {}
    for source, target in itertools.pairwise([*ring, ring[0]]):
        for link in network.path(source, target, draw.getrandbits(30)):
            times[link] = times.get(link, 0.0) + 1.0
    loop.state.amount[compute], loop.state.amount[flow] = request.compute_s, bits
    maxmin.put(loop.net, flow, list(times), list(times.values()))
    return request.compute_s + bits * max(count / float(rates[link]) for link, count in times.items()), tuple(times)
