"""The limits that a process has (``ulimit``), checked before a run that would fail on them halfway."""

from __future__ import annotations

import resource

from testbed.core.errors import MachineError

OPEN_FILES = 256  # sockets, pipes and namespaces of a run, and of its processes


def check(memory_mb: int = 0) -> None:
    """Raises `MachineError` if this process may not open the files of a run, or not map so much memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
        if hard != resource.RLIM_INFINITY and hard < OPEN_FILES:
            raise MachineError(
                f"ulimit -n: this process may open {hard} files, and a run needs up to {OPEN_FILES}. Raise the limit (`ulimit -n 4096`)."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < memory_mb << 20:
        raise MachineError(
            f"ulimit -v: this process may map {soft >> 20} MB of memory, and a run needs {memory_mb} MB. "
            "Raise the limit (`ulimit -v unlimited`)."
        )
