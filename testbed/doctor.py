"""``python -m testbed doctor``: what this machine can do, found by trying each thing.

Everything is tried in a scratch namespace that ends with the try; nothing is concluded
from a version number. One line each, with what to do where it fails.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from testbed import bpf, congestion, network, phantom, plan, qdiscs, settings, shaper, spec
from testbed.errors import EXIT_MACHINE, EXIT_OK, TestbedError
from testbed.substrates import uml
from topologies.dumbbell import Dumbbell

RATE_BPS = 500_000_000


@dataclass(frozen=True)
class Finding:
    """One thing tried. ``needed``: by `--on host` (or `--on uml`), which cannot run without it."""

    what: str
    works: bool
    detail: str
    fix: str
    needed: str  # the substrate, or empty


class _DoesNotWorkError(Exception):
    """It does not work; the message says why."""


def examine() -> list[Finding]:
    """Try everything."""
    return [
        _try("root", _root, "put `sudo` in front of the command", needed="host"),
        _try("unshare and setpriv (util-linux)", _tools, "install the package util-linux", needed="host"),
        _try("network of namespaces and veth", _network, "run as root, on Linux with network namespaces", needed="host"),
        _try("TBF bottleneck, also at 50 Gbit/s", _tbf, "a kernel with CONFIG_NET_SCH_TBF", needed="host"),
        _try("--acks first (bands under TBF)", _acks_first, "a kernel with CONFIG_NET_SCH_PRIO or HTB, and CLS_U32", needed=""),
        _try("clang for eBPF", _clang, "`make setup`, or install clang and libbpf-dev", needed="host"),
        _try("ours, as modules or eBPF", _ours, "Linux 6.4 or newer with BTF and CONFIG_BPF_JIT, or the modules", needed="host"),
        _try("minimum RTO per namespace (--rto-min)", _rto_min, "Linux 6.11 or newer", needed=""),
        _try("delay, jitter, loss (netem)", _qdisc("netem"), "--on uml, or a kernel with sch_netem", needed=""),
        _try("marking (RED, or a phantom queue)", _marking, "--on uml, or a kernel with sch_red or cls_bpf", needed=""),
        _try("stock Mininet (mn, mnexec)", _stock_mininet, "`make setup`, or install mininet", needed=""),
        *(_try(f"congestion control {name}", _cc(name), f"`modprobe tcp_{name}`, if the kernel takes modules", needed="")
          for name in ("reno", "cubic", "dctcp", "bbr")),
        _try("a small run in user-mode Linux", _uml, "`make kernel` builds it; no privilege needed", needed="uml"),
    ]  # fmt: skip


def report(*, as_json: bool) -> int:
    """Print the findings; code 3 if nothing can run here."""
    findings = examine()
    able = {where: all(finding.works for finding in findings if finding.needed == where) for where in ("host", "uml")}
    if as_json:
        print(json.dumps({"version": 1, "kernel": platform.release(), **able,
                          "findings": [asdict(finding) for finding in findings]}, indent=1))  # fmt: skip
        return EXIT_OK if any(able.values()) else EXIT_MACHINE
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        mark = "[green]yes[/]" if finding.works else "[red]no[/]" if finding.needed else "[yellow]no[/]"
        table.add_row(mark, finding.what, finding.detail if finding.works else f"{finding.detail} → {finding.fix}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(f"\nLinux {platform.release()}:")
    for where, can in able.items():
        console.print(
            f"  `--on {where}` "
            + ("[green]works[/] here" if can else "[red]does not work[/] here; the lines marked red say why")
        )
    return EXIT_OK if any(able.values()) else EXIT_MACHINE


def _try(what: str, attempt: Callable[[], str], fix: str, *, needed: str) -> Finding:
    try:
        return Finding(what, True, attempt(), "", needed)
    except (_DoesNotWorkError, OSError, TestbedError, subprocess.CalledProcessError) as error:
        return Finding(what, False, str(error).splitlines()[0], fix, needed)
    except Exception as error:  # whatever a library raises: the thing does not work
        return Finding(what, False, f"{type(error).__name__}: {error}", fix, needed)


def _root() -> str:
    if os.geteuid() != 0:
        raise _DoesNotWorkError("not root")
    return ""


def _tools() -> str:
    if missing := [tool for tool in ("unshare", "setpriv", "mount") if shutil.which(tool) is None]:
        raise _DoesNotWorkError(f"missing: {', '.join(missing)}")
    return ""


def _with_network(use: Callable[[network.Network], Any]) -> None:
    net = network.build(Dumbbell(n=1))
    try:
        use(net)
    finally:
        net.stop()


def _network() -> str:
    def use(net: network.Network) -> None:
        settings.apply_all(
            [s for end in net.ends() for s in (settings.Mtu(end.node.name, end.name, 1500),
                                               settings.OffloadsOff(end.node.name, end.name))], net)  # fmt: skip

    _with_network(use)
    return "offloads can be switched off"


def _shape(rate_bps: int, *, acks_first: bool) -> None:
    def use(net: network.Network) -> None:
        end = next(net.ends(bottleneck=True))
        bucket = shaper.bucket_bytes(rate_bps, 1500, real_time=True)
        shape = shaper.Shaper(end.node.name, end.name, rate_bps, bucket, rate_bps // 8000, acks_first)
        settings.apply_all([shape], net)

    _with_network(use)


def _tbf() -> str:
    _shape(RATE_BPS, acks_first=False)
    _shape(100 * RATE_BPS, acks_first=False)
    return "read back"


def _acks_first() -> str:
    _shape(RATE_BPS, acks_first=True)
    return ""


def _clang() -> str:
    bpf.compile_program(congestion.PROGRAMS / "mltcp_reno.bpf.c")
    return ""


def _ours() -> str:
    kinds: dict[str, list[str]] = {}
    for name in congestion.names():
        registered = congestion.register(congestion.parse(name))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, registered.name.encode())
        if registered.program is not None:
            registered.program.close()
        kinds.setdefault(registered.kind, []).append(name)
    return "; ".join(f"{', '.join(names)} as {kind}" for kind, names in kinds.items())


def _rto_min() -> str:
    def use(net: network.Network) -> None:
        settings.apply_all([settings.Sysctl("l1", "net.ipv4.tcp_rto_min_us", "5000")], net)

    _with_network(use)
    return ""


def _qdisc(kind: str) -> Callable[[], str]:
    def attempt() -> str:
        if not qdiscs.supported(kind):
            raise _DoesNotWorkError("this kernel has no such queueing discipline")
        return ""

    return attempt


def _marking() -> str:
    if qdiscs.supported("red"):
        return "RED"
    phantom.check()
    return "phantom queue in eBPF; this kernel has no RED"


def _uml() -> str:
    substrate = uml.find()
    asked = spec.read(None, {"jobs": 1, "cc": ["mltcp_reno"], "iterations": 1, "compute": "1ms", "bytes": "100kB"})
    substrate.run(plan.plans(asked)[0], lambda event: None, 60)
    return f"Linux {substrate.kernel.identity['version']}, under virtual time"


def _stock_mininet() -> str:
    if missing := [tool for tool in ("mn", "mnexec") if shutil.which(tool) is None]:
        raise _DoesNotWorkError(f"missing: {', '.join(missing)}")
    return ""


def _cc(name: str) -> Callable[[], str]:
    def attempt() -> str:
        congestion.check_available(congestion.parse(name))
        return ""

    return attempt
