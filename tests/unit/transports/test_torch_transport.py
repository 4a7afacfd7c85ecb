"""Gradients over LTP, MLT and DLCP in PyTorch: ranks as threads of one process, and as processes that train with DDP, over loopback."""

from __future__ import annotations

import copy
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RequestError
from testbed.transports import Delivery, Message, TransportError
from testbed.transports.datagram import native
from tests.support.processes import HANG_S

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'mltcp-testbed[torch]'")
from testbed.transports.torch import Guard, GuardError, Synchronisation  # noqa: E402
from testbed.transports.torch.holes import Name, Recording, Writer  # noqa: E402

ROOT = Path(__file__).parents[3]
LOSSY = "ltp:lt=0us,c=1us"  # closed when the first packets have come, whatever the network does
# Other processes of tests run beside this one, of this checkout or another: far apart, below the kernel's own.
PORTS = count(12_000 + os.getpid() * 7919 % 1000 * 20, 20)
STAGES = ("gradient", "parameter")
SIZE = 1_000_000  # many times what arrives at once


def addresses(ranks: int) -> list[str]:
    return [f"127.0.0.{rank + 2}" for rank in range(ranks)]


@contextmanager
def group(ranks: int, transport: str, **options: Any) -> Iterator[list[Synchronisation]]:
    native.build()
    port = next(PORTS)
    with ThreadPoolExecutor(ranks) as pool:
        made = list(
            pool.map(
                lambda rank: Synchronisation(rank, addresses(ranks), transport, port=port, **options), range(ranks)
            )
        )
        try:
            yield made
        finally:
            list(pool.map(lambda one: one.close(), made))


def together(group: Sequence[Synchronisation], what: Callable[[Synchronisation], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(group)) as pool:
        return list(pool.map(what, group))


def gradient(rank: int, kind: Any = torch.float32, size: int = SIZE) -> Any:
    return torch.rand(size, generator=torch.Generator().manual_seed(rank)).add(1).to(kind)


def one_round(sync: Synchronisation, kind: Any = torch.float32, size: int = SIZE) -> Any:
    return sync.exchange(gradient(sync.rank, kind, size), 0, last=True).wait()


def until_lost(group: Sequence[Synchronisation], kind: Any = torch.float32) -> list[list[Any]]:
    """Rounds, the last of which lost something: on one machine a message may be there before anybody can close it."""
    found: list[list[Any]] = []
    for _ in range(100):
        before = group[0].stats()
        found.append([one.clone() for one in together(group, lambda sync: one_round(sync, kind))])
        after = group[0].stats()
        if after.delivered - before.delivered < after.bytes - before.bytes:
            return found
    pytest.skip("this machine delivered a hundred messages before they could be closed")


@pytest.mark.parametrize("servers", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_what_arrives_whole_is_the_mean(servers: tuple[int, ...], kind: Any) -> None:
    mean = (sum(gradient(rank, kind).to(torch.float32) for rank in range(3)) / 3).to(kind)
    with group(3, "ltp:fraction=1", servers=servers) as ranks:
        for _ in range(3):
            for found in together(ranks, lambda sync: one_round(sync, kind)):
                assert torch.equal(found, mean)
        assert [sync.stats().share for sync in ranks] == [1, 1, 1]
        assert sum(ranks[1].stats().closed.values()) > 0


@pytest.mark.parametrize("servers", [(0,), (0, 3), (0, 1)])
def test_a_server_that_does_not_train_serves_until_the_others_have_left(servers: tuple[int, ...]) -> None:
    """Beside two that do; the second server trains, or does not."""
    workers = (1, 2)
    model = torch.nn.Linear(300, 70)
    ranks = 3 if servers != (0, 3) else 4
    with group(ranks, "ltp:fraction=1", servers=servers, workers=workers) as syncs:

        def take_part(sync: Synchronisation) -> Any:
            mine = copy.deepcopy(model)
            sync.broadcast(mine)
            if sync.rank not in workers:
                return sync.serve(mine)
            for _ in range(3):
                mine.zero_grad(set_to_none=False)
                mine(torch.full((1, 300), float(sync.rank))).sum().backward()
                sync.average(mine)
            sync.close()
            return mine.weight.grad.clone()

        found = together(syncs, take_part)
    for rank in workers:
        assert torch.equal(found[rank], torch.full((70, 300), 1.5)), "the mean of 1 and 2, not of three or four"


def test_a_server_that_does_not_train_says_who_left_the_others_behind() -> None:
    model = torch.nn.Linear(300, 70)
    with group(3, "ltp:fraction=1", workers=(1, 2)) as syncs:

        def take_part(sync: Synchronisation) -> None:
            if sync.rank == 0:
                with pytest.raises(Exception, match="worker 1 is gone"):
                    sync.serve(model)
            elif sync.rank == 1:
                sync.close()
            else:
                with pytest.raises(Exception, match="worker 1 is gone"):
                    sync.average(copy.deepcopy(model))

        together(syncs, take_part)
    with pytest.raises(RequestError, match="are not 3 ranks together"):
        Synchronisation(0, addresses(3), workers=(1,))
    with group(2, "ltp") as syncs, pytest.raises(RequestError, match="rank 0 trains"):
        syncs[0].serve(model)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_a_hole_is_of_whole_elements_and_every_rank_has_the_same(kind: Any, tmp_path: Path) -> None:
    with group(2, LOSSY, record=tmp_path) as ranks:
        rounds = until_lost(ranks, kind)
    here, there = rounds[-1]
    assert torch.equal(here, there)
    whole = ((gradient(0, kind).float() + gradient(1, kind).float()) / 2).to(kind)
    alone = (gradient(0, kind).float() / 2).to(kind)  # zeros, and not rescaled
    last, size = len(rounds) - 1, SIZE * gradient(0, kind).element_size()
    lost = Recording.read(tmp_path, 0, 2).holes(Name(last, 0, 0, 1, "receive"), size)
    assert lost == Recording.read(tmp_path, 1, 2).holes(Name(last, 0, 0, 0, "send"), size)
    missing = torch.zeros(SIZE, dtype=torch.bool)
    for at, length in lost:
        assert at % gradient(0, kind).element_size() == length % gradient(0, kind).element_size() == 0
        missing[at // gradient(0, kind).element_size() : (at + length) // gradient(0, kind).element_size()] = True
    assert 0 < missing.float().mean() < 1
    assert torch.equal(here, torch.where(missing, alone, whole))


@pytest.mark.parametrize("name", ["mlt", "dlcp"])
def test_mlt_carries_tensors_and_loses_no_more_than_it_may(name: str, tmp_path: Path) -> None:
    """A receiver has enough with 70 %; means arrive whole, so that all ranks have the same."""
    with group(3, f"{name}:tolerance=30%,bands=1", record=tmp_path) as ranks:
        rounds = until_lost(ranks)
    assert all(torch.equal(found, rounds[-1][0]) for found in rounds[-1])
    size = SIZE * 4
    for peer in (1, 2):
        lost = Recording.read(tmp_path, 0, 3).holes(Name(len(rounds) - 1, 0, 0, peer, "receive"), size)
        assert all(at % 4 == length % 4 == 0 for at, length in lost)
        assert sum(length for _, length in lost) <= 0.3 * size
    assert 0.7 <= ranks[0].stats().share < 1
    mean = sum(gradient(rank) for rank in range(3)) / 3
    assert (rounds[-1][0] <= mean + 1e-6).all() and (rounds[-1][0] < mean - 1e-3).any(), "what is missing count as zero"


@pytest.mark.parametrize(
    ("transport", "says"),
    [("tcp", "over TCP"), ("ltp:broadcast=tcp", "broadcast=ltp"), ("mlt:missing=local", "count as zero")],
)
def test_what_carries_no_tensors_is_refused(transport: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        Synchronisation(0, addresses(2), transport)


def test_contributors_divide_by_those_that_arrived() -> None:
    with group(2, LOSSY, fill="mean_of_received") as ranks:
        found = until_lost(ranks)[-1][0]
    assert (found >= 1).all(), "nothing is halved because half of it is missing"
    assert ranks[0].stats().share < 1


@pytest.mark.parametrize("servers", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_what_travels_dispersed_and_arrives_whole_is_the_mean(servers: tuple[int, ...], kind: Any) -> None:
    mean = sum(gradient(rank, kind, 5000).float() for rank in range(3)) / 3
    with group(3, "ltp:fraction=1", servers=servers, disperse=True) as ranks:
        for _ in range(2):
            for found in together(ranks, lambda sync: one_round(sync, kind, 5000)):
                assert found.dtype == kind
                assert torch.allclose(found.float(), mean, atol=5 * torch.finfo(kind).eps)


def test_what_is_lost_of_a_dispersed_gradient_is_a_little_of_every_number() -> None:
    with group(2, LOSSY, disperse=True) as ranks:
        here, there = until_lost(ranks)[-1]
        lost = 1 - ranks[1].stats().share
    assert torch.equal(here, there)
    off = (here - (gradient(0) + gradient(1)) / 2).abs()
    assert lost > 0 and (off > 1e-4).float().mean() > 0.9


@pytest.mark.parametrize("disperse", [False, True])
def test_what_was_lost_is_fed_back(disperse: bool) -> None:
    """In each round the mean is short of what was lost just now, and has what was lost before."""
    with group(2, LOSSY, fill="feedback", disperse=disperse) as ranks:
        means = [one[0] for one in until_lost(ranks)]
        left = ranks[1]._lost[0][1]
        assert ranks[1].stats().share < 1
    wanted = len(means) * (gradient(0) + gradient(1)) / 2
    assert torch.allclose(sum(means) + left / 2, wanted, rtol=1e-4 if disperse else 1e-5)
    assert not torch.allclose(sum(means), wanted, rtol=1e-5)


def test_the_first_rounds_lose_nothing() -> None:
    with group(2, LOSSY, warmup_steps=2) as ranks:
        for _ in range(2):
            together(ranks, one_round)
        assert ranks[0].stats().share == 1
        until_lost(ranks)
        assert ranks[0].stats().share < 1


def test_both_ends_hear_alike_how_each_message_ended() -> None:
    heard: list[tuple[int, Message, bool, Delivery]] = []
    with group(2, LOSSY, ended=lambda *one: heard.append(one)) as ranks:
        rounds = len(until_lost(ranks))
    ends: dict[tuple[int, str], list[tuple[bool, int, int, str]]] = {}
    for _, message, sent, how in heard:
        assert how.delivered + sum(size for _, size in how.holes) == how.bytes == message.bytes == 4 * SIZE
        ends.setdefault((message.round, message.stage), []).append((sent, how.bytes, how.delivered, how.closed))
    assert set(ends) == {(number, stage) for number in range(rounds) for stage in STAGES}
    for came, went in map(sorted, ends.values()):
        assert not came[0] and went[0] and came[1:] == went[1:]
    gradients, means = (sum(one[2] for key in ends if key[1] == stage for one in ends[key]) for stage in STAGES)
    assert gradients == sum(one.stats().delivered for one in ranks) < means


def test_the_guard_makes_it_reliable_or_ends_it() -> None:
    guard = Guard(below=2, rounds=2)  # whatever arrives is too little
    with group(2, LOSSY, guard=guard) as ranks:
        for _ in range(5):
            together(ranks, one_round)
        before = ranks[0].stats()
        together(ranks, one_round)
        after = ranks[0].stats()
        assert after.reliable and after.delivered - before.delivered == after.bytes - before.bytes
    with group(2, LOSSY, guard=Guard(2, 2, "raise")) as ranks, pytest.raises(Exception, match="less than 200%"):
        for _ in range(5):
            ranks[1].exchange(gradient(1), 0, last=True)
            one_round(ranks[0])
    assert issubclass(GuardError, TransportError)


@pytest.mark.slow
def test_a_training_that_lost_repeats_exactly(tmp_path: Path) -> None:
    def train(sync: Synchronisation) -> Any:
        model = copy.deepcopy(models[sync.rank])
        sync.broadcast(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.Generator().manual_seed(10 + sync.rank)
        for _ in range(5):
            optimizer.zero_grad(set_to_none=False)
            for _ in range(2):  # accumulated
                model(torch.randn(8, 64, generator=data)).square().mean().backward()
            sync.average(model)
            optimizer.step()
        assert all(one.grad.data_ptr() for one in model.parameters())
        return torch.cat([one.detach().reshape(-1) for one in model.parameters()])

    models = [
        torch.nn.Sequential(torch.nn.Linear(64, 9000), torch.nn.BatchNorm1d(9000), torch.nn.Linear(9000, 10))
        for _ in range(2)
    ]
    for fill in ("zero", "feedback"):
        with group(2, LOSSY, record=tmp_path, fill=fill) as ranks:
            first, other = together(ranks, train)
            assert torch.equal(first, other)
            lost = ranks[0].stats().share < 1
        with group(2, "ltp", replay=tmp_path, fill=fill) as ranks:
            again, _ = together(ranks, train)
        assert torch.equal(first, again)
        with group(2, "ltp:fraction=1") as ranks:
            whole, _ = together(ranks, train)
        assert torch.equal(first, whole) != lost


def test_what_a_transport_sends_and_receives_lies_in_the_gradients_themselves() -> None:
    """In every round: of a worker both ways, of the server what it sends back; the core in C reads and writes there, too."""
    handed = list[tuple[int, int, str, int, int]]()  # round, rank, stage, address, bytes

    def watch(sync: Synchronisation, name: str) -> Callable[..., Any]:
        post = getattr(sync._endpoint, name)

        def posted(peer: int, m: Message, buffer: memoryview, *more: Any) -> Any:
            transfer = post(peer, m, buffer, *more)
            address = torch.frombuffer(buffer, dtype=torch.uint8).data_ptr()
            assert ctypes.addressof(transfer.memory) == address
            if (sync.rank, m.stage) != (0, "gradient"):  # those a server takes the mean of
                handed.append((m.round, sync.rank, m.stage, address, buffer.nbytes))
            return transfer

        return posted

    def train(sync: Synchronisation) -> tuple[int, int]:
        model = copy.deepcopy(whole)
        for name in ("post_send", "post_receive"):
            setattr(sync._endpoint, name, watch(sync, name))
        places = set[int]()
        for number in range(3):
            model.zero_grad(set_to_none=False)
            model(torch.ones(1, 300)).sum().backward()
            if number:
                places.add(min(one.grad.data_ptr() for one in model.parameters()))
            sync.average(model)
        (place,) = places
        return place, sum(one.grad.nbytes for one in model.parameters())

    whole = torch.nn.Linear(300, 70)
    with group(2, "ltp:fraction=1") as syncs:
        there = together(syncs, train)
        assert [flat.data_ptr() for sync in syncs for _, flat in sync._flat or ()] == [address for address, _ in there]
    expected = [
        (number, rank, stage)
        for number in range(3)
        for rank, stage in ((0, "parameter"), (1, "gradient"), (1, "parameter"))
    ]
    assert sorted(handed) == [(*one, *there[one[1]]) for one in expected]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="its own address"):
        Synchronisation(0, ["127.0.0.2"] * 2)
    with pytest.raises(RequestError, match="not all among 2 ranks"):
        Synchronisation(0, addresses(2), servers=(2,))
    for transport in ("tcp", "tcp:close=0.8", "ltp:broadcast=tcp"):
        with pytest.raises(RequestError, match="PyTorch sends over TCP"):
            Synchronisation(0, addresses(2), transport)
    with pytest.raises(RequestError, match="Record them first"):
        Synchronisation(0, addresses(2), replay=tmp_path)
    with group(2, "ltp") as ranks:
        with pytest.raises(RequestError, match="int64"):
            ranks[0].exchange(torch.zeros(8, dtype=torch.int64), 0, last=True)
        with pytest.raises(RequestError, match="main memory"):
            ranks[0].exchange(torch.zeros(8, device="meta"), 0, last=True)
    with group(2, "ltp", disperse=True) as ranks, pytest.raises(RequestError, match="Leave out disperse"):
        ranks[0].exchange(torch.zeros(8, dtype=torch.float64), 0, last=True)


def test_a_recording_of_another_training_is_named(tmp_path: Path) -> None:
    write = Writer(tmp_path, 0, 2)
    write(Name(0, 0, 0, 1, "receive"), 100, ((8, 8),))
    write.close()
    recording = Recording.read(tmp_path, 0, 2)
    assert recording.holes(Name(0, 0, 0, 1, "receive"), 100) == ((8, 8),)
    with pytest.raises(RequestError, match="had 100 bytes, and has 200"):
        recording.holes(Name(0, 0, 0, 1, "receive"), 200)
    with pytest.raises(RequestError, match="ends before round 1"):
        recording.holes(Name(1, 0, 0, 1, "receive"), 100)
    with pytest.raises(RequestError, match="another training"):
        Recording.read(tmp_path, 0, 3)
    (tmp_path / "holes-0.jsonl").write_text("[]\nnonsense")
    with pytest.raises(RequestError, match="no recording of missing ranges"):
        Recording.read(tmp_path, 0, 2)


HEAD = """
import os, sys, time, torch
import torch.distributed as dist
from testbed.transports.torch import Synchronisation, hook
rank, ranks, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
torch.set_num_threads(1)
"""
DDP = (
    HEAD
    + """
dist.init_process_group("gloo")
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(200, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 10)))
if sys.argv[2] != "none":
    sync = Synchronisation.of_process_group(sys.argv[2], port=port)
    model.register_comm_hook(sync, hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    with model.no_sync():  # accumulated, and exchanged with the next
        model(torch.randn(8, 200)).square().mean().backward()
    model(torch.randn(8, 200)).square().mean().backward()
    optimizer.step()
if sys.argv[2] != "none":
    assert sync.stats().rounds == 4, sync.stats()
print(repr([float(one.double().sum()) for one in model.parameters()]))
dist.barrier()
if sys.argv[2] != "none":
    sync.close()
sys.stdout.flush()
os._exit(0)
"""
)
PLAIN = (
    HEAD
    + """
sync = Synchronisation(rank, [f"127.0.0.{one + 2}" for one in range(ranks)], "ltp:silence=500ms", port=port)
model = torch.nn.Linear(200, 300)
sync.broadcast(model)
while True:
    model(torch.randn(8, 200)).square().mean().backward()
    sync.average(model)
    print(rank, sync.stats().rounds, flush=True)
"""
)


def started(ranks: int, script: str, *words: str) -> list[subprocess.Popen[str]]:
    native.build()
    port = next(PORTS)
    shared = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port + 10),
        "PYTHONPATH": str(ROOT),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, str(port), *words], env=shared | {"RANK": str(rank)}, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def trained(transport: str) -> list[list[float]]:
    processes = started(2, DDP, transport)
    said = [process.communicate(timeout=HANG_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    return [[float(one) for one in out.strip().strip("[]").split(",")] for out, _ in said]


@pytest.mark.slow
def test_ddp_trains_with_it_as_with_its_own() -> None:
    """The same gradients, whole: the same parameters, but for the order of a sum."""
    own, theirs = trained("none"), trained("ltp:fraction=1")
    assert own[0] == own[1] and theirs[0] == theirs[1]
    assert theirs[0] == pytest.approx(own[0], rel=1e-4, abs=1e-4)
    lossy = trained(LOSSY)
    assert lossy[0] == lossy[1]


@pytest.mark.slow
@pytest.mark.parametrize("dies", [0, 2])
def test_a_rank_that_is_killed_ends_the_others_by_name(dies: int) -> None:
    processes = started(3, PLAIN)
    try:
        said_so = processes[dies].stdout
        assert said_so is not None
        for _ in range(3):
            assert said_so.readline()
        processes[dies].send_signal(signal.SIGKILL)
        begun = time.monotonic()
        survivors = [process for rank, process in enumerate(processes) if rank != dies]
        said = [process.communicate(timeout=HANG_S)[1] for process in survivors]
        assert time.monotonic() - begun < HANG_S
        assert all(process.returncode for process in survivors)
        assert all(f"worker {dies} is gone" in one or f"worker {dies} has sent nothing" in one for one in said), said
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()
