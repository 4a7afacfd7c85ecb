"""`--on ssh:…` and ``--on vagrant`` against a real sshd: the same results, and nothing left on either side."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.backends import ssh, upload
from testbed.backends.host import Host
from testbed.backends.progress import Patience
from testbed.campaign.verdict import jobs
from testbed.core.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_MACHINE,
    EXIT_OK,
    MachineError,
    TestbedError,
)
from testbed.core.runs import rundir
from testbed.core.runs.events import Event, Iteration
from testbed.core.runs.plan import Plan
from testbed.linux import netns
from tests.support import processes
from tests.support.processes import HANG_S
from tests.support.runs import DEFAULT, KILLS, ROOT, one_plan, some

from .machine import SSHD, Machine, machine

pytestmark = pytest.mark.skipif(
    not os.path.exists(SSHD) or shutil.which("ssh-keygen") is None,
    reason="sshd is not installed (openssh-server; `make setup` brings it where that does not start one)",
)

Client = subprocess.Popen[str]

RUN = [str(ROOT / "testbed/run.py")]
ONCE = "--retries 0 --compute 100ms --bytes 1MB --rate 200mbit"
QUICK, LONG = f"{ONCE} --iterations 3".split(), f"{ONCE} --iterations 2000".split()
TABLES = ("iterations.csv", "operations.csv", "links.csv", "flows.csv")


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path / "machine") as one:
        yield one


def nothing_half(folder: Path) -> None:
    """Run directories are complete or absent."""
    for manifest in folder.rglob("manifest.json"):
        assert (manifest.parent / "verdict.json").exists()
    assert not [path for path in folder.rglob(".*.partial-*") if path.is_dir()]


@contextlib.contextmanager
def reached(there: Machine, patch: pytest.MonkeyPatch, user: str = "root") -> Iterator[ssh.Ssh]:
    """The machine as a backend of this process, whose sockets are made where it can be reached."""
    patch.delenv("SSH_AUTH_SOCK", raising=False)
    for name, value in there.environment().items():
        patch.setenv(name, value)
    fd = os.open(f"/proc/{there.init}/ns/net", os.O_RDONLY)
    backend = ssh.Ssh(there.on_as(user))
    try:
        with netns.entered(fd):
            yield backend
    finally:
        backend.close()
        os.close(fd)


def test_a_run_there_is_what_a_run_here_is(there: Machine, tmp_path: Path) -> None:
    done = there.run(*RUN, "--on", there.on, *QUICK, "--name", "quick", "--json", cwd=tmp_path)
    assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
    assert json.loads(done.stdout)["backend"] == "ssh"
    run = tmp_path / "results/quick/mltcp_reno/1"
    beside = ["nics.csv", "disturbances.csv", "disturbed_iterations.csv", "manifest.json", "verdict.json"]
    assert sorted(path.name for path in run.iterdir()) == sorted([*TABLES, *beside])
    files = {path.name: path.read_bytes() for path in run.iterdir()}
    here = rundir.unpack(
        Host().run(
            one_plan(cc=["mltcp_reno"], compute="100ms", bytes="1MB", rate="200mbit", **DEFAULT), print, Patience()
        )
    )
    assert {name: table_head(files, name) for name in TABLES} == {name: table_head(here, name) for name in TABLES}
    manifest, host = json.loads(files["manifest.json"]), json.loads(here["manifest.json"])
    assert manifest["settings"] != [] and host.keys() <= manifest.keys()
    assert manifest["measured"].keys() == host["measured"].keys()
    remote = manifest["remote"]
    assert remote["on"] == there.on and remote["kernel"] == manifest["kernel"]
    assert remote["host_key"].startswith("ssh-ed25519 SHA256:")
    rows = {row["id"]: row["status"] for row in json.loads(files["verdict.json"])["invariants"]}
    # What a busy machine cannot spoil.
    assert [rows[one] for one in ("I1", "I9")] == ["ok"] * 2
    # Recorded there; but that machine's PID namespace shows no kernel threads, which is not taken for calm.
    assert manifest["disturbances"]["ticks"] > 0
    assert any("ksoftirqd" in text for text in manifest["disturbances"]["refused"])
    assert rows["I21"] == "not evaluated"
    assert there.is_clean()


def table_head(files: dict[str, bytes], name: str) -> bytes:
    return files[name].splitlines()[0]


def test_the_core_of_a_transport_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LTP's library comes with the rest, by the name that its content gives it: there no compiler could build it."""
    asked: dict[str, Any] = {
        **DEFAULT, "topo": "star", "workers": 3, "jobs": 1, "collective": "parameter_server", "compute": "100ms", "bytes": "100kB",
        "rate": "100mbit", "iterations": 3, "system": ["ltp"],
    }  # fmt: skip
    one = one_plan(**asked)
    compilers = [str(Path(found).resolve()) for name in ("cc", "gcc", "clang") if (found := shutil.which(name))]
    instead = {tmp_path / f"none{number}": compiler for number, compiler in enumerate(compilers)}
    for nothing in instead:
        nothing.touch()
    with machine(tmp_path / "machine", instead=instead) as there:
        with reached(there, monkeypatch) as backend:
            backend.check(one)
            files = rundir.unpack(backend.run(one, lambda event: None, Patience()))
        messages = pd.read_csv(io.BytesIO(files["messages.csv"]))
        assert len(messages) == 2 * 2 * 2 * 3  # ends, stages, workers, iterations
        assert (messages["delivered"] + messages["missing"] == messages["bytes"]).all()
        assert jobs._misreported(one.jobs[0], messages) == 0
        assert there.is_clean()


@pytest.mark.slow
def test_its_progress_is_seen_while_it_runs(there: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An iteration is told of as it ends, and not with the results: the workers of a long run are still at it."""

    class SeenEnoughError(Exception):
        pass

    def look(event: Event) -> None:
        if isinstance(event, Iteration):
            assert any("testbed.replay.worker" in words for words in there.processes().values())
            raise SeenEnoughError

    heard: list[str] = []
    short, long = (one_plan(cc=["mltcp_reno"], compute="300ms", bytes="1MB", iterations=n) for n in (4, 2000))
    with reached(there, monkeypatch) as backend:
        backend.check(short)
        files = rundir.unpack(backend.run(short, lambda event: heard.append(type(event).__name__.lower()), Patience()))
        with pytest.raises(SeenEnoughError):
            backend.run(long, look, Patience())
        again = rundir.unpack(backend.run(short, print, Patience()))
    assert files.keys() == again.keys() >= {*TABLES, "manifest.json"}
    assert heard.count("iteration") == 2 * 2 * 4 and {"phase", "shares"} <= set(heard)
    assert there.is_clean()


def test_somebody_who_may_use_sudo_is_as_good(there: Machine, tmp_path: Path) -> None:
    done = there.run(*RUN, "--on", there.on_as("admin"), *QUICK, "--cc", "reno", cwd=tmp_path)
    assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
    assert "reno seed 1: mean iteration" in done.stderr
    assert there.is_clean()


@pytest.mark.slow
def test_what_is_from_outside_the_checkout_goes_along(there: Machine, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kernel", tmp_path / "kernel")
    mine = tmp_path / "kernel/bpf/mine.bpf.c"
    mine.write_text((ROOT / "kernel/bpf/mltcp_reno.bpf.c").read_text())
    topology = tmp_path / "mine.py"
    topology.write_text((ROOT / "topologies/dumbbell.py").read_text())
    done = there.run(
        *RUN, "--on", there.on, *QUICK, "--name", "own", "--topo", f"{topology},2", "--cc", f"{mine}:slope=1", "mltcp_dctcp",
        "--ecn", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
    (found,) = (tmp_path / "results/own").glob("mine-*/1/manifest.json")
    manifest = json.loads(found.read_text())
    assert manifest["plan"]["topology"] == str(topology)
    assert manifest["plan"]["system"]["congestion"][0]["source"] == str(mine)
    assert manifest["congestion_controls"][0]["kind"] == "eBPF"
    assert there.is_clean()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_so_and_leaves_nothing(there: Machine, tmp_path: Path, number: int) -> None:
    process = there.start(*RUN, "--on", there.on, *LONG, cwd=tmp_path)
    await_process(there, process, "testbed.replay.worker")
    process.send_signal(number)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == EXIT_INTERRUPTED
    assert "left nothing" in errors and "Traceback" not in errors
    assert there.is_clean()
    nothing_half(tmp_path)


def await_process(there: Machine, process: Client, what: str) -> None:
    def came() -> bool:
        assert process.poll() is None, process.communicate()
        return any(what in words for words in there.processes().values())

    processes.until(came, there.processes)


def killed(*words: str) -> Callable[[Machine, Client], None]:
    """Kill what has one of ``words`` in its command, there."""

    def cut(there: Machine, client: Client) -> None:
        for pid, command in there.processes().items():
            if any(word in command for word in words):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    return cut


def link(there: Machine, state: str) -> None:
    subprocess.run(["nsenter", f"--net=/proc/{there.init}/ns/net", "ip", "link", "set", "lo", state], check=True)


CUTS: dict[str, Callable[[Machine, Client], None]] = {
    "the caller is killed": lambda there, client: client.kill(),
    "sshd's session is killed": killed("sshd:"),
    "what was started there is killed": killed("testbed.backends.remote", "import os,sys"),
    "no packet arrives any more": lambda there, client: link(there, "down"),
    "everything of the session is killed": killed(""),
    "sudo is killed": killed("sudo -n"),
}


# By the third nobody is heard for a minute; that a silent caller counts as gone is a test of its own.
@pytest.mark.parametrize("round_", some(range(KILLS), 0, 1, 2, 4, 5))
def test_cut_off_at_a_random_moment(tmp_path: Path, there: Machine, round_: int) -> None:
    how = list(CUTS)[round_ % len(CUTS)]
    after_s = random.Random(f"cut {round_}").uniform(0, 8)
    user = "admin" if "sudo" in how else ("root", "admin")[round_ // len(CUTS) % 2]
    # A caller who hears nothing waits as long as the run may take, and before one has begun for minutes.
    silent = ["--wall-limit", "15s"] if "no packet" in how else []
    process = there.start(
        *RUN, "--on", there.on_as(user), *QUICK, *silent, "--name", "cut", "--seeds", "4", cwd=tmp_path
    )
    await_process(there, process, "testbed.linux.run_in_kernel" if "no packet" in how else "sshd:")
    time.sleep(after_s)
    print(f"{how}, {after_s:.1f} s after the first sign of it: {' | '.join(there.processes().values())[:300]}")
    CUTS[how](there, process)
    _, errors = process.communicate(timeout=HANG_S)
    nothing_half(tmp_path)
    if "no packet" in how:
        await_ours_gone(there)
        link(there, "up")  # sshd itself would wait for a quarter of an hour for somebody to hear it
    assert there.is_clean()
    assert "Traceback" not in errors
    if how in ("the caller is killed", "sudo is killed"):  # without sudo the run may go on
        return
    if process.returncode in (EXIT_OK, EXIT_INVALID):  # cut between two runs: it connects anew, and nothing is lost
        assert errors.count("mean iteration") == int(errors.split(" runs")[0]), errors
        return
    assert process.returncode in (EXIT_FAILED, EXIT_MACHINE), errors
    assert there.on_as(user) in errors


def await_ours_gone(there: Machine) -> None:
    """Whatever is there but sshd ends by itself."""

    def ours() -> list[str]:
        return [words for words in there.processes().values() if "sshd:" not in words]

    processes.until(lambda: not ours(), ours)


@pytest.mark.slow
def test_a_caller_that_falls_silent_counts_as_gone(there: Machine, tmp_path: Path) -> None:
    process = there.start(*RUN, "--on", there.on, *LONG, cwd=tmp_path)
    await_process(there, process, "testbed.replay.worker")
    process.send_signal(signal.SIGSTOP)
    await_ours_gone(there)
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == EXIT_FAILED and there.on in errors
    assert there.is_clean()


def refused(there: Machine, tmp_path: Path, *words: str, on: str = "", code: int = EXIT_MACHINE) -> str:
    """What it says, having done nothing."""
    done = there.run(*RUN, "--on", on or there.on, *QUICK, *words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "results").exists()
    assert there.is_clean()
    print(done.stderr)
    return done.stderr


def test_a_wrong_host_key_is_refused(there: Machine, tmp_path: Path) -> None:
    known, other = there.home / ".ssh/known_hosts", (there.home / ".ssh/id_ed25519.pub").read_text()
    known.write_text(f"[127.0.0.1]:{there.port} {other}")
    words = refused(there, tmp_path)
    assert "host key changed" in words and "ssh-keygen -R '[127.0.0.1]:2222'" in words


def test_a_revoked_host_key_is_refused(there: Machine, tmp_path: Path) -> None:
    known = there.home / ".ssh/known_hosts"
    key = (there.folder / "ssh/host_key.pub").read_text()
    known.write_text(f"@cert-authority *.example.com {key}broken\n{known.read_text()}@revoked * {key}")
    assert "marked as revoked" in refused(there, tmp_path)


@pytest.mark.parametrize("lenient", [False, True])
def test_an_unknown_host_is_refused(there: Machine, tmp_path: Path, lenient: bool) -> None:
    (there.home / ".ssh/known_hosts").unlink()
    if lenient:  # what a configuration file waives is not waived for runs as root
        (there.home / ".ssh/config").write_text("Host *\n    StrictHostKeyChecking no\n")
    assert "is unknown here" in refused(there, tmp_path)
    assert not (there.home / ".ssh/known_hosts").exists()


def test_a_user_without_an_accepted_key_is_refused(there: Machine, tmp_path: Path) -> None:
    assert "login as stranger failed" in refused(there, tmp_path, on=there.on_as("stranger"))
    (there.folder / "ssh/authorized_keys").write_text("")
    assert "login as root failed" in refused(there, tmp_path)


def test_where_nobody_listens_and_what_is_no_machine(there: Machine, tmp_path: Path) -> None:
    assert "cannot be reached: Connection refused" in refused(there, tmp_path, on="ssh:root@127.0.0.1:4")
    assert "no machine 'nowhere.invalid'" in refused(there, tmp_path, on="ssh:root@nowhere.invalid")


def test_without_sudo_it_says_what_to_do(there: Machine, tmp_path: Path) -> None:
    words = refused(there, tmp_path, on=there.on_as("visitor"))
    assert "NOPASSWD" in words and "a password is required" in words


RELAY = """\
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def out():
    while data := os.read(0, 1 << 16):
        there.sendall(data)
threading.Thread(target=out, daemon=True).start()
while data := there.recv(1 << 16):
    os.write(1, data)
"""


@pytest.mark.parametrize("proxy", [False, True])
def test_a_name_of_the_ssh_configuration_will_do(there: Machine, tmp_path: Path, proxy: bool) -> None:
    config = f"Host lab\n    HostName 127.0.0.1\n    Port {there.port}\n    User root\n    IdentityFile ~/.ssh/mine\n"
    (tmp_path / "relay.py").write_text(RELAY)
    if proxy:
        config += f"    ProxyCommand {sys.executable} {tmp_path}/relay.py %h %p\n"
    (there.home / ".ssh/config").write_text(config)
    (there.home / ".ssh/id_ed25519").rename(there.home / ".ssh/mine")
    done = there.run(*RUN, "--on", "ssh:lab", *QUICK, "--cc", "reno", cwd=tmp_path)
    assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
    assert "Machine" in done.stdout and "ssh:lab (" in done.stdout
    assert there.is_clean()


def test_without_python_there_it_says_so(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.touch()
    with machine(tmp_path / "machine", instead={nothing: str(Path("/usr/bin/python3").resolve())}) as there:
        assert "Install Python 3.11 or newer there" in refused(there, tmp_path)


def test_without_packages_for_its_python_it_says_so(there: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "soabi", lambda: "cpython-399-x86_64-linux-gnu")
    with reached(there, monkeypatch) as backend, pytest.raises(MachineError, match="pip install mininet") as error:
        backend.check(quick())
    assert "without mininet, msgspec" in str(error.value) or "without msgspec" in str(error.value)
    assert there.is_clean()


def quick() -> Plan:
    return one_plan(cc=["mltcp_reno"], compute="100ms", bytes="1MB", iterations=3)


@pytest.mark.slow
def test_a_full_disk_there_does_not_matter(tmp_path: Path) -> None:
    with machine(tmp_path / "machine", size="4k") as there:
        root = Path(f"/proc/{there.init}/root")
        with contextlib.suppress(OSError):
            (root / "tmp/full").write_bytes(bytes(1 << 16))
        there.before.update(there.state())
        done = there.run(*RUN, "--on", there.on, *QUICK, cwd=tmp_path)
        assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
        assert there.is_clean()


def test_too_little_memory_there_is_said(there: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "ROOM", "1m")
    with (
        reached(there, monkeypatch) as backend,
        pytest.raises(MachineError, match="memory"),
    ):
        backend.check(quick())
    assert there.is_clean()


def test_a_kernel_that_cannot_is_told_with_what_would_help(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with machine(tmp_path / "machine", instead={empty: "/sys/kernel/btf"}) as there:
        words = refused(there, tmp_path)
        assert words.startswith(f"error: {there.on}: mltcp_reno needs Linux 6.4 or newer with BTF")
        assert "modprobe tcp_mltcp_reno" in words


@pytest.mark.slow
def test_what_a_run_there_dies_of_is_told(there: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, Iteration) and not killed:
            killed.extend(pid for pid, words in there.processes().items() if "testbed.replay.worker" in words)
            os.kill(killed[0], signal.SIGKILL)

    with reached(there, monkeypatch) as backend:
        with pytest.raises(TestbedError, match=r"worker \d of job \d .*signal 9"):
            backend.run(one_plan(compute="100ms", bytes="1MB", iterations=500, cc=["reno"]), observe, Patience())
        with pytest.raises(TestbedError, match=r"wall limit of 3 s .--wall-limit. ended the run"):
            long = one_plan(compute="100ms", bytes="1MB", iterations=500, cc=["reno"])
            backend.run(long, print, Patience(wall_s=3))
        backend.check(quick())  # connects again
    assert there.is_clean()


VAGRANT = """\
#!/bin/sh
[ "$1" = ssh-config ] || exit 1
cat <<END
Host default
  HostName 127.0.0.1
  User admin
  Port {port}
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  PasswordAuthentication no
  IdentityFile {key}
  IdentitiesOnly yes
  LogLevel FATAL
END
"""


@pytest.mark.slow
def test_vagrant_is_what_its_ssh_config_says(there: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vagrant = tmp_path / "bin/vagrant"
    vagrant.parent.mkdir()
    (there.home / ".ssh/known_hosts").unlink()
    (there.home / ".ssh/id_ed25519").rename(tmp_path / "private_key")
    vagrant.write_text(VAGRANT.format(port=there.port, key=tmp_path / "private_key"))
    vagrant.chmod(0o755)
    monkeypatch.setenv("PATH", f"{vagrant.parent}:{os.environ['PATH']}")
    done = there.run(*RUN, "--on", "vagrant", *QUICK, "--name", "vm", "--cc", "mltcp_reno", cwd=tmp_path)
    assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
    manifest = json.loads((tmp_path / "results/vm/mltcp_reno/1/manifest.json").read_text())
    assert (manifest["backend"], manifest["remote"]["on"]) == ("vagrant", "vagrant")
    shutil.rmtree(tmp_path / "results")
    vagrant.write_text("#!/bin/sh\necho 'VM must be created before running this command.' >&2\nexit 1\n")
    words = refused(there, tmp_path, on="vagrant")
    assert "`vagrant up`" in words and "VM must be created" in words


@pytest.mark.slow
def test_several_machines_share_a_sweep_and_one_may_be_lost(there: Machine, tmp_path: Path) -> None:
    file = tmp_path / "shared.toml"
    file.write_text(
        'compute = "300ms"\nbytes = "1MB"\nrate = "200mbit"\niterations = 4\ncc = ["reno"]\nseeds = 2\nalone = "none"\n'
    )
    sweep = ["-m", "testbed", "sweep", str(file), "--on", there.on, "--on"]
    with machine(tmp_path / "other", port=2223, beside=there) as other:
        done = there.run(*sweep, other.on, cwd=tmp_path)
        assert done.returncode in (EXIT_OK, EXIT_INVALID), done.stderr
        assert other.is_clean() and there.is_clean()
        manifests = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("manifest.json")]
        assert {manifest["remote"]["on"] for manifest in manifests} == {there.on, other.on}
        assert "2 already stored" in there.run(*sweep, other.on, cwd=tmp_path).stderr  # on either
        shutil.rmtree(tmp_path / "results")
        process = there.start(*sweep, other.on, cwd=tmp_path)
        await_process(other, process, "testbed.replay.worker")
        other.process.kill()
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode in (EXIT_OK, EXIT_INVALID), errors
    assert f"given up: {other.on}: the connection was lost" in " ".join(errors.split())
    nothing_half(tmp_path)
    assert len(list((tmp_path / "results").rglob("verdict.json"))) == 2
    assert there.is_clean()
