"""Places to run: each provides a Linux, in which `testbed.inside` does the same thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from testbed import where
from testbed.errors import MachineError, said_of
from testbed.plan import Plan, plans
from testbed.spec import Spec


class Substrate(Protocol):
    """One place to run."""

    @property
    def name(self) -> str:
        """As in ``--on``."""
        ...

    def check(self, plan: Plan) -> None:
        """Raises `MachineError` if ``plan`` cannot run here, with what would help."""
        ...

    def identity(self) -> dict[str, Any] | None:
        """What the manifest says of a kernel that is ours, or of another machine."""
        ...

    def run(self, plan: Plan, on_event: Callable[[dict[str, Any]], None], limit_s: float) -> bytes:
        """Carry the plan in, hand every event out, return the run directory as a tar archive.

        Raises what the run raised, or `TestbedError` after ``limit_s`` of wall time.
        """
        ...


def settle(
    read: Callable[[dict[str, Any]], list[Spec]], flags: dict[str, Any], linux_source: Path | None = None
) -> tuple[list[Spec], Substrate]:
    """What is run, and where: ``auto`` is `host` if that is able to run it, else `uml`.

    The two may be asked for different things (``[realtime]``): ``read`` gives the specs for
    ``flags``, which name the place.
    """
    specs = read(flags)
    on = specs[0].on
    if on == "auto" and linux_source is None:
        here = read({**flags, "on": "host"})
        try:
            return here, find("host", _plans(here))
        except MachineError as not_here:
            try:
                return (specs := read({**flags, "on": "uml"})), find("uml", _plans(specs))
            except MachineError as nor_there:
                raise MachineError(
                    f"On this machine's own kernel: {not_here} In user-mode Linux: {nor_there}"
                ) from nor_there
    return specs, find("uml" if on == "auto" else on, _plans(specs), linux_source)


def _plans(specs: list[Spec]) -> list[Plan]:
    found = []
    for spec in specs:
        with said_of(spec.name if len(specs) > 1 else None):
            found += plans(spec)
    return found


def find(place: str, plans: list[Plan], linux_source: Path | None = None) -> Substrate:
    """The substrate at one place, able to run ``plans``; raises `MachineError`."""
    from testbed.substrates import host, uml  # noqa: PLC0415 (each knows this module)

    substrate: Substrate
    if where.is_remote(place):
        from testbed.substrates import ssh  # noqa: PLC0415 (paramiko takes a while)

        substrate = ssh.find(place)
    else:
        substrate = host.Host() if place == "host" else uml.find(linux_source)
    # One plan of each kind, as far as places may be able to run one and not another.
    kinds = {
        (plan.cc.spec, bool(plan.wires), bool(plan.events), any(link.marking for link in plan.bottlenecks.values()),
         any(link.bands > 1 or link.acks_first for link in plan.bottlenecks.values()), plan.topology,
         tuple(job.program for job in plan.jobs)): plan
        for plan in plans
    }  # fmt: skip
    for plan in kinds.values():
        substrate.check(plan)
    return substrate
