"""Congestion controls by name and parameters: ``mltcp_reno:slope=1.75,intercept=0.25``.

Ours are a file each: a module (``kernel/tcp_NAME.c``) and an eBPF program
(``kernel/bpf/NAME.bpf.c``); the others are the kernel's own, or stand in for one it may
lack (``dctcp``). One of your own is named by its file: ``./mine.bpf.c`` (host) or
``./tcp_mine.c`` (uml). ``a+b``: the jobs of one run use them in turn.

What is known of each (base, role, traits, parameters) stands in a file of this folder, one a family; of your own
what its file declares (`_declared`).
"""

from __future__ import annotations

import contextlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec

from testbed import congestion
from testbed.congestion.family import Family, Parameter
from testbed.core.environment import ROOT
from testbed.core.errors import RequestError
from testbed.core.input_files import is_file
from testbed.core.options import Integer
from testbed.core.runs.plan import CongestionControl, Traits
from testbed.core.text import quoted

KERNEL = Path(ROOT) / "kernel"
PROGRAMS = KERNEL / "bpf"
USER_MODE_CONFIG = KERNEL / "uml" / "config"
NAMED_OTHERWISE = {"HSTCP": "highspeed"}  # CONFIG_TCP_CONG_…, where a congestion control has another name
ALWAYS = "reno"  # in every Linux, whatever its configuration
DECLARED = re.compile(r"^[ */#]*testbed: +(.+?)[ */]*$", re.MULTILINE)  # in the file of one's own
WHOLE = Integer(-(2**63), 2**63 - 1)
LONGEST_BYTES = 1 << 20  # of such a file, as far as this is looked for


@cache
def families() -> Mapping[str, Family]:
    """Every congestion control that is known, by name: one file of this folder a family."""
    modules = (
        import_module(f"{congestion.__name__}.{found.name}") for found in pkgutil.iter_modules(congestion.__path__)
    )
    return {family.name: family for module in modules for family in getattr(module, "FAMILIES", ())}


def titled(name: str) -> str:
    """A congestion control as people write it: ``MLTCP-Reno``; what is not known, as it is."""
    family = families().get(name)
    return family.title or name if family else name


def parameters() -> Mapping[str, Parameter]:
    """Those of all that come with the testbed, by name."""
    return {parameter.name: parameter for family in families().values() for parameter in family.parameters}


def program(cc: CongestionControl) -> Path | None:
    """Its eBPF source, or None if there is none."""
    if cc.source is not None:
        return Path(cc.source) if cc.source.endswith(".bpf.c") else None
    source = PROGRAMS / f"{cc.name}.bpf.c"
    return source if source.is_file() else None


def module(cc: CongestionControl) -> Path | None:
    """Its source as a module, or None if there is none."""
    if cc.source is not None:
        return None if cc.source.endswith(".bpf.c") else Path(cc.source)
    source = KERNEL / f"tcp_{cc.name}.c"
    return source if source.is_file() else None


@cache
def names() -> list[str]:
    """The congestion controls that come with the testbed, without those that stand in for the kernel's own."""
    return sorted(path.stem.removeprefix("tcp_") for path in KERNEL.glob("tcp_*.c"))


@cache
def built_in(config: Path = USER_MODE_CONFIG) -> tuple[str, ...]:
    """The kernel's own congestion controls that a configuration switches on: those of the user-mode kernel."""
    symbols = re.findall(r"^CONFIG_TCP_CONG_(\w+)=y$", config.read_text(), re.MULTILINE)
    named = (NAMED_OTHERWISE.get(symbol, symbol.lower()) for symbol in symbols if symbol != "ADVANCED")
    return (ALWAYS, *sorted(named))


def parse(spec: str, preset: str = "paper") -> CongestionControl:
    """Read ``name`` or ``name:parameter=value,…``, with this ``preset`` if it has one and names none; raises `RequestError`."""
    name, _, rest = spec.partition(":")
    items = [item for item in rest.split(",") if item]
    keys = [item.partition("=")[0] for item in items]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise RequestError(f"{quoted(spec)}: {quoted(twice[0])} is given twice. Give it once.")
    if name.endswith(".c"):
        return _own(spec, name, items)
    family = families().get(name)
    if family is None:
        raise RequestError(
            f"there is no congestion control {quoted(name)}. The testbed brings {', '.join(names())}; of the "
            f"kernel's own it knows {', '.join(sorted(families().keys() - set(names())))}; one of your own is named by its "
            "file: ./mine.bpf.c (host) or ./tcp_mine.c (uml). Schedulers, such as cassini, are in docs/baselines.md."
        )
    known = {parameter.name: parameter for parameter in family.parameters}
    constants: dict[str, int] = {}
    chosen, items = _expanded(family, items, spec, preset)
    for item in items:
        key, equals, text = item.partition("=")
        if not known:
            raise RequestError(
                f"{name} is the kernel's own and takes no parameters here; found {quoted(item)} in {quoted(spec)}"
            )
        if key not in known or not equals:
            raise RequestError(
                f"{quoted(item)} in {quoted(spec)} is not a parameter of {name}; there are "
                f"{', '.join(f'{p.name} ({p.meaning}; default {p.default})' for p in known.values())}"
                f"{', and preset: ' * bool(family.presets)}{', '.join(family.presets)}."
            )
        constants[known[key].constant] = _value(known[key], text, spec)
    return CongestionControl(spec, name, constants, None, family.role, family.base, family.traits, chosen)


def _expanded(family: Family, items: list[str], spec: str, usual: str) -> tuple[str | None, list[str]]:
    """The preset taken (the ``usual`` one, if none is named), and ``items`` after its own, since they say more than it does."""
    wanted = [item.removeprefix("preset=") for item in items if item.startswith("preset=")]
    if not wanted and usual in family.presets:
        wanted = [usual]
    if not wanted or not family.parameters:
        return None, items
    stated = [item for item in items if not item.startswith("preset=")]
    if wanted[0] not in family.presets:
        raise RequestError(
            f"{quoted(wanted[0])} in {quoted(spec)} is not a preset of {family.name}; there are {', '.join(family.presets)}."
        )
    preset = family.presets[wanted[0]]
    if preset.asks and not any(item.startswith(f"{preset.asks}=") for item in stated):
        raise RequestError(
            f"preset={wanted[0]} in {quoted(spec)} knows no {preset.asks}, which its flows are told: add {preset.asks}=…"
        )
    return wanted[0], [*(f"{key}={value}" for key, value in preset.values.items()), *stated]


@cache  # read once, whichever job or run asks again
def _value(parameter: Parameter, text: str, spec: str) -> int:
    try:
        value = parameter.read(text)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"{parameter.name} in {quoted(spec)}: {error}") from error
    if not parameter.lowest <= value <= parameter.highest:
        raise RequestError(f"{parameter.name} in {quoted(spec)} is out of range")
    return value


def _own(spec: str, path: str, items: list[str]) -> CongestionControl:
    """One from a file. Parameters that MLTCP has too are written as MLTCP's, others are whole numbers."""
    file = Path(path)
    name = own_name(file)
    if name is None:
        raise RequestError(
            f"{quoted(path)} cannot be a congestion control: its file is named NAME.bpf.c (eBPF, for --on host) or tcp_NAME.c "
            "(a module, for --on uml), NAME of at most 15 letters, digits and underscores."
        )
    if not is_file(file):
        raise RequestError(f"there is no file {quoted(path)}; a congestion control of your own is named by its path.")
    constants: dict[str, int] = {}
    for item in items:
        key, _, text = item.partition("=")
        if key in parameters():
            constants[parameters()[key].constant] = _value(parameters()[key], text, spec)
            continue
        try:
            constants[key] = WHOLE(text)
        except ValueError as error:
            raise RequestError(
                f"{quoted(item)} in {quoted(spec)}: a parameter of your own is a whole number"
            ) from error
    base, traits = _declared(file)
    return CongestionControl(spec, name, constants, str(file.resolve()), "treatment", base, traits)


def _declared(file: Path) -> tuple[str | None, Traits]:
    """What a file of one's own says of itself in a comment, ``testbed: base=reno needs_marks``; nothing else is assumed."""
    with file.open(errors="replace") as text:
        found = DECLARED.search(text.read(LONGEST_BYTES))
    words = dict(word.partition("=")[::2] for word in (found[1].split() if found else ()))
    base, state = words.pop("base", None), words.pop("state", None)
    known = [name for name in Traits.__struct_fields__ if name != "state"]
    if stray := [word for word, value in words.items() if word not in known or value]:
        raise RequestError(
            f"{file}: testbed: {quoted(stray[0])} is no trait; there are {', '.join(known)}, base=NAME and state=MAP."
        )
    return base, Traits(**dict.fromkeys(words, True), state=state)


def own_name(file: Path) -> str | None:
    """What a congestion control from ``file`` is called; None if no file of one is named like that."""
    match = re.fullmatch(r"tcp_([A-Za-z0-9_]{1,15})\.c|([A-Za-z0-9_]{1,15})\.bpf\.c", file.name)
    return match and (match[1] or match[2])


def on_link(cc: CongestionControl, rate_bps: int) -> CongestionControl:
    """``cc`` for a bottleneck of this rate (`Family.scaled_to`); what was asked for stays."""
    family = families().get(cc.name) if cc.source is None else None
    if family is None:
        return cc
    return msgspec.structs.replace(cc, constants={**family.scaled_to(rate_bps), **cc.constants})


def effective(cc: CongestionControl) -> dict[str, int]:
    """Its constants, those not asked for included, as far as their defaults are numbers."""
    family = families().get(cc.name) if cc.source is None else families()["mltcp_reno"] if cc.traits.learns else None
    return {**_defaults(family.parameters if family else ()), **cc.constants}


@cache
def _defaults(parameters: tuple[Parameter, ...]) -> Mapping[str, int]:
    found = {}
    for parameter in parameters:
        with contextlib.suppress(ValueError):
            found[parameter.constant] = parameter.read(parameter.default)
    return found
