"""Exchange messages between two machines with one transport: ``python -m testbed.transports TRANSPORT send|receive``.

Each end names its own address and that of its peer; datagrams from other addresses get no answer. The options of the
receiver's transport decide when it has received enough of a message.
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import os
import shlex
import stat
import sys
from collections.abc import Sequence

from testbed import transports
from testbed.core import input_files, interruption, text
from testbed.core.arguments import Parser
from testbed.core.errors import RequestError, TestbedError, within
from testbed.core.text import quoted
from testbed.core.units import Duration, Size
from testbed.transports import Place, Transport
from testbed.transports.cli import exchange
from testbed.transports.cli.exchange import Asked, Told
from testbed.transports.datagram import native

PORT = 7300
LEAST_KEY_BYTES, LONGEST_KEY_BYTES = 16, 1 << 16
LEAST_MTU, MOST_MTU = 256, 65_000
RECEIVER, SENDER = 1, 0


def main(arguments: Sequence[str]) -> int:
    """Run one end of an exchange, and return its exit code.

    0: done, 1: the peer is gone, 2: the request was wrong, 3: this machine cannot do it, 130: interrupted.
    """
    return interruption.guarded(lambda: _ended(arguments))


def _ended(arguments: Sequence[str]) -> int:
    try:
        if stray := text.first_stray(arguments):
            raise RequestError(stray)
        asked = _parser().parse_args(arguments)
        transport = transports.parse(asked.transport)
        if transport.datagrams:
            native.build()
        sends = asked.role == "send"
        place = _place(asked, transport, sends=sends)
        run = exchange.send if sends else exchange.receive
        result = run(transport.listen(place), transport, Asked(int(Size.parse(asked.bytes)), asked.rounds), _progress)
    except TestbedError as error:
        print(text.paragraph(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(text.paragraph(f"error: {error}"), file=sys.stderr)
        return TestbedError.exit_code
    ends = {
        "transport": asked.transport,
        "role": asked.role,
        "bind": asked.bind,
        "peer": asked.peer,
        "port": asked.port,
    }
    print(json.dumps({**ends, **result.document()}, indent=2) if asked.json else _summary(result))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m testbed.transports", description="Send messages between two machines with one transport, and measure the throughput.",
        epilog="exit codes: 0 done, 1 the peer is gone, 2 the request was wrong, 3 this machine cannot do it, 130 interrupted",
    )  # fmt: skip
    parser.add_argument(
        "transport",
        metavar="TRANSPORT",
        help=f"transport: {', '.join(transports.names())}; with options: ltp:fraction=0.9",
    )
    parser.add_argument("role", choices=("send", "receive"), help="end of the exchange")
    parser.add_argument(
        "--bind", required=True, metavar="ADDRESS", help="IPv4 address of this end, as --peer of the other end"
    )
    parser.add_argument("--peer", required=True, metavar="ADDRESS", help="IPv4 address of the other end")
    parser.add_argument("--port", type=int, default=PORT, help=f"port of both ends (default: {PORT})")
    parser.add_argument("--bytes", default="100MB", help="bytes of a message, set by the sender (default: 100MB)")
    parser.add_argument("--rounds", type=int, default=10, help="number of messages, set by the sender (default: 10)")
    parser.add_argument("--cc", default="cubic", help="congestion control of TCP (default: cubic)")
    parser.add_argument("--mtu", type=int, default=1500, help="MTU of the path, in bytes (default: 1500)")
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="file with the secret of both ends, by which ltp signs each datagram (default: unsigned)",
    )
    parser.add_argument("--wait", default="60s", help="longest wait for the other end to start (default: 60s)")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    return parser


def _place(asked: argparse.Namespace, transport: Transport, *, sends: bool) -> Place:
    bind, peer = _address("--bind", asked.bind), _address("--peer", asked.peer)
    if bind == peer:
        raise RequestError(
            f"--bind and --peer are both {bind}: each end needs its own address, such as 127.0.0.2 and 127.0.0.3."
        )
    if not 1024 <= asked.port < 2**15:
        raise RequestError(f"--port: {asked.port} is not between 1024 and {2**15 - 1}.")
    if not 1 <= asked.rounds <= 10**6:
        raise RequestError(f"--rounds: {asked.rounds} is not between 1 and 1000000.")
    if not LEAST_MTU <= asked.mtu <= MOST_MTU:
        raise RequestError(f"--mtu: {asked.mtu} is not between {LEAST_MTU} and {MOST_MTU}.")
    if asked.key and not transport.datagrams:
        raise RequestError(f"--key: {transport.name} sends no datagrams that a key could sign. Leave it out.")
    return Place(
        rank=SENDER if sends else RECEIVER,
        addresses=(bind, peer) if sends else (peer, bind),
        port=asked.port,
        flows=[(SENDER, RECEIVER), (RECEIVER, SENDER)],
        congestion_control=asked.cc,
        mtu=asked.mtu,
        patience_s=Duration.parse(asked.wait) / 1e9,
        key=_key(asked.key) if asked.key else b"",
        send_bytes=1 << 20,
    )


def _address(flag: str, typed: str) -> str:
    try:
        found = ipaddress.IPv4Address(typed)
    except ValueError as error:
        raise RequestError(f"{flag}: {quoted(typed)} is no IPv4 address.") from error
    if found.is_unspecified or found.is_multicast or int(found) == 2**32 - 1:
        raise RequestError(
            f"{flag}: {found} is not the address of one machine. Give the address that the other end uses."
        )
    return str(found)


def _key(path: str) -> bytes:
    with within("--key"), input_files.opened(path) as file:
        secret, mode = file.read(LONGEST_KEY_BYTES), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if len(secret) < LEAST_KEY_BYTES:
        raise RequestError(
            f"--key: {quoted(path)} has {len(secret)} bytes, and a key has at least {LEAST_KEY_BYTES}. Make one by "
            f"`(umask 077; head -c 32 /dev/urandom > {shlex.quote(path)})`, and take it to the other machine."
        )
    if mode & 0o077:
        print(
            text.paragraph(
                f"warning: --key: other users of this machine may read {quoted(path)} (mode {mode:04o}), and can then sign datagrams. "
                f"Run `chmod 600 {shlex.quote(path)}`."
            ),
            file=sys.stderr,
        )
    return hashlib.sha256(secret).digest()[: native.KEY_BYTES]


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _summary(result: Told) -> str:
    share = result.delivered / result.bytes if result.bytes else 0.0
    return (
        f"{len(result.rounds)} messages, {result.bytes / 1e6:,.1f} MB, {share:.2%} delivered in {result.seconds:.3f} s: "
        f"{result.bits_per_s / 1e9:.3f} Gbit/s; {result.resent_bytes / 1e6:,.1f} MB sent again; {result.cpu_s:.2f} s of CPU"
    )
