"""Requirements of a worker on another machine: versions equal to the driver's, and programs, for both Dask and Slurm."""

from __future__ import annotations

import platform
import shutil
import socket
from dataclasses import dataclass

from testbed import __version__
from testbed.backends import uml
from testbed.backends.usermode import kernel
from testbed.campaign.executors import kernels
from testbed.campaign.provenance import installed, source_sha256
from testbed.core.errors import MachineError
from testbed.core.runs.manifest import UserModeLinux


@dataclass(frozen=True)
class Maker:
    """The testbed that requests runs, and the kernel that they must use."""

    version: str
    source_sha256: str
    kernel: UserModeLinux
    versions: dict[str, str]  # of Python and the packages: a manifest names the driver's

    @classmethod
    def here(cls) -> Maker:
        """Describe this process. Raises `MachineError` without a kernel."""
        return cls(__version__, source_sha256(), uml.find().identity(), versions())

    def __str__(self) -> str:
        return f"testbed {self.version} of source {self.source_sha256[:12]}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages on this machine."""
    return {"Python": platform.python_version(), **installed()}


def missing() -> str:
    """Missing requirements of user-mode Linux on this machine, in a few words; empty if none."""
    try:
        kernel.check_platform()
    except MachineError as error:
        return str(error)
    tools = [tool for tool in uml.TOOLS if shutil.which(tool) is None]
    return f"missing: {', '.join(tools)} (package util-linux)" if tools else ""


def check(maker: Maker) -> None:
    """Check that this process may execute ``maker``'s runs; raises `MachineError`, which names both and this machine."""
    here = socket.gethostname()
    if (__version__, source_sha256()) != (maker.version, maker.source_sha256):
        raise MachineError(
            f"the worker on {here} has testbed {__version__} of source {source_sha256()[:12]}, but the driver has {maker}. "
            "Install the same on both: a checkout of the same commit, without changes."
        )
    own = versions()
    if others := [name for name in own if own[name] != maker.versions.get(name)]:
        ours, theirs = (
            ", ".join(f"{name} {of.get(name, 'missing')}" for name in others) for of in (own, maker.versions)
        )
        raise MachineError(
            f"the worker on {here} has {ours}, but the driver has {theirs}. Install the same on both: `make setup` at the same commit."
        )
    if lacking := missing():
        raise MachineError(f"the worker on {here} cannot run user-mode Linux: {lacking}.")
    if not kernels.is_here(maker.kernel):
        raise MachineError(
            f"the worker on {here} lacks the driver's kernel {maker.kernel.version}, and could not store it. Check that its disk is not full."
        )
