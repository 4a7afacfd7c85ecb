"""An ssh connection to another machine: its address, its identity, and the user there.

All settings are those of `ssh` itself (``~/.ssh/config``, known_hosts, the agent, keys) and, for ``vagrant``, those of
``vagrant ssh-config``. There are no prompts, and a machine whose host key is unknown is refused.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import logging
import shlex
import shutil
import socket
import subprocess
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from testbed.core.environment import ROOT
from testbed.core.errors import MachineError, UnreachableError
from testbed.spec.backend_names import VAGRANT, parse_address

PORT = 22
PATIENCE_S = 30.0  # seconds for each step of connecting
GONE_S = 30  # without an answer of its kernel a machine counts as gone


@dataclass(frozen=True)
class Route:
    """Route to a machine: address, user, and keys of both sides."""

    backend: str  # as in --on
    host: str
    port: int
    user: str
    keys: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    known_as: str | None = None  # HostKeyAlias
    checked: bool = True  # its host key; not if `vagrant ssh-config` disables the check
    other_keys: bool = True  # also the agent's, and those with the usual names
    proxy: tuple[str, ...] | None = None


def route(backend: str) -> Route:
    """Return the route to ``backend``. Raises `MachineError`."""
    return _to_vagrant() if backend == VAGRANT else _to_host(backend)


def _to_host(backend: str) -> Route:
    asked = parse_address(backend)
    config = paramiko.SSHConfig()
    for file in (Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")):
        with contextlib.suppress(FileNotFoundError, PermissionError), file.open() as lines:
            try:
                config.parse(lines)
            except paramiko.ConfigParseError as error:
                raise MachineError(f"{file} cannot be read as ssh reads it: {error}.") from error
    found = config.lookup(asked.host)
    files = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
    if "userknownhostsfile" in found:
        files = shlex.split(found["userknownhostsfile"])
    return _route(backend, found, files, asked.host, asked.port, asked.user)


def _to_vagrant() -> Route:
    if shutil.which("vagrant") is None:
        raise MachineError("--on vagrant: Vagrant is not installed here (docs/how-to/vm.md).")
    done = subprocess.run(["vagrant", "ssh-config"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise MachineError(
            f"--on vagrant: no virtual machine of {ROOT} is running. Start one: `vagrant up`"
            + (f" (vagrant says: {words[0]})" if words else "")
            + "."
        )
    config = paramiko.SSHConfig.from_text(done.stdout)
    name = next(name for name in config.get_hostnames() if name != "*")
    found = config.lookup(name)
    return _route(VAGRANT, found, shlex.split(found.get("userknownhostsfile", "")), name, None, None)


def _route(backend: str, found: Any, known_hosts: list[str], host: str, port: int | None, user: str | None) -> Route:
    """From an ssh configuration (``found``); ``port`` and ``user`` take precedence."""
    name, port = found.get("hostname", host), port or int(found.get("port", PORT))
    user = user or found.get("user") or getpass.getuser()
    proxy = found.get("proxycommand")
    if proxy in (None, "none") and found.get("proxyjump", "none") != "none":
        proxy = f"ssh -W {name}:{port} {shlex.quote(found['proxyjump'])}"
    files = ["/etc/ssh/ssh_known_hosts", *(str(Path(file).expanduser()) for file in known_hosts)]
    return Route(
        backend=backend, host=name, port=port, user=user,
        keys=tuple(str(Path(key).expanduser()) for key in found.get("identityfile", ()) if Path(key).expanduser().exists()),
        known_hosts=tuple(file for file in files if file not in ("none", "/dev/null")),
        known_as=found.get("hostkeyalias"),
        # Only Vagrant may waive the check: its machines are made anew all the time, and on this one.
        checked=backend != VAGRANT or found.get("stricthostkeychecking", "yes") not in ("no", "off"),
        other_keys=found.get("identitiesonly", "no") != "yes",
        proxy=tuple(shlex.split(proxy)) if proxy not in (None, "none") else None,
    )  # fmt: skip


class _UnknownHostKeyError(Exception):
    """The machine's host key is in none of the files."""


class _RevokedHostKeyError(Exception):
    """Raised if a known_hosts file revokes the machine's host key."""


class _Refuse(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    def __init__(self, revoked: set[bytes]) -> None:
        self.revoked = revoked

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        if key.asbytes() in self.revoked:
            raise _RevokedHostKeyError(f"{key.get_name()} {fingerprint(key)}")
        raise _UnknownHostKeyError(f"{key.get_name()} {fingerprint(key)}")


class _Accept(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Accept the key, as the configuration allows; the manifest records which key it was."""


def _learn(known: paramiko.HostKeys, files: tuple[str, ...]) -> set[bytes]:
    """Add the keys of known hosts in ``files`` to ``known``, without revoked keys, and return the revoked ones.

    Unsupported entries (certificate authorities, damaged lines, new types of keys) are ignored.
    """
    entries, revoked = list[paramiko.hostkeys.HostKeyEntry](), set[bytes]()
    for file in files:
        with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                marker, *words = line.split() or [""]
                if marker == "@revoked" and (entry := _entry(words)):
                    revoked.add(entry.key.asbytes())
                elif not marker.startswith(("@", "#")) and (entry := _entry([marker, *words])):
                    entries.append(entry)
    for entry in entries:
        kind, names = entry.key.get_name(), entry.hostnames if entry.key.asbytes() not in revoked else ()
        for name in names:
            if kind not in (known.lookup(name) or {}):
                known.add(name, kind, entry.key)
    return revoked


def _entry(words: list[str]) -> paramiko.hostkeys.HostKeyEntry | None:
    """Names, kind and key, as a line of known_hosts has them; None if they are no such thing."""
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(" ".join(words[:3]))
        for name in entry.hostnames if entry else ():
            if name.startswith("|"):
                paramiko.HostKeys.hash_host("any", name)
    except Exception:  # of many kinds, from many places
        return None
    return entry


def fingerprint(key: Any) -> str:
    """Fingerprint of a host key, as `ssh-keygen -l` writes it."""
    return "SHA256:" + b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


def connect(way: Route) -> paramiko.SSHClient:
    """Connected and let in; raises `UnreachableError` with what would help."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)  # important errors are raised
    client = paramiko.SSHClient()
    revoked = _learn(client.get_host_keys(), way.known_hosts) if way.checked else set[bytes]()
    client.set_missing_host_key_policy(_Refuse(revoked) if way.checked else _Accept())
    shown = f"ssh {'' if way.port == PORT else f'-p {way.port} '}{way.user}@{way.host}"
    try:
        client.connect(
            way.known_as or way.host, port=PORT if way.known_as else way.port, username=way.user, sock=_socket(way),
            key_filename=list(way.keys), allow_agent=way.other_keys, look_for_keys=way.other_keys and not way.keys,
            timeout=PATIENCE_S, banner_timeout=PATIENCE_S, auth_timeout=PATIENCE_S,
        )  # fmt: skip
    except BaseException as error:
        client.close()
        if isinstance(error, Exception):
            if isinstance(error, paramiko.BadHostKeyException) and error.key.asbytes() in revoked:
                error = _RevokedHostKeyError(f"{error.key.get_name()} {fingerprint(error.key)}")
            raise UnreachableError(f"{way.backend}: {_why(error, way, shown)}") from error
        raise
    return client


def _socket(way: Route) -> Any:
    if way.proxy is not None:
        return paramiko.ProxyCommand(shlex.join(way.proxy))
    sock = socket.create_connection((way.host, way.port), timeout=PATIENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_S * 1000)
    return sock


def _why(error: Exception, way: Route, shown: str) -> str:
    """Why it did not come about, and what to do."""
    if isinstance(error, paramiko.BadHostKeyException):
        name = way.known_as or (way.host if way.port == PORT else f"[{way.host}]:{way.port}")
        return (
            f"host key changed: got {fingerprint(error.key)}, expected {fingerprint(error.expected_key)}. Either the machine "
            "was reinstalled, or another machine answers. Nothing was sent. If it was reinstalled, run "
            f"`ssh-keygen -R '{name}'`, then `{shown}` to accept the new key."
        )
    if isinstance(error, _RevokedHostKeyError):
        return (
            f"host key {error} is marked as revoked (@revoked in {' or '.join(way.known_hosts)}). Nothing was sent. Ask the "
            "administrator for a new key."
        )
    if isinstance(error, _UnknownHostKeyError):
        return f"host key {error} is unknown here. Compare it with the machine's key, then accept it: `{shown}`."
    if isinstance(error, paramiko.AuthenticationException | paramiko.PasswordRequiredException):
        return (
            f"login as {way.user} failed: no local key was accepted ({error}). Make `{shown} true` work without a password: "
            "`ssh-add` or `ssh-copy-id`."
        )
    if isinstance(error, socket.gaierror):
        return f"there is no machine {way.host!r}: {error.strerror}."
    if isinstance(error, OSError) and error.strerror:
        return f"{way.host} port {way.port} cannot be reached: {error.strerror}. Does `{shown}` work?"
    return f"no ssh connection to {way.host} port {way.port}: {error or type(error).__name__}. Does `{shown}` work?"
