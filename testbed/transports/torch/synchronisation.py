"""Rounds of a parameter server during a training: gradients go to the servers, their mean comes back completely."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from testbed import transports
from testbed.core.errors import RequestError
from testbed.core.options import OneOf
from testbed.transports import (
    Close,
    Datagrams,
    Delivery,
    Message,
    Place,
    Span,
    Stage,
    Tagger,
    Transfer,
    TransportError,
)
from testbed.transports.hadamard import Array, Seed, collected, dispersed
from testbed.transports.torch.holes import Name, Recording, Writer

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    raise ImportError(
        f"testbed.transports.torch needs PyTorch ({error}): pip install 'mltcp-testbed[torch]'"
    ) from error

Fill = Literal["zero", "mean_of_received", "feedback"]
FILLS = OneOf(*get_args(Fill), contributors="mean_of_received")
PORT = 29600
BUCKET_BYTES = 25 << 20  # bucket size of `average`, as in DDP
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
Ended = Callable[[int, Message, bool, Delivery], None]  # peer, content, whether it was sent, and how it ended
Tagging = Callable[[Message, Any], Tagger]  # of a gradient's message and the numbers in it (a flat tensor)


class GuardError(TransportError):
    """Too little of the gradients arrived for too long."""


class _OverError(TransportError):
    """All ranks that train have left."""


@dataclass(frozen=True)
class Guard:
    """The reaction once less than ``below`` of the gradients were delivered, ``rounds`` rounds in a row."""

    below: float = 0.5
    rounds: int = 3
    then: Literal["reliable", "raise"] = "reliable"  # every later gradient is complete; or the training ends


@dataclass(frozen=True)
class Stats:
    """Totals over all gradients that this rank sent to others, or received as a server."""

    rounds: int
    bytes: int
    delivered: int
    resent: int  # bytes
    closed: dict[str, int]  # number of messages by reason of their end
    waited_s: float  # from the first bucket of a round to the end of its last, all rounds
    reliable: bool  # the guard has switched loss off

    @property
    def share(self) -> float:
        """Return the delivered fraction of bytes; 1 if there were none."""
        return self.delivered / self.bytes if self.bytes else 1.0


@dataclass
class _Bucket:
    """One flat gradient in transfer, and its reply."""

    round: int
    number: int
    flat: Any  # a view of the caller's memory, which receives the mean
    future: Any
    sent: Any = None  # a copy of the sent data, for error feedback of lost data
    gradients: list[tuple[Name, Transfer]] = field(default_factory=list)
    received: dict[int, Any] = field(default_factory=dict)  # as a server: each worker's part
    means: list[tuple[Name, Transfer]] = field(default_factory=list)
    whole: bool = False  # no loss allowed
    begun: float = 0.0


class Synchronisation:
    """One rank's part in the averaging of gradients by a transport that may lose some of them.

    ``servers``: the ranks that average, each an equal part of every bucket. ``(0,)`` is a server next to the first
    rank's training, ``range(ranks)`` shards. ``workers``: the ranks that train, all of them by default. A server that
    does not train calls `serve`.

    ``fill``: the value of a missing element. It is ``zero`` (the mean is over all ranks), ``mean_of_received`` (the
    mean is over the ranks that delivered it), or ``feedback`` (zero, and its sender adds it to its next gradient).

    With ``disperse``, gradients are Hadamard-transformed (`testbed.transports.hadamard`), differently every round, so
    that a loss affects every number a little. The first ``warmup_steps`` rounds lose nothing. ``record`` and ``replay``
    are folders of missing ranges: a training that replays sends everything, and drops the ranges that the recorded one
    lost.

    ``ended`` is called for every message of a round with its result, before that round's mean is available. ``tagger``
    replaces the transport's own rule (the paper's ``prio_func``): it selects the priority queue of each packet of a
    gradient, and whether a switch may drop it. Its arguments are the message, whose ``operation`` is the bucket's
    number, and its numbers as sent. It returns a `transports.Tagger`. Means follow the transport's rule.

    Raises `RequestError`, and `TransportError` if a rank does not answer.
    """

    def __init__(
        self, rank: int, addresses: Sequence[str], transport: str = "ltp", *, port: int = PORT, servers: Iterable[int] = (0,),
        workers: Iterable[int] | None = None, fill: Fill = "zero", disperse: bool = False, warmup_steps: int = 0, guard: Guard | None = None,
        record: Path | None = None, replay: Path | None = None, mtu: int = 1500, ended: Ended | None = None,
        tagger: Tagging | None = None,
    ) -> None:  # fmt: skip
        self.rank, self.ranks, self.servers = rank, len(addresses), tuple(dict.fromkeys(servers))
        self.workers = tuple(range(self.ranks)) if workers is None else tuple(sorted(set(workers)))
        self.fill, self.warmup_steps, self.guard, self.ended = fill, warmup_steps, guard, ended
        self.tagger = tagger
        self._disperses = disperse and rank in self.workers
        self.transport = transports.parse(transport)
        self._check(addresses)
        self._recording = None if replay is None else Recording.read(Path(replay), rank, self.ranks)
        self._writer = None if record is None else Writer(Path(record), rank, self.ranks)
        flows = sorted({(a, b) for a in range(self.ranks) for b in self.servers if a != b})
        flows = sorted({*flows, *((b, a) for a, b in flows)})
        place = Place(rank, list(addresses), port, flows, mtu=mtu)
        self._connected = self.transport.listen(place).connect()
        self._endpoint = self._connected.endpoint(0, flows)
        self._round = 0
        self._lost: dict[int, tuple[Hashable, Any]] = {}  # of each bucket, to be added to its next gradient
        self._flat: list[tuple[list[Any], Any]] | None = None  # of `average`: parameters and their bucket
        self._failure: BaseException | None = None
        self._low, self._judged, self._reliable = 0, Counter[str](), False
        self._counts, self._closed, self._waited_s = Counter[str](), Counter[str](), 0.0
        self._queue: queue.SimpleQueue[_Bucket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="synchronisation", daemon=True)
        self._thread.start()

    @classmethod
    def of_process_group(cls, transport: str = "ltp", **options: Any) -> Synchronisation:
        """Return the synchronisation of the ranks of the default process group, which exchange their addresses."""
        rank, ranks = dist.get_rank(), dist.get_world_size()
        addresses: list[Any] = [None] * ranks
        dist.all_gather_object(addresses, _own_address(rank))
        return cls(rank, addresses, transport, **options)

    def _check(self, addresses: Sequence[str]) -> None:
        if not 0 <= self.rank < self.ranks or not self.servers or not set(self.servers) <= set(range(self.ranks)):
            raise RequestError(f"rank {self.rank} and servers {self.servers} are not all among {self.ranks} ranks")
        if not self.workers or {*self.servers, *self.workers} != set(range(self.ranks)):
            raise RequestError(f"workers {self.workers} and servers {self.servers} are not {self.ranks} ranks together")
        if len(set(addresses)) < self.ranks:
            raise RequestError(f"{', '.join(addresses)}: each rank needs its own address. Give addresses=…")
        self.transport.check_tensors()
        try:
            self.fill = cast(Fill, FILLS(self.fill))
        except ValueError as error:
            raise RequestError(str(error), where="fill") from error

    def broadcast(self, module: Any) -> None:
        """Send the first server's parameters and buffers to all ranks, completely."""
        tensors = [one.detach() for one in (*module.parameters(), *module.buffers())]
        first = self.servers[0]
        for number, kind in enumerate(sorted({one.dtype for one in tensors}, key=str)):
            own = [one for one in tensors if one.dtype == kind]
            flat = torch.cat([one.reshape(-1) for one in own])
            if not flat.numel():
                continue
            message = Message(self._round, number, 0, _size(flat), "parameter")
            if self.rank == first:
                others = [one for one in range(self.ranks) if one != first]
                self._wait([self._endpoint.post_send(one, message, _memory(flat)) for one in others])
                continue
            self._wait([self._endpoint.post_receive(first, message, _memory(flat), Close())])
            for one, part in zip(own, flat.split([each.numel() for each in own]), strict=True):
                one.copy_(part.view_as(one))
        self._round += 1

    def average(self, module: Any) -> None:
        """Replace every gradient of ``module`` by the mean over all ranks.

        Gradients stay in flat buckets from the first call on; with ``zero_grad(set_to_none=False)`` they are not copied
        again.
        """
        if self._flat is None:
            self._flat = [
                (some, torch.zeros(sum(one.numel() for one in some), dtype=some[0].dtype)) for some in _buckets(module)
            ]
        futures = []
        for number, (some, flat) in enumerate(self._flat):
            for parameter, part in zip(some, flat.split([each.numel() for each in some]), strict=True):
                if parameter.grad is None:
                    part.zero_()
                elif parameter.grad.data_ptr() != part.data_ptr():
                    part.copy_(parameter.grad.reshape(-1))
                parameter.grad = part.view_as(parameter)
            futures.append(self.exchange(flat, number, last=number == len(self._flat) - 1))
        for future in futures:
            future.wait()

    def serve(self, module: Any) -> None:
        """The rounds of a server that does not train, for those whose model is as large as ``module``; until they have all left.

        Raises `TransportError` if one of them leaves while others go on.
        """
        if self.rank in self.workers or self.rank not in self.servers:
            raise RequestError(f"rank {self.rank} trains: servers that do not are left out of workers=…")
        flats = [torch.zeros(sum(one.numel() for one in some), dtype=some[0].dtype) for some in _buckets(module)]
        while self._failure is None:
            futures = [self.exchange(flat, number, last=number == len(flats) - 1) for number, flat in enumerate(flats)]
            try:
                for future in futures:
                    future.wait()
            except Exception:
                if not isinstance(self._failure, _OverError):
                    raise

    def exchange(self, flat: Any, number: int, *, last: bool, layout: Hashable = None) -> Any:
        """Return a future of ``flat`` with the mean of all workers' bucket ``number``; after the ``last`` bucket the
        next round begins.

        All ranks must call it with the same buckets in the same order. ``layout``: an identifier of the meaning of the
        bucket's elements, which may change.
        """
        _refuse(flat)
        if self._disperses and flat.dtype == torch.float64:
            raise RequestError(
                "a gradient of torch.float64 would be Hadamard-transformed as float32. Leave out disperse"
            )
        begun = time.monotonic()
        whole = self._round < self.warmup_steps or self._reliable or self._recording is not None
        bucket = _Bucket(self._round, number, flat, torch.futures.Future(), whole=whole, begun=begun)
        if last:
            self._round += 1
        if self._failure is not None:
            bucket.future.set_exception(self._failure)
            return bucket.future
        if self.fill == "feedback":
            before, lost = self._lost.pop(number, (None, None))
            if lost is not None and before == (layout, flat.numel()):
                flat += lost
        if self._disperses:
            _through(dispersed, bucket, flat)
        if self.fill == "feedback":
            bucket.sent = flat.clone()
            self._lost[number] = ((layout, flat.numel()), None)
        try:
            self._post(bucket)
        except Exception as error:  # a caller's tagger may raise any exception: no rank must wait for this rank
            self._fail(bucket, error)
            return bucket.future
        self._queue.put(bucket)
        return bucket.future

    def stats(self) -> Stats:
        counts = self._counts
        return Stats(
            self._round,
            counts["bytes"],
            counts["delivered"],
            counts["resent"],
            dict(self._closed),
            self._waited_s,
            self._reliable,
        )

    def datagrams(self) -> Datagrams | None:
        """Return the datagram counters of this rank so far; None over TCP."""
        return self._connected.datagrams()

    def close(self) -> None:
        """Close the connections after the last round; peers that have not finished it are notified."""
        self._queue.put(None)
        self._thread.join()
        self._endpoint.end("over")
        if self._writer:
            self._writer.close()

    def _part(self, flat: Any, part: int) -> tuple[int, int]:
        """The elements of a bucket that one server averages: from, to."""
        count = len(self.servers)
        return flat.numel() * part // count, flat.numel() * (part + 1) // count

    def _post(self, bucket: _Bucket) -> None:
        """Send this rank's gradients without waiting, and post receives: a server for gradients of others, other ranks
        for the mean."""
        for part, server in enumerate(self.servers):
            begin, end = self._part(bucket.flat, part)
            own = bucket.flat[begin:end]
            if not own.numel() or self.rank not in (server, *self.workers):
                continue
            up = Message(bucket.round, bucket.number, part, _size(own), "gradient", element=own.element_size())
            down = replace(up, stage="parameter")
            if server != self.rank:
                tag = None if self.tagger is None else self.tagger(up, own)
                sending = self._endpoint.post_send(server, up, _memory(own), tag)
                bucket.gradients.append((Name(bucket.round, bucket.number, part, server, "send"), sending))
                # The reply overwrites the sent data: no transfer reads a gradient after its server has closed it.
                answer = self._endpoint.post_receive(server, down, _memory(own), Close())
                bucket.means.append((Name(bucket.round, bucket.number, part, server, "receive"), answer))
                continue
            close = Close() if bucket.whole else self.transport.close("gradient")
            for worker in self.workers:
                if worker != self.rank:
                    bucket.received[worker] = torch.empty_like(own)
                    waiting = self._endpoint.post_receive(worker, up, _memory(bucket.received[worker]), close)
                    bucket.gradients.append((Name(bucket.round, bucket.number, part, worker, "receive"), waiting))

    def _work(self) -> None:
        """The thread that follows each bucket to its end, in their order."""
        while (bucket := self._queue.get()) is not None:
            if self._failure is not None:
                bucket.future.set_exception(self._failure)
                continue
            try:
                self._follow(bucket)
            except Exception as error:  # for any error, the thread that waits for this bucket is notified
                self._fail(bucket, error)
                continue
            if self._disperses:
                _through(collected, bucket, bucket.flat)
            bucket.future.set_result(bucket.flat)

    def _follow(self, bucket: _Bucket) -> None:
        ended = self._gathered(bucket)
        holes = {name: self._note_delivery(name, how) for (name, _), how in zip(bucket.gradients, ended, strict=True)}
        if self.rank in self.servers:
            self._judge(bucket, ended)
            bucket.means += self._serve(
                bucket, {name.peer: spans for name, spans in holes.items() if name.end == "receive"}
            )
        for (name, _), how in zip(bucket.means, self._wait([one for _, one in bucket.means]), strict=True):
            self._report_delivery(name, "parameter", how)
        if bucket.sent is not None:
            self._keep(bucket, {name: spans for name, spans in holes.items() if name.end == "send"})
        self._waited_s += time.monotonic() - bucket.begun

    def _gathered(self, bucket: _Bucket) -> list[Delivery]:
        """Return the deliveries of a bucket's gradients; none for a pure server once all others have left."""
        waiting = [transfer for _, transfer in bucket.gradients]
        try:
            return self._wait(waiting)
        except TransportError:
            if self.rank in self.workers or not all(map(_gone, waiting)):
                raise
            raise _OverError("all who train have left") from None

    def _note_delivery(self, name: Name, how: Delivery) -> tuple[Span, ...]:
        """The missing ranges of a gradient: its own, or those of the replayed record."""
        holes = how.holes if self._recording is None else self._recording.holes(name, how.bytes)
        how = replace(how, delivered=how.bytes - sum(n for _, n in holes), holes=holes)
        self._counts.update(bytes=how.bytes, delivered=how.delivered, resent=how.resent)
        self._closed[how.closed] += 1
        if self._writer:
            self._writer(name, how.bytes, holes)
        self._report_delivery(name, "gradient", how)
        return holes

    def _report_delivery(self, name: Name, stage: Stage, how: Delivery) -> None:
        if self.ended:
            message = Message(name.round, name.bucket, name.part, how.bytes, stage)
            self.ended(name.peer, message, name.end == "send", how)

    def _judge(self, bucket: _Bucket, ended: Sequence[Delivery]) -> None:
        """The guard: of the round that has ended, once the next begins."""
        if self.guard is None or bucket.whole:
            return
        if self._judged["round"] != bucket.round:
            low = self._judged["bytes"] and self._judged["delivered"] < self.guard.below * self._judged["bytes"]
            self._low = self._low + 1 if low else 0
            self._judged = Counter(round=bucket.round)
        self._judged.update(bytes=sum(how.bytes for how in ended), delivered=sum(how.delivered for how in ended))
        if self._low >= self.guard.rounds:
            if self.guard.then == "raise":
                raise GuardError(
                    f"less than {self.guard.below:.0%} of the gradients arrived, {self.guard.rounds} rounds in a row"
                )
            self._reliable = True

    def _serve(self, bucket: _Bucket, holes: dict[int, tuple[Span, ...]]) -> list[tuple[Name, Transfer]]:
        """Average the own part, and send it to all."""
        part = self.servers.index(self.rank)
        begin, end = self._part(bucket.flat, part)
        own = bucket.flat[begin:end]
        if not own.numel():
            return []
        element = own.element_size()
        total = torch.zeros(end - begin, dtype=torch.float64 if own.dtype == torch.float64 else torch.float32)
        came = torch.full((end - begin,), len(self.workers), dtype=torch.int32)
        gradients = {**bucket.received, self.rank: own} if self.rank in self.workers else bucket.received
        for rank, gradient in sorted(gradients.items()):  # in one order, for all servers
            for at, size in holes.get(rank, ()):
                gradient[at // element : (at + size) // element] = 0
                came[at // element : (at + size) // element] -= 1
            total += gradient
        own.copy_(total / (came if self.fill == "mean_of_received" else len(self.workers)))
        message = Message(bucket.round, bucket.number, part, _size(own), "parameter", element=element)
        names = [Name(bucket.round, bucket.number, part, worker, "send") for worker in bucket.received]
        return [(name, self._endpoint.post_send(name.peer, message, _memory(own))) for name in names]

    def _keep(self, bucket: _Bucket, holes: dict[Name, tuple[Span, ...]]) -> None:
        """The lost part of this rank's gradient, for its next one."""
        lost = torch.zeros_like(bucket.sent)
        for name, spans in holes.items():
            begin, _ = self._part(bucket.flat, name.part)
            for at, size in spans:
                here = slice(begin + at // lost.element_size(), begin + (at + size) // lost.element_size())
                lost[here] = bucket.sent[here]
        if self._disperses:
            _through(collected, bucket, lost)
        before, _ = self._lost[bucket.number]
        self._lost[bucket.number] = (before, lost)

    def _wait(self, transfers: Sequence[Transfer]) -> list[Delivery]:
        """Until all have ended."""
        return [one.wait() for one in transfers]

    def _fail(self, bucket: _Bucket, error: BaseException) -> None:
        """This rank leaves, and waiting peers are notified of the reason."""
        self._failure = error
        self._endpoint.end(str(error), error.gone if isinstance(error, TransportError) else None)
        bucket.future.set_exception(error)


def hook(sync: Synchronisation, bucket: Any) -> Any:
    """DDP's communication hook: ``model.register_comm_hook(sync, hook)``."""
    layout = tuple(one.data_ptr() for one in bucket.parameters())
    return sync.exchange(bucket.buffer(), bucket.index(), last=bucket.is_last(), layout=layout)


# DDP takes no hook with other annotations than these, nor the same as text.
hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


def _buckets(module: Any) -> list[list[Any]]:
    """Return trainable parameters, the last ones first, in groups of one type and about `BUCKET_BYTES`."""
    found: list[list[Any]] = []
    for parameter in reversed([parameter for parameter in module.parameters() if parameter.requires_grad]):
        full = (
            not found
            or found[-1][0].dtype != parameter.dtype
            or sum(map(_size, found[-1])) + _size(parameter) > BUCKET_BYTES
        )
        if full:
            found.append([])
        found[-1].append(parameter)
    return found


def _through(transform: Callable[[Array, Seed], Array], bucket: _Bucket, flat: Any) -> None:
    """A bucket's numbers, transformed where they are; every rank draws the same."""
    flat.copy_(torch.from_numpy(transform(flat.float().numpy(), (bucket.round, bucket.number))))


def _gone(transfer: Transfer) -> bool:
    """Whether its peer has left, or does not answer."""
    try:
        transfer.wait()
    except TransportError:
        return True
    return False


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _memory(flat: Any) -> memoryview:
    """A flat tensor's own bytes."""
    return memoryview(flat.view(torch.uint8).numpy())


def _refuse(flat: Any) -> None:
    if flat.device.type != "cpu":
        raise RequestError(
            f"a gradient is on {flat.device}: only gradients in main memory can be sent. Train on the CPU"
        )
    if flat.dtype not in TYPES or not flat.is_contiguous():
        raise RequestError(
            f"a gradient of {flat.dtype} cannot be sent, only contiguous ones of {', '.join(map(str, TYPES))}. Convert it first"
        )


def _own_address(rank: int) -> str:
    """The address by which this rank reaches the first one; on one machine each rank has a different loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))
        own = str(probe.getsockname()[0])
    return f"127.0.0.{rank + 2}" if own.startswith("127.") and rank < 250 else own
