"""Train with PyTorch over a transport of the testbed: a parameter server averages gradients, which may have missing
ranges.

As DDP's communication hook (the backend of the process group sends the first broadcast and the buffers, completely)::

model = DistributedDataParallel(module)
    sync = Synchronisation.of_process_group("ltp:fraction=0.9")
    model.register_comm_hook(sync, hook)

or as a plain loop, where each rank has its own model::

sync = Synchronisation(rank, addresses, "ltp:fraction=0.9")
    sync.broadcast(model)
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=False)
        loss(model(images), labels).backward()
        sync.average(model)
        optimizer.step()
    sync.close()

A custom rule may select the important packets, here by the tensor's median, for each message and then for each of its
packets::

def rule(message, gradient):
        limit, size = gradient.abs().median(), message.element
        def tag(span, content):
            at, length = span  # bytes, of whole numbers
            return Tag(droppable=bool(gradient[at // size : (at + length) // size].abs().mean() < limit))
        return tag

sync = Synchronisation.of_process_group("mlt", tagger=rule)

Needs PyTorch (``mltcp-testbed[torch]``); gradients are in main memory, in float32, float16, bfloat16 or float64.
"""

from __future__ import annotations

from testbed.transports.torch.holes import Recording
from testbed.transports.torch.synchronisation import (
    FILLS,
    Fill,
    Guard,
    GuardError,
    Stats,
    Synchronisation,
    Tagging,
    hook,
)

__all__ = ["FILLS", "Fill", "Guard", "GuardError", "Recording", "Stats", "Synchronisation", "Tagging", "hook"]
