"""``--on ssh:[USER@]HOST[:PORT]`` and ``--on vagrant``: another machine's kernel, as `--on host` would use it there.

One connection carries everything: the testbed's source, sent into memory that only the run's own
mount namespace has, requests to `testbed.backends.remote`, events and results back. When the connection
ends, however that comes about, so does all there is on the other side (docs/how-to/real-hosts.md).
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import hashlib
import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import paramiko

from testbed.backends import bootstrap, connection, upload
from testbed.backends.progress import Patience
from testbed.backends.remote import SILENCE_S
from testbed.backends.stream import MOST_ARCHIVE_BYTES, listen
from testbed.core.errors import LostError, MachineError, TestbedError, within
from testbed.core.runs.events import Event, Results
from testbed.core.runs.manifest import Remote
from testbed.core.runs.plan import Clock, Plan
from testbed.core.text import quoted
from testbed.spec.backend_names import VAGRANT
from testbed.spec.limits import LINUX

SIGN_OF_LIFE_S = 5.0
ROOM = "256m"  # memory on the other machine for the testbed's files
MOST_TOLD_BYTES, MOST_WORDS_BYTES = 1 << 20, 4096
SLOWEST_BYTES_PER_S = 50_000  # slowest plausible transfer of results
START_S, CHECK_S, GRACE_S, FAREWELL_S = 240.0, 240.0, 30.0, 5.0
# Reads exactly the program, so that the program can read the rest of stdin.
READ = (
    'import os,sys; n=int(sys.argv[1]); b=b""; exec("while len(b)<n: b+=os.read(0,n-len(b)) or sys.exit(1)"); exec(b)'
)
# Not where the processor is emulated: virtual time takes far longer there.
HAS_KERNEL = (
    '[ "$(systemd-detect-virt)" != qemu ] && cd /vagrant && .venv/bin/python -c '
    "'from testbed.backends.usermode import kernel; raise SystemExit(not kernel.is_there())'"
)
SUDO = "Log in as root, or let that user run `sudo` without a password (NOPASSWD in /etc/sudoers)."
HINTS = (  # the first that fits
    ("password is required", SUDO),
    ("not allowed to execute", SUDO),
    ("sudo: command not found", SUDO),
    ("python3", "Install Python 3.11 or newer there."),
    ("not permitted", "It needs all of root's rights, which a container may lack."),
    ("unshare", "Install the package util-linux there."),
    ("sudo", SUDO),
)


class Ssh:
    """Another machine; connected when it is first asked something, and again after an error."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.name = VAGRANT if backend == VAGRANT else "ssh"
        self.clock: Clock = "real"
        self.limits = LINUX
        self._session: _Session | None = None
        self._identity: Remote | None = None

    def check(self, plan: Plan) -> None:
        """Run the checks of `--on host` there; raises `MachineError` also if the machine cannot be reached or used."""
        self._ask("check", plan, lambda _event: None, Patience(idle_s=CHECK_S))

    def identity(self) -> Remote:
        """Identity of the machine."""
        return self._identity or self._connected().identity

    def run(self, plan: Plan, on_event: Callable[[Event], None], patience: Patience) -> bytes:
        """Run ``plan`` on the other machine.

        Raises the error of the run, `LostError`, or `TestbedError` if it was stopped.
        """
        return self._ask("run", plan, on_event, patience)

    def close(self) -> None:
        """End the processes on the other machine; they have ended when this returns, unless the connection is lost."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _connected(self) -> _Session:
        if self._session is None or not self._session.alive:
            self.close()
            self._session = _Session(self.backend)
            self._identity = self._session.identity
        return self._session

    def _ask(self, do: str, plan: Plan, on_event: Callable[[Event], None], patience: Patience) -> bytes:
        files = upload.files(plan)
        session = self._connected()
        request = {
            "do": do, "patience": msgspec.to_builtins(patience), "plan": msgspec.to_builtins(upload.elsewhere(plan, session.folder)),
            "files": {name: base64.b64encode(content).decode() for name, content in files.items()},
        }  # fmt: skip
        try:
            with within(self.backend):
                session.send(json.dumps(request).encode() + b"\n")
                wall_s = None if patience.wall_s is None else patience.wall_s + GRACE_S
                return session.answer(on_event, patience.idle_s + GRACE_S, wall_s=wall_s)
        except BaseException:
            self.close()
            raise


class _Session:
    """One connection, and `testbed.backends.remote` at its other end."""

    def __init__(self, backend: str) -> None:
        self.way = connection.route(backend)
        self.client = connection.connect(self.way)
        self.sending, self.ended = threading.Lock(), threading.Event()
        self.channel: paramiko.Channel | None = None
        atexit.register(self.close)
        try:
            with within(backend):
                with _hung_up_after(START_S, self.client):
                    self.channel = self._start()
                answered = self.answer(lambda _event: None, START_S, starting=True, most_bytes=MOST_TOLD_BYTES)
                says = _identity(answered)
        except BaseException:
            self.close()
            raise
        self.folder = says.folder
        key = self.transport.get_remote_server_key()
        self.identity = Remote(
            says.hostname, says.kernel, says.cpus, says.python, says.packages,
            on=backend, host_key=f"{key.get_name()} {connection.fingerprint(key)}",
        )  # fmt: skip
        threading.Thread(target=self._live, daemon=True).start()

    @property
    def transport(self) -> paramiko.Transport:
        return self.client.get_transport()

    @property
    def alive(self) -> bool:
        return self.channel is not None and not self.channel.exit_status_ready() and self.transport.is_active()

    def _start(self) -> paramiko.Channel:
        """Start `testbed.backends.bootstrap` there as root and send its input."""
        archive, program = upload.archive(), Path(bootstrap.__file__).read_bytes()
        command = [
            "unshare", "--mount", "--", "python3", "-I", "-c", READ, str(len(program)),
            str(len(archive)), hashlib.sha256(archive).hexdigest(), upload.soabi(), ROOM, json.dumps(upload.PACKAGES),
        ]  # fmt: skip
        if self._user_id() != "0":
            command = ["sudo", "-n", "--", *command]
        try:
            channel = self.transport.open_session(timeout=connection.PATIENCE_S)
            channel.settimeout(START_S)
            channel.exec_command(shlex.join(command))
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise MachineError(f"no command can be run there: {error}.") from error
        with contextlib.suppress(OSError):  # if the program has ended, its answer gives the reason
            channel.sendall(program + archive)
        return channel

    def _user_id(self) -> str:
        try:
            _, out, _ = self.client.exec_command("id -u", timeout=connection.PATIENCE_S)
            words = _read_first_words(out.channel).decode(errors="replace").split()
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise MachineError(f"no command can be run there: {error or type(error).__name__}.") from error
        if not words or not words[-1].isdecimal():
            raise MachineError(
                f"{self.way.user} has no usable shell there: `id -u` printed {quoted(' '.join(words), 200)}."
            )
        return str(words[-1])

    def _live(self) -> None:
        while not self.ended.wait(SIGN_OF_LIFE_S):
            self.send(b"\n")

    def send(self, data: bytes) -> None:
        """Send ``data``. An error is ignored here, because the receiving side reports it."""
        assert self.channel is not None
        with self.sending, contextlib.suppress(OSError):
            self.channel.sendall(data)

    def answer(
        self, on_event: Callable[[Event], None], silence_s: float, *, starting: bool = False,
        wall_s: float | None = None, most_bytes: int = MOST_ARCHIVE_BYTES,
    ) -> bytes:  # fmt: skip
        """The results; events are passed to ``on_event``. Raises the error reported there, or the reason of a lost connection.

        The other machine judges the run's progress. This side only checks that events arrive; other output does not count.
        Before a run begins, and where ``wall_s`` (in s) is given, the total time is limited.
        """
        channel, begun = self.channel, time.monotonic()
        until = begun + silence_s
        assert channel is not None

        def more() -> bytes:
            left_s = min(until, begun + wall_s) - time.monotonic() if wall_s is not None else until - time.monotonic()
            channel.settimeout(max(0.01, left_s))
            try:
                if left_s <= 0:  # while data keeps arriving, `recv` never times out
                    raise TimeoutError
                data: bytes = channel.recv(1 << 20)
            except TimeoutError as error:
                raise TestbedError(
                    f"the other machine did not answer for {silence_s:.0f} s, so the run was stopped. Check its load and the connection."
                ) from error
            return data

        def hand_on(event: Event) -> None:
            nonlocal until
            if not starting:
                until = (
                    time.monotonic()
                    + silence_s
                    + (event.size if isinstance(event, Results) else 0) / SLOWEST_BYTES_PER_S
                )
            if not isinstance(event, Results):
                on_event(event)

        try:
            answer = listen(more, hand_on, most_bytes)
        except TestbedError as error:
            if not self.transport.is_active():  # for example in the middle of the results
                raise self._end(starting=starting) from error
            raise
        if answer is None:
            raise self._end(starting=starting)
        return answer

    def _end(self, *, starting: bool) -> TestbedError:
        """Why it ended without an answer."""
        assert self.channel is not None
        self.channel.status_event.wait(FAREWELL_S)
        if not self.transport.is_active() or not self.channel.exit_status_ready():
            return LostError(
                "the connection was lost. No incomplete result was kept here. The processes there end by themselves "
                f"within {SILENCE_S:.0f} s."
            )
        words = self.channel.recv_stderr(1 << 16).decode(errors="replace").strip()
        if starting:
            hint = next((hint for pattern, hint in HINTS if pattern in words), "")
            return MachineError(
                f"the testbed cannot be started there as root: {words or 'no reason was given'}"
                + (f". {hint}" if hint else "")
            )
        tail = "\n".join(words.splitlines()[-8:])
        return TestbedError(
            "the run there was killed or crashed. Check the memory of that machine" + (f":\n{tail}" if tail else ".")
        )

    def close(self) -> None:
        """Hang up: end of file is the other side's sign to end, which is waited for, briefly."""
        atexit.unregister(self.close)
        self.ended.set()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            if self.channel is not None and self.transport.is_active():
                self.channel.shutdown_write()
                self.channel.status_event.wait(FAREWELL_S)
        self.client.close()


def _identity(answered: bytes) -> _Told:
    """The other machine's description of itself, as `testbed.backends.remote` sends it; anything else is an error."""
    try:
        return msgspec.json.decode(answered, type=_Told)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MachineError(
            f"the program that answers there is not the testbed: {error}. Check the login scripts of that account for output."
        ) from error


class _Told(msgspec.Struct):
    folder: str
    hostname: str
    kernel: str
    cpus: int | None
    python: str
    packages: dict[str, str | None] | str


def _read_first_words(channel: paramiko.Channel) -> bytes:
    """The output until the channel ends; at most ``MOST_WORDS_BYTES``."""
    received, deadline = b"", time.monotonic() + connection.PATIENCE_S
    while len(received) < MOST_WORDS_BYTES and (left_s := deadline - time.monotonic()) > 0:
        channel.settimeout(left_s)
        piece: bytes = channel.recv(MOST_WORDS_BYTES - len(received))
        if not piece:
            break
        received += piece
    return received


@contextlib.contextmanager
def _hung_up_after(limit_s: float, client: paramiko.SSHClient) -> Iterator[None]:
    """Limits the wait for a server that never confirms whether it starts a command."""
    timer = threading.Timer(limit_s, client.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def has_user_mode_kernel(backend: str) -> bool:
    """Return True if the checkout in the VM ``backend`` has a user-mode kernel, and the VM's processor is not emulated."""
    client = connection.connect(connection.route(backend))
    try:
        _, out, _ = client.exec_command(HAS_KERNEL, timeout=connection.PATIENCE_S)
        answered: bool = out.channel.status_event.wait(CHECK_S)
        return answered and out.channel.recv_exit_status() == 0
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise MachineError(f"{backend}: no command can be run there: {error or type(error).__name__}.") from error
    finally:
        client.close()


@functools.cache
def find(backend: str) -> Ssh:
    """The machine ``backend``: one connection of this process serves all of its runs."""
    return Ssh(backend)
