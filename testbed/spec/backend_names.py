"""Names of backends in ``--on``: ``auto``, ``host``, ``uml``, ``flow``, ``vagrant``, ``ssh:[USER@]HOST[:PORT]``.

Several other machines, separated by commas, share the runs of a sweep. ``auto``, the default, is `uml` where that can run
the experiment, else `host` (`testbed.backends.choice.choose`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import RequestError
from testbed.core.text import quoted

EXACT = "uml"  # the backend of a run that names none, if it can
MODEL = "flow"  # the flow-level simulator, which executes nothing
HERE = ("auto", "host", EXACT, MODEL)
VAGRANT = "vagrant"
OWN_VM = Path("/var/lib/mltcp/vm")  # written by vagrant/provision.sh
WORDS = "auto, host, uml, flow, vagrant, ssh:[USER@]HOST[:PORT]"
_ADDRESS = re.compile(
    r"ssh:(?:(?P<user>[^@\s]+)@)?(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.%a-z]+\])(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True)
class Address:
    """Another machine, or a name that the user's ssh configuration has for one."""

    host: str
    user: str | None = None
    port: int | None = None


def parse(on: str) -> tuple[str, ...]:
    """The names in ``on``, which separates several by commas; raises `RequestError`."""
    found = tuple(part.strip() for part in on.split(","))
    for backend in found:
        if backend not in (*HERE, VAGRANT):
            parse_address(backend)
    if len(set(found)) < len(found):
        raise RequestError(
            f"{quoted(on)} names a machine twice, but a machine takes one run at a time. Name each one once."
        )
    if len(found) > 1 and set(found) & set(HERE):
        raise RequestError(f"{quoted(on)}: only other machines (vagrant, ssh:HOST) can share runs. Name one backend.")
    return found


def parse_address(backend: str) -> Address:
    """The host of ``ssh:…``; raises `RequestError`."""
    match = _ADDRESS.fullmatch(backend)
    if match is None or not 0 < int(match["port"] or 22) < 65536:
        raise RequestError(f"{quoted(backend)} is no backend. Give one of {WORDS}.")
    return Address(match["host"].strip("[]"), match["user"], int(match["port"]) if match["port"] else None)


def is_remote(backend: str) -> bool:
    """Return True if ``backend`` is another machine."""
    return backend not in HERE


def is_vm(backend: str) -> bool:
    """Return True if ``backend`` is the project's VM, seen from outside."""
    return backend == VAGRANT


def is_computed(backend: str) -> bool:
    """Return True if ``backend`` computes runs instead of executing them."""
    return backend == MODEL


def is_first(backend: str) -> bool:
    """Return True if ``backend`` is tried first for runs that name no backend."""
    return backend == EXACT


def in_own_vm() -> bool:
    """Return True inside the project's VM, which exists for its kernel, so that runs default to `host`."""
    return OWN_VM.exists()


def in_real_time(on: str) -> bool:
    """Return True if ``on`` names a backend with a real clock."""
    return on not in ("auto", EXACT, MODEL)
