"""Messages between two machines from the command line: what both ends say, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.core.environment import ROOT
from testbed.transports.cli import main
from tests.support.processes import HANG_S, loopback

HERE, THERE = loopback(2)


def run(transport: str, port: int, *words: str, sends: tuple[str, ...] = ()) -> list[dict[str, object]]:
    """What both ends print, the sender's first."""
    ends = []
    for role, bind, peer, own in (("receive", THERE, HERE, ()), ("send", HERE, THERE, sends)):
        command = [
            sys.executable,
            "-m",
            "testbed.transports",
            transport,
            role,
            "--bind",
            bind,
            "--peer",
            peer,
            "--json",
        ]
        command += ["--port", str(port), *words, *own]
        ends.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT))
    told = []
    for end in reversed(ends):
        out, err = end.communicate(timeout=HANG_S)
        assert end.returncode == 0, err
        told.append({**json.loads(out), "progress": err})
    return told


@pytest.mark.parametrize(
    ("transport", "port"), [("ltp", 7411), ("ltp:fraction=1", 7421), ("tcp", 7431), ("tcp:close=0.5", 7441)]
)
def test_both_ends_say_the_same(transport: str, port: int) -> None:
    words = ("--cc", "reno")  # which everybody may use, everywhere
    sent, received = run(transport, port, *words, sends=("--bytes", "3MB", "--rounds", "3"))
    assert [one["delivered"] for one in sent["rounds"]] == [one["delivered"] for one in received["rounds"]]  # type: ignore[attr-defined]
    assert sent["receiver"] == received["end"]
    assert received["end"]["bytes"] == 9_000_000  # type: ignore[index]
    least = {"ltp": 0, "tcp:close=0.5": 4_500_000}.get(transport, 9_000_000)
    assert least <= received["end"]["delivered"] <= (4_500_012 if "close" in transport else 9_000_000)  # type: ignore[index]
    assert "3 of 3" in str(sent["progress"])


def test_with_a_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    sent, _ = run("ltp:fraction=1", 7451, "--key", str(key), sends=("--bytes", "1MB", "--rounds", "1"))
    assert sent["end"]["delivered"] == 1_000_000  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ltp", "send", "--bind", HERE], "--peer"),
        (["ltp", "send", "--bind", "0.0.0.0", "--peer", THERE], "not the address of one machine"),
        (["ltp", "send", "--bind", "here", "--peer", THERE], "no IPv4 address"),
        (["ltp", "send", "--bind", HERE, "--peer", HERE], "its own address"),
        (["ltp:fraction=80", "send", "--bind", HERE, "--peer", THERE], "not between 0 and 1"),
        (["quic", "send", "--bind", HERE, "--peer", THERE], "unknown transport"),
        (["tcp", "send", "--bind", HERE, "--peer", THERE, "--key", "x"], "sends no datagrams"),
        (["ltp", "send", "--bind", HERE, "--peer", THERE, "--rounds", "0"], "--rounds"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_a_short_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "key"
    short.write_bytes(b"secret")
    assert main(["ltp", "send", "--bind", HERE, "--peer", THERE, "--key", str(short)]) == 2
    assert "at least 16" in capsys.readouterr().err


def test_a_key_that_is_no_regular_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for key in (tmp_path / "pipe", tmp_path, tmp_path / "none", Path("/dev/null")):
        assert main(["ltp", "send", "--bind", HERE, "--peer", THERE, "--key", str(key)]) == 2
        assert key.name in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o644, 0o666])
def test_a_key_that_others_may_read_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(mode)
    command = ["ltp", "send", "--bind", HERE, "--peer", THERE, "--port", "7471", "--wait", "100ms", "--key", str(key)]
    assert main(command) == 1
    assert (f"chmod 600 {key}" in capsys.readouterr().err) == bool(mode & 0o077)


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ltp", "send", "--bind", HERE, "--peer", THERE, "--port", "7461", "--wait", "200ms"]) == 1
    assert "does not answer" in capsys.readouterr().err
