"""Parse ``--system``: alternating congestion controls, a transport, or a flow scheduler for all jobs.

::

    --system reno mltcp_reno reno+cubic reno:early_close=0.8 cassini cassini:over=cubic unfair:weights=3/1 priority ltp:fraction=0.9

The files of its congestion controls determine the role of a system: a treatment if one of them is, else a baseline. A
transport other than TCP is a treatment. A flow scheduler is a reference, because it has information that congestion controls
lack. Every system takes two options: ``role=`` overrides the role, ``label=`` sets the name in tables and figures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import msgspec

from testbed import registry, transports
from testbed.congestion import catalogue
from testbed.core import builtin_transport, options, system_text
from testbed.core.builtin_transport import TCP
from testbed.core.errors import RequestError, within
from testbed.core.runs.plan import Role, System
from testbed.core.system_text import Part, SystemText
from testbed.core.text import closest, quoted
from testbed.schedulers import flow

PLAIN = "reno"  # a congestion control of every kernel
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")


def parse(text: str) -> System:
    """Read one word of ``--system``; raises `RequestError`."""
    return resolve(read(text), text)


def read(text: str) -> SystemText:
    """Split a word of ``--system`` into its parts, before its names are looked up. Raises `RequestError`."""
    return system_text.parse(text, _takes_turns)


def resolve(typed: SystemText, text: str) -> System:
    """The option ``typed`` in ``text``; raises `RequestError`."""
    if typed.role is not None and typed.role not in get_args(Role):
        raise RequestError(
            f"role in {quoted(text)}: {quoted(typed.role)} is no role. Give one of {', '.join(get_args(Role))}."
        )
    if typed.label is not None and not LABEL.fullmatch(typed.label):
        raise RequestError(
            f"label in {quoted(text)}: {quoted(typed.label)} is no label. Give 1 to 40 letters, digits, spaces and . _ -"
        )
    found = _of_parts(typed.parts, text, cast("Role | None", typed.role))
    return found if typed.label is None else msgspec.structs.replace(found, label=typed.label, labelled=text)


def _of_parts(parts: Sequence[Part], text: str, asked: Role | None) -> System:
    names = [part.name for part in parts]
    if carried := [name for name in names if _is_transport(name)]:
        if len(parts) > 1:
            raise RequestError(
                f"{quoted(text)}: {carried[0]} is a transport, and transports cannot alternate between jobs. Give a job its own: "
                f"--job …,transport={carried[0]}"
            )
        return _by_transport(parts[0], text, asked)
    if scheduled := [name for name in names if _is_flow_scheduler(name)]:
        if len(parts) > 1:
            raise RequestError(
                f"{quoted(text)}: {scheduled[0]} is a flow scheduler, which decides for all jobs, so it cannot alternate with others. Name it alone."
            )
        return _by_flow_scheduler(parts[0], text, asked)
    for name in names:
        _suggest(name)
    split = [_without_tcp(part) for part in parts]
    of_tcp = Part(TCP, tuple(pair for _, own in split for pair in own))
    if of_tcp.options and len(parts) > 1:
        raise RequestError(
            f"{quoted(text)}: jobs that alternate share the options of TCP. Give a job its own: --job …,cc={names[0]},transport={of_tcp}"
        )
    transports.parse(str(of_tcp))
    controls = tuple(catalogue.read(part) for part, _ in split)
    treats = any(control.role == "treatment" for control in controls)
    name = "+".join(control.name for control in controls)
    return System(text, name, asked or ("treatment" if treats else "baseline"), controls, str(of_tcp))


def _by_transport(part: Part, text: str, asked: Role | None) -> System:
    name = part.name
    if registry.is_file_name(name):
        name, part = (
            Path(name).stem,
            replace(part, name=str(Path(name).resolve())),
        )  # workers have another current folder
    transports.parse(str(part))
    return System(text, name, asked or "treatment", transport=str(part))


def _by_flow_scheduler(part: Part, text: str, asked: Role | None) -> System:
    flow.parse(str(part))
    module = flow.find(part.name)
    return System(
        text,
        Path(part.name).stem if registry.is_file_name(part.name) else part.name,
        asked or "reference",
        flow_scheduler=str(part),
        knows=getattr(module, "KNOWS", ""),
        central=getattr(module, "CENTRAL", False),
    )


def _takes_turns(name: str) -> bool:
    """Return True if jobs can alternate ``name`` with others: a congestion control, or an unknown name."""
    return not registry.is_file_name(name) and not _is_transport(name) and not _has(registry.FLOW_SCHEDULER, name)


def _is_transport(name: str) -> bool:
    if registry.is_file_name(name):
        return registry.kind_of(name, [registry.FLOW_SCHEDULER, registry.TRANSPORT]) == registry.TRANSPORT
    return _has(registry.TRANSPORT, name) and not builtin_transport.plain(name)


def _is_flow_scheduler(name: str) -> bool:
    if not registry.is_file_name(name):
        return _has(registry.FLOW_SCHEDULER, name)
    if registry.kind_of(name, [registry.FLOW_SCHEDULER]) is None:
        raise RequestError(
            f"{quoted(name)} is neither a flow scheduler (Options, share) nor a transport ({', '.join(registry.TRANSPORT.has)})."
        )
    return True


def _suggest(name: str) -> None:
    """Raise `RequestError` for an unknown name whose closest match is a transport or a flow scheduler."""
    kinds = (registry.TRANSPORT, registry.FLOW_SCHEDULER)
    others = [other for kind in kinds for other in (*registry.names(kind), *registry.installed(kind))]
    if name in catalogue.families() or name.endswith(".c"):
        return
    if (close := closest(name, [*catalogue.families(), *others])) in others:
        raise RequestError(f"there is no system {quoted(name)}. Did you mean {close!r}?")


def _has(kind: registry.Kind, name: str) -> bool:
    return name in registry.names(kind) or (name not in catalogue.families() and name in registry.installed(kind))


def _without_tcp(part: Part) -> tuple[Part, system_text.Pairs]:
    """A congestion control without the options that are TCP's (``reno:early_close=0.8``), and these.

    A name that both have is the congestion control's: ``share`` is `mltcp_reno`'s ``shared_by``, and TCP's ``send_fraction`` behind `reno`.
    """
    family = catalogue.families().get(part.name)
    if family is None:
        return part, ()
    theirs, own = catalogue.declared(family), options.declared(transports.find(TCP).Options)
    of_tcp = options.names(own) - options.names(theirs)
    for key, value in part.options:
        if key not in options.names(theirs) | of_tcp:
            raise options.unknown(f"{key}={value}", part, (*theirs, *own))
    left = tuple(pair for pair in part.options if pair[0] not in of_tcp)
    return replace(part, options=left), tuple(pair for pair in part.options if pair[0] in of_tcp)


def in_turn(text: str) -> list[str]:
    """The systems of which jobs take turns."""
    return [str(part) for part in read(text).parts]


def share(system: System, demands: Sequence[flow.Demand], links: Mapping[str, float]) -> flow.Sharing:
    """The settings that its flow scheduler gives each job; raises `RequestError`."""
    assert system.flow_scheduler is not None
    with within(f"system: {system.label}"):
        decided = flow.parse(system.flow_scheduler).share(demands, links)
        for cc in {rule.cc for rule in decided.rules}:
            catalogue.parse(cc)
        return decided


def take_turns(system: System, jobs: int) -> flow.Sharing:
    """Return the sharing in which ``jobs`` jobs use the congestion controls of ``system`` alternately."""
    controls = [control.spec for control in system.congestion] or [by_tcp(system.transport)]
    specs = [controls[number % len(controls)] for number in range(jobs)]
    return flow.Sharing(tuple(flow.Rule(cc) for cc in specs))


def by_tcp(transport: str) -> str:
    """Return the congestion control of the TCP part of ``transport``."""
    found = transports.parse(transport)
    return str(found.options.by_tcp or PLAIN)
