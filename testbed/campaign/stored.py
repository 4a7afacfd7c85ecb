"""Plans read from disk: anybody may have written them, so they are held against the rules of what a user may ask for.

A plan may name files that are executed: an own topology, an own congestion control, a real program. Their digests
stand in the same manifest and prove nothing. Whoever repeats such a run says that they trust it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import topologies
from congestion import catalogue
from core.errors import RequestError
from core.runs.plan import CongestionControl, Plan
from core.text import plain, quoted
from testbed.spec import systems
from workloads import collectives

_NODE = re.compile(r"[A-Za-z0-9_.]{1,40}")
_LINK = re.compile(r"[A-Za-z0-9_.]{1,40}-[A-Za-z0-9_.]{1,40}")
_FOLDER = re.compile(r"(?!\.)[^/\x00-\x1f\x7f]{1,255}")
_CONSTANT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,55}")


def plan_of(manifest: Mapping[str, Any], where: Path) -> Plan:
    """The plan of a manifest, ``where`` it was read; raises `RequestError`."""
    try:
        plan = msgspec.convert(manifest["plan"], Plan)
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise RequestError(f"{where}: its plan is not one of this testbed's ({plain(error)}).") from error
    for wrong in _wrong(plan):
        raise RequestError(f"{where}: its plan is none that this testbed makes: {wrong}.")
    return plan


def check_trusted(plan: Plan, where: Path, *, trusted: bool) -> None:
    """Raises `RequestError` if repeating ``plan`` would execute files that it names, and nobody said that they may be."""
    named = list(dict.fromkeys(_executed(plan)))
    if named and not trusted:
        raise RequestError(
            f"{where} names files of its own, and repeating it executes them as you: {', '.join(named)}. Whoever wrote that "
            "folder may have written these, too. Read them; then add --trust."
        )


def _executed(plan: Plan) -> Iterator[str]:
    if plan.topology.endswith(".py"):
        yield plain(plan.topology)
    for cc in plan.ccs:
        if cc.source is not None:
            yield plain(cc.source)
    for job in plan.jobs:
        if job.program is not None:
            yield plain(" ".join(job.program))


def _wrong(plan: Plan) -> Iterator[str]:
    """What no request could have led to."""
    if plan.version != 1:
        yield f"version {plan.version}"
    if not _FOLDER.fullmatch(plan.experiment):
        yield f"experiment {quoted(plan.experiment)} cannot name a folder"
    if not plan.topology.endswith(".py") and plan.topology not in topologies.names():
        yield f"there is no topology {quoted(plan.topology)}"
    if not plan.jobs or any(len(job.hosts) < 2 for job in plan.jobs):
        yield "a job with less than two workers, or none at all"
    for host in (host for job in plan.jobs for host in job.hosts):
        if not _NODE.fullmatch(host):
            yield f"host {quoted(host)}"
    for link in (*plan.bottlenecks, *plan.wires, *(event.link for event in plan.events)):
        if not _LINK.fullmatch(link):
            yield f"link {quoted(link)}"
    if not plan.bottlenecks:
        yield "no bottleneck"
    for kind in (op.get("algorithm") for job in plan.jobs for op in job.operations if op.get("kind") != "compute"):
        if kind not in collectives.names():
            yield f"there is no collective {quoted(kind)}"
    if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,200}", plan.cc.name):
        yield f"congestion control {quoted(plan.cc.name)}"
    for cc in plan.ccs:
        yield from _wrong_in(cc)
    if plan.cc.source is None and not any(part.partition(":")[0].endswith(".c") for part in plan.cc.spec.split("+")):
        yield from _unknown(plan.cc)


def _wrong_in(cc: CongestionControl) -> Iterator[str]:
    if not all(_CONSTANT.fullmatch(name) for name in cc.constants):
        yield f"a parameter of {quoted(cc.name)} has a name that is none"
    if cc.source is not None:
        if catalogue.own_name(Path(cc.source)) != cc.name:
            yield f"{quoted(cc.source)} cannot be the file of a congestion control named {quoted(cc.name)}"
        return
    known = {one.constant: one for one in catalogue.PARAMETERS.values() if one.of in cc.name}
    if stray := [name for name in cc.constants if name not in known]:
        yield f"{quoted(cc.name)} has no parameter {quoted(stray[0])}"
    for name, value in cc.constants.items():
        if name in known and not known[name].lowest <= value <= known[name].highest:
            yield f"{name} of {quoted(cc.name)} is out of range"
    yield from _unknown(cc)


def _unknown(cc: CongestionControl) -> Iterator[str]:
    try:
        if systems.parse(cc.spec).cc.name != cc.name:
            yield f"congestion control {quoted(cc.name)} is not {quoted(cc.spec)}"
    except RequestError:
        yield f"there is no congestion control {quoted(cc.spec)}"
