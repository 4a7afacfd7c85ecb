"""A worker or the parameter server is killed in the middle of a round, or who stands in a ring: all others end, naming it."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time

import pytest

from testbed.core.environment import ROOT
from testbed.transports.datagram import native
from tests.support.processes import HANG_S

pytestmark = pytest.mark.slow

RANKS = {"server": 3, "ring": 4}  # in a ring of four one hears of it from others alone


def kill_one(transport: str, draw: random.Random, shape: str = "server") -> None:
    command = [sys.executable, "-m", "tests.support.transport_peer", transport, shape]
    ranks = RANKS[shape]
    peers = [
        subprocess.Popen(
            [*command, str(rank), str(ranks)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        for peer in peers:
            assert peer.stdout is not None and peer.stdout.readline() == "0\n"
        time.sleep(draw.random() / 20)
        victim = draw.randrange(ranks)
        peers[victim].kill()
        for rank, peer in enumerate(peers):
            _, said = peer.communicate(timeout=HANG_S)
            if rank == victim:
                assert peer.returncode == -signal.SIGKILL
                continue
            assert peer.returncode == 1, said
            assert re.fullmatch(rf"worker {victim} (is gone|has sent nothing for 3 rounds)\n", said), (rank, said)
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("transport", ["ltp", "mlt", "dlcp"])
def test_whoever_is_killed_is_named(transport: str, seed: int) -> None:
    native.build()
    kill_one(transport, random.Random(seed))


@pytest.mark.parametrize("transport", ["ltp", "mlt", "dlcp"])
def test_whoever_is_killed_in_a_ring_is_named_all_around(transport: str) -> None:
    native.build()
    kill_one(transport, random.Random(3), "ring")


@pytest.mark.long
@pytest.mark.parametrize("transport", ["ltp", "mlt", "dlcp"])
def test_a_hundred_kills(transport: str) -> None:
    native.build()
    for seed in range(100):
        kill_one(transport, random.Random(seed))
