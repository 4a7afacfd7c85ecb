"""Record the profiles that the importers' tests read: ``python -m tools.record_profiles [FOLDER]``.

A small model trains with DDP over Gloo on this machine's CPU, once on one rank and once on two, under PyTorch's
profiler and its `ExecutionTraceObserver`. Names of this machine are removed from their files, which are then packed
into ``tests/data/profiles``. Needs PyTorch; a minute.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

HERE = Path(__file__).parents[1]
DATA = HERE / "tests" / "data" / "profiles"
RANKS = (1, 2)
WARM_UP, STEPS = 3, 3  # DDP's first step has other buckets
# Personal data of the recording machine, which no importer reads
_PRIVATE = {"host_name", "traceName", "trace_id", "time", "pid"}


def main(arguments: list[str]) -> None:
    if os.environ.get("RANK"):
        _train(Path(arguments[0]))
        return
    folder = Path(arguments[0]) if arguments else DATA
    for ranks in RANKS:
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
            subprocess.run(
                [*command, "-m", "tools.record_profiles", scratch],
                check=True, cwd=HERE, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
            )  # fmt: skip
            name = f"{ranks}-rank{'s' * (ranks > 1)}"
            for rank in range(ranks):
                _pack(Path(scratch) / f"kineto{rank}.json", folder / f"kineto-{name}-{rank}.json.gz", _slim_events)
            _pack(Path(scratch) / "host0.json", folder / f"host-{name}.json.gz", _slim_nodes)


def _train(folder: Path) -> None:
    """One rank: two linear layers, each in a separate bucket."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observer = ExecutionTraceObserver()
    observer.register_callback(str(folder / f"host{rank}.json"))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=WARM_UP - 1, active=STEPS),
        record_shapes=True,
        execution_trace_observer=observer,
        on_trace_ready=lambda done: done.export_chrome_trace(str(folder / f"kineto{rank}.json")),
    ) as profiler:
        for _ in range(WARM_UP + STEPS):
            optimizer.zero_grad()
            model(torch.ones(16, 256)).square().mean().backward()
            optimizer.step()
            profiler.step()
    dist.destroy_process_group()


def _pack(source: Path, target: Path, slim: Callable[[dict[str, Any]], None]) -> None:
    raw = {key: value for key, value in json.loads(source.read_text()).items() if key not in _PRIVATE}
    slim(raw)
    text = json.dumps(raw, separators=(",", ":"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{target}: {len(text) / 1e3:.0f} kB, packed {target.stat().st_size / 1e3:.1f} kB")


def _slim_events(raw: dict[str, Any]) -> None:
    """Without arrows between events, names of threads and the strides of tensors."""
    raw["traceEvents"] = [event for event in raw["traceEvents"] if event["ph"] == "X"]
    for event in raw["traceEvents"]:
        event.get("args", {}).pop("Input Strides", None)


def _slim_nodes(raw: dict[str, Any]) -> None:
    """Without the values and strides of tensors, and without attributes that are empty."""
    for node in raw["nodes"]:
        for side in ("inputs", "outputs"):
            node[side].pop("strides", None)
            if "process_group" not in node["name"]:
                node[side].pop("values", None)
        node["attrs"] = [one for one in node["attrs"] if one["value"] not in ("", "[]")]


if __name__ == "__main__":
    main(sys.argv[1:])
