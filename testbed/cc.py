"""``python -m testbed cc list|load|status|unload``: congestion controls outside an experiment.

A loaded one is held by a name in the bpf file system (``/sys/fs/bpf/mltcp/NAME``), not by
a process: it stays until ``unload`` or a reboot. Connections that use it keep it until
they close. docs/congestion-controls.md shows it in use for one destination prefix.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rich.console import Console

from testbed import bpf, bpfsys, congestion
from testbed.errors import EXIT_OK, MachineError, RequestError

PINS = Path("/sys/fs/bpf/mltcp")
RUN_PREFIX = "mlt"  # of the names runs register; see `congestion.register`


def command(action: str, spec: str | None) -> int:
    """Carry out one of the four actions; its exit code."""
    console = Console(highlight=False, soft_wrap=True)
    if action == "list":
        _list(console)
    elif action == "status":
        _status(console)
    elif action == "load":
        _load(console, congestion.parse(spec or ""))
    else:
        _unload(console, spec or "")
    return EXIT_OK


def _list(console: Console) -> None:
    console.print("[bold]of the testbed[/] (eBPF)")
    for name in congestion.names():
        console.print(f"  {name}")
    console.print("[bold]parameters[/] of the MLTCP ones, as in mltcp_reno:slope=1.75,intercept=0.25")
    for parameter in congestion.PARAMETERS.values():
        console.print(f"  {parameter.name:12} {parameter.meaning} (default {parameter.default})")
    console.print(f"[bold]of this kernel[/]\n  {' '.join(bpf.available())}")


def _status(console: Console) -> None:
    pinned = sorted(path.name for path in PINS.iterdir()) if PINS.is_dir() else []
    runs = [name for name in bpf.available() if name.startswith(RUN_PREFIX) and name not in pinned]
    runs = [name for name in runs if name not in congestion.names()]
    for name in pinned:
        console.print(f"{name}: loaded, until `python -m testbed cc unload {name}` or a reboot")
    for name in runs:
        console.print(f"{name}: belongs to a run in progress and ends with it")
    if not pinned and not runs:
        console.print("no congestion control of the testbed is loaded")


def _load(console: Console, cc: congestion.CongestionControl) -> None:
    _need_root()
    if cc.program is None:
        raise RequestError(f"{cc.name} is the kernel's own: there is nothing to load.")
    if not os.path.ismount(PINS.parent):
        subprocess.run(["mount", "-t", "bpf", "bpf", str(PINS.parent)], check=True, capture_output=True)
    pin = PINS / cc.name
    if pin.exists():
        raise RequestError(f"{cc.name} is loaded already; `python -m testbed cc unload {cc.name}` first.")
    loaded = congestion.register(cc, name=cc.name).program
    if loaded is None:
        raise RequestError(f"{cc.name} is the kernel's own; there is nothing to load.")
    PINS.mkdir(exist_ok=True)
    bpfsys.pin(loaded.link_fd, str(pin))
    loaded.close()
    console.print(
        f"{cc.name} is loaded. For one destination:  ip route change PREFIX via GATEWAY congctl {cc.name}\n"
        f'For one program:  setsockopt(TCP_CONGESTION, "{cc.name}")'
    )


def _unload(console: Console, name: str) -> None:
    _need_root()
    pin = PINS / name
    if name not in congestion.names() or not pin.exists():
        raise RequestError(f"{name!r} was not loaded with `cc load`; `python -m testbed cc status` lists what was.")
    pin.unlink()
    if not any(PINS.iterdir()):
        PINS.rmdir()
    console.print(f"{name} is unloaded; connections that use it keep it until they close.")


def _need_root() -> None:
    if os.geteuid() != 0:
        raise MachineError("loading a congestion control needs root: put `sudo` in front of the same command.")
