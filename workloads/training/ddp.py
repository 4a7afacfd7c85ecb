"""``python -m workloads.training.ddp MODEL``: one rank of real data-parallel training over Gloo.

Synthetic images, one thread, fixed seed. Who it is and how it connects comes from the
environment, as PyTorch has it: ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``
and ``GLOO_SOCKET_IFNAME``; without them it is alone. With ``MLTCP_TRANSPORT`` gradients travel by that
(`transports.torch`). With ``MLTCP_REPORT_FD`` it reports its iterations (`workloads.recording`); the loop itself
measures nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import count
from typing import Any

from core.carrier import TCP, plain
from workloads import hook
from workloads.recording import TRANSPORT

try:
    import torch
    import torch.distributed as dist

    from transports.torch import Synchronisation
    from transports.torch import hook as gradients_by
    from workloads.training.models import MODELS
except ImportError as error:
    sys.exit(f"error: this trains with PyTorch ({error}): pip install 'mltcp-testbed[torch]'")

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def main(arguments: list[str]) -> None:
    """Train until the iterations are done, or for ever."""
    parser = argparse.ArgumentParser(prog="python -m workloads.training.ddp", description="Train with DDP over Gloo.")
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--batch", type=_positive, default=4, help="images per rank (%(default)s)")
    parser.add_argument("--image", type=_positive, default=64, help="width and height of an image (%(default)s)")
    parser.add_argument("--iterations", type=int, default=0, help="0: endless")
    parsed = parser.parse_args(arguments)
    if parsed.image < 32:
        parser.error("--image: VGG halves an image five times; give 32 or more")
    hook.install()
    if "RANK" not in os.environ:
        os.environ.update(ALONE)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    _train(MODELS[parsed.model](), parsed.batch, parsed.image, parsed.iterations)
    dist.destroy_process_group()


def _train(module: Any, batch: int, image: int, iterations: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(module)
    transport = os.environ.get(TRANSPORT, TCP)
    if not plain(transport) and dist.get_world_size() > 1:
        model.register_comm_hook(Synchronisation.of_process_group(transport), gradients_by)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images, labels = torch.randn(batch, 3, image, image), torch.randint(10, (batch,))
    for _ in range(iterations) if iterations else count():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    main(sys.argv[1:])
    # Gloo's threads outlive their process group, and one that lets go of a tensor while Python
    # is ending aborts the process: one run in ten (github.com/pytorch/pytorch/pull/179291).
    os._exit(0)
