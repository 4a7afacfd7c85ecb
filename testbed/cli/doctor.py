"""``mltcp doctor``: test what this machine can do, by trying each feature.

Every try uses a scratch namespace that ends with it; version numbers prove nothing. Each result is one line, with a remedy if
it fails.
"""

from __future__ import annotations

import argparse
import contextlib
import io
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

import msgspec
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from testbed import networks, spec
from testbed.backends import uml
from testbed.backends.host import Host
from testbed.backends.progress import patience
from testbed.campaign import proposal
from testbed.congestion import catalogue
from testbed.core import terminal
from testbed.core.errors import EXIT_MACHINE, EXIT_OK, TestbedError
from testbed.core.runs import rundir
from testbed.core.runs.manifest import Told
from testbed.core.runs.plan import Link
from testbed.core.terminal import Column, Sheet
from testbed.core.text import command, decimal
from testbed.linux import features, network, privileges, settings
from testbed.linux.loading import bpf, classifier, registry
from testbed.linux.queues.rates import bucket_bytes
from testbed.linux.queues.setting import Queues
from testbed.linux.sampling import disturbances
from testbed.linux.setup_steps import shaper
from testbed.planning import plan
from testbed.spec import backend_names

RATE_BPS = 500_000_000


@dataclass(frozen=True)
class Finding:
    """One thing tried. ``needed``: by `--on host` (or `--on uml`), which cannot run without it."""

    what: str
    works: bool | None  # None: not tried, since only root can
    detail: str
    fix: str
    needed: str  # the backend, or empty
    command: str = ""  # a remedy to paste into a shell, printed after its purpose


class _DoesNotWorkError(Exception):
    """It does not work; the message gives the reason."""


@dataclass(frozen=True)
class _Trial:
    what: str
    attempt: Callable[[], str]
    fix: str
    needed: str = ""
    root: bool = False  # only root can try it

    def __call__(self) -> Finding:
        if self.root and os.geteuid() != 0:
            return Finding(self.what, None, "needs root", "", self.needed)
        try:
            detail, _, command = self.attempt().partition("\n")
            return Finding(self.what, True, detail, "", self.needed, command)
        except (_DoesNotWorkError, OSError, TestbedError, subprocess.CalledProcessError) as error:
            return Finding(self.what, False, str(error).splitlines()[0], self.fix, self.needed)
        except Exception as error:  # any exception of a library means that it does not work
            return Finding(self.what, False, f"{type(error).__name__}: {error}", self.fix, self.needed)


def _trials() -> tuple[_Trial, ...]:
    """Everything, in order. Under ``sudo`` root is given up for the last of them, which needs none."""
    return (
        _Trial("unshare and setpriv (util-linux)", _tools, "install the package util-linux", "host"),
        _Trial("network of namespaces and veth", _network, "Linux with network namespaces, and the right to make them", "host", root=True),
        _Trial("TBF bottleneck, also at 50 Gbit/s", _tbf, "a kernel with CONFIG_NET_SCH_TBF", "host", root=True),
        _Trial("--ack-priority on (priority queues under TBF)", _acks_first, "a kernel with CONFIG_NET_SCH_PRIO or HTB, and CLS_U32", root=True),
        _Trial("clang for eBPF", _clang, "`make setup`, or install clang and libbpf-dev", "host"),
        _Trial("ours, as modules or eBPF", _ours, "Linux 6.4 or newer with BTF and CONFIG_BPF_JIT, or the modules", "host", root=True),
        _Trial("minimum RTO per namespace (--rto-min)", _rto_min, "Linux 6.11 or newer", root=True),
        _Trial("delay, jitter, loss, corruption (netem)", _qdisc("netem"), "--on uml, or a kernel with sch_netem", root=True),
        _Trial("marking (RED, or a phantom queue)", _marking, "--on uml, or a kernel with sch_red or cls_bpf", root=True),
        _Trial("stock Mininet (mn, mnexec)", _stock_mininet, "`make setup`, or install mininet"),
        _Trial("congestion controls of this kernel", _kernels_own, "`modprobe tcp_NAME`, or --on uml"),
        _Trial("a small run on this machine's clock", _host, "--on uml", "host", root=True),
        _Trial("a small run as flows", _flow, "`make setup`, which installs NumPy and SciPy", "flow"),
        _Trial("a small run in user-mode Linux", _uml, "docs/explanation/virtual-time.md", "uml"),
    )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    parser.add_argument(
        "--curves", action="store_true",
        help="comparison of stock protocols in virtual time with published curves (two minutes)",
    )  # fmt: skip


def run(parsed: argparse.Namespace) -> int:
    if parsed.curves:
        from testbed.cli import doctor_curves

        return doctor_curves.report(as_json=parsed.json)
    return report(as_json=parsed.json)


def report(*, as_json: bool) -> int:
    """Print the findings; code 3 if no backend that was tried can run here."""
    errors = Console(stderr=True)
    trials, findings = _trials(), list[Finding]()
    with errors.status("") if errors.is_terminal else contextlib.nullcontext() as status:
        for number, trial in enumerate(trials, 1):
            line = f"{number} of {len(trials)}: {trial.what}"
            if status is not None:
                status.update(escape(line))
            elif not as_json:
                print(line, file=sys.stderr, flush=True)
            findings.append(trial())
    able = {backend: _able(backend, findings) for backend in ("uml", "host", "flow")}
    code = EXIT_OK if able["uml"] or able["host"] else EXIT_MACHINE  # flows are no network
    if as_json:
        print(json.dumps({"version": 1, "kernel": platform.release(), **able,
                          "findings": [asdict(finding) for finding in findings]}, indent=1))  # fmt: skip
        return code
    rows: list[list[terminal.Cell]] = []
    for finding in findings:
        if finding.works is not None:
            mark = ("yes", "green") if finding.works else ("NO", "red") if finding.needed else ("no", "yellow")
            texts = (finding.detail, finding.fix)
            rows.append([Text(*mark), finding.what, " → ".join(words for words in texts if words)])
    console = terminal.console(usual=140)
    Sheet([Column(), Column(), Column(prose=True)], rows, names=2).print(console)
    for finding in findings:
        if finding.command:
            console.print(f"\n{finding.command}")
    if untried := [finding.what for finding in findings if finding.works is None]:
        console.print()
        terminal.say(console, f"Needs root, and was not tried: {'; '.join(untried)}. This tries them:", style="yellow")
        console.print(f"  {command('doctor', root=True)}")
    console.print(f"\nLinux {platform.release()}:")
    for backend, can in able.items():
        default = " (of runs that name no backend)" if backend_names.is_first(backend) else ""
        words, style = _SAID[can]
        terminal.say(console, f"  `--on {backend}`{default} {words}", style=style, indent="    ")
    return code


_SAID = {
    True: ("works here", "green"),
    False: ("does not work here; the lines that begin with NO say why", "red"),
    None: ("needs root; nothing else was found against it", ""),
}


def _able(backend: str, findings: list[Finding]) -> bool | None:
    """Return True if runs work on ``backend``; None if that is unknown without root and nothing else fails."""
    needed = [finding.works for finding in findings if finding.needed == backend]
    return False if False in needed else None if None in needed else True


def _tools() -> str:
    if missing := [tool for tool in ("unshare", "setpriv", "mount") if shutil.which(tool) is None]:
        raise _DoesNotWorkError(f"missing: {', '.join(missing)}")
    return ""


def _with_network(use: Callable[[network.Network], Any]) -> None:
    net = network.build(networks.find("dumbbell")(n=1))
    try:
        use(net)
    finally:
        net.stop()


def _network() -> str:
    def use(net: network.Network) -> None:
        settings.apply_all(
            [s for end in net.ends() for s in (settings.mtu(end.node.name, end.name, 1500),
                                               settings.offloads_off(end.node.name, end.name))], net)  # fmt: skip

    _with_network(use)
    return "offloads can be switched off"


def _shape(rate_bps: int, *, acks_first: bool) -> None:
    def use(net: network.Network) -> None:
        end = next(net.ends(bottleneck=True))
        link = Link(rate_bps, rate_bps // 8000, 1500, acks_first)
        root = shaper(link, bucket_bytes(rate_bps, 1500, real_time=True), features.probe())
        settings.apply_all([Queues(end.node.name, end.name, network.link_name(end), root)], net)

    _with_network(use)


def _tbf() -> str:
    _shape(RATE_BPS, acks_first=False)
    _shape(100 * RATE_BPS, acks_first=False)
    return "read back"


def _acks_first() -> str:
    _shape(RATE_BPS, acks_first=True)
    return ""


def _clang() -> str:
    bpf.compile_program(catalogue.PROGRAMS / "mltcp_reno.bpf.c")
    return ""


def _ours() -> str:
    kinds: dict[str, list[str]] = {}
    for name in catalogue.names():
        registered = registry.register(catalogue.parse(name))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, registered.name.encode())
        if registered.program is not None:
            registered.program.close()
        kinds.setdefault(registered.kind, []).append(name)
    return "; ".join(f"{', '.join(names)} as {kind}" for kind, names in kinds.items())


def _rto_min() -> str:
    def use(net: network.Network) -> None:
        settings.apply_all([settings.sysctl("l1", "net.ipv4.tcp_rto_min_us", "5000")], net)

    _with_network(use)
    return ""


def _qdisc(kind: str) -> Callable[[], str]:
    def attempt() -> str:
        if not features.supported(kind):
            raise _DoesNotWorkError("this kernel has no such queueing discipline")
        return ""

    return attempt


def _marking() -> str:
    if features.supported("red"):
        return "RED"
    classifier.check()
    return "phantom queue in eBPF; this kernel has no RED"


def _uml() -> str:
    privileges.give_up()
    backend = uml.find()
    asked = spec.read(None, {"jobs": 1, "cc": ["mltcp_reno"], "iterations": 1, "compute": "1ms", "bytes": "100kB"})
    (one, *_) = plan.plans(plan.resolve(asked))
    backend.run(one, lambda _event: None, patience(one))
    return f"Linux {backend.kernel.identity.version}, under virtual time"


def _flow() -> str:
    from testbed.backends.flow import FlowLevel
    from testbed.models import compiled

    asked = spec.read(None, {"jobs": 1, "cc": ["reno"], "iterations": 1, "on": "flow"})
    (one, *_) = plan.plans(plan.resolve(asked))
    FlowLevel().run(one, lambda _event: None, patience(one))
    if compiled.is_there():
        return "the flow simulator, compiled by Numba"
    return "the flow simulator, interpreted: for thousands of GPUs `pip install 'mltcp-testbed[scale]'` (Numba)"


def _host() -> str:
    asked = spec.read(None, {"jobs": 4, "cc": ["reno"], "iterations": 2})
    one = next(each for each in plan.plans(plan.resolve(asked)) if each.measure_capacity)
    files = rundir.unpack(Host().run(one, lambda _event: None, patience(one)))
    measured, noted = (
        msgspec.json.decode(files["manifest.json"], type=Told).measured,
        pd.read_csv(io.BytesIO(files[disturbances.TABLE])),
    )
    fits = proposal.propose(one, measured.capacity_bps, noted, platform.release(), was_invalid=False)
    return (
        f"unshaped path {decimal((measured.capacity_bps or 0) / 1e9, 2)} Gbit/s, longest pause {decimal(noted['waited_s'].max() if len(noted) else 0, 1)} s\n"
        f"What fits this machine's clock (exact is `--on uml`):\n  {command('run', '--on', 'host', *fits.flags, root=True)}"
    )


def _stock_mininet() -> str:
    if missing := [tool for tool in ("mn", "mnexec") if shutil.which(tool) is None]:
        raise _DoesNotWorkError(f"missing: {', '.join(missing)}")
    return ""


def _kernels_own() -> str:
    """Which of Linux's own congestion controls runs can have on this kernel, by trying each."""
    known = [cc for cc in map(catalogue.parse, catalogue.families()) if cc.name not in catalogue.names()]
    there = [cc.name for cc in known if catalogue.program(cc) is not None or features.kernel_has(cc.name)]
    lacking = [cc.name for cc in known if cc.name not in there]
    without = f"; not {', '.join(lacking)} (`modprobe tcp_NAME`; --on uml has them)" if lacking else ""
    return ", ".join(there) + without
