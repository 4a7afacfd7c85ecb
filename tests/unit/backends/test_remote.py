"""Another machine, or a guest, that is not what it should be: it talks for ever, or what nobody understands."""

from __future__ import annotations

import io
import itertools
import json
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import paramiko
import pytest
from rich.console import Console

from testbed import backends
from testbed.backends import connection, ssh, stream
from testbed.campaign import driver
from testbed.campaign.executors.local import Lane
from testbed.campaign.tasks import Failed, Outcome, Task
from testbed.cli import main
from testbed.cli.console import Count
from testbed.core.errors import EXIT_MACHINE, EXIT_REQUEST, MachineError, RequestError, TestbedError, UnreachableError
from testbed.core.runs import events
from testbed.planning import plan
from testbed.spec import read
from tests.support.processes import HANG_S


def saying(*pieces: bytes) -> Callable[[], bytes]:
    told = iter(pieces)
    return lambda: next(told, b"")


def test_what_a_run_says() -> None:
    heard: list[events.Event] = []
    lines = [
        b"Linux says something\n\n",
        b'{"event": "phase", "text": "jobs"}\n{"event": "itera',
        b'tion", "job": 0, "rank": 1, "iteration": 2, "start_s": 0.0, "end_s": 0.5}\n{"event": "shares", "bps": {"0": {"s1-s2": 1}}}\n',
        b'{"event": "results", "size": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}\nab',
        b"c and more",
    ]
    words: list[bytes] = []
    assert stream.listen(saying(*lines), heard.append, said=words.append) == b"abc"
    assert words == [b"Linux says something\n", b"\n"]
    assert [type(event) for event in heard] == [events.Phase, events.Iteration, events.Shares, events.Results]


def unexpected(event: events.Event) -> None:
    pytest.fail(f"nobody said {event}")


@pytest.mark.parametrize(
    "line",
    [
        "{}", "{", '{"event": "surprise"}', '{"event": 3}', '{"event": "error"}', '{"event": "error", "code": "x", "message": 1}',
        '{"event": "results"}', '{"event": "results", "size": "1", "sha256": ""}', '{"event": "results", "size": 1e400, "sha256": ""}',
        '{"event": "iteration", "job": 0}', '{"event": "phase"}', '{"event": "shares", "bps": [1]}', '{"event": "shares", "bps": {"x": {}}}',
        '{"event": ' + "[" * 100_000, '{"event": "phase", "text": "\xff"}',
    ],
)  # fmt: skip
def test_an_event_that_no_run_says_is_one_error(line: str) -> None:
    with pytest.raises(TestbedError, match="output cannot be read"):
        stream.listen(saying(line.encode("latin-1") + b"\n"), unexpected)


@pytest.mark.parametrize("size", [-1, stream.MOST_ARCHIVE_BYTES + 1, 1 << 62])
def test_an_archive_has_a_size_that_can_be_meant(size: int) -> None:
    line = json.dumps({"event": "results", "size": size, "sha256": ""}).encode() + b"\n"
    with pytest.raises(TestbedError, match="of results"):
        stream.listen(saying(line), unexpected)


def test_a_line_ends() -> None:
    with pytest.raises(TestbedError, match="more than 1 MB"):
        stream.listen(lambda: b"x" * 65536, unexpected)


def test_an_error_has_its_code() -> None:
    line = json.dumps({"event": "error", "code": EXIT_REQUEST, "message": "no"}).encode() + b"\n"
    with pytest.raises(RequestError, match="no"):
        stream.listen(saying(line), unexpected)


class Talkative:  # stands in for a paramiko.Channel
    """A channel that always has something to say."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self.words = iter(words)

    def settimeout(self, limit_s: float) -> None:
        pass

    def recv(self, size: int) -> bytes:
        return next(self.words)[:size]


def session(channel: Any) -> ssh._Session:
    made = ssh._Session.__new__(ssh._Session)
    made.channel, made.client = channel, paramiko.SSHClient()
    made.client.get_transport = type("Alive", (), {"is_active": lambda self: True})
    return made


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second passes whenever somebody looks."""
    ticks = itertools.count()
    monkeypatch.setattr("testbed.backends.ssh.time.monotonic", lambda: next(ticks) / 10)


PHASE = b'{"event": "phase", "text": "still at it"}\n'


@pytest.mark.parametrize(
    ("words", "limits"),
    [(b"noise\n", {}), (PHASE, {"wall_s": 2}), (PHASE, {"starting": True}), (b"noise\n", {"wall_s": 7200})],
)
def test_who_always_talks_is_ended(words: bytes, limits: dict[str, Any]) -> None:
    with pytest.raises(TestbedError, match="did not answer"):
        session(Talkative(itertools.repeat(words))).answer(lambda event: None, 2.0, **limits)


def test_a_run_that_gets_on_is_waited_for() -> None:
    """Longer than for one that says nothing."""
    end = b'{"event": "results", "size": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}\n'
    talk = itertools.chain(itertools.repeat(PHASE, 500), [end])
    assert session(Talkative(talk)).answer(lambda event: None, 2.0) == b""


def test_who_we_are_there_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ssh._read_first_words(Talkative([b"0\n", b""])) == b"0\n"
    assert len(ssh._read_first_words(Talkative(itertools.repeat(b"x" * 100)))) == ssh.MOST_WORDS_BYTES
    monkeypatch.setattr(connection, "PATIENCE_S", 1)
    ssh._read_first_words(Talkative(itertools.repeat(b"x")))


def test_a_server_that_never_answers_is_hung_up_on() -> None:
    closed = threading.Event()
    client = type("Client", (), {"close": lambda self: closed.set()})()
    with ssh._hung_up_after(0.01, client):
        assert closed.wait(HANG_S)


TOLD = {"folder": "/x", "hostname": "h", "kernel": "k", "cpus": 2, "python": "p", "packages": "sent along"}


def test_a_machine_says_nothing_but_what_it_is_asked() -> None:
    """Neither where it is (`on`) nor which key it has is its to say."""
    told = ssh._identity(json.dumps({**TOLD, "on": "ssh:elsewhere", "host_key": "mine", "more": 1}).encode())
    assert msgspec.to_builtins(told) == TOLD


@pytest.mark.parametrize(
    "told", [b"", b"{}", b"[]", b"null", b"\xff", json.dumps({**TOLD, "folder": 3}).encode(), b"[" * 100_000]
)
def test_a_machine_that_is_none(told: bytes) -> None:
    with pytest.raises(MachineError, match="not the testbed"):
        ssh._identity(told)


@pytest.fixture(scope="module")
def keys() -> list[paramiko.PKey]:
    return [paramiko.ECDSAKey.generate() for _ in range(3)]


def test_known_hosts_may_hold_what_we_do_not_know(keys: list[paramiko.PKey], tmp_path: Path) -> None:
    good, other, revoked = keys
    hashed = paramiko.HostKeys.hash_host("hashed")
    (tmp_path / "known_hosts").write_text(
        "\n".join([
            "# a comment", "", "broken", "host", "host ecdsa-sha2-nistp256", "host ecdsa-sha2-nistp256 !!!", "host ecdsa-sha2-nistp256 AAAA",
            "host ssh-new-kind AAAA", f"|1|salt|x {good.get_name()} {good.get_base64()}", "@", "@revoked", "@revoked *", "@surprise a b c",
            f"@cert-authority *.example.com {other.get_name()} {other.get_base64()}", "@cert-authority * ssh-ed25519 AAAA", "\x00\x1b[2J a b",
            f"host,[host]:2222 {good.get_name()} {good.get_base64()} a comment", f"{hashed}\t{other.get_name()}  {other.get_base64()}",
            f"@revoked * {revoked.get_name()} {revoked.get_base64()}", f"gone {revoked.get_name()} {revoked.get_base64()}",
        ])
    )  # fmt: skip
    known = paramiko.HostKeys()
    assert connection._learn(known, (str(tmp_path / "known_hosts"), str(tmp_path / "none"))) == {revoked.asbytes()}
    assert known.check("host", good) and known.check("[host]:2222", good) and known.check("hashed", other)
    assert not known.check("gone", revoked) and known.lookup("gone") is None and known.lookup("*.example.com") is None


def test_a_revoked_key_is_refused(keys: list[paramiko.PKey]) -> None:
    policy = connection._Refuse({keys[0].asbytes()})
    with pytest.raises(connection._RevokedHostKeyError) as error:
        policy.missing_host_key(None, "host", keys[0])
    way = connection.Route("ssh:host", "host", 22, "me", known_hosts=("known_hosts",))
    assert "marked as revoked (@revoked in known_hosts)" in connection._why(error.value, way, "ssh me@host")
    with pytest.raises(connection._UnknownHostKeyError):
        policy.missing_host_key(None, "host", keys[1])


def test_what_another_machine_says_commands_no_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(*_: object) -> None:
        raise MachineError("it says: \x1b]0;owned\x07\x1b[2J")

    monkeypatch.setattr(backends, "find", find)
    assert main(["run", "--on", "ssh:x", "--quiet", "--out", str(tmp_path)]) == EXIT_MACHINE
    assert r"it says: \x1b]0;owned\x07\x1b[2J" in capsys.readouterr().err


class NoLane(Lane):
    """To a machine that cannot be reached, and whose name in known_hosts looks like markup."""

    def submit(self, _: Task) -> Future[Outcome]:
        said: Future[Outcome] = Future()
        said.set_result(Failed(UnreachableError("ssh-keygen -R '[server]:2222'")))
        return said


def test_a_machine_keeps_its_name(tmp_path: Path) -> None:
    backend, said = "ssh:server:2222", io.StringIO()
    asked = read(None, {"on": backend, "jobs": 1, "cc": ["reno"], "iterations": 3, "name": "x"})
    (run, *_) = driver.wanted([plan.planned(asked)], tmp_path)
    with Count([run], Console(file=said), quiet=True, show_backends=False) as count:
        (failure,) = driver.drive([run], [NoLane(backend)], count, keep_going=True)
    assert failure.run == run and str(failure.error) == "ssh-keygen -R '[server]:2222'"
    assert "given up: ssh-keygen -R '[server]:2222'" in said.getvalue()


def test_a_sweep_says_how_long_it_takes_before_it_starts(tmp_path: Path) -> None:
    said = io.StringIO()
    asked = read(None, {"on": "flow", "jobs": 1, "cc": ["reno"], "iterations": 3, "name": "x"})
    runs = driver.wanted([plan.planned(asked)], tmp_path)
    with Count(runs, Console(file=said), quiet=False, show_backends=False):
        assert "to do, about" in said.getvalue()
