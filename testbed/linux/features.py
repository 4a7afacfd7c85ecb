"""The features of a kernel that a run's set-up depends on: reported by a backend, read by `testbed.linux.setup_steps`."""

from __future__ import annotations

import errno
import os
import platform
import re
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from testbed.congestion import catalogue
from testbed.core.errors import MachineError
from testbed.core.netlink_attributes import attribute
from testbed.linux import netns
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.netem import Netem
from testbed.linux.queues.prio import GLOB, HTB_VERSION, RATE_TO_QUANTUM, TCA_HTB_INIT, Prio
from testbed.linux.queues.red import Red
from testbed.linux.rtnetlink import TC_H_ROOT, Socket, Tc, handle

RTO_MIN_US, HASH_SEED = "net.ipv4.tcp_rto_min_us", "net.ipv4.fib_multipath_hash_seed"
NAMESPACED_SINCE = (6, 11)  # both


@dataclass(frozen=True)
class Features:
    """The features of one kernel. The defaults describe a current Linux that is the machine's own."""

    clock: Literal["real", "virtual"] = "real"
    red: bool = True
    prio: bool = True
    htb: bool = True
    netem: bool = True
    modules: frozenset[str] = frozenset()  # the testbed's congestion controls that it has as modules; others are eBPF
    stand_ins: frozenset[str] = frozenset()  # the kernel's congestion controls that it lacks; eBPF may replace them
    loads: bool = False  # custom modules may be loaded into it
    rto_min: bool = True  # a minimum RTO per namespace (Linux 6.11)
    hash_seed: bool = True  # a seed for the choice among equal-cost paths (Linux 6.11)
    ipv6: bool = True


def user_mode(version: tuple[int, ...] | None = None) -> Features:
    """Return the features of user-mode Linux of ``version`` with kernel/uml/config; None: of a current version."""
    new = version is None or version >= NAMESPACED_SINCE
    return Features(
        clock="virtual", modules=frozenset(catalogue.names()), loads=True, rto_min=new, hash_seed=new, ipv6=False
    )


def running() -> Features:
    """Return the features of the user-mode Linux that runs this process, by its version: trying them would draw random
    numbers."""
    return user_mode(tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2]))


def confirm(features: Features) -> None:
    """Raises `MachineError` if the kernel has no RED after all, without which ECN marks would be others.

    Called at one place in a run: the namespace it tries in draws random numbers, too.
    """
    if features.red and not supported("red"):
        raise MachineError("this kernel has no queueing discipline RED (CONFIG_NET_SCH_RED), which it should have.")


def probe() -> Features:
    """Return the features of the running kernel. Needs root."""
    return Features(
        red=supported("red"),
        prio=supported("prio"),
        htb=supported("htb"),
        netem=supported("netem"),
        modules=frozenset(name for name in catalogue.names() if loaded(name)),
        stand_ins=frozenset(name for name in _programs() if not kernel_has(name)),
        rto_min=_sysctl(RTO_MIN_US).exists(),
        hash_seed=_sysctl(HASH_SEED).exists(),
        ipv6=Path("/proc/sys/net/ipv6").exists(),
    )


def _programs() -> set[str]:
    """Return the names of eBPF programs that are not the testbed's own."""
    return {path.name.removesuffix(".bpf.c") for path in catalogue.PROGRAMS.glob("*.bpf.c")} - set(catalogue.names())


def loaded(name: str) -> bool:
    """Return True if the testbed's congestion control ``name`` is loaded in this kernel as a module (for example by
    DKMS)."""
    return name in catalogue.names() and Path(f"/proc/sys/net/{name}").is_dir()


def kernel_has(name: str) -> bool:
    """Return True if a socket can use the congestion control ``name``; loads its module if permitted."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except FileNotFoundError:
            return False
        except PermissionError:
            pass  # restricted, which root is not
    return True


def _sysctl(key: str) -> Path:
    return Path("/proc/sys", key.replace(".", "/"))


# The smallest parameters of each, to test whether the kernel has it.
_SMALLEST = {
    "netem": Netem(0, 0, 0.0, 0.0, 0, 1).options(),
    "red": Red(10**4, 2 * 10**4, 0.02, 10**5).options(),
    "prio": Prio((Fifo(1), Fifo(1)), ()).options(),
    "htb": attribute(TCA_HTB_INIT, GLOB.pack(HTB_VERSION, RATE_TO_QUANTUM, 1, 0, 0)),
}


@cache
def supported(kind: str) -> bool:
    """Return True if the kernel has the qdisc ``kind`` (netem, red, prio, htb), tried in a scratch namespace."""
    scratch = netns.create()
    try:
        with Socket(scratch) as route:
            route.add(1, Tc("qdisc", kind, handle(1), TC_H_ROOT, _SMALLEST[kind]))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    finally:
        os.close(scratch)
    return True
