"""``python -I tests/support/smallest_receiver.py OWN PEER PORT BYTES``: takes a message as docs/reference/wire-format.md describes it, and writes it out; of a network that loses nothing."""

import socket
import struct
import sys

own, peer, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
end, theirs, kind = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0, 0
content, came = bytearray(size), 0
end.bind((own, port))


def say(kind: int, rest: bytes) -> None:
    end.sendto(struct.pack(">BBHIQ", 3, kind, 0, 1, theirs) + rest, (peer, port))


while kind != 9:  # END
    datagram, _ = end.recvfrom(2000)
    kind = datagram[1]
    if kind == 1:  # HELLO: WELCOME, or PING if it has our id
        to, theirs = struct.unpack_from(">QQ", datagram, 8)
        say(*((7, b"") if to == 4711 else (2, struct.pack(">QH", 4711, 1400))))
    elif kind == 3:  # DATA: ACK of it and all before, and CLOSE after the last
        number, _, _, _, offset, _, _, _, length = struct.unpack_from(">QIIQQIIHH", datagram, 16)
        content[offset : offset + length] = datagram[60:]
        came += length
        before = (1 << min(number, 128)) - 1
        say(4, struct.pack(">QQQIHH", number, came, 0, 0, 16, 0) + before.to_bytes(16, "little"))
        if came == size:
            say(5, struct.pack(">IIQQBBHI", 0, 0, size, size, 0, 0, 0, 0))
sys.stdout.buffer.write(content)
