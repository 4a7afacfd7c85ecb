"""A placement by hand: TOML or JSON, a list of hosts for each job: ``0 = ["l1", "r1"]``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed import registry
from testbed.core import system_text, toml
from testbed.core.errors import RequestError
from testbed.core.input_files import MissingError, read_text
from testbed.core.text import quoted, shown

MOST_BYTES = 10**6


def read(path: Path) -> dict[str, Any]:
    """A file's hosts by job, as they stand there; raises `RequestError`, which for a missing file suggests a scheduler."""
    try:
        text = read_text(path, MOST_BYTES)
        found = json.loads(text) if path.suffix == ".json" else toml.loads(text)
    except MissingError as error:
        raise RequestError(
            f"{error}; {registry.unknown(registry.JOB_SCHEDULER, system_text.name_of(str(path)))} "
            'A placement is a TOML or JSON file with a line for each job: 0 = ["l1", "r1"].'
        ) from error
    except (toml.TomlError, ValueError, RecursionError) as error:  # JSON has ValueErrors
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise RequestError(f"{path} is not {kind}: {shown(error, 200)}") from error
    if not isinstance(found, dict):
        raise RequestError(f'{path} holds no table of jobs. Give each job a line: 0 = ["l1", "r1"]')
    return found


def hosts(
    path: Path, found: dict[str, Any], workers: Sequence[int], everywhere: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the hosts of each job, from the content ``found`` by `read`.

    Raises `RequestError` if it does not fit these jobs.
    """
    jobs = [str(job) for job in range(len(workers))]
    if stray := [job for job in found if job not in jobs]:
        raise RequestError(f"{path}: {stray[0]}: there is no such job. Jobs are numbered 0 to {len(workers) - 1}.")
    used: dict[str, str] = {}
    for job, wanted in zip(jobs, workers, strict=True):
        own = found.get(job)
        if not isinstance(own, list) or not all(isinstance(host, str) for host in own):
            raise RequestError(f'{path}: {job}: job {job} needs a list of {wanted} hosts, as in {job} = ["l1", "r1"]')
        if len(own) != wanted:
            raise RequestError(
                f"{path}: {job}: {len(own)} hosts for job {job}, which has {wanted} workers. Give one host per worker."
            )
        for host in own:
            if host not in everywhere:
                raise RequestError(
                    f"{path}: {job}: the topology has no host {quoted(host)}. It has {_few(everywhere)}."
                )
            if host in used:
                raise RequestError(
                    f"{path}: {job}: host {host} already has a worker of job {used[host]}. Give each worker another host."
                )
            used[host] = job
    return [tuple(found[job]) for job in jobs]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:6])}, … {names[-1]}"
