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
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.support.processes import HANG_S
from tests.support.runs import INTERRUPTIBLE

from .conftest import congestion_controls

SSHD = "/usr/sbin/sshd"
TIED = ("setpriv", "--pdeathsig", "KILL", "--")  # in front of a command: it ends with the test, however that ends
OWN = ("/tmp", "/var/tmp", "/root", "/home", "/dev/shm", "/run", "/media", "/mnt", "/srv")
CONFIG = """\
ListenAddress 127.0.0.1
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
LogLevel ERROR
"""
# Its folder, its port, the size of what is its own; then pairs: what takes the place of what.
INIT = f"""\
set -e
folder=$1 port=$2 size=$3
shift 3
ip link set lo up
mount --bind "$folder/ssh" /etc/ssh
for file in passwd shadow sudoers; do mount --bind "$folder/$file" /etc/$file; done
while [ $# -gt 0 ]; do mount --bind "$1" "$2"; shift 2; done
for place in {" ".join(OWN)}; do
    [ -d "$place" ] && mount -t tmpfs -o size=$size "own" "$place"
done
mkdir /run/sshd
exec {SSHD} -D -e -p $port
"""


@dataclass(frozen=True)
class Machine:
    """``home`` is the user's, here: with a key that opens the machine, and its host key known."""

    process: subprocess.Popen[bytes]
    folder: Path
    port: int
    before: dict[str, Any]
    congestion_controls: list[str]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def on(self) -> str:
        return self.on_as("root")

    def on_as(self, user: str) -> str:
        return f"ssh:{user}@127.0.0.1:{self.port}"

    @property
    def init(self) -> int:
        """The first process of its PID namespace."""
        return processes.children()[self.process.pid][0]

    def command(self, *words: str) -> list[str]:
        """One of the user's, here, from where the machine can be reached."""
        return [*TIED, "nsenter", f"--net=/proc/{self.init}/ns/net", "--", *INTERRUPTIBLE, *words]

    def environment(self) -> dict[str, str]:
        cache = os.environ.get("XDG_CACHE_HOME", str(Path("~/.cache").expanduser()))
        agentless = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
        return {**agentless, "HOME": str(self.home), "XDG_CACHE_HOME": cache}

    def start(self, *words: str, cwd: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(sys.executable, *words),
            cwd=cwd,
            env=self.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        with self.start(*words, cwd=cwd) as process:
            out, errors = process.communicate(timeout=HANG_S)
        return subprocess.CompletedProcess(words, process.returncode, out, errors)

    def processes(self) -> dict[int, str]:
        """What runs there, by its number here; without the sshd that listens."""
        return {pid: " ".join(words) for pid, words in processes.below(self.init).items()}

    def state(self) -> dict[str, Any]:
        """Whatever a run could leave there."""
        root = Path(f"/proc/{self.init}/root")
        return {
            "processes": list(self.processes().values()),
            "mounts": [line.split()[:3] for line in Path(f"/proc/{self.init}/mounts").read_text().splitlines()],
            "files": sorted(
                str(path)
                for place in OWN
                for path in (root / place[1:]).rglob("*")
                if not path.is_relative_to(root / "run/sudo")  # its own book of who asked
            ),
        }

    def differs(self) -> dict[str, tuple[list[Any], list[Any]]]:
        """What there is, and is not any more, since nobody had come; of congestion controls, which belong to the whole
        kernel, only what is new: those that have gone since were others'."""
        now, found = self.state(), {}
        for key, before in self.before.items():
            found[key] = [one for one in now[key] if one not in before], [one for one in before if one not in now[key]]
        others = [one for one in congestion_controls() if one not in self.congestion_controls]
        return {key: value for key, value in {**found, "congestion controls": (others, [])}.items() if any(value)}

    def is_clean(self) -> bool:
        """Soon it is as it was before anybody came."""
        processes.until(lambda: not self.differs(), self.differs)
        return True


@contextlib.contextmanager
def machine(
    folder: Path,
    size: str = "64m",
    instead: dict[Path, str] | None = None,
    port: int = 2222,
    beside: Machine | None = None,
) -> Iterator[Machine]:
    """Start one. ``instead``: files and folders, with the paths they take there; ``beside``: reached from the same place,
    by the same user."""
    (folder / "ssh").mkdir(parents=True)
    home = (beside.home if beside else folder / "home") / ".ssh"
    if beside is None:
        home.mkdir(parents=True, mode=0o700)
        _key(home / "id_ed25519")
    _key(folder / "ssh/host_key")
    shutil.copy(home / "id_ed25519.pub", folder / "ssh/authorized_keys")
    (folder / "ssh/sshd_config").write_text(CONFIG)
    with (home / "known_hosts").open("a") as known:
        known.write(f"[127.0.0.1]:{port} {(folder / 'ssh/host_key.pub').read_text()}")
    lines = Path("/etc/passwd").read_text().splitlines(keepends=True)
    users = "".join(line for line in lines if line.startswith(("root:", "sshd:", "nobody:")))
    (folder / "passwd").write_text(users + "visitor:x:4242:4242::/home:/bin/sh\nadmin:x:4243:4243::/home:/bin/sh\n")
    (folder / "shadow").write_text("".join(f"{name}:*:::::::\n" for name in ("root", "sshd", "visitor", "admin")))
    (folder / "sudoers").write_text("root ALL=(ALL) ALL\nadmin ALL=(root) NOPASSWD: ALL\n")
    (folder / "sudoers").chmod(0o440)
    words = [word for path, target in (instead or {}).items() for word in (str(path), target)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*(beside.command() if beside else TIED), "unshare", *([] if beside else ["--net"]), "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--",
             "sh", "-c", INIT, "sh", str(folder), str(port), size, *words],
            stdin=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip
    try:
        made = Machine(process, folder, port, {}, [])
        processes.until(lambda: process.poll() is not None or _listening(made), (folder / "log").read_text)
        assert process.poll() is None, (folder / "log").read_text()
        yield Machine(process, folder, port, made.state(), congestion_controls())
    finally:
        process.kill()
        process.wait()


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)


def _listening(made: Machine) -> bool:
    try:
        return f":{made.port:04X} " in Path(f"/proc/{made.init}/net/tcp").read_text()
    except (OSError, KeyError):  # it is only beginning
        return False
