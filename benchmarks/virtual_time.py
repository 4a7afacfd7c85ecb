"""Bottleneck packets per wall second: user-mode Linux under virtual time, compared with ns-3 and htsim.

The same dumbbell with two bulk flows of Reno in each, alternately, in one run. For ns-3 (the PyPI package ``ns3``, in a
separate environment below ``build/``) only ``Simulator.Run`` counts. For user-mode Linux the difference between a long
and a short run counts, which excludes boot and the start of Python. Needs no privilege.

htsim, which no package contains, is compared if its source is given: ``python -m benchmarks.virtual_time --htsim
PATH``, a checkout of github.com/Broadcom/csg-htsim. Only its loop over events counts. Its TCP is NewReno without SACK,
with an ACK for each packet (none is delayed), no receive window and no headers: a packet means less work there than in
a kernel, and more ACKs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from testbed import spec
from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.core.environment import ROOT
from testbed.core.runs import rundir
from testbed.planning import plan

ROUNDS = 3
NS3 = Path(ROOT) / "build" / "ns3"
HTSIM = Path(ROOT) / "build" / "htsim" / "dumbbell"
# files of htsim's sim/ for TCP over drop-tail queues; those of the second line are linked, but never run
HTSIM_SOURCES = [
    f"{name}.cpp"
    for name in (
        "config", "eventlist", "network", "pipe", "queue", "route", "tcp", "tcppacket",
        "eth_pause_packet", "fairpullqueue", "mtcp", "ndppacket",
    )
]  # fmt: skip
HTSIM_LONGER = 10  # factor of ns-3's simulated time, which would be too short to measure
# rate, MTU, buffer in bytes, payload of each flow (short and long run), seconds simulated by ns-3
CASES = {
    "500 Mbit/s, MTU 1500": (500_000_000, 1500, 62_500, (15_000_000, 315_000_000), 1.0),
    "10 Gbit/s, MTU 9000": (10_000_000_000, 9000, 600_000, (100_000_000, 4_100_000_000), 0.15),
    "50 Gbit/s, MTU 9000": (50_000_000_000, 9000, 2_000_000, (100_000_000, 4_100_000_000), 0.03),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--htsim", type=Path, metavar="PATH", help="checkout of csg-htsim (default: no comparison with htsim)"
    )
    htsim: Path | None = parser.parse_args().htsim
    if htsim is not None:
        build_htsim(htsim, "htsim_dumbbell.cpp", HTSIM)
    install_ns3()
    backend = uml.find()
    print(f"user-mode Linux {backend.kernel.identity.version}, ns-3 {_ns3_version()}; median of {ROUNDS} rounds")
    print(
        f"{'two Reno flows':<22}{'uml packets/s':>15}{'virtual ÷ wall':>16}{'ns-3 packets/s':>16}{'ratio':>8}"
        + (f"{'htsim packets/s':>17}{'ratio':>8}" if htsim else "")
    )
    for name, (rate, mtu, buffer, sizes, seconds) in CASES.items():
        ours, pace, theirs, htsims = [], [], [], []
        for _ in range(ROUNDS):
            (short, lasted_short, wall_short), (packets, lasted, wall) = (
                _uml(backend, rate, mtu, buffer, size) for size in sizes
            )
            ours.append((packets - short) / (wall - wall_short))
            pace.append((lasted - lasted_short) / (wall - wall_short))
            theirs.append(_ns3(rate, mtu, buffer, seconds))
            if htsim:
                htsims.append(_htsim(rate, mtu, buffer, HTSIM_LONGER * seconds))
        ratio = median(ours) / median(theirs)
        print(
            f"{name:<22}{median(ours):>15,.0f}{median(pace):>16.2f}{median(theirs):>16,.0f}{ratio:>7.1f}×"
            + (f"{median(htsims):>17,.0f}{median(ours) / median(htsims):>7.2f}×" if htsims else ""),
            flush=True,
        )


def install_ns3() -> None:
    """ns-3 in its environment below ``build/``, unless it is there."""
    if not (NS3 / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(NS3)], check=True)
        subprocess.run([str(NS3 / "bin/pip"), "install", "-q", "ns3"], check=True)


def _uml(backend: uml.Uml, rate: int, mtu: int, buffer: int, size: int) -> tuple[int, float, float]:
    """Return packets through the bottleneck, virtual seconds from the first to the last, and wall seconds of the
    complete run."""
    asked = {
        "jobs": 2, "cc": ["reno"], "iterations": 1, "compute": "1ms", "bytes": f"{size}B", "start_offsets": "0ms,10ms",
        "rate": f"{rate}bit", "mtu": mtu, "buffer": f"{buffer}B", "sample_interval": "100ms", "nic": "inf", "ecn": "off",
    }  # fmt: skip
    begun = time.perf_counter()
    (one, *_) = plan.plans(plan.resolve(spec.read(None, asked)))
    archive = backend.run(one, lambda _event: None, patience(one))
    wall = time.perf_counter() - begun
    last = [line.split(",") for line in rundir.unpack(archive)["links.csv"].decode().splitlines() if ",s1-s2," in line][
        -1
    ]
    return int(last[3]), float(last[0]), wall


def _ns3(rate: int, mtu: int, buffer: int, seconds: float) -> float:
    """Return packets per wall second, counted by received bytes, in full segments."""
    command = [str(NS3 / "bin/python"), str(Path(ROOT) / "benchmarks/ns3_dumbbell.py")]
    done = subprocess.run(
        [*command, *map(str, (rate, mtu, buffer, seconds))], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout.splitlines()[-1])
    return float(result["bytes"] / (mtu - 52) / result["wall_s"])


def _ns3_version() -> str:
    done = subprocess.run([str(NS3 / "bin/pip"), "show", "ns3"], capture_output=True, text=True, check=True)
    return next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("Version"))


def build_htsim(path: Path, program: str, binary: Path, more: tuple[str, ...] = ()) -> None:
    """Compile a program of `benchmarks` against the checkout at ``path`` (``more`` of its sources), or exit with the missing requirement."""
    sim = path / "sim"
    names = [*HTSIM_SOURCES, *more]
    missing = [name for name in names if not (sim / name).is_file()]
    if missing:
        sys.exit(
            f"{path} holds no htsim: --htsim wants the root of a checkout of github.com/Broadcom/csg-htsim, "
            f"and {sim} lacks {', '.join(missing)}."
        )
    # -iquote, not -I: a header of htsim must not stand in for one of the C++ library
    build(program, binary, ["-std=c++17", "-iquote", str(sim), *(str(sim / name) for name in names)], f"htsim in {sim}")


def build(program: str, binary: Path, options: list[str], against: str) -> None:
    """Compile a C++ program of `benchmarks` into ``binary``, or exit with the compiler's error."""
    binary.parent.mkdir(parents=True, exist_ok=True)
    kernel = str(Path(ROOT) / "kernel")
    command = [
        "g++",
        "-O2",
        "-w",
        "-iquote",
        kernel,
        str(Path(ROOT) / "benchmarks" / program),
        *options,
        "-o",
        str(binary),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"benchmarks/{program} needs g++, which is not installed (Debian's package g++).")
    if done.returncode:
        lines = done.stderr.splitlines()
        why = next((line for line in lines if "error" in line or "undefined" in line), "; ".join(lines[-1:]))
        sys.exit(f"{against} does not compile with benchmarks/{program}: {why}")


def _htsim(rate: int, mtu: int, buffer: int, seconds: float) -> float:
    """Return packets per wall second, counted by received bytes, in full segments."""
    done = subprocess.run(
        [str(HTSIM), *map(str, (rate, mtu, buffer, seconds))], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout.splitlines()[-1])  # htsim prints a line for each timeout, too
    return float(result["packets"] / result["wall_s"])


if __name__ == "__main__":
    main()
