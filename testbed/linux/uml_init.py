"""The run in user-mode Linux, under virtual time; `testbed.linux.uml_start` calls `import_run` and `main`.

It reads the plan of `testbed.linux.run_in_kernel` from a file, and writes to the console, which the
host machine sees as a growing file. `kernel/uml/init.c` has mounted the needed file systems.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import resource
import site
import sys
import termios
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from testbed.core.clock import punctual
from testbed.core.errors import EXIT_FAILED
from testbed.linux.loading.bpfsys import libc

if TYPE_CHECKING:
    from testbed.linux.shell.session import Session

RUN = Path("/run/mltcp")  # what `testbed.backends.uml` prepared
POWER_OFF = 0x4321FEDC
OPEN_FILES = 65536  # sockets, pipes and namespaces of up to 4,096 workers


def main() -> None:
    if (RUN / "topology.py").exists():  # custom code, which may need packages installed in any way
        site.main()
    _raw(1)
    punctual()
    # The process that is ready first runs first. By default, the order depends on how long each process has run before.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        from testbed.linux import run_in_kernel  # noqa: PLC0415 (after what must not be imported whole)
        from testbed.linux.participants.timeline import Machine  # noqa: PLC0415

        libc().munlockall()  # from here on a page is mapped at its first access again (kernel/uml/prefault.c)
        gc.enable()
        _room_for_packets()
        machine = Machine(virtual_time=True, modules=RUN / "modules", captures=RUN / "captures")
        if (RUN / "call").exists():
            module, _, function = (RUN / "call").read_text().partition(":")
            run_in_kernel.deliver(getattr(importlib.import_module(module), function)(machine), events)
        else:
            run_in_kernel.serve((RUN / "plan.json").read_bytes(), events, machine, _session(events))
    except BaseException:
        from testbed.core.runs.events import Error  # noqa: PLC0415

        run_in_kernel.emit(events, Error(EXIT_FAILED, traceback.format_exc()))
    finally:
        libc().reboot(POWER_OFF)


def import_run() -> None:
    """Import all that every run needs, with as few modules as possible. Raises `ImportError`."""
    if sys.version_info >= (3, 12):  # Mininet imports distutils, which setuptools has
        importlib.import_module("_distutils_hack").add_shim()
    _bare("pyroute2")
    _bare("pyroute2.ethtool")
    _bare("unittest")  # pyroute2 needs only its mock
    _alone("msgspec", without="typing_extensions")
    _alone("hashlib", without="_hashlib")
    _alone("asyncio", without="ssl")
    gc.disable()  # nothing of what is imported is freed
    importlib.import_module("testbed.linux.run_in_kernel")
    del sys.modules["unittest"]  # later imports need the complete module: PyTorch and matplotlib do


def _session(events: BinaryIO) -> Session | None:
    """The shell of the run, if it has one."""
    if not (RUN / "shell.json").exists():
        return None
    import msgspec  # noqa: PLC0415

    from testbed.core.runs.shell import ShellRequest  # noqa: PLC0415
    from testbed.linux.run_in_kernel import emit  # noqa: PLC0415
    from testbed.linux.shell.link import Files  # noqa: PLC0415
    from testbed.linux.shell.session import Session  # noqa: PLC0415

    request = msgspec.json.decode((RUN / "shell.json").read_bytes(), type=ShellRequest)
    return Session(request, Files(RUN / "answers"), partial(emit, events))


def _room_for_packets() -> None:
    """TCP may have half of all memory. By default it has a sixteenth, less than what receivers on a long path hold out of order after a loss (I19)."""
    pages = os.sysconf("SC_PHYS_PAGES") // 2
    asked, at = f"{pages} {pages} {pages}", Path("/proc/sys/net/ipv4/tcp_mem")
    at.write_text(asked)
    if at.read_text().split() != asked.split():
        raise OSError(f"{at} holds {at.read_text().strip()}, not {asked}")


def _bare(name: str) -> None:
    """A package whose `__init__` is skipped, because it imports all modules of the package."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)


def _alone(name: str, *, without: str) -> None:
    """Import a package that tries to import another, large one, and goes without, too."""
    sys.modules[without] = None  # type: ignore[assignment]
    importlib.import_module(name)
    del sys.modules[without]


def _raw(terminal: int) -> None:
    """Bytes as they are: a terminal would turn every end of line into two characters."""
    if os.isatty(terminal):
        mode = termios.tcgetattr(terminal)
        mode[1] &= ~termios.OPOST
        termios.tcsetattr(terminal, termios.TCSANOW, mode)
