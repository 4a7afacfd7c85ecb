"""Load congestion controls as kernel modules, with their parameters read back."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from testbed.core.errors import MachineError, TestbedError
from testbed.linux.loading.bpfsys import libc

SYS_FINIT_MODULE = 313  # x86_64
LOADED = Path("/sys/module")
SWITCHES = {"Y": 1, "N": 0}  # of type bool


def parameters(module: str) -> dict[str, int]:
    """Return the visible whole-number parameters of a module, loaded or built in."""
    found = {}
    for path in sorted((LOADED / module / "parameters").glob("*")):
        with contextlib.suppress(OSError, ValueError):  # not readable, or a word
            found[path.name] = _whole(path)
    return found


def _whole(parameter: Path) -> int:
    """Return the value of a parameter; the kernel writes a boolean as a letter."""
    text = parameter.read_text().strip()
    return SWITCHES[text] if text in SWITCHES else int(text)


def load(file: Path, parameters: Mapping[str, int]) -> None:
    """Load the module ``file``; raises `MachineError` where the kernel refuses it."""
    words = " ".join(f"{name}={value}" for name, value in parameters.items())
    module = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc().syscall(SYS_FINIT_MODULE, module, words.encode(), 0):
            code = ctypes.get_errno()
            raise MachineError(
                f"the kernel refuses the module {file.name}: {os.strerror(code)}; `dmesg` gives the reason."
            )
    finally:
        os.close(module)
    for name, value in parameters.items():
        held = LOADED / file.stem / "parameters" / name
        if not held.exists():
            raise TestbedError(
                f"{file.stem}: the kernel does not show the parameter {name!r}, so {value} cannot be read back. "
                f"Declare it with a mode: module_param({name}, int, 0444)."
            )
        if (found := _whole(held)) != value:
            raise TestbedError(f"{file.stem}: {name} was set to {value}, but the kernel holds {found}.")
