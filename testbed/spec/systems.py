"""What may be named under ``--system``: congestion controls, in turn, a transport, or a flow scheduler for all jobs.

::

    --system reno mltcp_reno reno+cubic reno:early_close=0.8 cassini cassini:over=cubic unfair:weights=3/1 priority ltp:fraction=0.9

The role of a system follows from its congestion controls' own files: a treatment if one of them is, else a baseline; a
transport that is not TCP is a treatment; a flow scheduler, which knows what no congestion control does, is a reference. Two options go with every
system: ``role=`` overrides that role, ``label=`` is its name in tables and figures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast, get_args

import msgspec

from testbed import registry, transports
from testbed.congestion import catalogue
from testbed.core import builtin_transport
from testbed.core.builtin_transport import TCP
from testbed.core.errors import RequestError, within
from testbed.core.options import names as option_names
from testbed.core.runs.plan import Role, System
from testbed.core.text import quoted
from testbed.schedulers import flow

PLAIN = "reno"  # that every kernel has
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")


def parse(label: str) -> System:
    """Read one word of ``--system``; raises `RequestError`."""
    text, role = _without(label, "role")
    if role is not None and role not in get_args(Role):
        raise RequestError(f"role in {quoted(label)}: give one of {', '.join(get_args(Role))}")
    text, name = _without(text, "label")
    if name is not None and not LABEL.fullmatch(name):
        raise RequestError(
            f"label in {quoted(label)}: {quoted(name)} is no label. Give 1 to 40 letters, digits, spaces and . _ -"
        )
    found = _parsed(text, label, cast("Role | None", role))
    return found if name is None else msgspec.structs.replace(found, label=name, labelled=label)


def _parsed(text: str, label: str, asked: Role | None) -> System:
    """The system ``text``, which says neither role nor label."""
    parts = in_turn(text)
    names = [part.partition(":")[0] for part in parts]
    if carried := [name for name in names if _is_transport(name)]:
        if len(parts) > 1:
            raise RequestError(
                f"{quoted(text)}: {carried[0]} is a transport, with which jobs cannot take turns here; give a job its own: "
                f"--job …,transport={carried[0]}"
            )
        name, colon, rest = text.partition(":")
        own = registry.is_file_name(name)
        text = f"{Path(name).resolve()}{colon}{rest}" if own else text  # workers have another current folder
        name = Path(name).stem if own else transports.parse(text).name
        transports.parse(text)
        return System(label, name, asked or "treatment", transport=text)
    named = [name for name in names if _is_flow_scheduler(name)]
    if not named:
        parts, transport = _tcp(parts)
        if not builtin_transport.plain(transport) and len(parts) > 1:
            raise RequestError(
                f"{quoted(text)}: jobs that take turns share one TCP; give a job its own: --job …,cc={names[0]},transport={transport}"
            )
        controls = tuple(catalogue.parse(part) for part in parts)
        treats = any(control.role == "treatment" for control in controls)
        name = "+".join(control.name for control in controls)
        return System(label, name, asked or ("treatment" if treats else "baseline"), controls, transport)
    if len(parts) > 1:
        raise RequestError(
            f"{quoted(text)}: {named[0]} is a scheduler and decides for all jobs; they cannot take turns with it."
        )
    policy = flow.parse(text)
    module = flow.find(policy.name)
    return System(
        label,
        Path(policy.name).stem if registry.is_file_name(policy.name) else policy.name,
        asked or "reference",
        flow_scheduler=text,
        knows=getattr(module, "KNOWS", ""),
        central=getattr(module, "CENTRAL", False),
    )


def _is_transport(name: str) -> bool:
    if registry.is_file_name(name):
        return registry.kind_of(name, [registry.FLOW_SCHEDULER, registry.TRANSPORT]) == registry.TRANSPORT
    return name in transports.names() and not builtin_transport.plain(name)


def _is_flow_scheduler(name: str) -> bool:
    if not registry.is_file_name(name):
        return name in flow.names()
    if registry.kind_of(name, [registry.FLOW_SCHEDULER]) is None:
        raise RequestError(
            f"{quoted(name)} is neither a flow scheduler (Options, share) nor a transport ({', '.join(registry.TRANSPORT.has)})."
        )
    return True


def _tcp(parts: Sequence[str]) -> tuple[list[str], str]:
    """Congestion controls without what TCP's own options say (``reno:early_close=0.8``), and TCP with these."""
    own = option_names(transports.find(TCP).Options)
    kept, options = [], []
    for part in parts:
        name, colon, rest = part.partition(":")
        family = catalogue.families().get(name)
        theirs = {one.name for one in family.parameters} if family else own
        items = rest.split(",")
        mine = [item for item in items if item.partition("=")[0] in own - theirs]
        left = ",".join(item for item in items if item not in mine)
        options += mine
        kept.append(name + (colon + left if left else "") if mine else part)
    if not options:
        return kept, TCP
    transport = f"{TCP}:{','.join(options)}"
    transports.parse(transport)
    return kept, transport


def in_turn(label: str) -> list[str]:
    """The systems of which jobs take turns. A plus of an option (``mlt:bands=2+drop``) is none between them."""
    return re.split(r"\+(?!(?:drop|solved|apart)(?:[,+]|$))", label)


def _without(label: str, option: str) -> tuple[str, str | None]:
    """What is typed without ``option=…``, and its value; raises `RequestError` for several values."""
    found: list[str] = []
    parts = []
    for part in in_turn(label):
        name, colon, rest = part.partition(":")
        items = rest.split(",")
        found += [item.removeprefix(f"{option}=") for item in items if item.startswith(f"{option}=")]
        kept = ",".join(item for item in items if not item.startswith(f"{option}="))
        parts.append(name + (colon + kept if kept else ""))
    if not found:
        return label, None
    if len(set(found)) > 1:
        raise RequestError(f"{option} in {quoted(label)}: {' and '.join(found)} are given. Give one.")
    return "+".join(parts), found[0]


def share(system: System, demands: Sequence[flow.Demand], links: Mapping[str, float]) -> flow.Sharing:
    """What its flow scheduler tells each job; raises `RequestError`."""
    assert system.flow_scheduler is not None
    with within(f"system: {system.label}"):
        decided = flow.parse(system.flow_scheduler).share(demands, links)
        for cc in {rule.cc for rule in decided.rules}:
            catalogue.parse(cc)
        return decided


def take_turns(system: System, jobs: int) -> flow.Sharing:
    """Its congestion controls in turn (a transport's own), and nothing else, for so many jobs."""
    controls = [control.spec for control in system.congestion] or [by_tcp(system.transport)]
    specs = [controls[number % len(controls)] for number in range(jobs)]
    return flow.Sharing(tuple(flow.Rule(cc) for cc in specs))


def by_tcp(transport: str) -> str:
    """The congestion control of what a job with this transport sends by TCP."""
    found = transports.parse(transport)
    return str(found.options.by_tcp or PLAIN)
