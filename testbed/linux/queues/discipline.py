"""A queueing discipline of `testbed.queues`, at an interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed import queues
from testbed.core.runs.plan import QueueDiscipline
from testbed.linux.queues.tree import Leaf
from testbed.linux.rtnetlink import Tc


@dataclass(frozen=True)
class Discipline(Leaf):
    """``chosen``, in front of a link whose buffer has ``buffer_bytes``."""

    chosen: QueueDiscipline
    buffer_bytes: int

    @property
    def module(self) -> queues.Module:
        return queues.find(self.chosen.name)

    @property
    def kind(self) -> str:
        return self.module.KERNEL_NAME

    def options(self) -> bytes:
        return self.module.FORMAT.encode(dict(self.chosen.parameters))

    def asked(self, major: int) -> dict[str, Any]:
        return self.module.FORMAT.kept(dict(self.chosen.parameters))

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        return self.module.FORMAT.decode(options)
