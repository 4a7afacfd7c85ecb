"""Backends: each provides a Linux, in which `testbed.linux.run_in_kernel` does the same thing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from testbed.backends.progress import Patience
from testbed.backends.usermode import kernel
from testbed.core.errors import MachineError
from testbed.core.runs.events import Event
from testbed.core.runs.manifest import Remote, UserModeLinux
from testbed.core.runs.plan import Clock, Plan
from testbed.linux import features, setup_steps
from testbed.linux.features import Features
from testbed.spec import backend_names
from testbed.spec.limits import Limits


class Backend(Protocol):
    """A place where runs execute."""

    @property
    def name(self) -> str:
        """Return the name of the backend, as in ``--on``."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of its times: virtual or real."""
        ...

    @property
    def limits(self) -> Limits:
        """Largest experiment that it runs; equals `testbed.spec.limits.limits_for`, which needs no backend."""
        ...

    def check(self, plan: Plan) -> None:
        """Raises `MachineError` if ``plan`` cannot run here, with what would help."""
        ...

    def identity(self) -> UserModeLinux | Remote | None:
        """The manifest's entry for a user-mode Linux kernel, or for another machine."""
        ...

    def run(self, plan: Plan, on_event: Callable[[Event], None], patience: Patience) -> bytes:
        """Run the plan, pass every event to ``on_event``, and return the run directory as a tar archive.

        Raises the error of the run, or `TestbedError` if ``patience`` ends.
        """
        ...


def foreseen(backend: str) -> Features:
    """Return the kernel features of ``backend`` as far as known without a run; others are assumed as in current Linux."""
    if backend == "uml":
        try:
            return features.user_mode(kernel.find().version)
        except MachineError:
            return features.user_mode()
    return features.probe() if backend == "host" and os.geteuid() == 0 else Features()


def is_assumed(backend: str) -> bool:
    """Return True if `foreseen` has to assume the properties of that kernel."""
    return backend_names.in_real_time(backend) and not (backend == "host" and os.geteuid() == 0)


def check_without_run(backend: str, plans: Sequence[Plan]) -> None:
    """Check, as far as possible without a run, that the kernel supports the plans and that congestion controls exist
    and compile.

    Raises the error that the run would raise. Does not check congestion controls in three cases: no kernel is built yet,
    another machine compiles, or the controls are for this kernel and the user is not root (modules are then not loaded).
    """
    if not backend_names.is_computed(backend):
        there = foreseen(backend)
        for plan in _kinds(plans):
            setup_steps.changes(plan, there)
    if backend == "host" and os.geteuid() == 0:
        from testbed.backends import host  # noqa: PLC0415

        for cc in {cc.spec: cc for plan in plans for cc in plan.ccs}.values():
            host.check_congestion(cc)
    if backend != "uml" or not (own := [plan for plan in plans if any(cc.source is not None for cc in plan.ccs)]):
        return
    from testbed.backends import uml  # noqa: PLC0415 (it imports this module)

    try:
        machine = uml.find()
    except MachineError:
        return
    for plan in own:
        machine.check(plan)


def _kinds(plans: Sequence[Plan]) -> list[Plan]:
    """One plan of each kind, as far as backends may be able to run one and not another."""
    kinds = {
        (plan.system.label, tuple(cc.spec for cc in plan.ccs), bool(plan.wires), bool(plan.events), plan.rto_min_us is None, any(link.ecn_threshold for link in plan.bottlenecks.values()),
         any(link.bands > 1 or link.acks_first or link.control for link in plan.bottlenecks.values()), plan.topology, plan.traced,
         any(link.selective for link in plan.bottlenecks.values()), tuple(job.program for job in plan.jobs), tuple((one.kind, one.program) for one in plan.background)): plan
        for plan in plans
    }  # fmt: skip
    return list(kinds.values())


def find(
    name: str, plans: list[Plan], linux_source: Path | None = None, prefer: UserModeLinux | None = None
) -> Backend:
    """The backend of this name, able to run ``plans``, of user-mode Linux with the kernel that they ``prefer``.

    Raises `MachineError`.
    """
    backend: Backend
    if backend_names.is_remote(name):
        from testbed.backends import ssh  # noqa: PLC0415 (paramiko takes a while)

        backend = ssh.find(name)
    elif name == backend_names.MODEL:
        from testbed.backends import flow  # noqa: PLC0415 (NumPy, which a run on another machine does without)

        backend = flow.FlowLevel()
    elif name == "host":
        from testbed.backends import host  # noqa: PLC0415 (pyroute2 takes a while)

        backend = host.Host()
    else:
        from testbed.backends import uml  # noqa: PLC0415 (it imports this module)

        backend = uml.find(linux_source, prefer)
    for plan in plans:  # plans read from disk have not been checked before
        workers = [len(job.hosts) for job in plan.jobs]
        for what, count in (("jobs", len(workers)), ("workers", max(workers)), ("hosts", sum(workers))):
            backend.limits.check(what, count, plan.experiment)
    for plan in _kinds(plans):
        backend.check(plan)
    return backend
