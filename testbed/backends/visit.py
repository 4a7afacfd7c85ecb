"""A shell inside a run, as the process around the run has it: its questions go to a terminal, and the answers back."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from testbed.backends import Backend
from testbed.backends.progress import Patience
from testbed.core.runs.events import Event, Left, Output, Prompt
from testbed.core.runs.manifest import Remote, UserModeLinux
from testbed.core.runs.plan import Clock, Plan
from testbed.core.runs.shell import Answer, ShellRequest, as_names
from testbed.spec.limits import Limits

FOLDER = "answers"  # of a user-mode Linux


class LeftError(Exception):
    """The shell was left, and the run with it."""

    def __init__(self, *, paused: bool) -> None:
        super().__init__(
            "The shell was left, so its run ended without a verdict or files. Finished runs are kept."
            if paused
            else "the shell was left"
        )
        self.paused = paused


@dataclass(frozen=True)
class Visit:
    """A request for a shell, and the function ``answer`` that prints its output and answers its prompts."""

    request: ShellRequest
    answer: Callable[[Prompt | Output], Answer]

    def attend(self, reply: Callable[[int, bytes], None], on_event: Callable[[Event], None]) -> Callable[[Event], None]:
        """The handler of a run's events: it answers the shell's, by ``reply``, and passes all others on."""

        def hear(event: Event) -> None:
            if isinstance(event, Left):
                raise LeftError(paused=event.paused)
            if not isinstance(event, Prompt | Output):
                on_event(event)
                return
            answer = self.answer(event)
            if event.number:
                reply(event.number, msgspec.json.encode(answer))

        return hear


def write_answer(folder: Path, number: int, answer: bytes) -> None:
    """Write an answer for user-mode Linux as file names, which replace those of the previous answer."""
    for old in (folder / FOLDER).iterdir():
        old.unlink()
    for name in as_names(number, answer):
        (folder / FOLDER / name).touch()


def while_stopped(pid: int, answer: Callable[[Prompt | Output], Answer]) -> Callable[[Prompt | Output], Answer]:
    """Return ``answer`` wrapped so that user-mode Linux ``pid`` is stopped meanwhile, instead of polling for the
    answer."""

    def stopped(event: Prompt | Output) -> Answer:
        if not event.number:
            return answer(event)
        os.kill(pid, signal.SIGSTOP)
        try:
            return answer(event)
        finally:
            os.kill(pid, signal.SIGCONT)

    return stopped


class Visitable(Backend, Protocol):
    """A backend whose runs may have a shell."""

    def run(
        self, plan: Plan, on_event: Callable[[Event], None], patience: Patience, visit: Visit | None = None
    ) -> bytes:  # fmt: skip
        """Run ``plan`` as `Backend.run` does, with a shell if ``visit`` is given.

        Raises `LeftError` if the user leaves the shell.
        """
        ...


@dataclass(frozen=True)
class Visited:
    """``backend``, where every run but those of jobs in isolation has a shell.

    ``unopened``: the folders of runs that ended before theirs opened.
    """

    backend: Visitable
    visit: Visit
    unopened: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.backend.name

    @property
    def clock(self) -> Clock:
        return self.backend.clock

    @property
    def limits(self) -> Limits:
        return self.backend.limits

    def check(self, plan: Plan) -> None:
        self.backend.check(plan)

    def identity(self) -> UserModeLinux | Remote | None:
        return self.backend.identity()

    def run(self, plan: Plan, on_event: Callable[[Event], None], patience: Patience) -> bytes:
        """Run ``plan``; it waits for typed lines without a time limit."""
        if plan.alone is not None:
            return self.backend.run(plan, on_event, patience)
        opened = False

        def answer(event: Prompt | Output) -> Answer:
            nonlocal opened
            opened |= isinstance(event, Prompt)
            return self.visit.answer(event)

        visit = replace(self.visit, answer=answer)
        archive = self.backend.run(plan, on_event, replace(patience, idle_s=math.inf), visit)
        if not opened:
            self.unopened.append(str(plan.folder))
        return archive
