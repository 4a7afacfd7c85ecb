"""Measure the capacity of a backend with a real clock, and choose a backend for a set of experiments.

A virtual machine with an emulated processor forwards a hundredth of what the experiments need, so each of their runs would be
invalid. The unshaped path is therefore measured before the first run (`measure`) and compared with the needs of each
experiment (`decide`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pandas as pd

from testbed import spec
from testbed.backends import Backend
from testbed.backends.progress import patience
from testbed.backends.usermode import kernel
from testbed.core.errors import EXIT_FAILED, MachineError, TestbedError
from testbed.core.runs import rundir
from testbed.core.runs.events import Event
from testbed.core.runs.manifest import Told
from testbed.core.runs.plan import Plan
from testbed.core.units import Rate
from testbed.linux.sampling import disturbances
from testbed.planning import plan
from testbed.spec import backend_names

ROOM = 3.0  # unshaped capacity ÷ needed rate: from there on I2 is ok (docs/reference/invariants.md)
# The smallest run that measures the unshaped path: two jobs that send at the same time, for a few iterations.
PROBE: dict[str, Any] = {
    "jobs": 2, "system": ["reno"], "iterations": 1, "compute": "1ms", "bytes": "20kB", "rate": "10mbit", "ecn": "off",
    "buffer": "20ms", "isolated_runs": "none",
}  # fmt: skip

IN_VM = "vagrant-uml"  # the user-mode kernel of the virtual machine; not a backend of --on
NAMES = {
    backend_names.EXACT: "in virtual time here",
    IN_VM: "in virtual time in the VM",
    backend_names.VAGRANT: "in the VM",
}


@dataclass(frozen=True)
class Reach:
    """Measured capacity of one backend with a real clock."""

    bps: Mapping[int, float]  # of the unshaped path, by MTU
    disturbances: pd.DataFrame  # while it was measured
    kernel: str
    failed: str = ""  # the reason why the measurement failed; its capacity then counts as 0


@dataclass(frozen=True)
class Need:
    """An experiment's load on the path: the largest rate that crosses the bottlenecks at once."""

    experiment: str
    mtu: int
    bps: int


def needs(plans: Iterable[Plan]) -> tuple[Need, ...]:
    """The most of each experiment, by MTU."""
    most: dict[tuple[str, int], int] = {}
    for each in plans:
        key = each.experiment, each.link.mtu
        most[key] = max(most.get(key, 0), each.needed_bps)
    return tuple(Need(experiment, mtu, bps) for (experiment, mtu), bps in most.items())


def measure(backend: Backend, mtus: Iterable[int]) -> Reach:
    """Measure the unshaped path of a backend with frames of each of these sizes.

    A backend that fails this run has a capacity of 0. Raises `MachineError` if the run reports no capacity.
    """
    bps: dict[int, float] = {}
    noted: list[pd.DataFrame] = []
    kernel = failed = ""
    for mtu in sorted(set(mtus)):
        wanted = probe(mtu)
        try:
            files = rundir.unpack(backend.run(wanted, _ignore_event, patience(wanted)))
        except TestbedError as error:
            if error.exit_code != EXIT_FAILED:
                raise
            bps[mtu], failed = 0.0, str(error)
            continue
        reported = msgspec.json.decode(files["manifest.json"], type=Told)
        if not reported.measured.capacity_bps:
            raise MachineError(f"{backend.name}: the run that measures the unshaped path did not report its capacity.")
        bps[mtu], kernel = reported.measured.capacity_bps, reported.kernel
        noted.append(pd.read_csv(io.BytesIO(files[disturbances.TABLE])))
    return Reach(bps, pd.concat(noted, ignore_index=True) if noted else pd.DataFrame({"waited_s": []}), kernel, failed)


def probe(mtu: int) -> Plan:
    """The run that measures the unshaped path with frames of this size."""
    asked = spec.read(None, {**PROBE, "mtu": mtu, "on": "host"})
    (found,) = (one for one in plan.plans(plan.resolve(asked)) if one.alone is None)
    return msgspec.structs.replace(found, measure_capacity=True)


def _ignore_event(_event: Event) -> None:
    """Ignore an event, because nothing displays progress."""


@dataclass(frozen=True)
class Decision:
    """The backend of the experiments, and the reason."""

    backend: str  # as in --on, or `IN_VM`
    reach: Reach
    beyond: tuple[Need, ...] = ()  # needs above the measured capacity
    experiments: int = 0
    only_virtual: bool = False  # none of the experiments can run against a real clock
    to_build: bool = False  # its user-mode kernel is not built yet

    def __str__(self) -> str:
        """Return the decision as a sentence."""
        there = NAMES.get(self.backend, f"on `{self.backend}`")
        there += " (a run builds its kernel first)" if self.to_build else ""
        if self.only_virtual:
            return f"None of these experiments can run against a real clock: they run {there}."
        carries = " and ".join(
            f"{Rate(int(float(f'{bps:.2g}')))} in frames of {mtu} bytes" for mtu, bps in self.reach.bps.items()
        )
        if not self.beyond:
            return f"It carries {carries}, at least {ROOM:g} times what the experiments need: they run {there}."
        if self.reach.failed:
            return f"The run that measures what it carries failed ({self.reach.failed.rstrip('.')}): they run {there}."
        most = max(self.beyond, key=lambda need: need.bps)
        names = len({need.experiment for need in self.beyond})
        return (
            f"It carries {carries}, and {names} of {self.experiments} experiments need more ({most.experiment}: "
            f"{ROOM:g} × {Rate(most.bps)}): they run {there}."
        )


@dataclass(frozen=True)
class UserModeKernels:
    """Machines that have a user-mode kernel, or can have one."""

    in_vm: bool = False  # in the VM that was measured, with a processor that is not emulated
    here: bool = True  # built on this machine
    possible_here: bool = True


def decide(measured: str, reach: Reach, needed: Sequence[Need], kernels: UserModeKernels) -> Decision:
    """Choose the backend of experiments that would go to the ``measured`` one.

    That backend, if its capacity suffices for all of them. Else virtual time: in the VM if it has a user-mode kernel
    and no emulated processor, or if this machine has none and can build none; otherwise here.
    """
    beyond = tuple(need for need in needed if reach.bps[need.mtu] < ROOM * need.bps)
    experiments = len({need.experiment for need in needed})
    if needed and not beyond:
        return Decision(measured, reach, (), experiments)
    in_vm = backend_names.is_vm(measured) and (kernels.in_vm or not (kernels.here or kernels.possible_here))
    return Decision(
        IN_VM if in_vm else backend_names.EXACT, reach, beyond, experiments,
        only_virtual=not needed, to_build=not (kernels.in_vm if in_vm else kernels.here),
    )  # fmt: skip


def user_mode_kernels(measured: str) -> UserModeKernels:
    """User-mode kernels of this machine, and of the VM if the VM was ``measured``."""
    from testbed.backends import ssh  # noqa: PLC0415 (paramiko takes a while)

    in_vm = backend_names.is_vm(measured) and ssh.has_user_mode_kernel(measured)
    try:
        kernel.check_possible()
    except MachineError:
        return UserModeKernels(in_vm, kernel.is_built(), possible_here=False)
    return UserModeKernels(in_vm, kernel.is_built())
