"""Records a training script that knows nothing of it.

With this package's folder in ``PYTHONPATH``, Python imports `sitecustomize` from it before
the script, which calls `install`. Once the script imports torch, its
`DistributedDataParallel` is given a `Recorder` when it is built; a script that steps an
optimizer without DDP gets one at its first step.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from workloads.recording import Sink, sink_of

FOLDER = Path(__file__).parent


def install() -> None:
    """Record this process's training, if the environment asks for it (`workloads.recording`)."""
    sink = sink_of(os.environ)
    if sink is None or any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        return
    patch = _Patch(sink)
    actions: dict[str, Callable[[ModuleType], None]] = {
        "torch.nn.parallel.distributed": patch.data_parallel,
        "torch.optim.optimizer": patch.optimizers,
    }
    for name in list(actions):
        if name in sys.modules:
            actions.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _AfterImport(actions))


class _AfterImport(MetaPathFinder):
    """Runs an action after the import of the module it is for: torch is slow to import, and may not be needed."""

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self._actions = actions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        action = self._actions.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if action else None
        if action is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Patch:
    """What is changed in torch; one model per process is recorded, the first."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._recorder: Any = None

    def data_parallel(self, module: ModuleType) -> None:
        self._sink.imported()
        ddp: Any = module.DistributedDataParallel
        construct, register = ddp.__init__, ddp.register_comm_hook

        @wraps(construct)
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            construct(model, *args, **kwargs)
            self._attach(model)

        @wraps(register)
        def register_comm_hook(model: Any, state: Any, hook: Any) -> None:
            if self._recorder is not None and self._recorder.records(model):
                self._recorder.replace_hook(state, hook)  # a model takes only one, and has ours
            else:
                register(model, state, hook)

        ddp.__init__, ddp.register_comm_hook = init, register_comm_hook

    def optimizers(self, module: ModuleType) -> None:
        def steps(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._recorder is None:
                self._attach(optimizer)

        # Before a step, since the recorder adds a hook to those called after it.
        module.register_optimizer_step_pre_hook(steps)

    def _attach(self, model: Any) -> None:
        from workloads.recorder import Recorder  # imports torch

        if self._recorder is not None:
            print("mltcp: this script trains a second model; only the first is recorded", file=sys.stderr)
        elif getattr(model, "_comm_hooks", None):
            print("mltcp: DDP's mixed precision has a communication hook of its own; not recorded", file=sys.stderr)
        else:
            self._recorder = Recorder(model, self._sink)
