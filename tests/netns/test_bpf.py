"""The congestion controls in eBPF: registered, used, and gone with their owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mininet.topo import Topo

from testbed import bpf, cc, congestion, netns
from testbed.cli import main
from testbed.errors import EXIT_OK, EXIT_REQUEST, MachineError, TestbedError
from testbed.network import Network
from testbed.settings import Sysctl, apply_all
from topologies.dumbbell import Dumbbell

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "kernel/bpf/mltcp_reno.bpf.c"


@pytest.fixture
def program() -> bytes:
    return bpf.compile_program(PROGRAM)


def chosen(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()


def test_two_variants_live_side_by_side_and_go(program: bytes) -> None:
    one = bpf.register(program, "mlt_test_one", {"slope": 2048})
    two = bpf.register(program, "mlt_test_two", {"slope": -1792, "intercept": 2048})
    assert chosen("mlt_test_one") == "mlt_test_one"
    assert chosen("mlt_test_two") == "mlt_test_two"
    one.close()
    two.close()
    assert not {"mlt_test_one", "mlt_test_two"} & set(bpf.available())


def test_a_taken_name_is_refused(program: bytes) -> None:
    held = bpf.register(program, "mlt_test_taken", {})
    with pytest.raises(TestbedError, match="already registered"):
        bpf.register(program, "mlt_test_taken", {})
    held.close()


def test_an_unknown_constant_is_refused(program: bytes) -> None:
    with pytest.raises(TestbedError, match="no constant 'slopp'"):
        bpf.register(program, "mlt_test_const", {"slopp": 1})


def test_kill_minus_nine_unregisters() -> None:
    code = (
        "from testbed import congestion; import time;"
        "held = congestion.register(congestion.parse('mltcp_reno'), name='mlt_test_kill'); print('up', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    assert "mlt_test_kill" in bpf.available()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 5
    while "mlt_test_kill" in bpf.available() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "mlt_test_kill" not in bpf.available()


def test_what_the_verifier_says_reaches_the_user(tmp_path: Path) -> None:
    broken = PROGRAM.read_text().replace("ca_guard_ack(&ca->guard, sk);", "*(volatile u32 *)((void *)sk + 4) = flags;")
    source = tmp_path / "bpf" / "broken.bpf.c"
    source.parent.mkdir()
    for header in [*(ROOT / "kernel/bpf").glob("*.h"), ROOT / "kernel/mltcp.h"]:
        (source.parent / header.name).write_text(header.read_text().replace('"../mltcp.h"', '"mltcp.h"'))
    source.write_text(broken)
    before = bpf.available()
    with pytest.raises(MachineError, match="the kernel refuses the program"):
        bpf.register(bpf.compile_program(source), "mlt_test_bad", {})
    assert bpf.available() == before


def test_a_program_that_does_not_compile_says_why(tmp_path: Path) -> None:
    source = tmp_path / "wrong.bpf.c"
    source.write_text("int x = ;\n")
    with pytest.raises(MachineError, match="expected expression"):
        bpf.compile_program(source)


def test_missing_clang_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match="clang is not installed"):
        bpf.compile_program(PROGRAM)


@pytest.fixture
def loaded() -> Iterator[None]:
    if "mltcp_reno" in bpf.available():
        pytest.skip("mltcp_reno is loaded on this machine by someone else")
    assert main(["cc", "load", "mltcp_reno"]) == EXIT_OK
    yield
    if (cc.PINS / "mltcp_reno").exists():
        main(["cc", "unload", "mltcp_reno"])
    deadline = time.monotonic() + 5  # closed connections keep it for a moment
    while "mltcp_reno" in bpf.available() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_loaded_outside_an_experiment_it_serves_one_destination(
    loaded: None, build: Callable[[Topo], Network], capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented use: ``ip route change PREFIX via GATEWAY congctl mltcp_reno``."""
    assert main(["cc", "load", "mltcp_reno"]) == EXIT_REQUEST  # twice
    main(["cc", "status"])
    assert "mltcp_reno: loaded" in capsys.readouterr().out
    net = build(Dumbbell(n=1))
    apply_all([Sysctl(name, "net.ipv4.ip_forward", "1") for name in ("s1", "s2")], net)
    left, right = net["l1"], net["r1"]
    gateway = left.cmd("ip -4 route show default").split()[2]
    assert left.cmd("ip", "route", "add", f"{right.IP()}/32", "via", gateway, "congctl", "mltcp_reno") == ""
    with netns.entered(right.namespace):
        listener = socket.create_server((right.IP(), 7000))
    with netns.entered(left.namespace):
        client = socket.create_connection((right.IP(), 7000), timeout=5)
    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"mltcp_reno\0")
    client.close()
    listener.close()


def test_unload_takes_only_what_was_loaded(loaded: None) -> None:
    assert main(["cc", "unload", "cubic"]) == EXIT_REQUEST
    assert main(["cc", "unload", "mltcp_reno"]) == EXIT_OK
    assert "mltcp_reno" not in bpf.available()
    assert not cc.PINS.exists()


def test_names_are_unique_and_short() -> None:
    names = set()
    for _ in range(3):
        registered = congestion.register(congestion.parse("mltcp_reno"))
        assert registered.program is not None and len(registered.name) <= 15
        names.add(registered.name)
        registered.program.close()
    assert len(names) == 3
    assert os.getpid()


@pytest.mark.parametrize("source", sorted((ROOT / "kernel/bpf").glob("*.bpf.c")), ids=lambda path: path.name)
@pytest.mark.parametrize("kernel", [[], ["-DMLTCP_TX_START_OP"]], ids=["before 7", "7"])
def test_our_programs_compile_without_a_warning(source: Path, kernel: list[str], tmp_path: Path) -> None:
    command = [
        "clang",
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-Werror",
    ]
    subprocess.run([*command, *kernel, "-c", str(source), "-o", str(tmp_path / "x.o")], check=True)
