"""Register congestion controls with this kernel: as a module, or as an eBPF program.

The whole machine has one table of names. A run therefore registers each eBPF program under a unique name, and reports it
by its spec string.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.congestion import catalogue
from testbed.core.errors import MachineError, TestbedError
from testbed.core.runs.manifest import Loaded
from testbed.core.runs.plan import CongestionControl, Plan
from testbed.linux import netns
from testbed.linux.features import kernel_has, loaded
from testbed.linux.loading import bpf, declared
from testbed.linux.loading.modules import load as load_module
from testbed.linux.loading.modules import parameters


def loaded_module(cc: CongestionControl) -> bool:
    """Return True if ``cc`` is the testbed's and loaded as a module (for example by DKMS), which precedes eBPF."""
    return cc.source is None and loaded(cc.name)


def check_available(cc: CongestionControl) -> None:
    """Compile ours, try the kernel's own on a socket; raises `MachineError` with what would help."""
    if loaded_module(cc):
        return
    if cc.name not in catalogue.names() and cc.source is None and kernel_has(cc.name):
        return
    if (program := catalogue.program(cc)) is not None:
        compiled = bpf.compile_program(program)
        if cc.source is not None:
            declared.check(cc, bpf.find_constant_ranges(compiled))
        return
    if cc.source is not None:
        raise MachineError(
            f"{cc.source} is a module, but runs load no modules into this machine's kernel. "
            "Use --on uml, or write it as an eBPF program (NAME.bpf.c)."
        )
    raise MachineError(
        f"this machine's kernel (Linux {platform.release()}) has no {cc.name}: it has {', '.join(bpf.available())}. "
        f"Load it with `modprobe tcp_{cc.name}`, if that kernel has it as a module. {_elsewhere(cc.name)}"
    )


def _elsewhere(name: str) -> str:
    """Where a congestion control runs that a kernel lacks."""
    module = f"`--on uml --system ./tcp_{name}.c` takes its source as a module."
    return f"`--on uml` has it; {module}" if name in catalogue.built_in() else f"Or {module}"


@dataclass(frozen=True)
class Registered:
    """A registered congestion control, which sockets select by ``name``."""

    name: str
    kind: str  # "kernel" (its own), "module" or "eBPF"
    program: bpf.Loaded | None = None  # the loaded eBPF program
    constants: Mapping[str, int] = field(
        default_factory=dict
    )  # as the kernel holds them, unless each namespace has its own


def register(cc: CongestionControl, modules: Path | None = None, name: str | None = None) -> Registered:
    """Make ``cc`` usable: as a module that the kernel has loaded, as a module file, or as an eBPF program.

    Module files are in the folder ``modules``, and those of custom algorithms in ``own``. Our modules take their
    parameters per network namespace (`sysctls`).
    """
    if cc.name not in catalogue.names() and cc.source is None and (modules is not None or kernel_has(cc.name)):
        return Registered(cc.name, "kernel", constants=parameters(f"tcp_{cc.name}"))
    if modules is not None:
        return Registered(_load(cc, modules), "module")
    if name is None and loaded_module(cc):
        return Registered(cc.name, "module")
    if name is None:
        unique = f"{cc.spec} {os.urandom(8).hex()}"
        name = "mlt" + hashlib.sha256(unique.encode()).hexdigest()[:12]
    program = catalogue.program(cc)
    assert program is not None
    compiled = bpf.compile_program(program)
    loaded = bpf.register(compiled, name, cc.constants)
    stands_in = catalogue.of_the_kernel(cc)  # replaces one of the kernel's, without its parameters
    held = {} if stands_in else bpf.read_constants(loaded.map_fds, compiled, catalogue.effective(cc))
    return Registered(name, "eBPF", loaded, held)


def _load(cc: CongestionControl, modules: Path) -> str:
    """Load a module; the name that it registers."""
    before = bpf.available()
    if cc.source is None:
        if cc.name not in before:
            load_module(modules / f"tcp_{cc.name}.ko", {})
        return cc.name
    load_module(modules.parent / "own" / f"{Path(cc.source).stem}.ko", cc.constants)
    new = [name for name in bpf.available() if name not in before]
    if len(new) != 1:
        raise TestbedError(
            f"{cc.source}: loading the module registered {', '.join(new) or 'no congestion control'}; it must register one."
        )
    return new[0]


def in_force(registered: Mapping[str, Registered], plan: Plan, namespace: Callable[[str], int]) -> tuple[Loaded, ...]:
    """Return every congestion control of a run with its constants, as the kernel holds them in the ``namespace`` of
    one of its hosts."""
    users = {one.cc.spec: (one.cc, one.sources[0]) for one in plan.background if one.cc}
    users |= {job.cc.spec: (job.cc, job.hosts[0]) for job in plan.jobs}
    return tuple(
        Loaded(spec, each.name, each.kind, constants_in(namespace(users[spec][1]), users[spec][0], each))
        for spec, each in registered.items()
    )


def constants_in(namespace: int, cc: CongestionControl, registered: Registered) -> dict[str, int]:
    """Return the constants of ``cc`` as the kernel holds them in a network namespace that uses it, as far as visible."""
    folder = Path("/proc/sys/net", registered.name)
    if registered.kind == "eBPF":
        return dict(registered.constants)
    if registered.kind == "kernel" or cc.source is not None:  # they are the module's
        return parameters(f"tcp_{cc.name}" if cc.source is None else Path(cc.source).stem)
    with netns.entered(namespace):
        if not folder.is_dir() and not cc.constants:
            return {}
        return {path.name: int(path.read_text()) for path in sorted(folder.iterdir())}
