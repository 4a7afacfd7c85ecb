"""Choose the executor of ``--executor``, and check that it can run the requested backends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from testbed.campaign.executors import Executor
from testbed.core.errors import RequestError
from testbed.core.text import quoted
from testbed.spec import backend_names

KINDS = ("local", "dask", "slurm")


def chosen(
    name: str, machines: Mapping[str, object], parallel: int, out: Path, say: Callable[[str], None]
) -> AbstractContextManager[Sequence[Executor]]:
    """Open the executors of ``--executor`` (`check`), for runs on the backends ``machines`` with results below ``out``.

    ``say`` is called with a description of executors that are left out.
    """
    kind, _, rest = name.partition(":")
    if kind == "local":
        from testbed.campaign.executors import local  # noqa: PLC0415 (loaded only when named)

        return local.lanes(machines, parallel)
    if kind == "dask":
        from testbed.campaign.executors import dask  # noqa: PLC0415

        return dask.lanes(rest or None, parallel, say)
    from testbed.campaign.executors import slurm  # noqa: PLC0415

    return slurm.lanes(rest or None, parallel, out)


def check(name: str, machines: Mapping[str, object]) -> None:
    """Raise `RequestError` if ``--executor`` is unknown or cannot run on the backends ``machines``."""
    kind, colon, rest = name.partition(":")
    if kind not in KINDS or (colon and (kind == "local" or not rest)):
        raise RequestError(
            f"--executor {quoted(name)}: no such executor. Give local, dask[:ADDRESS] or slurm[:PARTITION]."
        )
    if kind == "dask" and colon and not re.fullmatch(r"\w+://\S+:\d+", rest):
        raise RequestError(
            f"--executor {quoted(name)}: not an address of a Dask scheduler. Write dask:tcp://HOST:PORT or dask:tls://HOST:PORT."
        )
    if kind != "local" and (real := [backend for backend in machines if backend_names.in_real_time(backend)]):
        raise RequestError(
            f"--executor {quoted(name)} runs only under virtual time, and these runs are on {', '.join(real)}. On a real clock, runs that share a "
            "machine disturb each other. Use --on uml, or other machines by --on ssh:HOST."
        )
