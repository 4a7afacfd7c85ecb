"""Exchange messages between two ends: the sender announces number and size, and the receiver reports what it received."""

from __future__ import annotations

import contextlib
import json
import resource
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from testbed.transports import Close, Delivery, Endpoint, Listening, Message, Transport, TransportError

HELLO = struct.Struct("!QI")  # bytes of a message, messages
MOST_BYTES = 1 << 36  # largest message size that a peer may announce
WORDS, GRADIENTS, REPORT = range(3)  # operations
REPORT_BYTES = 1024
FLOWS = [(0, 1), (1, 0)]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """The messages of the sender."""

    bytes: int
    rounds: int


@dataclass(frozen=True)
class Round:
    """The end of one message; ``seconds``: from its start to its end, on this machine."""

    bytes: int
    delivered: int
    closed: str
    holes: int
    resent_bytes: int
    seconds: float


@dataclass(frozen=True)
class Told:
    """The result at one end."""

    rounds: tuple[Round, ...]
    seconds: float
    cpu_s: float
    rtt_us: int
    peer: dict[str, Any] | None = None  # the receiver's report to the sender

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.rounds)

    @property
    def delivered(self) -> int:
        return sum(one.delivered for one in self.rounds)

    @property
    def resent_bytes(self) -> int:
        return sum(one.resent_bytes for one in self.rounds)

    @property
    def bits_per_s(self) -> float:
        """Return the delivered bits per second."""
        return 8 * self.delivered / self.seconds if self.seconds else 0.0

    def totals(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes, "delivered": self.delivered, "seconds": self.seconds, "bits_per_second": self.bits_per_s,
            "resent_bytes": self.resent_bytes, "cpu_s": self.cpu_s, "rtt_us": self.rtt_us,
        }  # fmt: skip

    def document(self) -> dict[str, Any]:
        """Return the document of ``--json``."""
        return {"rounds": [asdict(one) for one in self.rounds], "end": self.totals(), "receiver": self.peer}


def send(listening: Listening, _transport: Transport, asked: Asked, progress: Progress) -> Told:
    """Send the ``asked`` messages, and return the result. Raises `TransportError`."""
    endpoint = listening.connect().endpoint(0, FLOWS)
    words = HELLO.pack(asked.bytes, asked.rounds)
    endpoint.post_send(1, Message(0, WORDS, 0, len(words), "parameter"), words).wait()

    def one(number: int) -> Delivery:
        return endpoint.post_send(1, _gradient(number, asked), None).wait()

    result = _rounds(asked.rounds, one, lambda: endpoint.counters(1).rtt_us, progress)
    report = bytearray(REPORT_BYTES)
    endpoint.post_receive(1, Message(asked.rounds, REPORT, 0, REPORT_BYTES, "parameter"), report, Close()).wait()
    endpoint.end("over")
    return Told(result.rounds, result.seconds, result.cpu_s, result.rtt_us, json.loads(report.rstrip(b" ")))


def receive(listening: Listening, transport: Transport, _asked: Asked, progress: Progress) -> Told:
    """Receive the announced messages; raises `TransportError`."""
    endpoint = listening.connect().endpoint(0, FLOWS)
    words = bytearray(HELLO.size)
    endpoint.post_receive(0, Message(0, WORDS, 0, len(words), "parameter"), words, Close()).wait()
    asked = Asked(*HELLO.unpack(words))
    if not 0 < asked.bytes <= MOST_BYTES or not asked.rounds:
        raise TransportError(f"the sender announces {asked.rounds} messages of {asked.bytes} bytes")

    def one(number: int) -> Delivery:
        return endpoint.post_receive(0, _gradient(number, asked), None, transport.close("gradient")).wait()

    result = _rounds(asked.rounds, one, lambda: endpoint.counters(0).rtt_us, progress)
    _report(endpoint, asked, result)
    endpoint.end("over")
    return result


def _report(endpoint: Endpoint, asked: Asked, result: Told) -> None:
    """The peer leaves after this, with or without an answer."""
    report = json.dumps(result.totals()).encode().ljust(REPORT_BYTES)
    with contextlib.suppress(TransportError):
        endpoint.post_send(0, Message(asked.rounds, REPORT, 0, len(report), "parameter"), report).wait()


def _gradient(number: int, asked: Asked) -> Message:
    return Message(number, GRADIENTS, 0, asked.bytes, "gradient")


def _rounds(count: int, exchanged: Callable[[int], Delivery], rtt_us: Callable[[], int], progress: Progress) -> Told:
    begun, used, done = time.monotonic(), _cpu_s(), []
    for number in range(count):
        at = time.monotonic()
        delivery = exchanged(number)
        took = time.monotonic() - at
        done.append(
            Round(delivery.bytes, delivery.delivered, delivery.closed, len(delivery.holes), delivery.resent, took)
        )
        progress(
            f"{number + 1:>6} of {count}  {delivery.delivered / delivery.bytes:8.2%} of {delivery.bytes / 1e6:,.1f} MB  "
            f"{8 * delivery.delivered / max(took, 1e-9) / 1e9:7.3f} Gbit/s  {delivery.closed}"
        )
    return Told(tuple(done), time.monotonic() - begun, _cpu_s() - used, rtt_us())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
