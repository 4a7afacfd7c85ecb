"""A message in transfer over the datagram endpoint, and how it ended."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from testbed.transports import Closed, Delivery, Message, Transfer, TransportError
from testbed.transports.datagram import native
from testbed.transports.datagram.engine import Engine
from testbed.transports.datagram.settings import Timing

SILENT_ROUNDS = 3  # then the run ends
CLOSED = cast(tuple[Closed, ...], get_args(Closed))


@dataclass
class DatagramTransfer:
    """A message that the core sends or receives."""

    engine: Engine
    handle: int | None
    peer: int
    message: Message
    memory: Any  # kept until it has ended
    timing: Timing | None = None
    receives: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    delivery: Delivery | None = None
    gone: int = 0  # the rank, if that is how it ended
    stalled: bool = False  # the peer answered until then, but acknowledged no data
    asking: int = 0  # number of threads that read the core's record of it
    released: bool = False  # the record is dropped once no thread reads it

    def __post_init__(self) -> None:
        if not self.handle:
            raise refused(ctypes.get_errno(), self.peer, self.message)

    def wait(self, timeout_s: float | None = None) -> Delivery:
        if self.delivery is None:
            result = self._result(native.NEVER if timeout_s is None else int(timeout_s * 1e9))
            if not result.done:
                raise TimeoutError(f"{self.message.bytes} bytes were not there within {timeout_s:g} s")
            with self.lock:
                if self.delivery is None:
                    self.delivery = self._ended(result)
            self._release()
        if self.delivery.closed == "gone":
            silence = f"{self.engine.core.silence / 1e9:g} s"
            how = f"has acknowledged nothing for {silence}" if self.stalled else "is gone"
            raise TransportError(f"worker {self.gone} {how}", gone=self.gone)
        if len(self.engine.silences[self.peer].rounds) >= SILENT_ROUNDS:
            raise TransportError(f"worker {self.peer} has sent nothing for {SILENT_ROUNDS} rounds", gone=self.peer)
        return self.delivery

    def done(self) -> bool:
        return self.delivery is not None or bool(self._result(0).done)

    def on_done(self, callback: Callable[[Transfer], None]) -> None:
        def ended() -> None:
            with self.lock:
                self.asking -= 1
            self._release()
            callback(self)

        with self.lock:
            if there := not self.released:
                self.asking += 1
        if there:
            try:
                self.engine.follow(self.handle or 0, ended)
            except MemoryError:
                with self.lock:
                    self.asking -= 1
                raise
        else:
            callback(self)

    def _result(self, patience_ns: int) -> native.Result:
        result = native.Result()
        with self.lock:
            if self.released:
                result.done = 1
                return result
            self.asking += 1
        self.engine.library.endpoint_wait(self.engine.pointer, self.handle, patience_ns, result)
        with self.lock:
            self.asking -= 1
        return result

    def _release(self) -> None:
        """The core may forget it, once it is known how it ended and no other thread waits for that."""
        with self.lock:
            if self.delivery is None or self.asking or self.released:
                return
            self.released, self.memory = True, None
        self.engine.library.endpoint_release(self.engine.pointer, self.handle)

    def _ended(self, result: native.Result) -> Delivery:
        spans = (native.Span * result.holes)()
        if result.holes:
            self.engine.library.endpoint_holes(self.engine.pointer, self.handle, spans, result.holes)
        self.gone, self.stalled = int(result.gone), bool(result.stalled)
        closed = CLOSED[result.reason]
        if self.timing and closed != "gone":
            lost = 1 - result.delivered / result.bytes
            took_ns, own_ns = result.last_ns - result.clock_ns, result.last_ns - result.first_ns
            self.timing.heard(self.message.round, took_ns, own_ns, lost)
        if self.receives and self.message.stage == "gradient":
            nothing = closed == "deadline" and not result.delivered
            self.engine.silences[self.peer].hear(self.message.round, self.engine.handed(self.peer), nothing=nothing)
        return Delivery(
            int(result.bytes), int(result.delivered), closed, tuple((span.offset, span.bytes) for span in spans),
            int(result.resent), int(result.first_ns), int(result.last_ns),
        )  # fmt: skip


def refused(why: int, peer: int, m: Message) -> TransportError:
    """The error for a message that the core has not posted; ``why`` is an errno (`dg_send` in send.h)."""
    if why == errno.ENOTCONN:
        return TransportError(f"worker {peer}: not connected. Post messages after connect() has returned.")
    if why == errno.ENOMEM:
        return TransportError(f"worker {peer}: out of memory for a message of {m.bytes} bytes.")
    if why == errno.EEXIST:
        return TransportError(f"round {m.round}: a message of this name is still in transit with worker {peer}")
    return TransportError(f"worker {peer}: a message of {m.bytes} bytes cannot be posted ({os.strerror(why)}).")
