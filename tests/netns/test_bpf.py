"""The congestion controls in eBPF: registered, used, and gone with their owner."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mininet.topo import Topo

from testbed.backends.host import Host
from testbed.cli import cc, main
from testbed.congestion import catalogue
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, MachineError, RequestError, TestbedError
from testbed.linux import features, netns
from testbed.linux.loading import bpf, bpfsys, registry
from testbed.linux.network import Network
from testbed.linux.settings import apply_all, sysctl
from tests.support import processes, runs
from topologies.dumbbell import Dumbbell

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "kernel/bpf/mltcp_reno.bpf.c"
MINE = ROOT / "examples/mine.bpf.c"
# Names belong to the whole kernel: ours are nobody else's, of another run of these tests neither.
ONE, OTHER = f"test_{os.getpid()}_1", f"test_{os.getpid()}_2"


@pytest.fixture
def program() -> bytes:
    return bpf.compile_program(PROGRAM)


def gone(name: str) -> None:
    """Soon: closed connections keep a congestion control for a moment."""
    processes.until(lambda: name not in bpf.available(), bpf.available)


def chosen(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()


def test_two_variants_live_side_by_side_and_go(program: bytes) -> None:
    one = bpf.register(program, ONE, {"slope": 2048})
    two = bpf.register(program, OTHER, {"slope": -1792, "intercept": 2048})
    assert chosen(ONE) == ONE
    assert chosen(OTHER) == OTHER
    one.close()
    two.close()
    assert not {ONE, OTHER} & set(bpf.available())


SO_NETNS_COOKIE = 71


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_sockets_of_a_mark_are_one_job(program: bytes, family: socket.AddressFamily, address: str) -> None:
    """Four connections with bursts of the same length: one sum of what they send, told apart by namespace and mark, until they end."""
    held = bpf.register(program, ONE, {"share": 1, "learn": 1})
    of_job, of_flow = (
        bpfsys.MapReader(held.map_fds[name], *sizes)
        for name, sizes in (("mltcp_jobs", (16, 24)), ("mltcp_flows", (48, 24)))
    )
    with contextlib.ExitStack() as open_here, socket.create_server((address, 0), family=family) as server:
        pairs = []
        for _ in range(4):
            sender = open_here.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, ONE.encode())
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7)
            sender.connect(server.getsockname())
            pairs.append((sender, open_here.enter_context(server.accept()[0])))
        cookie = pairs[0][0].getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)
        key = cookie + struct.pack("=II", 7, 0)

        def known() -> bool:
            for sender, receiver in pairs:
                sender.sendall(bytes(50_000))
                assert len(receiver.recv(50_000, socket.MSG_WAITALL)) == 50_000
            time.sleep(0.02)  # computing
            return bool(struct.unpack("=QQQ", of_job(key) or bytes(24))[1] >= 4 * 50_000)

        processes.until(known, lambda: of_job(key))
        assert struct.unpack("=QQQ", of_job(key) or b"")[2] == 4, "members"
        assert of_job(cookie + struct.pack("=II", 8, 0)) is None, "nobody has that mark"
        end = pairs[0][0].getsockname()
        mapped = socket.inet_pton(socket.AF_INET6, f"::ffff:{address}" if family == socket.AF_INET else address)
        flow = cookie + 2 * mapped + struct.pack("=H", end[1]) + struct.pack("!H", server.getsockname()[1]) + bytes(4)
        assert struct.unpack("=QQII", of_flow(flow) or bytes(24))[1] >= 50_000, "learned"
    processes.until(lambda: of_job(key) is None, lambda: of_job(key))
    held.close()
    gone(ONE)


def test_a_taken_name_is_refused(program: bytes) -> None:
    held = bpf.register(program, ONE, {})
    with pytest.raises(TestbedError, match="already registered"):
        bpf.register(program, ONE, {})
    held.close()


def test_an_unknown_constant_is_refused(program: bytes) -> None:
    with pytest.raises(TestbedError, match="no constant 'slopp'"):
        bpf.register(program, ONE, {"slopp": 1})


def test_kill_minus_nine_unregisters() -> None:
    code = (
        "from testbed.congestion import catalogue; from testbed.linux.loading import registry; import time;"
        f"held = registry.register(catalogue.parse('mltcp_reno'), name='{ONE}'); print('up', flush=True); time.sleep(7200)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    assert ONE in bpf.available()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    gone(ONE)


def test_interrupted_between_registering_and_remembering_it_is_gone(
    program: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = bpf._kept

    def interrupted(maps: dict[str, object]) -> dict[str, int]:
        assert "mlt_test_int" in bpf.available()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # another thread would be told of it any time later
        return kept(maps)

    monkeypatch.setattr(bpf, "_kept", interrupted)
    before = set(os.listdir("/proc/self/fd"))
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            bpf.register(program, "mlt_test_int", {})
    finally:
        signal.signal(signal.SIGINT, heard)
    gone("mlt_test_int")
    assert set(os.listdir("/proc/self/fd")) == before


def test_what_nobody_remembers_is_gone(program: bytes) -> None:
    """An interrupt may come when it is handed over."""
    bpf.register(program, "mlt_test_nobody", {})
    gone("mlt_test_nobody")


def test_what_the_verifier_says_reaches_the_user(tmp_path: Path) -> None:
    broken = PROGRAM.read_text().replace("ca_guard_ack(&ca->guard, sk);", "*(volatile u32 *)((void *)sk + 4) = flags;")
    source = tmp_path / "bpf" / "broken.bpf.c"
    source.parent.mkdir()
    for header in [*(ROOT / "kernel/bpf").glob("*.h"), ROOT / "kernel/mltcp.h"]:
        (source.parent / header.name).write_text(header.read_text().replace('"../mltcp.h"', '"mltcp.h"'))
    source.write_text(broken)
    with pytest.raises(MachineError, match="the kernel refuses the program"):
        bpf.register(bpf.compile_program(source), ONE, {})
    assert ONE not in bpf.available()


def test_a_program_that_does_not_compile_says_why(tmp_path: Path) -> None:
    source = tmp_path / "wrong.bpf.c"
    source.write_text("int x = ;\n")
    with pytest.raises(RequestError, match="expected expression"):
        bpf.compile_program(source)


def test_missing_clang_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where nothing is compiled yet
    with pytest.raises(MachineError, match="clang is not installed"):
        bpf.compile_program(PROGRAM)


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert bpf.compile_program(PROGRAM)[:4] == b"\x7fELF"
    (found,) = (tmp_path / "mltcp").iterdir()
    return found


def test_a_compiled_program_is_kept_and_checked(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, program = cached.read_bytes(), bpf.compile_program(PROGRAM)
    cached.write_bytes(whole.replace(b"mltcp_reno", b"evil__reno"))
    assert bpf.compile_program(PROGRAM) == program and cached.read_bytes() == whole
    monkeypatch.setenv("PATH", "/nowhere")
    assert bpf.compile_program(PROGRAM) == program
    os.chown(cached, 4242, 4242)  # root loads what root has compiled
    with pytest.raises(MachineError, match="clang is not installed"):
        bpf.compile_program(PROGRAM)


@pytest.mark.parametrize("kind", ["another's", "a link", "everybody's"])
def test_root_keeps_nothing_where_others_may_change_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    if kind == "another's":
        os.chown(home, 4242, 4242)
    elif kind == "a link":
        (home / ".cache").symlink_to(elsewhere)
    else:
        home.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    assert bpf.compile_program(PROGRAM)[:4] == b"\x7fELF"
    assert not [*home.glob(".cache/*"), *elsewhere.iterdir()]


@pytest.fixture
def loaded() -> Iterator[None]:
    if "mltcp_reno" in bpf.available():
        pytest.skip("mltcp_reno is loaded on this machine by someone else")
    assert main(["cc", "load", "mltcp_reno"]) == EXIT_OK
    yield
    if (cc.PINS / "mltcp_reno").exists():
        main(["cc", "unload", "mltcp_reno"])
    gone("mltcp_reno")


def test_loaded_outside_an_experiment_it_serves_one_destination(
    loaded: None, build: Callable[[Topo], Network], capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented use: ``ip route change PREFIX via GATEWAY congctl mltcp_reno``."""
    assert main(["cc", "load", "reno"]) == EXIT_REQUEST  # the kernel's own
    main(["cc", "status"])
    assert "mltcp_reno: loaded" in capsys.readouterr().out
    net = build(Dumbbell(n=1))
    apply_all([sysctl(name, "net.ipv4.ip_forward", "1") for name in ("s1", "s2")], net)
    left, right = net["l1"], net["r1"]
    gateway = left.cmd("ip -4 route show default").split()[2]
    assert left.cmd("ip", "route", "add", f"{right.IP()}/32", "via", gateway, "congctl", "mltcp_reno") == ""
    with netns.entered(right.namespace):
        listener = socket.create_server((right.IP(), 7000))
    with netns.entered(left.namespace):
        client = socket.create_connection((right.IP(), 7000))
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
        registered = registry.register(catalogue.parse("mltcp_reno"))
        assert registered.program is not None and len(registered.name) <= 15
        names.add(registered.name)
        registered.program.close()
    assert len(names) == 3
    assert os.getpid()


def test_a_live_one_is_replaced(loaded: None, tmp_path: Path) -> None:
    """``cc load`` once more: new connections get the new program, the one in use keeps its own."""
    held = tcp(b"mltcp_reno")
    assert main(["cc", "load", "mltcp_reno:slope=3"]) == EXIT_OK
    fresh = tcp(b"mltcp_reno")
    for one in (held, fresh):
        one.exchange(1 << 20)
        one.close()
    assert bpf.available().count("mltcp_reno") == 1


class Connection:
    """One over loopback, in the test's own namespace."""

    def __init__(self, name: bytes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.socket()
            self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            self.client.connect(listener.getsockname())
            self.server, _ = listener.accept()

    def exchange(self, size: int) -> None:
        sender = threading.Thread(target=self.client.sendall, args=(bytes(size),))
        sender.start()
        while size > 0:
            size -= len(self.server.recv(1 << 20))
        sender.join()

    def close(self) -> None:
        self.client.close()
        self.server.close()


def tcp(name: bytes) -> Connection:
    return Connection(name)


@pytest.mark.parametrize("name", [*catalogue.names(), "dctcp"])
def test_each_of_ours_carries_data(name: str) -> None:
    """Also ``dctcp``, for kernels without; with ECN and, without, as Reno."""
    scratch = netns.create()
    source = ROOT / f"kernel/bpf/{name}.bpf.c"
    loaded = bpf.register(bpf.compile_program(source), ONE, {})
    with netns.entered(scratch):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for ecn in ("1", "0"):
            Path("/proc/sys/net/ipv4/tcp_ecn").write_text(ecn)
            one = tcp(ONE.encode())
            one.exchange(20 << 20)
            one.close()
    os.close(scratch)
    loaded.close()
    gone(ONE)


@pytest.mark.parametrize("rounds", [40, pytest.param(200, marks=pytest.mark.long)])
def test_reloads_under_traffic(rounds: int) -> None:
    names = [*catalogue.names(), "dctcp"]
    programs = [bpf.compile_program(ROOT / f"kernel/bpf/{name}.bpf.c") for name in names]
    scratch = netns.create()
    with netns.entered(scratch):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for number in range(rounds):
            loaded = bpf.register(programs[number % len(names)], ONE, {})
            one = tcp(ONE.encode())
            one.exchange(200_000)
            loaded.close()  # while the connection uses it
            one.exchange(200_000)
            one.close()
            gone(ONE)
    os.close(scratch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"GPL"', '"Proprietary"'),
        ("\t.ssthresh = (void *)mine_ssthresh,\n", ""),
        ("return tcp_reno_ssthresh(sk);", "while (tcp_sk(sk)->snd_cwnd) ;\n\treturn 2;"),
        ("return tcp_reno_ssthresh(sk);", "tcp_sk(sk)->bytes_acked = 0;\n\treturn 2;"),
    ],
    ids=["licence", "callback", "loop", "write"],
)
def test_what_a_program_may_not_do_is_explained(old: str, new: str, tmp_path: Path) -> None:
    source = tmp_path / "mine.bpf.c"
    text = MINE.read_text()
    assert old in text
    source.write_text(text.replace(old, new))
    with pytest.raises(MachineError, match="eBPF congestion control"):
        bpf.register(bpf.compile_program(source), ONE, {})
    assert ONE not in bpf.available()


def test_one_of_your_own() -> None:
    """The example of docs/reference/congestion-controls.md, with a parameter, beside another use of the same file."""
    fields: dict[str, Any] = {"iterations": 2, "compute": "10ms", "bytes": "2MB", "jobs": 2}
    result = runs.run_plan(Host(), cc=[f"{MINE}:step=4+{MINE}"], **fields)
    one, other = result.manifest["congestion_controls"]
    assert one["kind"] == other["kind"] == "eBPF" and one["registered_as"] != other["registered_as"]
    with pytest.raises(TestbedError, match="no parameter 'stride'"):
        runs.run_plan(Host(), cc=[f"{MINE}:stride=4"], **{**fields, "jobs": 1})
    with pytest.raises(MachineError, match="Use --on uml"):
        runs.run_plan(Host(), cc=[str(MINE.with_name("tcp_mine.c"))], **{**fields, "jobs": 1})


MARKED: dict[str, Any] = {"cc": ["dctcp"], "ecn": "20kB", "iterations": 1, "compute": "1ms", "start_offsets": "0ms,0ms"}


def test_a_phantom_queue_marks_where_there_is_no_red() -> None:
    """Everything in it is read back."""
    result = runs.run_plan(Host(), bytes="10MB", **MARKED)
    links = result.table("links.csv")
    assert links[links["link"] == "s1-s2"]["ecn_marks"].iloc[-1] > 100
    if not features.supported("red"):
        (phantom, _back) = [row["value"] for row in result.manifest["settings"] if row["what"] == "phantom queue"]
        assert phantom["min_bytes"] == phantom["max_bytes"] == 20_000 and phantom["filter"] == "phantom"


@pytest.mark.slow
def test_a_phantom_queue_keeps_the_real_one_as_short_as_the_threshold() -> None:
    """DCTCP: marks, and few drops."""

    def check(result: runs.Result) -> None:
        links = result.table("links.csv")
        data = links[links["link"] == "s1-s2"]
        busy = data[(data["t_s"] > 0.3) & (data["t_s"] < 1.7)]
        # The real queue overflows when the machine makes the link stand still for a moment; the phantom one runs on.
        assert busy["drops"].iloc[-1] - busy["drops"].iloc[0] <= 0.05 * data["ecn_marks"].iloc[-1]
        assert data["ecn_marks"].iloc[-1] > 1000
        assert 3_000 < busy["backlog_bytes"].mean() < 30_000

    runs.shown_in_real_time(check, bytes="60MB", **MARKED)


def test_f_and_r_of_a_live_flow_are_seen() -> None:
    result = runs.run_plan(Host(), cc=["mltcp_cubic"], iterations=5, compute="100ms", bytes="5MB")
    flows = result.table("flows.csv").dropna(subset="mltcp_r")
    assert (flows["mltcp_f"] - (1.75 * flows["mltcp_r"] + 0.25)).abs().max() <= 0.003
    assert flows["mltcp_iterations"].max() >= 4


def test_an_outside_client(build: Callable[[Topo], Network]) -> None:
    """``iperf3 -C mltcp_cubic``, loaded as a practitioner would."""
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    if "mltcp_cubic" in bpf.available():
        pytest.skip("mltcp_cubic is loaded on this machine by someone else")
    net = build(Dumbbell(n=1))
    apply_all([sysctl(name, "net.ipv4.ip_forward", "1") for name in ("s1", "s2")], net)
    assert main(["cc", "load", "mltcp_cubic"]) == EXIT_OK
    server = net["r1"].popen("iperf3", "-s", "-1", "--forceflush", stdout=subprocess.PIPE)
    try:
        while b"listening" not in server.stdout.readline():
            assert server.poll() is None
        said = json.loads(net["l1"].cmd("iperf3", "-c", net["r1"].IP(), "-C", "mltcp_cubic", "-t", "1", "-J"))
    finally:
        server.kill()
        server.communicate()
        assert main(["cc", "unload", "mltcp_cubic"]) == EXIT_OK
    assert said["end"]["sender_tcp_congestion"] == "mltcp_cubic"
    assert said["end"]["sum_received"]["bytes"] > 0


def test_a_cgroup_is_given_one(loaded: None) -> None:
    root = next(
        (
            Path(line.split()[1])
            for line in Path("/proc/mounts").read_text().splitlines()
            if line.split()[2] == "cgroup2"
        ),
        None,
    )
    if root is None:
        pytest.skip("no cgroup of version 2 is mounted here")
    folder = root / f"mltcp-test-{os.getpid()}"
    folder.mkdir()
    code = (
        "import os, socket, sys; open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()));"
        "l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname());"
        "print(c.getsockopt(6, 13, 16).split(b'\\0')[0].decode())"
    )
    try:
        assert main(["cc", "load", "mltcp_reno", "--cgroup", "/tmp"]) == EXIT_REQUEST
        assert main(["cc", "load", "mltcp_reno", "--cgroup", str(folder)]) == EXIT_OK
        done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
        assert done.stdout == "mltcp_reno\n"
        assert main(["cc", "unload", "mltcp_reno"]) == EXIT_OK
        done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
        assert done.stdout != "mltcp_reno\n"
    finally:
        folder.rmdir()


@pytest.mark.parametrize("source", sorted((ROOT / "kernel/bpf").glob("*.bpf.c")), ids=lambda path: path.name)
@pytest.mark.parametrize("kernel", [[], ["-DHAVE_CWND_EVENT_TX_START"]], ids=["before 7", "7"])
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
