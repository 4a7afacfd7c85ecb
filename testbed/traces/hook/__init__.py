"""Record an unmodified training script.

With this package's folder in ``PYTHONPATH``, Python imports `sitecustomize` from it before the script, which calls
`install`. Once the script imports torch, each new `DistributedDataParallel` gets a `Recorder`. A script that steps an
optimizer without DDP gets one at its first step. An unsupported feature is reported when it first occurs. An exception
of the recorder stops only the recording.
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

from testbed.traces.recording import Guard, Sink, say, sink_of

FOLDER = Path(__file__).parent


def install() -> None:
    """Record this process's training, if the environment requests it (`testbed.traces.recording`)."""
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
    """The changes to torch; one model per process is recorded, the first."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._guard = Guard(sink)
        self._recorder: Any = None

    def data_parallel(self, module: ModuleType) -> None:
        self._guard(self._data_parallel, module, default=None)

    def optimizers(self, module: ModuleType) -> None:
        self._guard(self._optimizers, module, default=None)

    def _data_parallel(self, module: ModuleType) -> None:
        self._sink.imported()
        ddp: Any = module.DistributedDataParallel
        construct, register, register_builtin = ddp.__init__, ddp.register_comm_hook, ddp._register_builtin_comm_hook

        @wraps(construct)
        def init(model: Any, *args: Any, **kwargs: Any) -> None:
            construct(model, *args, **kwargs)
            self._guard(self._attach, model, default=None)

        # A model takes only one hook, so the recorder's hook calls that of the script.
        @wraps(register)
        def register_comm_hook(model: Any, state: Any, hook: Any) -> None:
            if not self._replaced(model, state, hook):
                register(model, state, hook)

        @wraps(register_builtin)
        def register_builtin_comm_hook(model: Any, kind: Any) -> None:
            from testbed.traces.recorder import builtin_hook  # imports torch

            if not self._replaced(model, model.process_group, builtin_hook(kind)):
                register_builtin(model, kind)

        ddp.__init__, ddp.register_comm_hook = init, register_comm_hook
        ddp._register_builtin_comm_hook = register_builtin_comm_hook

    def _replaced(self, model: Any, state: Any, hook: Any) -> bool:
        """Whether a script's communication hook is called by the recorder's, which the model has; even where recording has stopped."""
        if self._recorder is None or not self._recorder.records(model):
            return False
        self._recorder.replace_hook(state, hook)
        return True

    def _optimizers(self, module: ModuleType) -> None:
        construct = module.Optimizer.__init__

        @wraps(construct)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            construct(optimizer, *args, **kwargs)
            self._guard(self._look_at, optimizer, default=None)

        def steps(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._recorder is None:
                self._guard(self._attach, optimizer, default=None)

        # A sharded model is seen when its optimizer is built, before the first step.
        module.Optimizer.__init__ = init
        # Before a step, since the recorder adds a hook to those called after it.
        module.register_optimizer_step_pre_hook(steps)

    def _look_at(self, optimizer: Any) -> None:
        from testbed.traces.recorder import sharded  # imports torch

        if self._recorder is None and (reason := sharded(optimizer)):
            self._guard.stop(reason)

    def _attach(self, model: Any) -> None:
        from testbed.traces.recorder import Recorder  # imports torch

        if self._recorder is not None:
            say("this script trains a second model; only the first is recorded")
        else:
            self._recorder = Recorder(model, self._sink, guard=self._guard)
