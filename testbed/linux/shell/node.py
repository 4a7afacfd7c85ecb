"""Nodes and a network that people drive: each node has a Bash, as in Mininet, from the first command on."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import termios
import time
from typing import Any, cast

from mininet.log import error, output
from mininet.node import Node

from testbed.core.errors import RequestError
from testbed.linux import netns, network
from testbed.linux.network import switch

PROMPT = chr(127)  # marks the end of a command for Mininet
IPERF = ("iperf", "iperf3")
SPINS = re.compile(r"(?:^|[\s;|&/(\"'])iperf3(?:$|[\s;|&)\"'])")
IPERF_PORT, IPERF_S, LISTENING_S = 5201, 5, 10.0


def environment() -> dict[str, str]:
    """Return the environment variables of commands."""
    return {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8", "TERM": "dumb"}


class Host(network.Host):
    """A node with Mininet's own `cmd`, `sendCmd`, `monitor` and `popen`."""

    shell: subprocess.Popen[bytes] | None
    virtual_time = False

    def start(self, _controllers: Any = ()) -> None:
        """Scripts start their switches."""

    def _check(self, words: str) -> None:
        """Raise `RequestError` for a program that would stop virtual time.

        iperf3 (3.12) polls whether it may write while it waits for its peer, and computing takes no virtual time.
        """
        if self.virtual_time and SPINS.search(words):
            raise RequestError(
                "iperf3 computes while it waits, which stops the virtual clock. Use iperf (version 2), or --on host."
            )

    def IP(self, intf: Any = None) -> str | None:
        """Return the address; for a host of a Mininet script, the one that Mininet assigns."""
        alias = self.params.get("alias")
        return alias if alias and intf is None else cast("str | None", super().IP(intf))

    def _open(self) -> None:
        """Start its Bash on a separate terminal, as Mininet's nodes have one."""
        if self.shell:
            return
        self.master, self.slave = pty.openpty()
        mode = termios.tcgetattr(self.slave)
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(self.slave, termios.TCSANOW, mode)
        with netns.entered(self.namespace):
            self.shell = subprocess.Popen(
                ["setsid", "--ctty", "bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"],
                stdin=self.slave, stdout=self.slave, stderr=self.slave, env={**environment(), "PS1": PROMPT},
            )  # fmt: skip
        self.stdin = self.stdout = os.fdopen(self.master, "r")
        self.pid = self.shell.pid
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout.fileno())
        self.outToNode[self.stdout.fileno()] = self.inToNode[self.stdin.fileno()] = self
        self.lastCmd = self.lastPid = None
        self.readbuf, self.waiting = "", True
        self.waitOutput()
        self.cmd("unset HISTFILE; set +m")

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        self._check(" ".join(map(str, args)))
        self._open()
        kwargs.pop("printPid", None)  # an option of mnexec, which is not used here
        Node.sendCmd(self, *args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> str:
        """Run a command in the node's Bash, and return its output."""
        self._open()
        return cast(str, Node.cmd(self, *args, **kwargs))

    def popen(self, *args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        """Start a command (a list, words, or one string that is split) in this node, with pipes from its output."""
        words = args[0] if len(args) == 1 else list(args)
        if kwargs.pop("shell", False):
            words = ["sh", "-c", words if isinstance(words, str) else " ".join(words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
        command = shlex.split(words) if isinstance(words, str) else [str(word) for word in words]
        self._check(" ".join(command))
        with netns.entered(self.namespace):
            return subprocess.Popen(command, **{**pipes, **kwargs})

    def terminate(self) -> None:
        if self.shell:
            self.shell.kill()
            self.shell.wait()
        super().terminate()


class Network(network.Network):
    """Mininet's network with the shell's versions of `iperf` and `link`."""

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """Take a link down or up; routes follow at once."""
        if unknown := [name for name in (src, dst) if name not in self.nameToNode]:
            error(f"there is no node {unknown[0]}\n")
            return
        ends = [end for pair in self[src].connectionsTo(self[dst]) for end in pair]
        if not ends:
            error(f"there is no link between {src} and {dst}\n")
        for end in ends:
            switch(self, end, up=status == "up")

    def iperf(
        self, hosts: Any = None, l4Type: str = "TCP", udpBw: str = "10M", fmt: str | None = None, seconds: int = IPERF_S,
        port: int = IPERF_PORT,
    ) -> list[str]:  # fmt: skip
        """The rate between two hosts, as server and client saw it, by iperf (or iperf3)."""
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        known = IPERF[:1] if client.virtual_time else IPERF
        program = next((name for name in known if shutil.which(name, path=environment()["PATH"])), None)
        if program is None:
            raise RequestError("iperf is not installed: install the package iperf.")
        udp = ["-u", "-b", udpBw] if l4Type == "UDP" else []
        shown = ["-f", fmt] if fmt else []
        once = ["-1"] if program == "iperf3" else []
        serving = server.popen(
            [program, "-s", "-p", str(port), *once, *shown, *(["-u"] if udp and not once else [])],
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            self._await_listening(server, port, udp=bool(udp and not once))
            words = [program, "-c", server.IP(), "-p", str(port), "-t", str(seconds), *udp, *shown]
            here, _, _ = client.pexec(words)
            if not once:
                serving.terminate()
            there, _ = serving.communicate()
        finally:
            serving.kill()
            serving.wait()
        result = [self._parseIperf(there), self._parseIperf(here)]
        if udp:
            result.insert(0, udpBw)
        output(f"*** Results: {result}\n")
        return result

    def _await_listening(self, server: Host, port: int, *, udp: bool) -> None:
        """Until a port of ``server`` takes connections, or datagrams."""
        deadline = time.monotonic() + LISTENING_S
        while f":{port} " not in server.pexec(["ss", "-Hln", "-u" if udp else "-t"])[0]:
            if time.monotonic() > deadline:
                raise RequestError(f"iperf: nothing listens on port {port} of {server.name}.")
            time.sleep(0.01)
