"""Look up congestion controls by name and parameters: ``mltcp_reno:slope=1.75,intercept=0.25``.

The testbed's own are one file each: a module (``kernel/tcp_NAME.c``) and an eBPF program (``kernel/bpf/NAME.bpf.c``).
The others belong to the kernel, or replace one that it may lack (``dctcp``). A custom one is named by its file:
``./mine.bpf.c`` (host) or ``./tcp_mine.c`` (uml). ``a+b``: the jobs of one run alternate between them.

Base, role, traits and parameters of each family stand in a file of this folder; a custom file declares its own (`_read_declaration`).
"""

from __future__ import annotations

import contextlib
import pkgutil
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from testbed import congestion
from testbed.congestion.family import Family, Parameter
from testbed.core import options, system_text
from testbed.core.environment import ROOT
from testbed.core.errors import RequestError
from testbed.core.input_files import is_file
from testbed.core.options import Declared, Integer, OneOf
from testbed.core.runs.plan import CongestionControl, Traits
from testbed.core.system_text import Part
from testbed.core.text import did_you_mean, quoted

KERNEL = Path(ROOT) / "kernel"
PROGRAMS = KERNEL / "bpf"
USER_MODE_CONFIG = KERNEL / "uml" / "config"
NAMED_OTHERWISE = {"HSTCP": "highspeed"}  # CONFIG_TCP_CONG_…, where a congestion control has another name
ALWAYS = "reno"  # in every Linux, for any configuration
DECLARED = re.compile(r"^[ */#]*testbed: +(.+?)[ */]*$", re.MULTILINE)  # in the custom file
WHOLE = Integer(-(2**63), 2**63 - 1)
LONGEST_BYTES = 1 << 20  # bytes of such a file that are searched


@cache
def families() -> Mapping[str, Family]:
    """Return every known congestion control, by name."""
    modules = (
        import_module(f"{congestion.__name__}.{found.name}") for found in pkgutil.iter_modules(congestion.__path__)
    )
    return {family.name: family for module in modules for family in getattr(module, "FAMILIES", ())}


def titled(name: str) -> str:
    """A congestion control's usual spelling: ``MLTCP-Reno``; unknown names stay unchanged."""
    family = families().get(name)
    return family.title or name if family else name


def parameters() -> Mapping[str, Parameter]:
    """Parameters of the testbed's congestion controls, by name. The kernel's reuse some names (``beta``) with other meanings."""
    ours = (family for family in families().values() if family.name not in built_in())
    return {parameter.name: parameter for family in ours for parameter in family.parameters}


def program(cc: CongestionControl) -> Path | None:
    """Return the path of its eBPF source; None if there is none."""
    if cc.source is not None:
        return Path(cc.source) if cc.source.endswith(".bpf.c") else None
    source = PROGRAMS / f"{cc.name}.bpf.c"
    return source if source.is_file() else None


def module(cc: CongestionControl) -> Path | None:
    """Return the path of its source as a module; None if there is none."""
    if cc.source is not None:
        return None if cc.source.endswith(".bpf.c") else Path(cc.source)
    source = KERNEL / f"tcp_{cc.name}.c"
    return source if source.is_file() else None


@cache
def names() -> list[str]:
    """The congestion controls that come with the testbed, without those that stand in for the kernel's own."""
    return sorted(path.stem.removeprefix("tcp_") for path in KERNEL.glob("tcp_*.c"))


def of_the_kernel(cc: CongestionControl) -> bool:
    """Return True for a congestion control of the kernel, neither the testbed's nor custom."""
    return cc.source is None and cc.name not in names()


def at_boot(ccs: Iterable[CongestionControl]) -> list[str]:
    """The parameters of a kernel's built-in congestion controls on its command line: ``tcp_cubic.beta=512``."""
    return [
        f"tcp_{cc.name}.{constant}={value}"
        for cc in ccs
        if of_the_kernel(cc)
        for constant, value in sorted(cc.constants.items())
    ]


@cache
def built_in(config: Path = USER_MODE_CONFIG) -> tuple[str, ...]:
    """The kernel's own congestion controls that a configuration switches on: those of the user-mode kernel."""
    symbols = re.findall(r"^CONFIG_TCP_CONG_(\w+)=y$", config.read_text(), re.MULTILINE)
    named = (NAMED_OTHERWISE.get(symbol, symbol.lower()) for symbol in symbols if symbol != "ADVANCED")
    return (ALWAYS, *sorted(named))


def parse(spec: str, preset: str = "paper") -> CongestionControl:
    """Read a congestion control from a text, as `read` does from a part."""
    return read(system_text.part(spec), preset)


def read(part: Part, preset: str = "paper") -> CongestionControl:
    """A congestion control with its parameters, and this ``preset`` if it has one and names none; raises `RequestError`."""
    name = part.name
    if name.endswith(".c"):
        return _own(part)
    family = families().get(name)
    if family is None:
        hint = did_you_mean(
            name, families(), f"The testbed brings {', '.join(names())}; of the "
            f"kernel's own, those on `uml` are {', '.join(sorted(families().keys() - set(names())))}. Name a custom one by its "
            "file: ./mine.bpf.c (host) or ./tcp_mine.c (uml). Schedulers, such as cassini, are in docs/reference/schedulers.md.",
        )  # fmt: skip
        raise RequestError(f"there is no congestion control {quoted(name)}. {hint}")
    chosen, constants = _constants(name, part, preset)
    return CongestionControl(str(part), name, dict(constants), None, family.role, family.base, family.traits, chosen)


def declared(family: Family) -> tuple[Declared, ...]:
    """The options that may follow the name of a congestion control."""
    presets = Declared("preset", f"one of {', '.join(family.presets)}: parameters by one word", OneOf(*family.presets))
    return (*(parameter.declared for parameter in family.parameters), *([presets] if family.presets else []))


def _constants(name: str, part: Part, usual: str) -> tuple[str | None, Mapping[str, int]]:
    """Return the preset (``usual`` unless named), and its constants overridden by those of ``part``."""
    family = families()[name]
    given = dict(_given(name, part))
    chosen: str | None = given.pop("preset", usual if usual in family.presets else None)
    if chosen is not None:
        preset = family.presets[chosen]
        if preset.asks and preset.asks not in given:
            raise RequestError(
                f"preset={chosen} in {quoted(part)} needs {preset.asks}, which its flows use. Add {preset.asks}=…"
            )
        given = {**_given(name, Part(name, tuple(preset.values.items()))), **given}
    constants = {one.name: one.constant for one in family.parameters}
    return chosen, {constants[key]: value for key, value in given.items()}


@cache  # read once, for all jobs and runs
def _given(name: str, part: Part) -> Mapping[str, Any]:
    return options.read(declared(families()[name]), part)


def _own(part: Part) -> CongestionControl:
    """Read a custom congestion control.

    Parameters that MLTCP also has are written as MLTCP's; others are whole numbers.
    """
    spec, path = str(part), part.name
    file = Path(path)
    name = own_name(file)
    if name is None:
        raise RequestError(
            f"{quoted(path)} is not the file name of a congestion control. Name it NAME.bpf.c (eBPF, for --on host) or tcp_NAME.c "
            "(a module, for --on uml), where NAME has at most 15 letters, digits and underscores."
        )
    if not is_file(file):
        raise RequestError(
            f"there is no file {quoted(path)}; name a custom congestion control by its path, such as ./tcp_mine.c."
        )
    known = {key: one for one in parameters().values() for key in one.declared.names}
    accepted = dict.fromkeys(
        known[key].declared if key in known else Declared(key, "", _whole) for key, _ in part.options
    )
    values = options.read(tuple(accepted), part)
    constants = {known[key].constant if key in known else key: value for key, value in values.items()}
    base, traits = _read_declaration(file)
    return CongestionControl(spec, name, constants, str(file.resolve()), "treatment", base, traits)


def _whole(text: str) -> int:
    try:
        return WHOLE(text)
    except ValueError as error:
        raise ValueError(f"{error}. A custom parameter is a whole number") from error


def _read_declaration(file: Path) -> tuple[str | None, Traits]:
    """Return base and traits that a custom file declares in a comment, ``testbed: base=reno needs_marks``; others are
    not assumed."""
    with file.open(errors="replace") as text:
        found = DECLARED.search(text.read(LONGEST_BYTES))
    words = dict(word.partition("=")[::2] for word in (found[1].split() if found else ()))
    base, state = words.pop("base", None), words.pop("state", None)
    known = [name for name in Traits.__struct_fields__ if name != "state"]
    if stray := [word for word, value in words.items() if word not in known or value]:
        raise RequestError(
            f"{file}: testbed: {quoted(stray[0])} is no trait. Write some of {', '.join(known)}, base=NAME and state=MAP."
        )
    return base, Traits(**dict.fromkeys(words, True), state=state)


def own_name(file: Path) -> str | None:
    """The name of the congestion control in ``file``; None if the file's name is not that of one."""
    match = re.fullmatch(r"tcp_([A-Za-z0-9_]{1,15})\.c|([A-Za-z0-9_]{1,15})\.bpf\.c", file.name)
    return match and (match[1] or match[2])


def on_link(cc: CongestionControl, rate_bps: int) -> CongestionControl:
    """Return ``cc`` for a bottleneck of ``rate_bps`` (`Family.scaled_to`); requested constants stay."""
    family = families().get(cc.name) if cc.source is None else None
    if family is None:
        return cc
    return msgspec.structs.replace(cc, constants={**family.scaled_to(rate_bps), **cc.constants})


def effective(cc: CongestionControl) -> dict[str, int]:
    """Return all its constants, including defaults, as far as these are numbers."""
    family = families().get(cc.name) if cc.source is None else families()["mltcp_reno"] if cc.traits.learns else None
    return {**_defaults(family.parameters if family else ()), **cc.constants}


@cache
def _defaults(parameters: tuple[Parameter, ...]) -> Mapping[str, int]:
    found = {}
    for parameter in parameters:
        with contextlib.suppress(ValueError):
            found[parameter.constant] = parameter.read(parameter.default)
    return found
