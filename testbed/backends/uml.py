"""``--on uml``: a user-mode Linux kernel under virtual time, as any user.

The kernel is an ordinary program. Its clock stands still while anything computes, and jumps to the next timer when all is
idle (``time-travel=inf-cpu``). The network is therefore exact even on a slow machine. Its root file system is this
machine's own.

Nothing of the caller's environment reaches the run. Environment variables, working directory and paths are the same every
time, random numbers come from the run's seed, and the clock starts at zero.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from testbed.backends import visit as visits
from testbed.backends.progress import Patience, StoodStillError, Watch
from testbed.backends.stream import listen
from testbed.backends.usermode import bytecode, kernel
from testbed.backends.usermode.kernel import Kernel
from testbed.backends.visit import Visit
from testbed.congestion import catalogue
from testbed.core import progress, rlimits, temp_dirs
from testbed.core.children import end_with_sudo
from testbed.core.environment import IS_CHECKOUT, PACKAGES, cache_folder
from testbed.core.errors import MachineError, RequestError, TestbedError
from testbed.core.runs import own_files, rundir
from testbed.core.runs.events import Event
from testbed.core.runs.manifest import UserModeLinux
from testbed.core.runs.plan import Clock, CongestionControl, JobPlan, Plan
from testbed.linux import features
from testbed.linux.loading import declared
from testbed.linux.setup_steps import changes
from testbed.replay import ring
from testbed.replay import training as learning
from testbed.spec.limits import LINUX, Limits
from testbed.traces import collectives
from testbed.transports.datagram import native

WALL_CLOCK_START_NS = 10**18  # of the time of day inside: 9 September 2001
LOOK_EVERY_S = 0.02
SEGFAULTED = "exitcode=0x0000000b"  # as its first process ends
MEMORY_MB, MEMORY_PER_PROCESS_MB = 512, 24
CAPTURES = "captures"  # folder of captures; separate from the archive, because the console would transfer it slowly
FULL = 0.95  # memory use above which a run without progress may lack memory
LESS_MEMORY = "Use fewer workers, or log one row per round instead of one per message (--message-log per-round)."
SECCOMP = (6, 16)  # first version with seccomp for process switches, which is faster than ptrace
TOOLS = ("setpriv", "prlimit", "taskset")  # of util-linux


@dataclass(frozen=True)
class Lack:
    """A feature of a plan that user-mode Linux lacks, and the alternative."""

    what: str
    instead: str


def lacks(plan: Plan) -> Lack | None:
    """The reason why ``plan`` cannot run under virtual time with any kernel; None if it can."""
    for job in plan.jobs:
        if job.program is not None:
            return Lack(
                f"job {job.job} ({job.trace}) is a real program, but computation takes no virtual time",
                "use --on host, or record it (`mltcp record`) and replay its trace here",
            )
    for one in plan.background:
        if one.kind == "iperf3":
            return Lack(
                "iperf3 computes while it waits, which stops the virtual clock",
                "use --background long, which sends for as long as the run lasts, or --on host",
            )
    for cc in plan.registered:
        if cc.source is not None and catalogue.module(cc) is None:
            return Lack(
                f"{cc.source} is an eBPF program, but user-mode Linux takes only modules",
                "use --on host, or write it as a module (tcp_NAME.c)",
            )
        if cc.source is None and cc.name not in (*catalogue.built_in(), *catalogue.names()):
            return Lack(
                f"the user-mode Linux kernel has no {cc.name}",
                f"it has {', '.join((*catalogue.built_in(), *catalogue.names()))}. Name its source as a module "
                f"(`--system ./tcp_{cc.name}.c`), or use --on host if this machine's kernel has it",
            )
    return None


def refusal(lack: Lack) -> RequestError:
    """The error for a plan that no user-mode Linux can run: the combination is wrong, and this machine lacks nothing."""
    return RequestError(f"on: {lack.what}: {lack.instead}.")


@dataclass(frozen=True)
class Uml:
    """User-mode Linux with one kernel of the cache."""

    kernel: Kernel
    name: str = "uml"
    clock: Clock = "virtual"
    limits: Limits = LINUX

    def check(self, plan: Plan) -> None:
        """Check the plan's needs (`lacks`), the compilation of custom congestion controls, and util-linux."""
        if lacking := lacks(plan):
            raise refusal(lacking)
        rlimits.check(2 * _memory_mb(plan))  # the kernel's own, and what it maps besides
        changes(plan, features.user_mode(self.kernel.version))
        self._own_modules(plan)
        learning.check(job.trains for job in plan.jobs)
        if not all(job.by_tcp for job in plan.jobs):
            native.build()
        if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
            raise MachineError(f"missing: {', '.join(missing)}. Install the package util-linux.")

    def _own_modules(self, plan: Plan) -> list[Path]:
        """Those of custom congestion controls, built; each has the parameters that it is given."""
        modules = []
        for cc in plan.ccs:
            if cc.source is not None and (source := catalogue.module(cc)) is not None:
                modules.append(self.kernel.own_module(source))
                declared.check(cc, declared.read_ranges(modules[-1]))
        return modules

    def identity(self) -> UserModeLinux:
        """The manifest's entry for the kernel."""
        return UserModeLinux(
            **msgspec.structs.asdict(self.kernel.identity),
            modules=self.kernel.modules().name,
            shipped=self.kernel.is_shipped,
        )

    def run(
        self, plan: Plan, on_event: Callable[[Event], None], patience: Patience, visit: Visit | None = None
    ) -> bytes:  # fmt: skip
        """Run ``plan``, perhaps with a shell (``visit``).

        Raises what the run raised, `TestbedError` if it went away or was given up, or `LeftError`.
        """
        own = self._own_modules(plan)

        def bring(folder: Path) -> None:
            for module in own:
                shutil.copy(module, folder / "own")
            (folder / "plan.json").write_bytes(msgspec.json.encode(_portable(plan, folder)))
            if visit is not None:
                (folder / visits.FOLDER).mkdir()
                (folder / "shell.json").write_bytes(msgspec.json.encode(visit.request))

        return self._boot(bring, _memory_mb(plan), plan.seed, on_event, patience, catalogue.at_boot(plan.ccs), visit)

    def call(self, function: str, wall_s: float) -> bytes:
        """Call ``module:function`` of this checkout inside with a `Machine`, and return its bytes."""
        patience = Patience(wall_s=wall_s, set_up_s=wall_s)
        return self._boot(
            lambda folder: rundir.write_text(folder / "call", function), MEMORY_MB, 0, lambda _event: None, patience
        )

    def _boot(
        self,
        bring: Callable[[Path], None],
        memory_mb: int,
        seed: int,
        on_event: Callable[[Event], None],
        patience: Patience,
        parameters: Sequence[str] = (),
        visit: Visit | None = None,
    ) -> bytes:
        modules = self.kernel.modules()
        end_with_sudo()
        with _folder() as folder, _core() as core:
            with _written(folder):
                _prepare(folder, self.kernel.image, modules)
                bring(folder)
            with (folder / "console").open("wb") as console, (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    _command(memory_mb, core, self.kernel, parameters), stdin=subprocess.DEVNULL, stdout=console, stderr=log,
                    cwd=folder, env=_environment(memory_mb, seed), start_new_session=True,
                )  # fmt: skip
            try:
                if visit is not None:
                    stopped = replace(visit, answer=visits.while_stopped(process.pid, visit.answer))
                    on_event = stopped.attend(partial(visits.write_answer, folder), on_event)
                watch = Watch(patience, on_event, virtual=True, used_s=partial(_used_s, process.pid))
                archive = _follow(process, folder, watch)
                captured = {path.name: path.read_bytes() for path in sorted((folder / CAPTURES).iterdir())}
                return rundir.pack(captured, archive) if captured else archive
            except StoodStillError as error:
                if _memory_used(process.pid) < FULL * (memory_mb << 20):
                    raise
                raise TestbedError(
                    f"{error} The guest has also used all of its memory ({memory_mb} MB), and a guest without free memory does not "
                    f"continue. {LESS_MEMORY}"
                ) from error
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _command(memory_mb: int, core: int, kernel: Kernel, parameters: Sequence[str]) -> list[str]:
    """How to start the kernel, in the run's folder. Its own words (from ``./linux`` on) are the same
    in every run: they are among what its random numbers are made of."""
    return [
        "setpriv", "--pdeathsig", "KILL", "--", "prlimit", "--core=0:0", "--stack=8388608:", "--",
        "taskset", "--cpu-list", str(core),
        "./linux", f"mem={memory_mb}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw",
        # Until /proc is mounted inside, it is this machine's, where "self" is the kernel.
        "init=/proc/self/cwd/init", "time-travel=inf-cpu", f"time-travel-start={WALL_CLOCK_START_NS}",
        # The seed is good enough: older kernels would stir for seconds until they believe it.
        "random.trust_cpu=on",
        "random.trust_bootloader=on",
        "con=null", "con0=null,fd:1", "quiet", "uml_dir=./uml/", "umid=run",
        *(["seccomp=on"] if kernel.version >= SECCOMP else []),
        *parameters,
    ]  # fmt: skip


def _environment(memory_mb: int, seed: int) -> dict[str, str]:
    """All that user-mode Linux sees of an environment."""
    random = hashlib.sha256(f"random {seed}".encode()).hexdigest()[:16]
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": _memory_folder(memory_mb),
        "LD_PRELOAD": "./preload.so",
        "MLTCP_SEED": random,
    }


LEARNING_MB, LEARNING_PER_PROCESS_MB = 400, 120  # NumPy, examples; what a worker keeps
# Memory of a message's row: where all rows are gathered as text, and where a worker reports an iteration.
ROW_BYTES, TOLD_BYTES = 400, 1200


def _memory_mb(plan: Plan) -> int:
    """What the inside needs: Python in every host, and queues and paths that senders and receivers hold a few times."""
    hosts = len({host for job in plan.jobs for host in job.hosts})
    queues = sum(
        4 * (link.buffer_bytes + int(link.rate_bps / 8 * plan.base_rtt_s)) for link in plan.bottlenecks.values()
    )
    learning = sum(
        LEARNING_MB + LEARNING_PER_PROCESS_MB * len(job.hosts) for job in plan.jobs if job.trains is not None
    )
    usual = MEMORY_MB + MEMORY_PER_PROCESS_MB * (hosts + len(plan.background))
    if plan.capture is not None:
        usual += MEMORY_PER_PROCESS_MB + (plan.capture.memory_bytes >> 20)
    rows = sum(map(_rows_an_iteration, plan.jobs)) if plan.messages == "full" else 0
    iterations = max(job.iterations for job in plan.jobs)
    told = rows * (ROW_BYTES * iterations + TOLD_BYTES) >> 20
    # A third of what is there in any case is free for them.
    return usual + 4 * (queues >> 20) + learning + (told if told > usual // 3 else 0)


def _rows_an_iteration(job: JobPlan) -> int:
    """Of ``messages.csv``, if each message has one where it is sent and one where it is received: as rings have them, which have more than others."""
    if job.by_tcp:
        return 0
    workers, messages = len(job.hosts), 0
    for op in job.collectives:
        if not op.algorithm:
            continue
        chunk = (op.bytes or 0) // workers
        around = 2 if collectives.find(op.algorithm).KIND == "all_reduce" else 1
        messages += around * (workers - 1) * max(len(ring.slices(chunk)), chunk // (job.partition or chunk or 1))
    return 2 * workers * messages


MEMORY_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp")


def _memory_folder(needed_mb: int) -> str:
    """Where the kernel keeps its memory, a file without a name that it runs programs from: in memory, if that is large enough."""
    for folder in MEMORY_FOLDERS:
        with contextlib.suppress(OSError):
            status = os.statvfs(folder)
            room = status.f_bavail * status.f_frsize
            wanted = needed_mb << (21 if folder == "/dev/shm" else 20)  # others use /dev/shm, too
            if room > wanted and not status.f_flag & os.ST_NOEXEC:
                return folder
    raise MachineError(
        f"user-mode Linux needs a file of {needed_mb} MB for its memory. {', '.join(MEMORY_FOLDERS)}: "
        "each has too little free space, or is mounted noexec. Free space in one of them, or use --on flow."
    )


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder of this run with a path that needs no quoting, gone with the run."""
    base = Path("/tmp")
    with contextlib.ExitStack() as stack:
        with _written(base):
            made = stack.enter_context(temp_dirs.scratch(base))
        yield made


@contextlib.contextmanager
def _written(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MachineError(f"{where} cannot be written: {error.strerror}. Make room there.") from error


@contextlib.contextmanager
def _core() -> Iterator[int]:
    """A core for this run: its kernel and its processes take turns, and handing over to another core is slow.

    Claimed by binding a name that disappears with this process; if all are claimed, shared.
    """
    mine = sorted(os.sched_getaffinity(0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        for core in reversed(mine):
            try:
                claim.bind(f"\0mltcp-core-{core}")
            except OSError:
                continue
            yield core
            return
        yield mine[os.getpid() % len(mine)]


def _prepare(folder: Path, image: Path, modules: Path) -> None:
    (folder / "uml").mkdir()
    (folder / "linux").symlink_to(image)
    for program in ("init", "preload.so"):
        (folder / program).symlink_to(modules / program)
    # Wherever the checkout, Python and the modules are, they have one path in the guest (kernel/uml/init.c).
    (folder / "from").mkdir()
    for name, place in (("checkout", PACKAGES), ("python", sys.prefix), ("modules", modules)):
        (folder / "from" / name).symlink_to(place)
        (folder / name).mkdir()
    for name in ("own", CAPTURES):
        (folder / name).mkdir()
    # Package folders are given, because a search for them (`site`) makes half of Python's system calls.
    packages = [path for path in sys.path if path.endswith("-packages")]
    (folder / "packages").write_text("\n".join(map(bytecode.inside, packages)))
    bytecode.put(folder / "bytecode", packages)
    if not IS_CHECKOUT:  # compiled transports are in the user's cache
        (folder / "cache").write_text(cache_folder())


def _portable(plan: Plan, folder: Path) -> Plan:
    """The plan with the user's own files at paths that are the same in every run."""
    for path, name in own_files.names(plan, str(folder / "content")).items():
        Path(name).parent.mkdir(parents=True)
        shutil.copy(path, name)
    plan = msgspec.structs.replace(
        plan,
        system=msgspec.structs.replace(plan.system, congestion=tuple(map(_named_alike, plan.system.congestion))),
    )
    sources = {cc.folder: Path(cc.source).name for cc in plan.ccs if cc.source is not None}
    return own_files.moved(plan, own_files.names(plan, "/run/mltcp/content"), sources)


def _named_alike(cc: CongestionControl) -> CongestionControl:
    return cc if cc.source is None else msgspec.structs.replace(cc, source=Path(cc.source).name)


def _follow(process: subprocess.Popen[bytes], folder: Path, watch: Watch) -> bytes:
    """Read the console, a file that grows, until the kernel is gone, or is given up."""
    with (folder / "console").open("rb") as console:

        def more() -> bytes:
            while True:
                over = process.poll() is not None
                if data := console.read(1 << 20):
                    watch.data()
                    return data
                if over:
                    return b""
                watch.check_progress()
                time.sleep(LOOK_EVERY_S)

        archive = listen(more, watch, said=_check_kernel_message)
    if archive is not None:
        return archive
    raise _why_it_ended(process, folder)


def _check_kernel_message(words: bytes) -> None:
    """The kernel's messages: a run that has lost a process to the kernel ends at once."""
    if words.startswith(b"Out of memory"):
        raise TestbedError(
            f"Run stopped: the guest kernel ran out of memory and killed a process of the run. {LESS_MEMORY}"
        )


def _memory_used(pid: int) -> int:
    """Bytes of memory that the user-mode Linux ``pid`` has used: those of the largest file that it has deleted and holds open."""
    used = [0]
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            if str(file.readlink()).endswith(" (deleted)"):
                used.append(file.stat().st_blocks * 512)
    return max(used)


def _used_s(session: int) -> float:
    """Processor time of a session's processes, in s: a user-mode Linux and all that runs in it."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):  # not `*/stat`: one that ends meanwhile would end the search
        with contextlib.suppress(OSError):
            told = (process / "stat").read_text(errors="replace")
            words = told.rpartition(")")[2].split()  # from the state on, the third field
            if int(words[3]) == session:
                ticks += sum(int(word) for word in words[11:15])  # utime, stime, and those of children that ended
    return ticks / os.sysconf("SC_CLK_TCK")


def _why_it_ended(process: subprocess.Popen[bytes], folder: Path) -> TestbedError:
    """Why the kernel went away without results."""
    words = [line for name in ("console", "log") for line in (folder / name).read_text(errors="replace").splitlines()]
    words = [line for line in words if not line.startswith("{")]
    if panics := [line for line in words if "Kernel panic" in line]:
        hint = (
            " (signal 11: a process of the guest may have exceeded this machine's vm.max_map_count)"
            if SEGFAULTED in panics[0]
            else ""
        )
        raised = [f". Before that: {line}" for line in words if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return TestbedError(
            f"the user-mode Linux kernel panicked: {panics[0].partition('Kernel panic')[2].lstrip(' -')}{hint}{''.join(raised[-1:])}"
        )
    refused = [line for line in words if "ptrace" in line]
    if refused:
        return MachineError(
            f"user-mode Linux cannot trace its processes here: {refused[0].strip()}. A container allows that with "
            "`--cap-add SYS_PTRACE` (docker, podman), or, if its own seccomp profile refuses ptrace, "
            "with `--security-opt seccomp=unconfined`; on a machine, the sysctl kernel.yama.ptrace_scope must be 0 or 1. "
            "`--on flow` needs no ptrace."
        )
    code = process.returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    tail = "\n".join(line for line in words[-6:] if line.strip())
    return TestbedError(
        f"the user-mode Linux kernel {how}{hint} before the run was over" + (f":\n{tail}" if tail else ".")
    )


def find(linux_source: Path | None = None, prefer: UserModeLinux | None = None) -> Uml:
    """User-mode Linux, with the kernel of ``linux_source``, or one that is as ``prefer``, or the newest there is.

    Raises `MachineError`.
    """
    kernel.check_platform()
    if linux_source is not None:
        return Uml(kernel.ensure(linux_source, progress.note))
    return Uml(kernel.find(prefer))
