"""`mltcp shell --on host`: the session of docs/how-to/shell.md, hosts as named namespaces, and nothing left."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.backends import named
from testbed.core.errors import EXIT_OK, MachineError
from tests.support import processes
from tests.support.terminals import PROMPT, alike, recorded, session

from . import conftest

pytestmark = pytest.mark.alone  # it names namespaces for the whole machine
FLAGS = [
    "--on",
    "host",
    "--jobs",
    "2",
    "--iterations",
    "2",
    "--compute",
    "50ms",
    "--bytes",
    "1MB",
    "--rate",
    "200mbit",
    "--system",
    "reno",
]


def names() -> set[str]:
    return {path.name for path in named.FOLDER.iterdir()} if named.FOLDER.exists() else set()


def test_the_recorded_session(tmp_path: Path) -> None:
    if not shutil.which("iperf") and not shutil.which("iperf3"):
        pytest.skip("neither iperf nor iperf3 is installed")
    before = names()
    start, exchanges = recorded("how-to/shell.md", 1)
    _, _, *arguments = shlex.split(start)
    with session(arguments, tmp_path) as shell:
        shell.until(PROMPT)
        for number, (line, wanted) in enumerate(exchanges):
            shell.type(line)
            printed = shell.rest() if number == len(exchanges) - 1 else shell.until(PROMPT)
            assert alike(printed, wanted), (line, printed)
    assert shell.process.returncode == EXIT_OK
    assert names() == before


def test_hosts_are_named_namespaces(tmp_path: Path) -> None:
    with session(["shell", *FLAGS], tmp_path) as shell:
        shell.until(PROMPT)
        ping = ["ip", "netns", "exec", "l1", "ping", "-c", "1", "10.0.0.9"]
        done = subprocess.run(ping, capture_output=True, text=True, check=False)
        assert "1 received" in done.stdout, done.stderr
        assert {"l1", "l2", "r1", "r2", "s1", "s2"} <= names()
        with session(["shell", *FLAGS], tmp_path) as other:
            assert "a network namespace of this name exists" in other.rest().replace("\n", " ")
        shell.type("pause 1s")
        assert "a real clock does not stop" in shell.until(PROMPT)
        shell.type("run")
        assert "Verdict" in shell.rest()


@pytest.mark.parametrize("line", ["", "l1 ping 10.0.0.9"])
def test_killed_it_leaves_nothing(tmp_path: Path, line: str) -> None:
    before, named_before = conftest.traces(), names()
    with session(["shell", *FLAGS], tmp_path) as shell:
        shell.until(PROMPT)
        assert names() > named_before
        if line:
            shell.type(line)
            shell.until("icmp_seq=1")
        shell.process.kill()
        shell.rest()
    processes.until(
        lambda: not conftest.left_since(before) and names() == named_before,
        lambda: (conftest.left_since(before), names()),
    )


def test_names_that_nobody_holds_are_swept(tmp_path: Path) -> None:
    """Where a shell and its remover were both killed."""
    folder = tmp_path / "netns"
    folder.mkdir()
    (folder / "l1").symlink_to("/proc/999999999/fd/3")
    (folder / "mine").touch()
    with (folder / "mine").open() as file, named.namespaces({"l1": file.fileno()}, folder):
        assert (folder / "l1").samefile(folder / "mine")
        with pytest.raises(MachineError, match="Close the other shell"), named.namespaces({"l1": 0}, folder):
            pass
    assert [path.name for path in folder.iterdir()] == ["mine"]


SCRIPT = """
from mininet.net import Mininet
from mininet.topo import Topo

class One(Topo):
    def build(self):
        self.addSwitch("s1")
        for host in ("h1", "h2"):
            self.addLink(self.addHost(host), "s1", bw=100)

net = Mininet(topo=One())
net.start()
print(net["h1"].cmd("ping -c 1", net["h2"].IP()))
net["h1"].cmd("sleep", WAIT)
net.stop()
"""


def test_a_mininet_script(tmp_path: Path) -> None:
    """It drives hosts, which are named namespaces meanwhile; killed, it leaves nothing."""
    before, named_before = conftest.traces(), names()
    script = tmp_path / "script.py"
    script.write_text(f"WAIT = '0'\n{SCRIPT}")
    with session(["shell", "--on", "host", "--script", str(script)], tmp_path) as shell:
        printed = shell.rest()
    assert "1 received" in printed
    assert shell.process.returncode == EXIT_OK
    script.write_text(f"WAIT = '1000'\n{SCRIPT}")
    with session(["shell", "--on", "host", "--script", str(script)], tmp_path) as shell:
        shell.until("1 received")
        address = ["ip", "netns", "exec", "h2", "ip", "-o", "address"]
        assert "10.0.0.2/32" in subprocess.run(address, capture_output=True, text=True, check=False).stdout
        shell.process.kill()
        shell.rest()
    processes.until(
        lambda: not conftest.left_since(before) and names() == named_before,
        lambda: (conftest.left_since(before), names()),
    )
