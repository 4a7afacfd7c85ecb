"""Which host runs which worker: ``--place spread|packed|random|FILE``, one worker a host at most.

==========  =============================================================================
spread      a job's ranks over the edge routers in order, the same way for every job: on a
            dumbbell the first half left, the rest right, so that its flows cross the
            bottleneck. A topology may say which routers those are for each job
            (`edges`): a ring's jobs each begin at another one.
packed      one edge router's hosts after the other: jobs keep to themselves
random      hosts drawn from the run's seed
FILE        TOML or JSON, a list of hosts for each job: ``0 = ["l1", "r1"]``
==========  =============================================================================
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from core import toml
from core.errors import RequestError
from core.reading import FileError, MissingError, read_text
from core.text import quoted, shown

MOST_BYTES = 10**6
NAMES = ("spread", "packed", "random")
Hosts = tuple[str, ...]


def place(topo: Topo, workers: list[int], how: str = "spread", seed: int = 0) -> list[Hosts]:
    """The hosts of jobs with so many ``workers``; raises `RequestError` if they do not fit."""
    edges = _edges(topo)
    everywhere = [host for hosts in edges.values() for host in hosts]
    if how not in NAMES:
        return _checked(Path(how), read(Path(how)), workers, everywhere)
    if sum(workers) > len(everywhere):
        raise _full(workers, everywhere)
    if how == "random":
        random.Random(f"place {seed}").shuffle(everywhere)
    if how != "spread":
        free = iter(everywhere)
        return [tuple(next(free) for _ in range(wanted)) for wanted in workers]
    return _spread(topo, edges, workers, everywhere)


def _edges(topo: Topo) -> dict[str, list[str]]:
    """Routers that have hosts, with them, both in the order of the hosts' names."""
    routers = {node for node in topo.nodes() if topo.nodeInfo(node).get("cls") is not None}
    edges: dict[str, list[str]] = {}
    for a, b in topo.links(sort=True):
        for host, router in ((a, b), (b, a)):
            if host not in routers and not topo.isSwitch(host):
                edges.setdefault(router, []).append(host)
    return edges


def _spread(topo: Topo, edges: dict[str, list[str]], workers: list[int], everywhere: list[str]) -> list[Hosts]:
    """Rank by rank over the job's edge routers; each rank at the first that has room in its part of them."""
    free = {router: list(hosts) for router, hosts in edges.items()}
    placed: list[Hosts] = []
    for job, wanted in enumerate(workers):
        over = list(topo.edges(job) if hasattr(topo, "edges") else edges)
        hosts = []
        for rank in range(wanted):
            first, end = rank * len(over) // wanted, (rank + 1) * len(over) // wanted
            here = next((router for router in over[first : max(end, first + 1)] if free.get(router)), None)
            if here is None:
                raise _full(workers, everywhere, over[first : max(end, first + 1)])
            hosts.append(free[here].pop(0))
        placed.append(tuple(hosts))
    return placed


def _full(workers: list[int], everywhere: list[str], part: list[str] | None = None) -> RequestError:
    if part and sum(workers) <= len(everywhere):
        return RequestError(
            f"place: spread puts each rank of a job at an edge of its own, and there is no room left at {', '.join(part)}. Give the "
            "topology more hosts, take `packed` or `random`, or a file that says where each worker goes."
        )
    return RequestError(
        f"topo: {len(workers)} jobs of {'/'.join(map(str, sorted(set(workers))))} workers do not fit: "
        f"{len(everywhere)} hosts, one worker each. Give the topology more (`dumbbell,8`, docs/topologies.md), or none of its "
        "arguments: then it is made large enough."
    )


def read(path: Path) -> dict[str, Any]:
    """A file's hosts by job, as they stand there; raises `RequestError`."""
    try:
        text = read_text(path, MOST_BYTES)
        found = json.loads(text) if path.suffix == ".json" else toml.loads(text)
    except MissingError as error:
        raise RequestError(
            f"{error}, and it is none of {', '.join(NAMES)}; give one of these, or a TOML or JSON "
            'file with a line for each job: 0 = ["l1", "r1"]'
        ) from error
    except FileError as error:
        raise RequestError(str(error)) from error
    except (ValueError, RecursionError) as error:  # also: JSON and TOML errors
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise RequestError(f"{path} is not {kind}: {shown(error, 200)}") from error
    if not isinstance(found, dict):
        raise RequestError(f'{path} holds no table of jobs; give each a line: 0 = ["l1", "r1"]')
    return found


def _checked(path: Path, found: dict[str, Any], workers: list[int], everywhere: list[str]) -> list[Hosts]:
    """The file's hosts, job by job."""
    jobs = [str(job) for job in range(len(workers))]
    if stray := [job for job in found if job not in jobs]:
        raise RequestError(f"{path}: {stray[0]}: there is no such job; they are numbered 0 to {len(workers) - 1}")
    used: dict[str, str] = {}
    for job, wanted in zip(jobs, workers, strict=True):
        hosts = found.get(job)
        if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
            raise RequestError(f'{path}: {job}: job {job} needs a list of {wanted} hosts, as in {job} = ["l1", "r1"]')
        if len(hosts) != wanted:
            raise RequestError(f"{path}: {job}: {len(hosts)} hosts for job {job}, which has {wanted} workers; one each")
        for host in hosts:
            if host not in everywhere:
                raise RequestError(f"{path}: {job}: the topology has no host {quoted(host)}; it has {_few(everywhere)}")
            if host in used:
                raise RequestError(
                    f"{path}: {job}: host {host} is job {used[host]}'s already; one worker a host at most"
                )
            used[host] = job
    return [tuple(found[job]) for job in jobs]


def _few(hosts: list[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= 12 else f"{', '.join(hosts[:6])}, … {hosts[-1]}"
