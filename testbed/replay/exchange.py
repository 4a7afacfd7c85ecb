"""The operations of a collective on its flows: send, receive, exchange and relay messages, and report their ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from testbed.replay.sending import Priority, Window, pieces
from testbed.transports import Buffer, Close, Delivery, Endpoint, Flow, Message, Span, Stage, Transfer


@dataclass(frozen=True)
class Look:
    """The state of a training after a round."""

    accuracy: float | None  # 0 to 1; None: not evaluated
    replica_divergence: float  # its workers' parameters, at most: max‖θi − θj‖ ÷ ‖θ‖


class Content(Protocol):
    """The content of a worker's messages, where it is used (`testbed.replay.training`)."""

    def sends(self, message: Message) -> Buffer: ...
    def weighs(self, message: Message) -> Buffer | None:
        """The data that gives packets their importance, read once it `sends`; None: the sent data."""
        ...

    def room(self, peer: int, message: Message) -> Buffer:
        """Return the buffer for a message from ``peer``."""
        ...

    def sent(self, peer: int, message: Message, holes: Sequence[Span]) -> None:
        """The transfer to ``peer`` has ended, with these missing ranges."""
        ...

    def received(self, peer: int, message: Message, holes: Sequence[Span]) -> None:
        """The received data of ``peer``; missing ranges hold the buffer's former content, and are not reported here."""
        ...

    def evaluate(self) -> Look | None:
        """The result after this round, for trainings that evaluate it."""
        ...


@dataclass
class Link:
    """One end of a flow of a collective. Both ends number its messages equally."""

    endpoint: Endpoint
    peer: int
    round: int = 0  # the iteration
    operation: int = 0
    closes: Callable[[Stage], Close] = lambda _stage: Close()
    ended: Callable[[Link, Message, bool, Delivery], None] | None = None  # called for each one sent (True) or received
    window: Window | None = None  # maximum bytes of its worker in flight
    priority: Priority = ()  # there
    band: Callable[[Message], int] | None = None  # that decide the priority of messages, instead of the link
    partition: int | None = None  # bytes of a message, at most
    layer: int = 0
    layers: int = 1
    importance: tuple[float, ...] = ()
    content: Content | None = None  # None: bytes without content
    sent: int = 0  # messages
    received: int = 0

    def message(self, number: int, size: int, stage: Stage, before: int = 0, behind: int = 0) -> Message:
        return Message(
            self.round, self.operation, number, size, stage, self.layer, self.layers, importance=self.importance,
            before=before, behind=behind,
        )  # fmt: skip

    def messages(self, first: int, size: int, stage: Stage) -> Iterator[Message]:
        """The messages of a tensor, numbered from ``first``."""
        before = 0
        for number, piece in enumerate(pieces(size, self.partition), first):
            yield self.message(number, piece, stage, before, size - before - piece)
            before += piece

    def turn(self, message: Message) -> Priority:
        """Return the priority of a message among those that wait for credit."""
        return self.priority if self.band is None else (-self.band(message),)


Links = Mapping[Flow, Link]


# Completion of messages that have ended: raise the error of one that failed, or notify its consumer.
Ends = queue.SimpleQueue[Callable[[], None]]


def send(link: Link, size: int, stage: Stage = "parameter") -> None:
    """Send ``size`` bytes; return when they are in transit, or, with a lossy transport, have arrived."""
    if link.window:
        exchange([(link, size)], [], stage)
        return
    transfers = []
    for message in link.messages(link.sent, size, stage):
        link.sent += 1
        transfers.append((message, _posted(link, message)))
    for message, transfer in transfers:
        _has_left(link, message, transfer)


def _posted(link: Link, message: Message) -> Transfer:
    if link.content is None:
        return link.endpoint.post_send(link.peer, message, None)
    data = link.content.sends(message)
    return link.endpoint.post_send(link.peer, replace(message, weighs=link.content.weighs(message)), data)


def _has_left(link: Link, message: Message, transfer: Transfer) -> None:
    delivery = transfer.wait()
    if link.content:
        link.content.sent(link.peer, message, delivery.holes)
    if link.ended:
        link.ended(link, message, True, delivery)


def _start(link: Link, messages: Iterator[Message], ends: Ends) -> None:
    """Post a tensor's messages in order.

    With credit, each waits until the previous one has freed some; that thread posts the next.
    """
    window = link.window
    for message in messages:
        if window and not window.ask(link.turn(message), message.bytes, partial(_go_on, link, message, messages, ends)):
            return
        _go(link, message, ends)


def _go_on(link: Link, message: Message, messages: Iterator[Message], ends: Ends) -> None:
    _go(link, message, ends)
    _start(link, messages, ends)


def _go(link: Link, message: Message, ends: Ends) -> None:
    def left(transfer: Transfer) -> None:
        if link.window:
            link.window.give_back(message.bytes)
        ends.put(partial(_has_left, link, message, transfer))

    try:
        _posted(link, message).on_done(left)
    except BaseException as error:  # of this exchange, from any thread that freed credit for it
        ends.put(partial(_raise, error))


def _raise(error: BaseException) -> None:
    raise error


def answer(link: Link) -> None:
    """Send a byte back on a flow that ends here; it belongs to no tensor, so neither end counts it."""
    link.endpoint.post_send(link.peer, link.message(link.sent, 1, "parameter"), b"\0").wait()


def answered(link: Link) -> None:
    """Wait for the byte that the other end of a flow sends back (`answer`)."""
    link.endpoint.post_receive(link.peer, link.message(link.received, 1, "parameter"), None, Close()).wait()


def receive(link: Link, size: int, stage: Stage = "parameter", hops: int = 1) -> None:
    """Receive ``size`` bytes, or as many as the transport considers enough; discard them without a reader.

    ``hops``: number of hops from rank to rank to the destination.
    """
    for message, transfer, close in list(_coming(link, size, stage, hops)):
        _has_come(link, message, close, transfer)


def _coming(link: Link, size: int, stage: Stage, hops: int = 1) -> Iterator[tuple[Message, Transfer, Close]]:
    """Announce each message of a tensor, one by one, to the receiver."""
    close = link.closes(stage).over(hops)
    for message in link.messages(link.received, size, stage):
        link.received += 1
        room = link.content.room(link.peer, message) if link.content else None
        yield message, link.endpoint.post_receive(link.peer, message, room, close), close


def _has_come(link: Link, message: Message, close: Close, transfer: Transfer) -> None:
    delivery = transfer.wait()
    if link.content:
        link.content.received(link.peer, message, delivery.holes if close.missing == "zero" else ())
    if link.ended:
        link.ended(link, message, False, delivery)


def together(*tasks: Callable[[], None]) -> None:
    """Run ``tasks`` in parallel until all have ended; raise the first error at once.

    The other tasks may then be blocked for ever. They are daemon threads and end with the process.
    """
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    for task in tasks:
        threading.Thread(target=run, args=(task,), daemon=True).start()
    for _ in tasks:
        if error := ended.get():
            raise error


def exchange(
    sends: Sequence[tuple[Link, int]], receives: Sequence[tuple[Link, int]], stage: Stage = "parameter"
) -> None:
    """Send and receive so many bytes over each of these links, all at the same time, by one thread: of many workers' many layers
    that go at once, a thread each would be most of the work."""
    ends: Ends = queue.SimpleQueue()
    expected = 0
    for link, size in sends:
        messages = list(link.messages(link.sent, size, stage))
        link.sent += len(messages)
        expected += len(messages)
        _start(link, iter(messages), ends)
    for link, size in receives:
        for message, transfer, close in _coming(link, size, stage):
            expected += 1
            transfer.on_done(_notify(ends, link, message, close))
    for _ in range(expected):
        ends.get()()


def _notify(ends: Ends, link: Link, message: Message, close: Close) -> Callable[[Transfer], None]:
    return lambda transfer: ends.put(partial(_has_come, link, message, close, transfer))


def relay(
    sources: Sequence[Link],
    targets: Sequence[Link],
    pieces: Sequence[int],
    comes: Stage = "parameter",
    goes: Stage = "parameter",
) -> None:
    """Send ``pieces`` to every target, each as soon as it has arrived from every source."""
    arrived = [[threading.Semaphore(0) for _ in targets] for _ in sources]

    def take(number: int, source: Link) -> None:
        for piece in pieces:
            receive(source, piece, comes)
            for one in arrived[number]:
                one.release()

    def pass_on(number: int, target: Link) -> None:
        for piece in pieces:
            for one in arrived:
                one[number].acquire()
            send(target, piece, goes)

    together(
        *(lambda number=number, source=source: take(number, source) for number, source in enumerate(sources)),
        *(lambda number=number, target=target: pass_on(number, target) for number, target in enumerate(targets)),
    )
