"""``python -m testbed.replay.ddp.train MODEL``: one rank of real data-parallel training over Gloo.

Synthetic images, one thread, fixed seed. Rank and address of its peers come from PyTorch's environment variables:
``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT`` and ``GLOO_SOCKET_IFNAME``; without them it trains without
peers. With ``MLTCP_TRANSPORT``, gradients use that transport (`testbed.transports.torch`). With ``MLTCP_REPORT_FD``, it
reports its iterations (`testbed.traces.recording`) and the outcome of their messages. The training loop measures
nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from itertools import count
from typing import Any, get_args

from testbed.core.builtin_transport import TCP, plain
from testbed.replay.messages import Messages
from testbed.traces import hook
from testbed.traces.recording import MESSAGES, MTU, TRANSPORT, say_beside
from testbed.transports import Delivery, Message

try:
    import torch
    import torch.distributed as dist

    from testbed.replay.ddp.models import MODELS
    from testbed.transports.torch import FILLS, Fill, Guard, Synchronisation
    from testbed.transports.torch import hook as gradients_by
except ImportError as error:
    sys.exit(f"error: this trains with PyTorch ({error}): pip install 'mltcp-testbed[torch]'")

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def main(arguments: list[str]) -> None:
    """Train until the iterations are done, or for ever."""
    parser = argparse.ArgumentParser(prog="python -m testbed.replay.ddp.train", description="Train with DDP over Gloo.")
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--batch", type=_positive, default=4, help="images per rank (default: %(default)s)")
    parser.add_argument(
        "--image", type=_positive, default=64, help="width and height of an image, in pixels (default: %(default)s)"
    )
    parser.add_argument("--iterations", type=int, default=0, help="number of iterations (default: 0, without end)")
    lossy = parser.add_argument_group("with a transport that may lose gradient bytes (MLTCP_TRANSPORT)")
    lossy.add_argument(
        "--fill", type=lambda text: dict(FILLS.aliases).get(text, text), choices=get_args(Fill),
        help="value of missing gradient elements (default: zero)",
    )  # fmt: skip
    lossy.add_argument(
        "--disperse",
        action="store_true",
        default=None,
        help="Hadamard transform of gradients, which spreads a loss over all elements",
    )
    lossy.add_argument("--warmup-steps", type=_positive, help="number of first steps without loss (default: 0)")
    lossy.add_argument(
        "--guard",
        type=_share,
        help="delivered fraction below which, three steps in a row, loss is switched off (default: none)",
    )
    parsed = parser.parse_args(arguments)
    transport = os.environ.get(TRANSPORT, TCP)
    options: dict[str, Any] = {
        key: value
        for key in ("fill", "disperse", "warmup_steps", "guard")
        if (value := getattr(parsed, key)) is not None
    }
    if plain(transport) and options:
        parser.error(
            f"--{next(iter(options)).replace('_', '-')}: TCP delivers every gradient complete. Name a transport (MLTCP_TRANSPORT)"
        )
    if parsed.image < 32:
        parser.error("--image: VGG halves an image five times, so it needs 32 pixels or more")
    hook.install()
    if "RANK" not in os.environ:
        os.environ.update(ALONE)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    gradients = None
    if not plain(transport) and dist.get_world_size() > 1:
        gradients = _Gradients(transport, **options)
    _train(MODELS[parsed.model](), parsed.batch, parsed.image, parsed.iterations, gradients)
    if gradients:
        gradients.close()
    dist.destroy_process_group()


class _Gradients:
    """With another transport than PyTorch's; reports the outcome of each step."""

    def __init__(self, transport: str, **options: Any) -> None:
        self.full = os.environ.get(MESSAGES) == "full"
        self.messages = Messages(full=self.full)
        self.sync = Synchronisation.of_process_group(
            transport, mtu=int(os.environ.get(MTU, "1500")), ended=self._ended, **options
        )

    def _ended(self, peer: int, message: Message, sent: bool, how: Delivery) -> None:
        self.messages.add(peer, message, sent, how)

    def report_messages(self) -> None:
        """Once a backward pass is over, and with it all of its messages."""
        counted = self.sync.datagrams()
        say_beside(os.environ, self.messages.to_rows(0), None if counted is None else asdict(counted))
        self.messages = Messages(full=self.full)

    def close(self) -> None:
        dist.barrier()  # no rank leaves before all have the last mean
        stats = self.sync.stats()
        print(f"{stats.share:.1%} of the gradients delivered; messages closed: {stats.closed}", flush=True)
        self.sync.close()


def _train(module: Any, batch: int, image: int, iterations: int, gradients: _Gradients | None) -> None:
    model = torch.nn.parallel.DistributedDataParallel(module)
    if gradients:
        model.register_comm_hook(gradients.sync, gradients_by)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images, labels = torch.randn(batch, 3, image, image), torch.randint(10, (batch,))
    for _ in range(iterations) if iterations else count():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if gradients:
            gradients.report_messages()
        optimizer.step()


def _share(text: str) -> Guard:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return Guard(below=value)


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
