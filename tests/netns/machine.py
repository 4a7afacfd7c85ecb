"""Another machine, as far as ssh can tell: a real sshd in network, mount and PID namespaces of its own.

It shares the kernel and the programs of this one, and none of the places where something could be
left: its ``/tmp``, ``/root``, ``/run`` … are its own. Its host keys, users and who may log in lie in
a folder of the test; ``/etc/ssh`` and ``~/.ssh`` of this machine are neither read nor touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import bpf
from tests.runs import INTERRUPTIBLE, ROOT

SSHD = "/usr/sbin/sshd"
PORT = 2222
OWN = ("/tmp", "/var/tmp", "/root", "/home", "/dev/shm", "/run", "/media", "/mnt", "/srv")
CONFIG = f"""\
Port {PORT}
ListenAddress 127.0.0.1
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
LogLevel ERROR
"""
# "$1": the folder, "$2": the size of what is its own; further words: own files to be put in the place of others.
INIT = f"""\
set -e
folder=$1 size=$2
shift 2
for place in {" ".join(OWN)}; do mkdir -p "$folder/empty"; done
ip link set lo up
mount --bind "$folder/ssh" /etc/ssh
for file in passwd shadow sudoers; do mount --bind "$folder/$file" /etc/$file; done
while [ $# -gt 0 ]; do mount --bind "$1" "$2"; shift 2; done
for place in {" ".join(OWN)}; do
    [ -d "$place" ] && mount -t tmpfs -o size=$size "own" "$place"
done
mkdir /run/sshd
exec {SSHD} -D -e
"""


@dataclass(frozen=True)
class Machine:
    """``home`` is the user's here: with a key that opens the machine, and its host key known."""

    process: subprocess.Popen[bytes]
    folder: Path
    before: dict[str, Any]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def on(self) -> str:
        return f"ssh:root@127.0.0.1:{PORT}"

    @property
    def init(self) -> int:
        """The first process of its PID namespace."""
        return _children()[self.process.pid][0]

    def command(self, *words: str) -> list[str]:
        """One of the user's, here, from where the machine can be reached."""
        return ["nsenter", f"--net=/proc/{self.init}/ns/net", "--", *INTERRUPTIBLE, *words]

    def environment(self) -> dict[str, str]:
        cache = os.environ.get("XDG_CACHE_HOME", str(Path("~/.cache").expanduser()))
        return {**os.environ, "HOME": str(self.home), "XDG_CACHE_HOME": cache, "SSH_AUTH_SOCK": ""}

    def start(self, *words: str, cwd: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words), cwd=cwd, env=self.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        with self.start(*words, cwd=cwd) as process:
            out, errors = process.communicate(timeout=240)
        return subprocess.CompletedProcess(words, process.returncode, out, errors)

    def processes(self) -> dict[int, str]:
        """What runs there, by its number here; without the sshd that listens."""
        children, found, waiting = _children(), dict[int, str](), [self.init]
        while waiting:
            for pid in children.get(waiting.pop(), ()):
                with contextlib.suppress(OSError):
                    found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                    waiting.append(pid)
        return found

    def state(self) -> dict[str, Any]:
        """Whatever a run could leave there."""
        root = Path(f"/proc/{self.init}/root")
        return {
            "processes": list(self.processes().values()),
            "mounts": Path(f"/proc/{self.init}/mounts").read_text(),
            "files": sorted(str(path) for place in OWN for path in (root / place[1:]).rglob("*")),
            "congestion controls": sorted(name for name in bpf.available() if name.startswith("mlt")),
        }

    def is_clean(self, within_s: float = 5) -> bool:
        """Whether it is as it was before anybody came."""
        deadline = time.monotonic() + within_s
        while (now := self.state()) != self.before:
            if time.monotonic() > deadline:
                print({key: value for key, value in now.items() if value != self.before[key]})
                return False
            time.sleep(0.1)
        return True


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(path.parent.name))
    return found


@contextlib.contextmanager
def machine(folder: Path, size: str = "64m", instead: dict[Path, str] | None = None) -> Iterator[Machine]:
    """Start one. ``instead``: files, by the path that they take there."""
    (folder / "ssh").mkdir(parents=True)
    home = folder / "home" / ".ssh"
    home.mkdir(parents=True, mode=0o700)
    _key(folder / "ssh/host_key")
    _key(home / "id_ed25519")
    shutil.copy(home / "id_ed25519.pub", folder / "ssh/authorized_keys")
    (folder / "ssh/sshd_config").write_text(CONFIG)
    know(home / "known_hosts", folder / "ssh/host_key.pub")
    users = "".join(line for line in Path("/etc/passwd").open() if line.startswith(("root:", "sshd:", "nobody:")))
    (folder / "passwd").write_text(users + "visitor:x:4242:4242::/home:/bin/sh\nadmin:x:4243:4243::/home:/bin/sh\n")
    (folder / "shadow").write_text("".join(f"{name}:*:::::::\n" for name in ("root", "sshd", "visitor", "admin")))
    (folder / "sudoers").write_text("root ALL=(ALL) ALL\nadmin ALL=(root) NOPASSWD: ALL\n")
    (folder / "sudoers").chmod(0o440)
    words = [word for path, target in (instead or {}).items() for word in (str(path), target)]
    process = subprocess.Popen(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--",
         "sh", "-c", INIT, "sh", str(folder), size, *words],
        stdin=subprocess.DEVNULL, stderr=(folder / "log").open("wb"),
    )  # fmt: skip
    try:
        made = Machine(process, folder, {})
        _await_listening(made)
        yield Machine(process, folder, made.state())
    finally:
        process.kill()
        process.wait()


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)


def know(known_hosts: Path, key: Path) -> None:
    """Have the user know the machine by ``key``."""
    known_hosts.write_text(f"[127.0.0.1]:{PORT} {key.read_text()}")


def _await_listening(made: Machine) -> None:
    deadline = time.monotonic() + 10
    while made.process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, KeyError):
            if f":{PORT:04X} " in Path(f"/proc/{made.init}/net/tcp").read_text():
                return
        time.sleep(0.05)
    raise AssertionError((made.folder / "log").read_text())


TESTBED = [str(ROOT / ".venv/bin/python"), str(ROOT / "testbed/run.py")]
