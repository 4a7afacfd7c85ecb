"""``--on host``: this machine's own kernel, in namespaces that end with the run.

`setpriv` and `unshare` (util-linux) start the run in new PID, network, mount, IPC and UTS namespaces. They are tied to this
process by the parent-death signal. When this process ends, the kernel kills the first process of the PID namespace, and
with it every other process there. Network namespaces, queues and congestion controls end with these processes.
"""

from __future__ import annotations

import contextlib
import os
import platform
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from testbed.backends import named
from testbed.backends.progress import LOOK_S, Patience, Watch
from testbed.backends.stream import listen
from testbed.backends.visit import Visit
from testbed.congestion import catalogue
from testbed.core import rlimits
from testbed.core.children import end_with_sudo
from testbed.core.environment import PACKAGES
from testbed.core.errors import MachineError, TestbedError
from testbed.core.runs.events import Event, Named
from testbed.core.runs.plan import Clock, CongestionControl, Plan
from testbed.linux import features
from testbed.linux.loading import classifier, registry
from testbed.linux.participants import background
from testbed.linux.participants import program as programs
from testbed.linux.sampling import disturbances
from testbed.linux.setup_steps import changes
from testbed.linux.shell.link import DESCRIPTORS
from testbed.replay import training
from testbed.spec.limits import LINUX, Limits
from testbed.transports.datagram import native

_LINUX_STRUCT_OPS_LINKS = (6, 4)


@dataclass(frozen=True)
class Host:
    """The backend ``host``: the kernel of this machine, on its real clock."""

    name: str = "host"
    clock: Clock = "real"
    limits: Limits = LINUX

    def check(self, plan: Plan) -> None:
        """Root, and the congestion control: compiled, and possible on this kernel."""
        if os.geteuid() != 0:
            raise MachineError(
                "running on this machine's own kernel needs root (network namespaces, queues, eBPF): "
                "put `sudo` in front of the same command."
            )
        rlimits.check()
        for cc in plan.ccs:
            check_congestion(cc)
        programs.check(plan)
        background.check(plan)
        training.check(job.trains for job in plan.jobs)
        if not all(job.by_tcp for job in plan.jobs):
            native.build()
        can = features.probe()
        changes(plan, can)
        if any(link.ecn_threshold for link in plan.bottlenecks.values()) and not can.red:
            classifier.check()

    def identity(self) -> None:
        """The kernel is the machine's own."""

    def run(
        self, plan: Plan, on_event: Callable[[Event], None], patience: Patience, visit: Visit | None = None
    ) -> bytes:  # fmt: skip
        """Run ``plan``, with a shell if ``visit`` is given, and return its archive.

        Raises the error of the run, `TestbedError` if the run ended early or was stopped, or `LeftError`.
        """
        command = [
            "setpriv", "--pdeathsig", "KILL", "--",
            "unshare", "--kill-child=KILL", "--fork", "--pid", "--mount-proc", "--net", "--ipc", "--uts", "--",
            sys.executable, "-P", "-m", "testbed.linux.run_in_kernel",
        ]  # fmt: skip
        lines = [msgspec.json.encode(plan)]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": PACKAGES,
            "PYTHONHASHSEED": "0",
            "LC_ALL": "C.UTF-8",
            **{key: os.environ[key] for key in ("HOME", "XDG_CACHE_HOME") if key in os.environ},
        }
        end_with_sudo()
        with (
            disturbances.recorded() as recording, tempfile.TemporaryFile() as errors, _behind_the_network(),
            contextlib.ExitStack() as shell,
        ):  # fmt: skip
            theirs: list[int] = []
            if visit is not None:
                ours, inside = socket.socketpair()
                shell.enter_context(ours)
                shell.enter_context(inside)
                theirs = [inside.fileno()]
                command += ["--shell", str(inside.fileno())]
                lines.append(msgspec.json.encode(visit.request))
                on_event = _attended(visit, ours, shell, on_event)
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment,
                start_new_session=True, pass_fds=theirs,
            )  # fmt: skip
            try:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(b"\n".join([*lines, b""]))
                    process.stdin.flush()
                archive = _listen(process, errors, Watch(patience, recording.observe(on_event), virtual=False))
                return recording.added_to(archive)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
                process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        with contextlib.suppress(BrokenPipeError):
                            stream.close()


def _attended(
    visit: Visit, ours: socket.socket, shell: contextlib.ExitStack, on_event: Callable[[Event], None]
) -> Callable[[Event], None]:  # fmt: skip
    """The handler for events of a run with a shell. Its hosts are named namespaces until ``shell`` ends."""

    def hear(event: Event) -> None:
        if not isinstance(event, Named):
            talk(event)
            return
        found: list[int] = []
        while len(found) < len(event.names):
            _, descriptors, _, _ = socket.recv_fds(ours, 1, DESCRIPTORS)
            found += descriptors
        for fd in found:
            shell.callback(os.close, fd)
        shell.enter_context(named.namespaces(dict(zip(event.names, found, strict=True))))

    def reply(_number: int, answer: bytes) -> None:
        ours.sendall(answer + b"\n")

    talk = visit.attend(reply, on_event)
    return hear


def check_congestion(cc: CongestionControl) -> None:
    """Raises `MachineError` if this kernel cannot have it, with what would help."""
    registry.check_available(cc)
    if cc.source is not None or (cc.name in catalogue.names() and not registry.loaded_module(cc)):
        _check_struct_ops(cc, platform.release())


def _check_struct_ops(cc: CongestionControl, release: str) -> None:
    version = tuple(int(part) for part in release.split("-", maxsplit=1)[0].split(".")[:2])
    if version >= _LINUX_STRUCT_OPS_LINKS and Path("/sys/kernel/btf/vmlinux").exists():
        return
    lacks = (
        f"this is {release}" if version < _LINUX_STRUCT_OPS_LINKS else f"{release} has no BTF (CONFIG_DEBUG_INFO_BTF)"
    )
    module = f", or its module (docs/reference/congestion-controls.md), loaded by `modprobe tcp_{cc.name}`"
    raise MachineError(
        f"{cc.name} needs Linux 6.4 or newer with BTF on `host` (eBPF struct_ops links)"
        + (module if cc.source is None else "")
        + f"; {lacks}. The kernel's own congestion controls (--system reno cubic) work here."
    )


@contextlib.contextmanager
def _behind_the_network() -> Iterator[None]:
    """Give the kernel's packet processing precedence over this process and its children.

    Under load, ordinary kernel threads (ksoftirqd) forward packets. Next to a busy Python process such a thread waits
    for up to a scheduler tick, and the emulated link pauses for 3 ms. It preempts a process of the idle class at once.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _listen(process: subprocess.Popen[bytes], errors: Any, watch: Watch) -> bytes:
    assert process.stdout is not None
    fd = process.stdout.fileno()
    selector = selectors.DefaultSelector()
    selector.register(fd, selectors.EVENT_READ)

    def more() -> bytes:
        while not selector.select(LOOK_S):
            watch.check_progress()
        watch.check_progress()
        watch.data()
        return os.read(fd, 1 << 20)

    archive = listen(more, watch)
    if archive is not None:
        return archive
    code = process.wait()
    errors.seek(0)
    words = errors.read().decode(errors="replace").strip().splitlines()
    raise TestbedError(f"the run ended early, with code {code}" + (":\n" + "\n".join(words[-8:]) if words else "."))
