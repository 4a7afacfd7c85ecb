"""Notes when this machine stood still: ``python -m testbed.linux.sampling.ticker``, started by `disturbances` during a run.

A ticker on every core wakes up every 4 ms, before all ordinary programs (SCHED_FIFO), and notes when it was late. From
time to time it queries how long the core's ksoftirqd, which forwards packets under load, has waited to run. It uses
neither the network nor packages outside Python's standard library. At the end of stdin it writes its notes, in JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from testbed.core.clock import sleep_until

PERIOD_NS = 4_000_000
NOTED_NS = 4_000_000  # a tick as late; a wait as long, between two questions
ASKED_EVERY, STAT_EVERY = 5, 25  # ticks
PRIORITY = 1  # lowest priority of SCHED_FIFO: the kernel's own threads there go first, and are recorded
PR_SET_PDEATHSIG = 1

Kind: TypeAlias = Literal["stolen", "interrupts", "program", "unknown", "ksoftirqd"]
STOLEN: Kind = "stolen"
INTERRUPTS: Kind = "interrupts"
PROGRAM: Kind = "program"
UNKNOWN: Kind = "unknown"
KSOFTIRQD: Kind = "ksoftirqd"
KINDS: tuple[Kind, ...] = (STOLEN, INTERRUPTS, PROGRAM, UNKNOWN, KSOFTIRQD)


@dataclass(frozen=True)
class Disturbance:
    """A span (ns of the monotonic clock) in which a core, or its ksoftirqd, did not run, and how long it waited."""

    start_ns: int
    end_ns: int
    core: int
    kind: Kind
    waited_ns: int


@dataclass
class Account:
    """Recorded disturbances, records that the kernel denied, and the cost of recording."""

    cores: list[int] = field(default_factory=list)
    noted: list[Disturbance] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ticks: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Jiffies:
    """Time of one core since boot, by use, in steps of 10 ms."""

    programs: int
    interrupts: int
    stolen: int


def jiffies(stat: str, core: int) -> Jiffies:
    """Parse the text of ``/proc/stat``."""
    row = next(line.split() for line in stat.splitlines() if line.startswith(f"cpu{core} "))
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, row[1:9])
    return Jiffies(user + nice + system, irq + softirq, steal)


def waited_ns(schedstat: str) -> int:
    """Return how long a thread was ready without running, in ns: the second field of ``/proc/PID/schedstat``."""
    return int(schedstat.split()[1])


def cause(late_ns: int, waited_ns: int, before: Jiffies, now: Jiffies) -> Kind:
    """Return the likely cause of a late ticker, from kernel accounting in steps of 10 ms.

    If the ticker was woken in time and had to wait, something else used its core. If not, the core did not run at all,
    or not even its timer.
    """
    if waited_ns < late_ns / 2:
        return STOLEN if now.stolen > before.stolen else UNKNOWN
    return INTERRUPTS if now.interrupts - before.interrupts > now.programs - before.programs else PROGRAM


def ksoftirqd() -> dict[int, int]:
    """The process of each core's ksoftirqd; those that are visible here."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = re.fullmatch(r"(\d+) \(ksoftirqd/(\d+)\) \S+ 2 .*", (folder / "stat").read_text().strip())
        except OSError:
            continue
        if name is not None:  # a child of kthreadd: no program that merely calls itself so
            found[int(name[2])] = int(name[1])
    return found


@dataclass(frozen=True)
class _State:
    jiffies: Jiffies
    waited_ns: int  # the ticker itself


class Ticker:
    """The ticker of one core, in the calling process."""

    def __init__(self, core: int, ksoftirqd: int | None) -> None:
        self.core, self.account, self.stopped = core, Account([core]), False
        self.stat = os.open("/proc/stat", os.O_RDONLY)
        self.own = self._schedstat("self", "the ticker")
        self.kernel = self._schedstat(str(ksoftirqd), f"ksoftirqd/{core}") if ksoftirqd is not None else None
        if ksoftirqd is None:
            self.account.refused.append(f"ksoftirqd/{core} is not visible here")
        self.asked_ns, self.kernel_waited = time.monotonic_ns(), self._waited(self.kernel)
        self.waiting: int | None = None  # index of ksoftirqd's last disturbance among the recorded ones

    def _schedstat(self, process: str, what: str) -> int | None:
        path = f"/proc/{process}/schedstat"
        try:
            fd = os.open(path, os.O_RDONLY)
            waited_ns(os.pread(fd, 64, 0).decode())
        except (OSError, ValueError, IndexError) as error:
            self.account.refused.append(f"{path} of {what}: {getattr(error, 'strerror', None) or error}")
            return None
        return fd

    def _tried(self, what: str, attempt: Callable[[], None]) -> bool:
        try:
            attempt()
        except OSError as error:
            self.account.refused.append(f"{what}: {error.strerror}")
            return False
        return True

    def stop(self, *_: object) -> None:
        self.stopped = True

    def run(self) -> Account:
        """Record until `stop`; this process then runs on that core only, before all ordinary programs."""
        punctual = self._tried(
            "SCHED_FIFO", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        ) and self._tried(f"core {self.core}", lambda: os.sched_setaffinity(0, {self.core}))
        account, deadline = self.account, time.monotonic_ns()
        before = self._state()
        while not self.stopped:
            deadline += PERIOD_NS
            sleep_until(deadline)
            now = time.monotonic_ns()
            late = now - deadline
            account.ticks += 1
            if late >= NOTED_NS:
                state = self._state()
                if punctual:
                    # The core may have stopped at any time since the last tick.
                    begun = deadline - PERIOD_NS
                    account.noted.append(Disturbance(begun, now, self.core, self._cause(late, before, state), late))
                before = state
                deadline += late // PERIOD_NS * PERIOD_NS
            elif account.ticks % STAT_EVERY == 0:
                before = self._state()
            if self.kernel is not None and (late >= NOTED_NS or account.ticks % ASKED_EVERY == 0):
                self._ask_ksoftirqd(now)
        used = os.times()
        account.cpu_s = used.user + used.system
        return account

    def _cause(self, late_ns: int, before: _State, now: _State) -> Kind:
        if self.own is None:
            return UNKNOWN
        return cause(late_ns, now.waited_ns - before.waited_ns, before.jiffies, now.jiffies)

    def _ask_ksoftirqd(self, now_ns: int) -> None:
        """The waiting time since the last query. A wait counts when it is over, as a single one."""
        total = self._waited(self.kernel)
        waited = total - self.kernel_waited
        begun = min(self.asked_ns, now_ns - waited)
        if waited >= NOTED_NS:
            noted = self.account.noted
            if self.waiting is not None and (last := noted[self.waiting]).end_ns >= begun:
                begun, waited = min(last.start_ns, begun), last.waited_ns + waited
                noted[self.waiting] = Disturbance(begun, now_ns, self.core, KSOFTIRQD, waited)
            else:
                self.waiting = len(noted)
                noted.append(Disturbance(begun, now_ns, self.core, KSOFTIRQD, waited))
        self.asked_ns, self.kernel_waited = now_ns, total

    def _state(self) -> _State:
        stat = os.pread(self.stat, 1 << 16, 0).decode()
        return _State(jiffies(stat, self.core), self._waited(self.own))

    @staticmethod
    def _waited(fd: int | None) -> int:
        return waited_ns(os.pread(fd, 64, 0).decode()) if fd is not None else 0


def _start(core: int, ksoftirqd: int | None, parent: int) -> tuple[int, int]:
    """A process that ticks on ``core`` until SIGTERM; its number, and where its account comes from."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        return child, reading
    os.close(reading)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    ticker = Ticker(core, ksoftirqd)
    signal.signal(signal.SIGTERM, ticker.stop)
    gc.disable()
    account = ticker.run()
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with os.fdopen(writing, "w") as out:
        json.dump(asdict(account), out)
    os._exit(0)


def merged(accounts: Iterable[Account]) -> Account:
    """Return the accounts of all cores as one, ordered by time."""
    every = list(accounts)
    return Account(
        [core for one in every for core in one.cores],
        sorted((each for one in every for each in one.noted), key=lambda each: (each.start_ns, each.core)),
        list(dict.fromkeys(text for one in every for text in one.refused)),
        sum(one.ticks for one in every),
        sum(one.cpu_s for one in every),
    )


def read(text: str) -> Account:
    """Parse an account from JSON. Raises `ValueError`, `KeyError` or `TypeError`."""
    document = json.loads(text)
    return Account(**{**document, "noted": [Disturbance(**one) for one in document["noted"]]})


def _read_account(core: int, reading: int) -> Account:
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    return read(text) if text else Account(refused=[f"the ticker of core {core} was killed"])


def main() -> None:
    kernel, cores, here = ksoftirqd(), sorted(os.sched_getaffinity(0)), os.getpid()
    tickers = {core: _start(core, kernel.get(core), here) for core in cores}
    while os.read(0, 1 << 16):
        pass
    for child, _ in tickers.values():
        os.kill(child, signal.SIGTERM)
    json.dump(asdict(merged(_read_account(core, reading) for core, (_, reading) in tickers.items())), sys.stdout)


if __name__ == "__main__":
    main()
