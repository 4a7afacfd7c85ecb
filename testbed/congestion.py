"""Congestion controls by name and parameters: ``mltcp_reno:slope=1.75,intercept=0.25``.

Ours come as eBPF programs (``kernel/bpf/NAME.bpf.c``), the others are the kernel's own.
There is one table of names for the whole machine, so a run registers each of ours under
a name nobody else has, and reports it by its spec string.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from testbed import bpf
from testbed.environment import ROOT
from testbed.errors import MachineError, RequestError
from testbed.modules import load as load_module
from workloads.units import Duration, Size

PROGRAMS = Path(ROOT) / "kernel" / "bpf"
ONE = 1024  # fractions travel to the kernel in units of 1/1024
# What Linux has, if its configuration says so; anything else was misspelt.
KERNEL_OWN = frozenset(
    [
        "reno",
        "cubic",
        "bbr",
        "dctcp",
        "vegas",
        "westwood",
        "htcp",
        "bic",
        "hybla",
        "highspeed",
        "illinois",
        "lp",
        "nv",
        "scalable",
        "veno",
        "yeah",
        "cdg",
    ]
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of an MLTCP congestion control: its constant in the program, and its range."""

    name: str
    constant: str
    meaning: str
    read: Callable[[str], int]
    lowest: int
    highest: int
    default: str


def _fraction(text: str) -> int:
    return round(float(text) * ONE)


PARAMETERS = {
    p.name: p
    for p in (
        Parameter("slope", "slope", "S of F(r) = S r + I", _fraction, -16 * ONE, 16 * ONE, "1.75"),
        Parameter("intercept", "intercept", "I of F(r) = S r + I", _fraction, 0, 16 * ONE, "0.25"),
        Parameter(
            "gap_factor", "gap_factor", "share of the longest recent gap that ends an iteration",
            _fraction, ONE // 16, ONE, "0.5",
        ),
        Parameter(
            "first_gap", "first_gap_us", "shortest gap that can end an iteration",
            lambda text: Duration.parse(text) // 1000, 1, 10**7, "1ms",
        ),
        Parameter(
            "total_bytes", "total_bytes", "bytes one flow sends per iteration; 0B: learn it",
            lambda text: int(Size.parse(text)), 0, 1 << 54, "0B",
        ),
    )
}  # fmt: skip


class CongestionControl(msgspec.Struct, frozen=True):
    """A congestion control as asked for; ``constants`` are what its program's globals get."""

    spec: str
    name: str
    constants: dict[str, int]

    @property
    def label(self) -> str:
        """The name of its folder in the results."""
        if not self.constants:
            return self.name
        return f"{self.name}-{hashlib.sha256(self.spec.encode()).hexdigest()[:8]}"

    @property
    def program(self) -> Path | None:
        """Its eBPF source, or None for one of the kernel's own."""
        source = PROGRAMS / f"{self.name}.bpf.c"
        return source if source.is_file() else None


def names() -> list[str]:
    """The congestion controls that come with the testbed."""
    return sorted(path.name.removesuffix(".bpf.c") for path in PROGRAMS.glob("*.bpf.c"))


def parse(spec: str) -> CongestionControl:
    """Read ``name`` or ``name:parameter=value,…``; raises `RequestError`."""
    name, _, rest = spec.partition(":")
    if name not in names() and name not in KERNEL_OWN:
        raise RequestError(
            f"there is no congestion control {name!r}. The testbed brings {', '.join(names())}; of the "
            f"kernel's own this machine has {', '.join(bpf.available())}."
        )
    constants: dict[str, int] = {}
    for item in filter(None, rest.split(",")):
        key, equals, text = item.partition("=")
        parameter = PARAMETERS.get(key)
        if name not in names():
            raise RequestError(f"{name} is the kernel's own and takes no parameters here; found {item!r} in {spec!r}")
        if parameter is None or not equals:
            raise RequestError(
                f"{item!r} in {spec!r} is not a parameter of {name}; there are "
                f"{', '.join(f'{p.name} ({p.meaning}; default {p.default})' for p in PARAMETERS.values())}."
            )
        try:
            value = parameter.read(text)
        except ValueError as error:
            raise RequestError(f"{key} in {spec!r}: {error}") from error
        if not parameter.lowest <= value <= parameter.highest:
            raise RequestError(f"{key} in {spec!r} is out of range")
        constants[parameter.constant] = value
    return CongestionControl(spec=spec, name=name, constants=constants)


def check_available(cc: CongestionControl) -> None:
    """Compile ours, try the kernel's own on a socket; raises `MachineError` with what would help."""
    if cc.program is not None:
        bpf.compile_program(cc.program)
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc.name.encode())
        except FileNotFoundError as error:
            raise MachineError(
                f"this kernel has no {cc.name}; it has {', '.join(bpf.available())}. "
                f"A kernel that has it as a module loads it with `modprobe tcp_{cc.name}`."
            ) from error
        except PermissionError:
            pass  # restricted, which root is not


@dataclass(frozen=True)
class Registered:
    """A congestion control that sockets can ask for by ``name``."""

    name: str
    kind: str  # "kernel" (its own), "module" or "eBPF"
    program: bpf.Loaded | None = None  # what holds an eBPF one


def register(cc: CongestionControl, modules: Path | None = None, name: str | None = None) -> Registered:
    """Make ``cc`` usable: as a module from the folder ``modules``, or else as an eBPF program."""
    if cc.name not in names():
        return Registered(cc.name, "kernel")
    if modules is not None:
        load_module(modules / f"tcp_{cc.name}.ko", cc.constants)
        return Registered(cc.name, "module")
    if name is None:
        unique = f"{cc.spec} {os.urandom(8).hex()}"
        name = "mlt" + hashlib.sha256(unique.encode()).hexdigest()[:12]
    assert cc.program is not None
    return Registered(name, "eBPF", bpf.register(bpf.compile_program(cc.program), name, cc.constants))
