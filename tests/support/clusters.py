"""Small clusters and job sets, given and drawn."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from testbed.core import options
from testbed.core.placing import Assignments, Gpu, Request
from testbed.models.cluster import Ran, Servers, follow, simulate
from testbed.models.contention import Contended, Model
from testbed.schedulers import job as job_schedulers
from testbed.schedulers.job import Cluster

MODEL = Model(rate_bps=1e9, alpha=0.3)
PLACING = ("spread", "packed")  # give hosts to jobs that all start at once
PREEMPTING = ("las",)
EXHAUSTIVE = ("optimum",)  # for a few jobs


def cluster(*sizes: int) -> Cluster:
    return Cluster(
        {"s1": tuple(Gpu(f"h{host}", slot) for host, size in enumerate(sizes, 1) for slot in range(size))},
        lambda _job: ["s1"],
    )


def asked(how: str, requests: Sequence[Request], where: Cluster, model: Model = MODEL, seed: int = 1) -> Assignments:
    module = job_schedulers.find(how.partition(":")[0])
    return module.schedule(requests, where, model, options.parse(module.Options, how), seed=seed)


def carried_out(assigned: Assignments, requests: Sequence[Request], where: Cluster, model: Model = MODEL) -> list[Ran]:
    """By the event loop, under equation 8; a schedule that does not end is an error."""
    servers = Servers(tuple(where.gpus))
    given, policy = follow(assigned, requests, servers)
    ran = simulate(given, servers, policy, Contended(model, len(servers.sizes)), slot_s=model.slot_s)
    assert ran is not None
    return list(ran)


def makespan(how: str, requests: Sequence[Request], where: Cluster, model: Model = MODEL, seed: int = 1) -> float:
    return max(one.end_s for one in carried_out(asked(how, requests, where, model, seed), requests, where, model))


def drawn(seed: int, jobs: int, largest: int) -> list[Request]:
    """Jobs of a few seconds, whose communication is about as long as their computing."""
    draw = random.Random(seed)
    return [
        Request(
            job, draw.randint(1, largest), draw.randint(1, 20), draw.randint(0, 10_000_000), draw.uniform(0.01, 0.1)
        )
        for job in range(jobs)
    ]


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[Request], Cluster]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    jobs = draw(
        st.lists(
            st.tuples(
                st.integers(1, sum(sizes)), st.integers(1, 50), st.integers(0, 10**7), st.floats(0.001, 0.1),
                st.sampled_from([0.0, 0.0, 0.5, 3.0]),
            ),
            min_size=1, max_size=8,
        )
    )  # fmt: skip
    return [Request(number, *job) for number, job in enumerate(jobs)], cluster(*sizes)
