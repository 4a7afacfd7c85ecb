"""Check plans read from disk by the rules for a user's requests, because their author is unknown.

A plan may name files that are executed: a custom topology, a custom congestion control, a real program. Digests in the same
manifest prove nothing. Such a run is repeated only with ``--allow-external-code``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from testbed import networks, registry
from testbed.congestion import catalogue
from testbed.core.errors import RequestError
from testbed.core.runs import own_files
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.plan import CongestionControl, Plan
from testbed.core.text import plain, quoted
from testbed.spec import external, systems
from testbed.traces import collectives

_NODE = re.compile(r"[A-Za-z0-9_.]{1,40}")
SHORTEST_STEP_NS = 1_000_000  # shortest step of a rate trace
_LINK = re.compile(r"[A-Za-z0-9_.]{1,40}-[A-Za-z0-9_.]{1,40}")
_FOLDER = re.compile(r"(?!\.)[^/\x00-\x1f\x7f]{1,255}")
_CONSTANT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,55}")


def check(plan: Plan, where: Path) -> None:
    """Raises `RequestError` if no request leads to this plan, which was read ``where``."""
    for wrong in _wrong(plan):
        raise RequestError(f"{where}: this testbed makes no such plan: {wrong}. Make the run again.")


def check_trusted(plan: Plan, where: Path, *, trusted: bool) -> None:
    """Raises `RequestError` if repeating ``plan`` would execute files that it names, and the user has not allowed it."""
    named = list(dict.fromkeys(_executed(plan)))
    if named and not trusted:
        raise RequestError(
            f"{where} names code that repeating the run executes with your rights: {', '.join(named)}. Another user may have written "
            f"it. Read it, then add {external.FLAG}."
        )


def _executed(plan: Plan) -> Iterator[str]:
    yield from map(plain, own_files.content(plan))
    for cc in plan.ccs:
        if cc.source is not None:
            yield plain(cc.source)
    for job in plan.jobs:
        if job.program is not None:
            yield plain(" ".join(job.program))
    for one in plan.background:
        if one.kind == "cmd":
            yield plain(" ".join(one.program))


def _wrong(plan: Plan) -> Iterator[str]:
    """Yield the properties of ``plan`` that no valid request produces."""
    if plan.version != VERSION:
        yield f"version {plan.version}"
    if not _FOLDER.fullmatch(plan.experiment):
        yield f"experiment {quoted(plan.experiment)} cannot name a folder"
    if not plan.topology.endswith(".py") and plan.topology not in networks.names():
        yield f"there is no topology {quoted(plan.topology)}"
    if not plan.jobs or any(len(job.hosts) < (2 if job.life is None else 1) for job in plan.jobs):
        yield "a job with less than two workers, or none at all"
    if len({job.life is None for job in plan.jobs}) > 1:
        yield "jobs that hold GPUs beside others that do not"
    for host in (host for job in plan.jobs for host in job.hosts):
        if not _NODE.fullmatch(host):
            yield f"host {quoted(host)}"
    for link in (*plan.bottlenecks, *plan.wires, *(event.link for event in plan.events)):
        if not _LINK.fullmatch(link):
            yield f"link {quoted(link)}"
    if not plan.bottlenecks:
        yield "no bottleneck"
    for name, shaped in plan.bottlenecks.items():
        if shaped.trace and not (
            shaped.trace.every_ns >= SHORTEST_STEP_NS and shaped.trace.rates_bps and min(shaped.trace.rates_bps) > 0
        ):
            yield f"the rate_trace of {quoted(name)}"
    for kind in (op.algorithm for job in plan.jobs for op in job.collectives):
        if kind and not registry.is_file_name(kind) and kind not in collectives.names():
            yield f"there is no collective {quoted(kind)}"
    if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,200}", plan.system.name):
        yield f"system {quoted(plan.system.name)}"
    for cc in plan.ccs:
        yield from _wrong_in(cc)
    if not any(cc.source for cc in plan.system.congestion):
        yield from _unknown(plan.system.typed, plan.system.name)


def _wrong_in(cc: CongestionControl) -> Iterator[str]:
    if not all(_CONSTANT.fullmatch(name) for name in cc.constants):
        yield f"a parameter of {quoted(cc.name)} has a name that is none"
    if cc.source is not None:
        if catalogue.own_name(Path(cc.source)) != cc.name:
            yield f"{quoted(cc.source)} cannot be the file of a congestion control named {quoted(cc.name)}"
        return
    family = catalogue.families().get(cc.name)
    known = {parameter.constant: parameter for parameter in (family.parameters if family else ())}
    if stray := [name for name in cc.constants if name not in known]:
        yield f"{quoted(cc.name)} has no parameter {quoted(stray[0])}"
    for name, value in cc.constants.items():
        if name in known and not known[name].lowest <= value <= known[name].highest:
            yield f"{name} of {quoted(cc.name)} is not between {known[name].lowest} and {known[name].highest}"
    yield from _unknown(cc.spec, cc.name)


def _unknown(label: str, name: str) -> Iterator[str]:
    try:
        if systems.parse(label).name != name:
            yield f"congestion control {quoted(name)} is not {quoted(label)}"
    except RequestError:
        yield f"there is no congestion control {quoted(label)}"
