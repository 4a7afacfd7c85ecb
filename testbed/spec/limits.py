"""Check the size of an experiment against the limits of a backend, before anything is built.

Each backend sets its own limits: emulation needs a process, a namespace, and a queue for every element, but the flow
simulator does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.errors import RequestError
from testbed.spec import backend_names


class TooLargeError(RequestError):
    """An experiment is larger than its backend takes; the message has the count and the limit."""


@dataclass(frozen=True)
class Limits:
    """The most of each that one backend takes; `check` compares."""

    jobs: int
    workers: int  # of one job
    hosts: int  # of the topology
    links: int
    connections: int  # of all jobs together
    transfers: int  # from one worker to another, of all jobs in one iteration
    runs: int  # of one experiment: congestion controls × seeds
    done: str  # verb for messages: "emulated"

    def check(self, what: str, count: int, where: str) -> None:
        """Raises `TooLargeError` if there are more of ``what`` (a field) than this; ``where`` names the limited component."""
        most: int = getattr(self, what)
        if count > most:
            raise TooLargeError(f"{where}: {count:,} {what}, but at most {most:,} can be {self.done}. Give fewer.")


LINUX = Limits(
    jobs=64, workers=64, hosts=1024, links=4096, connections=16_384, transfers=100_000, runs=10_000, done="emulated"
)  # a kernel with a namespace for every host: uml, host, ssh


MODEL = Limits(
    jobs=1024,
    workers=1024,
    hosts=16_384,
    links=65_536,
    connections=65_536,
    transfers=1_000_000,
    runs=10_000,
    done="computed",
)  # `flow`


def limits_for(backend: str) -> Limits:
    """The limits of a backend, as ``--on`` names it."""
    return MODEL if backend_names.is_computed(backend) else LINUX
