"""Mininet scripts in user-mode Linux: executed by `mltcp shell --script`, and their networks in runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from testbed.core.errors import EXIT_FAILED, EXIT_OK
from tests.support.runs import ROOT
from tests.support.terminals import alike

PAGE = (ROOT / "docs/how-to/mininet-scripts.md").read_text()
ONE_SWITCH = """
from mininet.net import Mininet
from mininet.topo import Topo

class One(Topo):
    def build(self):
        self.addSwitch("s1")
        for host in ("h1", "h2"):
            self.addLink(self.addHost(host), "s1", bw=10, delay="5ms", loss=0)

net = Mininet(topo=One())
net.start()
"""


def shell(folder: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "testbed", "shell", "--on", "uml", *arguments],
        cwd=folder, input=typed, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_the_session_shown() -> None:
    start, _, wanted = re.findall(r"```console\n(\$ mltcp shell.*?)```", PAGE, re.DOTALL)[0].partition("\n")
    done = shell(ROOT, *start.split()[3:5])
    assert done.returncode == EXIT_OK, done.stderr
    assert alike(done.stdout, wanted), done.stdout


def test_the_command_line_of_a_script(tmp_path: Path) -> None:
    """`CLI(net)` takes what is typed, and the script goes on after it; delay and rate of one link hold at once."""
    (tmp_path / "script.py").write_text(
        ONE_SWITCH
        + "from mininet.cli import CLI\nCLI(net)\nprint('after', [str(node) for node in net.hosts])\nnet.stop()\n"
    )
    done = shell(tmp_path, "--script", "script.py", typed="h1 ping -c 1 h2\nrun\nexit\n")
    assert done.returncode == EXIT_OK, done.stderr
    assert "time=20.0 ms" in done.stdout  # 5 ms on each of four hops
    assert "a script has no experiment" in done.stdout
    assert done.stdout.endswith("after ['h1', 'h2']\n")
    assert not (tmp_path / "results").exists()


def test_a_script_that_fails(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ONE_SWITCH + "net['h1'].cmd('iperf3 -s')\n")
    done = shell(tmp_path, "--script", "script.py")
    assert done.returncode == EXIT_FAILED
    assert "Use iperf (version 2), or --on host" in done.stdout
    (tmp_path / "script.py").write_text(ONE_SWITCH + "1 / 0\n")
    done = shell(tmp_path, "--script", "script.py")
    assert done.returncode == EXIT_FAILED
    assert "ZeroDivisionError" in done.stdout and "runpy" not in done.stdout
    done = shell(tmp_path, "--script", "script.py", "--topo", "star")
    assert done.returncode == EXIT_FAILED
    assert "Give --topo the network of the script" in done.stdout


def test_a_run_in_its_network_is_valid(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ONE_SWITCH)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "testbed", "run", "--on", "uml", "--topo", "./script.py", "--jobs", "1", "--iterations", "6",
         "--compute", "50ms", "--bytes", "500kB", "--system", "reno", "--isolated-runs", "none"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == EXIT_OK, done.stderr
    assert "Verdict: valid" in done.stdout, done.stdout
