"""A job scheduler: every job starts at once, on hosts from the last to the first.

mltcp run --scheduler ./scheduler_job_backwards.py:skip=1 --topo dumbbell,4 --jobs 2 --on flow
"""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.core.options import Integer, option
from testbed.core.placing import Assignments, Request
from testbed.models.contention import Model
from testbed.schedulers.job import Cluster, at_once, check_room


@dataclass(frozen=True)
class Options:
    skip: int = option(0, "hosts at the end that stay free (default: 0)", Integer(0, 1000))


def schedule(
    requests: Sequence[Request], cluster: Cluster, model: Model, options: Options, *, seed: int
) -> Assignments:
    check_room(requests, cluster)
    free = iter(cluster.gpus[::-1][options.skip :])
    return at_once(requests, [[next(free) for _ in range(request.gpus)] for request in requests], model)
