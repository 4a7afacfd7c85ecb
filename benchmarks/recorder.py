"""The cost of recording a training step: ``python -m benchmarks.recorder [MODEL] [BLOCKS]``, or under torchrun -m.

Three copies of a model are trained in turns, ten steps at a time: one without changes, one with PyTorch's averaging hook,
and one recorded. The averaging hook divides gradients in a separate pass, where DDP does it while copying. Prints the
median step of each, and its difference to the first with quartiles.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from testbed.replay.ddp.models import MODELS
from testbed.replay.ddp.train import ALONE
from testbed.traces.recorder import Recorder
from testbed.traces.recording import FileSink

STEPS = 10
WARM_UP = 2


def block(model: Any, optimizer: Any, images: Any, labels: Any) -> float:
    """Seconds per step."""
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return (time.perf_counter() - begun) / STEPS


def main(name: str = "smallcnn", blocks: str = "40") -> None:
    if "RANK" not in os.environ:
        os.environ.update(ALONE)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    images, labels = torch.randn(4, 3, 64, 64), torch.randint(10, (4,))
    models = {kind: torch.nn.parallel.DistributedDataParallel(MODELS[name]()) for kind in ("plain", "hook", "recorded")}
    optimizers = {kind: torch.optim.SGD(model.parameters(), lr=1e-3) for kind, model in models.items()}
    models["hook"].register_comm_hook(None, allreduce_hook)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(models["recorded"], FileSink(Path(folder)))
        rounds = [
            {kind: block(models[kind], optimizers[kind], images, labels) * 1e3 for kind in models}
            for _ in range(WARM_UP + int(blocks))
        ][WARM_UP:]
        recorder.close()
    if dist.get_rank() == 0:
        print(f"{name}, {dist.get_world_size()} rank(s):")
        for kind in models:
            low, middle, high = quantiles([one[kind] - one["plain"] for one in rounds], n=4)
            print(f"  {kind:9}{median(one[kind] for one in rounds):8.3f} ms {middle:+.3f} ({low:+.3f} to {high:+.3f})")
    dist.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # see testbed.replay.ddp.train
