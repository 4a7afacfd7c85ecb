"""Custom files that a plan names: a topology, congestion controls, collectives, a transport.

Their paths differ inside user-mode Linux and on another machine, so the plan is rewritten before it is sent there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from testbed.core import system_text
from testbed.core.runs.plan import CongestionControl, Plan

PYTHON = ".py"


def content(plan: Plan) -> tuple[str, ...]:
    """Paths of its topology, collectives and transports that are files of the user, each once."""
    named = [plan.topology]
    named += [operation.algorithm for job in plan.jobs for operation in job.operations]
    named += [system_text.name_of(job.transport) for job in plan.jobs]
    return tuple(dict.fromkeys(name for name in named if name.endswith(PYTHON)))


def names(plan: Plan, folder: str) -> dict[str, str]:
    """Names of the files of `content` below ``folder`` on another machine, by path."""
    return {path: f"{folder}/{number}/{Path(path).name}" for number, path in enumerate(content(plan))}


def moved(plan: Plan, to: Mapping[str, str], source: Mapping[str, str]) -> Plan:
    """The plan with content at the paths ``to``, and congestion controls at ``source`` (by their folder's name)."""

    def transport(text: str) -> str:
        part = system_text.part(text)
        return str(replace(part, name=to.get(part.name, part.name)))

    def control(cc: CongestionControl) -> CongestionControl:
        return cc if cc.source is None else msgspec.structs.replace(cc, source=source[cc.folder])

    jobs = tuple(
        msgspec.structs.replace(
            job,
            cc=control(job.cc),
            transport=transport(job.transport),
            operations=tuple(
                msgspec.structs.replace(one, algorithm=to.get(one.algorithm, one.algorithm)) for one in job.operations
            ),
        )
        for job in plan.jobs
    )
    return msgspec.structs.replace(plan, jobs=jobs, topology=to.get(plan.topology, plan.topology))
