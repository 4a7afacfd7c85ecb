"""``mltcp cc list|load|status|unload``: congestion controls outside an experiment.

A loaded one is held by a name in the bpf file system (``/sys/fs/bpf/mltcp/NAME``), not by
a process: it stays until ``unload`` or a reboot. Only root can enter that folder. Connections that use it keep it until
they close. docs/reference/congestion-controls.md shows it in use for one destination prefix, for
one cgroup, and at boot.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import stat
import subprocess
import time
from pathlib import Path

from rich.console import Console

from testbed.congestion import catalogue
from testbed.core import terminal
from testbed.core.arguments import Parser
from testbed.core.errors import EXIT_OK, MachineError, RequestError
from testbed.core.runs.plan import CongestionControl
from testbed.core.terminal import Column, Sheet
from testbed.core.text import command, quoted
from testbed.linux import features
from testbed.linux.loading import bpf, bpfsys

PINS = Path("/sys/fs/bpf/mltcp")
CGROUP = "@cgroup"  # suffix of the name of a program that sets a cgroup's congestion control (bpffs reserves dots)
GONE_S = 60  # enough for a busy machine
_ANOTHERS = f"Another user may have made it, and could unload what root loads. Find out what is in it, then remove it: `rm -r {PINS}`."
BY_A_RUN = re.compile(r"mlt[0-9a-f]{12}")  # names that runs register; see `registry.register`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", required=True, dest="action", metavar="ACTION", parser_class=Parser
    )
    actions.add_parser("list", help="congestion controls of the testbed and of this kernel")
    load = actions.add_parser("load", help="register a congestion control under its plain name, until unloaded")
    load.examples = ("mltcp_cubic", "mltcp_reno:slope=2,intercept=0.5")
    load.add_argument("cc", metavar="NAME", help="congestion control: mltcp_reno, or mltcp_reno:slope=2,intercept=0.5")
    load.add_argument("--cgroup", type=Path, help="cgroup (version 2) whose sockets use it")
    unload = actions.add_parser("unload", help="unregister a congestion control")
    unload.add_argument("cc", metavar="NAME", help="congestion control that `load` registered")
    actions.add_parser("status", help="loaded congestion controls, and the processes that loaded them")


def run(parsed: argparse.Namespace) -> int:
    console = terminal.console()
    if parsed.action == "list":
        _list(console)
    elif parsed.action == "status":
        _status(console)
    elif parsed.action == "load":
        _load(console, catalogue.parse(parsed.cc), parsed.cgroup)
    else:
        _unload(console, parsed.cc)
    return EXIT_OK


def _list(console: Console) -> None:
    terminal.say(console, "of the testbed (eBPF on host, modules on uml)", style="bold")
    for name in catalogue.names():
        console.print(f"  {name}")
    for rows, names in _parameters().items():
        terminal.say(console, f"parameters of {', '.join(names)}", style="bold", indent="  ")
        Sheet([Column(), Column(prose=True)], [[f"  {name}", meaning] for name, meaning in rows]).print(console)
    terminal.say(console, "of this kernel", style="bold")
    terminal.say(console, f"  {' '.join(bpf.available())}", indent="  ")


def _parameters() -> dict[tuple[tuple[str, str], ...], list[str]]:
    """Return, by list of parameters with their meanings, the names of the testbed's congestion controls with those
    parameters."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in catalogue.names():
        parameters = catalogue.families()[name].parameters
        rows = tuple((each.name, f"{each.meaning} (default {each.default})") for each in parameters)
        found.setdefault(rows, []).append(name)
    return found


def _status(console: Console) -> None:
    if os.geteuid() != 0 and PINS.is_dir():
        console.print("what was loaded with `cc load` is shown to root only: put `sudo` in front of the same command")
        pins = []
    else:
        _check_private()
        pins = sorted(path.name for path in PINS.iterdir()) if PINS.is_dir() else []
    loaded = [name for name in pins if not name.endswith(CGROUP)]
    runs = [name for name in bpf.available() if BY_A_RUN.fullmatch(name) and name not in loaded]
    for name in loaded:
        given = " and given to a cgroup" if name + CGROUP in pins else ""
        terminal.say(
            console,
            f"{name}: loaded{given}, until `{command('cc', 'unload', name, root=True)}` or a reboot",
            indent="  ",
        )
    for name in runs:
        terminal.say(console, f"{name}: belongs to a run in progress and ends with it", indent="  ")
    if not loaded and not runs:
        console.print("no congestion control of the testbed is loaded")


def _load(console: Console, cc: CongestionControl, cgroup: Path | None) -> None:
    _need_root()
    source = catalogue.program(cc)
    if source is None or (cc.name not in catalogue.names() and cc.source is None and features.kernel_has(cc.name)):
        raise RequestError(f"{cc.name} is part of the kernel. There is nothing to load.")
    folder = _cgroup(cgroup) if cgroup is not None else None
    if not os.path.ismount(PINS.parent):
        subprocess.run(["mount", "-t", "bpf", "bpf", str(PINS.parent)], check=True, capture_output=True)
    _check_private(make=True)
    pin = PINS / cc.name
    program = bpf.compile_program(source)
    if pin.exists():
        held = bpfsys.pinned(str(pin))
        try:
            bpf.replace(program, cc.name, cc.constants, held).close()
        finally:
            os.close(held)
        terminal.say(console, f"{cc.name} is replaced; connections that use it keep what they have until they close.")
    else:
        loaded = bpf.register(program, cc.name, cc.constants)
        bpfsys.pin(loaded.link_fd, str(pin))
        loaded.close()
        console.print(
            f"{cc.name} is loaded. For one destination:  ip route change PREFIX via GATEWAY congctl {cc.name}\n"
            f'For one program:  setsockopt(TCP_CONGESTION, "{cc.name}")',
        )
    if folder is not None:
        _give(cc.name, folder)
        console.print(f"New connections of {folder} use it.")


def _check_private(*, make: bool = False) -> None:
    """Check that the folder of pins, if it exists, is writable by root only. Another user could else remove root's programs.

    Any user may make a folder in the bpf file system. Raises `MachineError`.
    """
    if make:
        with contextlib.suppress(FileExistsError):
            PINS.mkdir(mode=0o700)
    try:
        folder = os.open(PINS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise MachineError(f"{PINS} is not a folder ({error.strerror}). {_ANOTHERS}") from error
    try:
        status = os.fstat(folder)
        if status.st_uid != 0 or status.st_mode & 0o022:
            raise MachineError(
                f"{PINS} belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}; it must be writable by root "
                f"only. {_ANOTHERS}"
            )
        os.fchmod(folder, 0o700)
    finally:
        os.close(folder)


def _cgroup(folder: Path) -> Path:
    if not (folder / "cgroup.procs").exists() or not (folder / "cgroup.controllers").exists():
        raise RequestError(
            f"--cgroup: {folder} is no cgroup of version 2; make one with `mkdir /sys/fs/cgroup/training`."
        )
    return folder


def _give(name: str, folder: Path) -> None:
    constants = {"congestion": int.from_bytes(name.encode(), "little")}
    program = bpf.load_program(bpf.compile_program(catalogue.PROGRAMS / "cgroup.bpf.c"), constants)
    target = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        link = bpfsys.create_cgroup_link(program.program_fd, target)
        pin = PINS / (name + CGROUP)
        pin.unlink(missing_ok=True)
        bpfsys.pin(link, str(pin))
        os.close(link)
    finally:
        os.close(target)
        program.close()


def _await_gone(name: str) -> None:
    """The kernel takes a congestion control off in the background, a moment after its last link is let go of."""
    deadline = time.monotonic() + GONE_S
    while name in bpf.available():
        if time.monotonic() > deadline:
            raise MachineError(
                f"{name}: it is unloaded, but the kernel still lists it after {GONE_S} s. Check for sockets that use it: `ss -ti`."
            )
        time.sleep(0.01)


def _unload(console: Console, name: str) -> None:
    _need_root()
    _check_private()
    pin = PINS / name
    if not re.fullmatch(r"[A-Za-z0-9_]{1,40}", name) or not pin.exists():
        raise RequestError(f"{quoted(name)} was not loaded with `cc load`; `mltcp cc status` lists what was.")
    pin.with_name(name + CGROUP).unlink(missing_ok=True)
    pin.unlink()
    _await_gone(name)
    if not any(PINS.iterdir()):
        PINS.rmdir()
    console.print(f"{name} is unloaded; connections that use it keep it until they close.")


def _need_root() -> None:
    if os.geteuid() != 0:
        raise MachineError("loading a congestion control needs root: put `sudo` in front of the same command.")
