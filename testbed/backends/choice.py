"""Choose the backend of a run: the one it names, else `uml`, `host`, or `flow`, whichever can run it first, with the
reason.

`flow` is chosen only where the machine's architecture rules out `uml`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from testbed import backends
from testbed.backends import Backend, uml
from testbed.backends.usermode import kernel
from testbed.core.children import end_with
from testbed.core.errors import MachineError, RequestError, TestbedError, VirtualTimeOnlyError, within_unless_named
from testbed.core.runs.plan import Plan
from testbed.linux import privileges
from testbed.planning.plan import Planned, planned
from testbed.spec import Spec, backend_names

NOT_BUILT = "user-mode Linux is not built and cannot be"
IN_VM = "this is the testbed's own VM"

# Reads the experiments for the given flags. The flag `on` names the backend, and [real-clock] makes the result depend on it.
Read = Callable[[dict[str, Any]], list[Spec]]


@dataclass(frozen=True)
class Choice:
    """Experiments, their plans, and where they are run."""

    planned: list[Planned]
    backend: str  # as in --on, never `auto`
    reason: str | None = None  # why it is not `uml`, if the user named no backend
    named: bool = True  # the backend was, by --on or in the file
    to_build: bool = False  # its kernel is not there yet
    elsewhere: bool = False  # --on names another backend than the default one

    @property
    def specs(self) -> list[Spec]:
        return [scenario.spec for scenario, _ in self.planned]

    @property
    def plans(self) -> list[Plan]:
        """Plans of all experiments."""
        return [plan for _, plans in self.planned for plan in plans]

    def __str__(self) -> str:
        """Return a line that describes the choice."""
        if self.reason is not None:
            return f"on `{self.backend}`: {self.reason.rstrip('.')}"
        return f"on `{self.backend}`" + (
            " (a run builds its kernel first, as `make kernel` does)" if self.to_build else ""
        )


class BackendChoice(msgspec.Struct, frozen=True):
    """The backend of experiments, as in `Choice`."""

    backend: str
    reason: str | None = None
    named: bool = True


def choose(read: Read, flags: dict[str, Any], linux_source: Path | None = None) -> Choice:
    """Read the experiments and choose their backend. Raises `RequestError` if the named backend can never run them.

    Under ``sudo``, root is dropped before anything is read, unless the backend needs root.
    """
    known = foreseen(read, flags, linux_source)
    if known is not None and backend_names.in_real_time(known.backend):
        found = _there(read, flags, known)
    else:
        privileges.give_up()
        found = _chosen(read, flags, linux_source)
    if backend_names.is_computed(found.backend):
        _check_computable(found)
    return replace(found, elsewhere="on" in flags and found.backend != _without(read, flags, found))


def _without(read: Read, flags: dict[str, Any], chosen: Choice) -> str:
    """Where the experiments go without ``--on``; empty if they cannot be had so."""
    try:
        on = read({name: value for name, value in flags.items() if name != "on"})[0].on
    except RequestError:
        return ""
    if on != "auto":
        return on
    other = _other(next(filter(None, map(uml.lacks, chosen.plans)), None), not kernel.is_built())
    return other.backend if other else "uml"


def foreseen(read: Read, flags: dict[str, Any], linux_source: Path | None = None) -> BackendChoice | None:
    """Under ``sudo``, the backend that a run will use. None without ``sudo``, or if it cannot be determined.

    Where neither flag names it, the experiment files do, with their topologies (programs). They are read without root.
    """
    on = flags.get("on", "auto")
    if privileges.caller() is None or linux_source is not None:
        return None
    if on != "auto":
        return BackendChoice(on)
    try:
        return msgspec.json.decode(privileges.without_root(partial(_encode_choice, read, flags)), type=BackendChoice)
    except msgspec.DecodeError:  # the choice failed there; the caller repeats it and gets the error
        return None


def _encode_choice(read: Read, flags: dict[str, Any]) -> bytes:
    end_with(signal.SIGKILL)
    try:
        found = _chosen(read, flags, None)
    except VirtualTimeOnlyError:  # and `uml` cannot run it, or is not meant
        return msgspec.json.encode(BackendChoice("host"))
    return msgspec.json.encode(BackendChoice(found.backend, found.reason, found.named))


def _chosen(read: Read, flags: dict[str, Any], linux_source: Path | None) -> Choice:
    specs = read(flags)
    on, there = specs[0].on, _planned(specs)
    if on not in ("auto", "uml"):
        return Choice(there, on)
    lack = next((found for _, plans in there for plan in plans if (found := uml.lacks(plan))), None)
    named = on == "uml" or linux_source is not None
    if named and lack:
        raise uml.refusal(lack)
    to_build = linux_source is None and not kernel.is_built()
    if not named and (other := _other(lack, to_build)):
        return _there(read, flags, other)
    there = [(replace(one, spec=msgspec.structs.replace(one.spec, on="uml")), plans) for one, plans in there]
    return Choice(there, "uml", named=named, to_build=to_build)


def settle(
    choice: Choice, read: Read, flags: dict[str, Any], linux_source: Path | None = None
) -> tuple[Choice, Backend]:
    """The backend, ready: its kernel is built if needed.

    If that build fails, and the user did not name `uml`, the choice becomes `host`. Raises `MachineError`.
    """
    if choice.to_build and (failed := kernel.build_apart()):
        if choice.named:
            raise MachineError(failed)
        if privileges.given_up():
            raise MachineError(f"{NOT_BUILT}: {failed.rstrip('.')}. Root was given up for it; --on host keeps it.")
        choice = _there(read, flags, BackendChoice("host", f"{NOT_BUILT}: {failed}", named=False))
    try:
        return choice, backends.find(choice.backend, choice.plans, linux_source)
    except MachineError as error:
        raise explained(choice, error) from error


def _check_computable(chosen: Choice) -> None:
    from testbed.backends import flow  # noqa: PLC0415 (NumPy)

    try:
        for plan in chosen.plans:
            flow.FlowLevel().check(plan)
    except RequestError as error:
        if chosen.reason is None:
            raise
        raise RequestError(_unable(chosen, error)) from error


def check_without_run(choice: Choice) -> None:
    """Check everything that needs no run (`backends.check_without_run`), for ``--dry-run``."""
    try:
        for name in backend_names.parse(choice.backend):
            backends.check_without_run(name, choice.plans)
    except MachineError as error:
        raise explained(choice, error) from error


def explained(choice: Choice, error: MachineError) -> MachineError:
    """Return ``error`` about a missing feature, with the reason for the choice if the user named no backend."""
    return error if choice.reason is None else MachineError(_unable(choice, error))


def _unable(choice: Choice, error: TestbedError) -> str:
    return f"{choice}; and that cannot run it either: {error}"


def _other(lack: uml.Lack | None, to_build: bool) -> BackendChoice | None:
    """The backend if the user named none and `uml` is not available, with the reason."""
    if backend_names.in_own_vm():
        return BackendChoice("host", IN_VM, named=False)
    if lack is not None:
        return BackendChoice("host", lack.what, named=False)
    try:
        kernel.check_platform()
    except MachineError as error:
        return BackendChoice(backend_names.MODEL, str(error), named=False)
    if to_build:
        try:
            kernel.check_possible()
        except MachineError as error:
            return BackendChoice("host", f"{NOT_BUILT}: {error}", named=False)
    return None


def _there(read: Read, flags: dict[str, Any], known: BackendChoice) -> Choice:
    specs = read({**flags, "on": known.backend})
    return Choice(_planned(specs), specs[0].on, known.reason, named=known.named)


def _planned(specs: list[Spec]) -> list[Planned]:
    found = []
    for spec in specs:
        with within_unless_named(spec.name if len(specs) > 1 else None):
            found.append(planned(spec))
    return found
