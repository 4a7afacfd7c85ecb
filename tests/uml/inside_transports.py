"""What `test_transports` does inside a user-mode Linux (`Uml.call`): it answers in JSON."""

from __future__ import annotations

import json
import subprocess
import sys

from testbed.linux.participants.timeline import Machine

SENDER, RECEIVER, STRANGER, PORT = "10.0.0.1", "10.0.0.2", "10.0.0.9", 7300
RATE_BPS, FOREIGN_BYTES, SHARE = 100_000_000, 64, 0.05
FRAME_BYTES = FOREIGN_BYTES + 8 + 20 + 14
END = "import sys; from testbed.transports.cli import main; sys.exit(main(sys.argv[1:]))"
FLOOD = f"""
import socket, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("{STRANGER}", {PORT}))
at = time.monotonic()
while True:
    sock.sendto(b"\\1\\3" + bytes({FOREIGN_BYTES - 2}), ("{RECEIVER}", {PORT}))
    at += {FRAME_BYTES * 8 / (RATE_BPS * SHARE)}
    time.sleep(max(0, at - time.monotonic()))
"""


def foreign_datagrams(_machine: Machine) -> bytes:
    """bit/s that LTP delivers over a link of `RATE_BPS`, alone and beside a stranger's datagrams to its port."""
    for words in (
        "netns add a", "netns add b", "link add a0 netns a type veth peer name b0 netns b",
        f"-n a address add {SENDER}/24 dev a0", f"-n a address add {STRANGER}/24 dev a0",
        f"-n b address add {RECEIVER}/24 dev b0", "-n a link set a0 up", "-n b link set b0 up",
    ):  # fmt: skip
        subprocess.run(["ip", *words.split()], check=True)
    shaped = f"tc -n a qdisc add dev a0 root tbf rate {RATE_BPS} burst 3000 limit 60000"
    subprocess.run(shaped.split(), check=True)
    alone = _exchange()
    with subprocess.Popen(["ip", "netns", "exec", "a", sys.executable, "-c", FLOOD]) as flood:
        beside = _exchange()
        flood.kill()
    return json.dumps({"alone": alone, "beside": beside}).encode()


def _exchange() -> float:
    words = [sys.executable, "-c", END, "ltp:fraction=1"]
    ends: tuple[tuple[str, str, str, str, list[str]], ...] = (
        ("b", "receive", RECEIVER, SENDER, []),
        ("a", "send", SENDER, RECEIVER, ["--bytes", "1MB", "--rounds", "4", "--json"]),
    )
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", where, *words, role, "--bind", bind, "--peer", peer, *own], stdout=subprocess.PIPE
        )
        for where, role, bind, peer, own in ends
    ]
    told = [one.communicate()[0] for one in running]
    return float(json.loads(told[1])["receiver"]["bits_per_second"])
