"""Places to run: each provides a Linux, in which `testbed.inside` does the same thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import MachineError
from testbed.plan import Plan


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
        """What the manifest says of a kernel that is ours."""
        ...

    def run(self, plan: Plan, on_event: Callable[[dict[str, Any]], None], limit_s: float) -> bytes:
        """Carry the plan in, hand every event out, return the run directory as a tar archive.

        Raises what the run raised, or `TestbedError` after ``limit_s`` of wall time.
        """
        ...


def find(on: str, plans: list[Plan], linux_source: Path | None = None) -> Substrate:
    """The substrate ``on``, able to run ``plans``; ``auto``: `host` if it is, else `uml`."""
    from testbed.substrates import host, uml  # noqa: PLC0415 (each knows this module)

    distinct = list({plan.cc.spec: plan for plan in plans}.values())

    def able(substrate: Substrate) -> Substrate:
        for plan in distinct:
            substrate.check(plan)
        return substrate

    if on == "host":
        return able(host.Host())
    if on == "uml" or linux_source is not None:
        return able(uml.find(linux_source))
    try:
        return able(host.Host())
    except MachineError as not_here:
        try:
            return able(uml.find())
        except MachineError as nor_there:
            raise MachineError(
                f"On this machine's own kernel: {not_here} In user-mode Linux: {nor_there}"
            ) from nor_there
