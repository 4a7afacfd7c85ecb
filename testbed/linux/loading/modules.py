"""Load congestion controls as kernel modules, with their parameters read back."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from core.errors import MachineError, TestbedError
from testbed.linux.loading.bpfsys import libc

SYS_FINIT_MODULE = 313  # x86_64
LOADED = Path("/sys/module")


def parameters(module: str) -> dict[str, int]:
    """Those of a module, or of what is built in, that the kernel shows, and that are whole numbers."""
    found = {}
    for path in sorted((LOADED / module / "parameters").glob("*")):
        with contextlib.suppress(OSError, ValueError):  # not for us to read; a word
            found[path.name] = int(path.read_text())
    return found


def load(file: Path, parameters: Mapping[str, int]) -> None:
    """Load the module ``file``; raises `MachineError` where the kernel refuses it."""
    words = " ".join(f"{name}={value}" for name, value in parameters.items())
    module = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc().syscall(SYS_FINIT_MODULE, module, words.encode(), 0):
            code = ctypes.get_errno()
            raise MachineError(f"the kernel refuses the module {file.name}: {os.strerror(code)}; its log says why.")
    finally:
        os.close(module)
    for name, value in parameters.items():
        held = LOADED / file.stem / "parameters" / name
        if not held.exists():
            raise TestbedError(f"{file.stem} has no parameter {name!r}: the kernel has ignored it.")
        if (found := held.read_text().strip()) != str(value):
            raise TestbedError(f"{file.stem}: {name} was set to {value}, but the kernel holds {found}.")
