"""The process that empties the rings of a run's captures, and writes one pcapng file for each place at the end.

It reads its configuration as one line of JSON, and the end of the run as another. It replies with one line when all files
are written, or when a file cannot be written. During the run it only sleeps until a timer expires and never reads the
clock. Virtual time therefore takes the same course with and without captures.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from testbed.core.clock import PeriodicTimer
from testbed.linux.capture import packet_ring, pcapng
from testbed.linux.capture.packet_ring import Ring
from testbed.linux.capture.segments import split

INTERFACES = ("before queue", "after queue")  # of one file
SYNC_BYTES = 16 << 20  # written between two syncs, which free memory and report a full disk


@dataclass
class Tap:
    """A ring of a place, and the file that takes its frames."""

    place: str
    interface: int  # of `INTERFACES`
    direction: pcapng.Direction
    ring: Ring
    file: BinaryIO
    unsynced: int = 0

    def drain(self) -> None:
        """Write the packets in the ring to the file. Raises `OSError`."""
        self.unsynced += self.ring.drain(self.file.fileno())
        if self.unsynced >= SYNC_BYTES:
            os.fdatasync(self.file.fileno())
            self.unsynced = 0


def main() -> None:
    config = json.loads(sys.stdin.readline())
    folder, snaplen = Path(config["folder"]), int(config["snaplen"])
    place = config["taps"][0]["place"]
    try:
        taps = [_tap(each, folder, snaplen, config["ring_packets"]) for each in config["taps"]]
        timer = PeriodicTimer(config["first_ns"], config["interval_ns"])
        over = False
        while not over:
            ready, _, _ = select.select([timer, sys.stdin], [], [])
            if timer in ready:
                timer.expirations()
            over = sys.stdin in ready
            for tap in taps:
                place = tap.place
                tap.drain()
        line = sys.stdin.readline()
        if not line:
            return  # the run has failed
        earlier, now, later = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        epoch_ns = json.loads(line)["start_ns"] + now - (earlier + later) // 2
        for place in dict.fromkeys(tap.place for tap in taps):
            packets = _merged([tap for tap in taps if tap.place == place], snaplen)
            _write(place, packets, folder, snaplen, epoch_ns)
    except OSError as error:
        _say({"place": place, "error": error.strerror or str(error)})
    else:
        _say({"written": True})


def _say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


def _tap(told: dict[str, Any], folder: Path, snaplen: int, packets: int) -> Tap:
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open until this process ends)
    return Tap(told["place"], told["interface"], told["direction"], Ring(told["fd"], snaplen, packets), file)


def _write(place: str, packets: Iterable[pcapng.Captured], folder: Path, snaplen: int, epoch_ns: int) -> None:
    """``capture-PLACE.pcapng``; ``epoch_ns`` is the time of day that is t = 0 of the run's tables."""
    comment = f"t = 0 of the run's tables is at {epoch_ns // 10**9}.{epoch_ns % 10**9:09d} s"
    with (folder / file_name(place)).open("wb") as file:
        pcapng.write(file, [f"{place} {name}" for name in INTERFACES], packets, snaplen, comment)
        file.flush()
        os.fsync(file.fileno())


def file_name(place: str) -> str:
    """Return the name of the capture of ``place`` in the run directory."""
    return f"capture-{place}.pcapng"


def _merged(taps: Sequence[Tap], snaplen: int) -> Iterator[pcapng.Captured]:
    def packets(tap: Tap) -> Iterator[pcapng.Captured]:
        os.fdatasync(tap.file.fileno())
        tap.file.seek(0)
        for packet in packet_ring.frames(tap.file, snaplen):
            for segment in split(packet, snaplen):
                yield tap.interface, tap.direction, segment

    return heapq.merge(*map(packets, taps), key=lambda found: found[2].time_ns)


if __name__ == "__main__":
    main()
