"""Captures as tshark reads them."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

START = re.compile(rb"t = 0 of the run's tables is at (\d+\.\d{9}) s")  # the comment of a file
FIELDS = {
    "time": "frame.time_epoch", "name": "frame.interface_name", "flags": "frame.packet_flags_direction", "length": "frame.len",
    "kept": "frame.cap_len", "ecn": "ip.dsfield.ecn", "seq": "tcp.seq", "ack": "tcp.ack", "payload": "tcp.len",
}  # fmt: skip

needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not installed (apt-get install tshark)"
)


def packets(file: Path) -> pd.DataFrame:
    """What tshark reads: a row for each packet, ``ns`` after t = 0 of tables."""
    found = START.search(file.read_bytes())
    assert found is not None
    start_ns = _nanoseconds(found[1].decode())
    words = [word for field in FIELDS.values() for word in ("-e", field)]
    command = ["tshark", "-r", str(file), "-T", "fields", "-E", "occurrence=f", *words]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    table = pd.read_csv(io.StringIO(told), sep="\t", names=list(FIELDS), dtype={"time": str}).fillna({"ack": 0})
    table["ns"] = [_nanoseconds(text) - start_ns for text in table["time"]]
    table["out"] = [flags.endswith("2") for flags in table["flags"]]
    table["before"] = [name.endswith("before queue") for name in table["name"]]
    return table


def _nanoseconds(text: str) -> int:
    seconds, _, fraction = text.partition(".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))
