"""The cost of LTP: bit/s over a veth with both ends on one core, and wall time under virtual time, against TCP.

Over the veth, alternately in one run: LTP with its defaults, LTP with an ACK for each packet, iperf3's UDP if it is
installed, and TCP; packets of 1500 bytes. Under virtual time eight hosts send to one at 10 and 1 Gbit/s. The difference
between a long and a short run is reported, which excludes boot and the start of Python. Needs root, for the network
namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from testbed import spec
from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.core.environment import ROOT
from testbed.planning import plan

ROUNDS = 3
HERE, THERE = "10.99.0.1", "10.99.0.2"
CORE = 0
BYTES, MESSAGES = "200MB", 10
IPERF_S = 5
TRANSPORTS = {
    "ltp": "ltp:fraction=1",
    "ltp, an ACK for each packet": "ltp:fraction=1,acks=1,coalesce=0us",
    "tcp": "tcp",
}
SYSTEMS = {"reno": 10, "ltp:fraction=1": 1, "ltp:fraction=1,coalesce=100us": 1}  # times the long run's bytes
MESSAGES_OF_A_RUN = 2 * 2 * 8  # iterations, there and back, workers
RATES = {"10gbit": (1_000_000, 9_000_000), "1gbit": (200_000, 1_800_000)}  # bytes a worker, short and long


def main() -> None:
    with _veth() as (here, there):
        cases: dict[str, Callable[[], float]] = {
            name: (lambda transport=transport: _exchange(here, there, transport))  # type: ignore[misc]
            for name, transport in TRANSPORTS.items()
        }
        if shutil.which("iperf3"):
            cases["iperf3 -u, nothing acknowledged"] = lambda: _iperf(here, there)
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, measure in cases.items():
                found[name].append(measure())
    base = median(found["ltp"])
    print(f"veth, both ends on one core, median of {ROUNDS}\n{'':<34}{'Gbit/s':>8}{'ratio':>8}")
    for name, rates in found.items():
        print(f"{name:<34}{median(rates) / 1e9:>8.2f}{median(rates) / base:>8.2f}", flush=True)
    backend = uml.find()
    print(f"\nvirtual time, 8 → 1 and back, median of {ROUNDS}\n{'':<42}{'s/GB':>8}{'ratio':>8}")
    for rate, (short, long) in RATES.items():
        took: dict[str, list[float]] = {system: [] for system in SYSTEMS}
        for _ in range(ROUNDS):
            for system, more in SYSTEMS.items():
                walls = [_wall(backend, system, rate, size) for size in (short, more * long)]
                took[system].append((walls[1] - walls[0]) / (MESSAGES_OF_A_RUN * (more * long - short) / 1e9))
        for system in SYSTEMS:
            ratio = median(took[system]) / median(took["reno"])
            print(f"{rate + ', ' + system:<42}{median(took[system]):>8.1f}{ratio:>7.1f}×", flush=True)


@contextmanager
def _veth() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a cable between them."""
    names = [f"ltp-{end}-{os.getpid()}" for end in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", "a0", "netns", names[0], "type", "veth", "peer", "name", "b0", "netns", names[1])
        for name, device, address in zip(names, ("a0", "b0"), (HERE, THERE), strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _within(name: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", name, "taskset", "--cpu-list", str(CORE), *words]


def _exchange(here: str, there: str, transport: str) -> float:
    """bit/s that arrived, by the receiver's clock."""
    words = [sys.executable, "-m", "testbed.transports", transport]
    receive = [*words, "receive", "--bind", THERE, "--peer", HERE]
    send = [*words, "send", "--bind", HERE, "--peer", THERE, "--bytes", BYTES, "--rounds", str(MESSAGES), "--json"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(_within(there, *receive), stdout=quiet, stderr=quiet, cwd=ROOT):
        done = subprocess.run(_within(here, *send), stdout=subprocess.PIPE, stderr=quiet, cwd=ROOT, check=True)
    return float(json.loads(done.stdout)["receiver"]["bits_per_second"])


def _iperf(here: str, there: str) -> float:
    with subprocess.Popen(_within(there, "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL):
        time.sleep(0.5)
        words = ["iperf3", "-u", "-c", THERE, "-b", "0", "-l", "1400", "-t", str(IPERF_S), "-J"]
        done = subprocess.run(_within(here, *words), stdout=subprocess.PIPE, check=True)
    totals = json.loads(done.stdout)["end"]["sum"]
    return float(totals["bits_per_second"] * (1 - totals["lost_percent"] / 100))


def _wall(backend: uml.Uml, system: str, rate: str, size: int) -> float:
    """Return the wall time in seconds of the complete run."""
    asked = {
        "topo": "star", "jobs": 1, "workers": 9, "collective": "parameter_server", "compute": "1ms", "bytes": f"{size}B",
        "rate": rate, "iterations": 2, "system": [system], "buffer": "1MB",
    }  # fmt: skip
    wanted = next(one for one in plan.planned(spec.read(None, asked))[1] if one.alone is None)
    begun = time.monotonic()
    backend.run(wanted, lambda _event: None, patience(wanted))
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
