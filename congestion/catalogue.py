"""Congestion controls by name and parameters: ``mltcp_reno:slope=1.75,intercept=0.25``.

Ours are a file each: a module (``kernel/tcp_NAME.c``) and an eBPF program
(``kernel/bpf/NAME.bpf.c``); the others are the kernel's own, or stand in for one it may
lack (``dctcp``). One of your own is named by its file: ``./mine.bpf.c`` (host) or
``./tcp_mine.c`` (uml). ``a+b``: the jobs of one run use them in turn.

There is one table of names for the whole machine, so a run registers each eBPF one under
a name nobody else has, and reports it by its spec string.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from core.environment import ROOT
from core.errors import RequestError
from core.reading import is_file
from core.runs.plan import CongestionControl
from core.text import quoted
from core.units import Duration, Rate, Size

KERNEL = Path(ROOT) / "kernel"
PROGRAMS = KERNEL / "bpf"
ONE = 1024  # fractions travel to the kernel in units of 1/1024
CURVES = ("linear", "quadratic", "reciprocal", "concave", "falling", "falling_reciprocal")
PUBLISHED_BPS = 40 * 10**9  # link rate that DCQCN's constants are published for
# What Linux has, if its configuration says so; anything else was misspelt.
KERNEL_OWN = frozenset([
    "reno", "cubic", "bbr", "dctcp", "vegas", "westwood", "htcp", "bic", "hybla", "highspeed", "illinois", "lp", "nv",
    "scalable", "veno", "yeah", "cdg",
])  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One parameter: its constant in the program (and name in the module), its range there, how it is written."""

    name: str
    constant: str
    meaning: str
    read: Callable[[str], int]
    lowest: int
    highest: int
    default: str
    of: str = "mltcp"  # what has it: every congestion control with this in its name


def _fraction(text: str) -> int:
    return round(float(text) * ONE)


def _us(text: str) -> int:
    return Duration.parse(text) // 1000


def _kbps(text: str) -> int:
    return Rate.parse(text) // 1000


def _curve(text: str) -> int:
    if text not in CURVES:
        raise ValueError(f"{quoted(text)} is not one of {', '.join(CURVES)}")
    return CURVES.index(text)


PARAMETERS = {
    p.name: p
    for p in (
        Parameter("slope", "slope", "S of F(r) = S r + I", _fraction, -16 * ONE, 16 * ONE, "1.75; mltcp_dcqcn 1.067"),
        Parameter("intercept", "intercept", "I of F(r) = S r + I", _fraction, 0, 16 * ONE, "0.25; mltcp_dcqcn 0.267"),
        Parameter("curve", "curve", f"shape of F: {', '.join(CURVES)}", _curve, 0, len(CURVES) - 1, "linear"),
        Parameter(
            "gap_factor", "gap_factor", "share of the longest recent gap that ends an iteration",
            _fraction, ONE // 16, ONE, "0.5",
        ),
        Parameter("first_gap", "first_gap_us", "shortest gap that can end an iteration", _us, 1, 10**7, "1ms"),
        Parameter(
            "total_bytes", "total_bytes", "bytes one flow sends per iteration; 0B: learn it",
            lambda text: int(Size.parse(text)), 0, 1 << 54, "0B",
        ),
        Parameter(
            "line_rate", "line_rate", "where flows begin", lambda text: Rate.parse(text) // 10**6, 1, 10**6,
            "the bottleneck's", "dcqcn",
        ),
        Parameter("r_ai", "r_ai", "R_AI, step of additive increase", _kbps, 1, 10**8, "40mbit, scaled", "dcqcn"),
        Parameter("r_hai", "r_hai", "R_HAI, step of hyper increase", _kbps, 1, 10**8, "400mbit, scaled", "dcqcn"),
        Parameter("g", "g", "gain of alpha", _fraction, 1, ONE // 2, "0.0039 (1/256)", "dcqcn"),
        Parameter("cnp_interval", "cnp_interval", "N, least time between CNPs", _us, 1, 10**6, "50us", "dcqcn"),
        Parameter("alpha_timer", "alpha_timer", "K, time without a CNP until alpha decays", _us, 1, 10**6, "55us", "dcqcn"),
        Parameter("rate_timer", "rate_timer", "T, time until the rate increases", _us, 1, 10**6, "55us", "dcqcn"),
        Parameter("fast_recovery", "fast_recovery", "F, increases of fast recovery", int, 1, 100, "5", "dcqcn"),
        Parameter(
            "byte_counter", "byte_counter", "B, bytes until the rate increases",
            lambda text: int(Size.parse(text)), 1000, 1 << 40, "10MB, scaled", "dcqcn",
        ),
    )
}  # fmt: skip


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


def together(ccs: tuple[CongestionControl, ...]) -> CongestionControl:
    """What a run with several of them is called."""
    if len(ccs) == 1:
        return ccs[0]
    return CongestionControl("+".join(cc.spec for cc in ccs), "+".join(cc.name for cc in ccs), {})


def parse_all(spec: str) -> tuple[CongestionControl, ...]:
    """Read ``one`` or ``one+another``: the jobs of a run take turns; raises `RequestError`."""
    return tuple(parse(part) for part in spec.split("+"))


def parse(spec: str) -> CongestionControl:
    """Read ``name`` or ``name:parameter=value,…``; raises `RequestError`."""
    name, _, rest = spec.partition(":")
    items = [item for item in rest.split(",") if item]
    if name.endswith(".c"):
        return _own(spec, name, items)
    if name not in names() and name not in KERNEL_OWN:
        raise RequestError(
            f"there is no congestion control {quoted(name)}. The testbed brings {', '.join(names())}; of the "
            f"kernel's own it knows {', '.join(sorted(KERNEL_OWN))}; one of your own is named by its file: "
            "./mine.bpf.c (host) or ./tcp_mine.c (uml). Schedulers, such as cassini, are in docs/baselines.md."
        )
    known = {key: p for key, p in PARAMETERS.items() if p.of in name and name in names()}
    constants: dict[str, int] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not known:
            raise RequestError(
                f"{name} is the kernel's own and takes no parameters here; found {quoted(item)} in {quoted(spec)}"
            )
        if key not in known or not equals:
            raise RequestError(
                f"{quoted(item)} in {quoted(spec)} is not a parameter of {name}; there are "
                f"{', '.join(f'{p.name} ({p.meaning}; default {p.default})' for p in known.values())}."
            )
        constants[known[key].constant] = _value(known[key], text, spec)
    return CongestionControl(spec=spec, name=name, constants=constants)


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
        if key in PARAMETERS:
            constants[PARAMETERS[key].constant] = _value(PARAMETERS[key], text, spec)
            continue
        try:
            constants[key] = int(text)
        except ValueError as error:
            raise RequestError(
                f"{quoted(item)} in {quoted(spec)}: a parameter of your own is a whole number"
            ) from error
    return CongestionControl(spec, name, constants, str(file.resolve()))


def own_name(file: Path) -> str | None:
    """What a congestion control from ``file`` is called; None if no file of one is named like that."""
    match = re.fullmatch(r"tcp_([A-Za-z0-9_]{1,15})\.c|([A-Za-z0-9_]{1,15})\.bpf\.c", file.name)
    return match and (match[1] or match[2])


def on_link(cc: CongestionControl, rate_bps: int) -> CongestionControl:
    """``cc`` for a bottleneck of this rate: DCQCN begins at its rate, and its constants belong to 40 Gbit/s and more."""
    if cc.source is not None or "dcqcn" not in cc.name:
        return cc
    share = min(1.0, rate_bps / PUBLISHED_BPS)
    r_ai = max(1, round(40_000 * share))
    scaled = {
        "line_rate": max(1, rate_bps // 10**6), "r_ai": r_ai, "r_hai": 10 * r_ai,
        "byte_counter": max(1000, round(10**7 * share)),
    }  # fmt: skip
    return msgspec.structs.replace(cc, constants={**scaled, **cc.constants})
