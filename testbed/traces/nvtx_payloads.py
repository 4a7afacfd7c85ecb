"""The payloads of NCCL's NVTX ranges: communicator, bytes, peer. In an export of nsys that is JSON, or binary data with a schema."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.traces.nsys_tables import Tables

COMMUNICATOR, SIZE, RANK, RANKS, PEER = (
    "NCCL communicator ID", "Message size [bytes]", "Rank", "No. of ranks", "Peer rank",
)  # fmt: skip
_FORMATS = {COMMUNICATOR: "<Q", SIZE: "<Q", RANK: "<i", RANKS: "<i", PEER: "<i"}
_HEADER = struct.Struct("<QQQQ")  # domain, schema, bytes of the payload, bytes in all
_LONGEST = 64 << 10
_DEEPEST = 8

Values = dict[str, int]


@dataclass(frozen=True)
class Schemas:
    """Where the entries of each kind of payload are, by domain and number of the schema."""

    offsets: dict[tuple[int, int], dict[str, int]]

    def values(self, text: object, data: object) -> Values:
        """The entries of a range's payload that are known; none if it has none."""
        if isinstance(text, str) and len(text) <= _LONGEST:
            try:
                return dict(_named(json.loads(text), _DEEPEST))
            except (ValueError, RecursionError):
                return {}
        if isinstance(data, str) and len(data) <= _LONGEST:
            try:
                data = bytes.fromhex(data.removeprefix("0x"))
            except ValueError:
                return {}
        return self._unpacked(data) if isinstance(data, bytes) and len(data) >= _HEADER.size else {}

    def _unpacked(self, data: bytes) -> Values:
        domain, schema, _, _ = _HEADER.unpack_from(data)
        found = {}
        for name, offset in self.offsets.get((domain & 0xFFFFFFFF, schema & 0xFFFFFFFF), {}).items():
            form = _FORMATS[name]
            if 0 <= offset <= len(data) - _HEADER.size - struct.calcsize(form):
                (found[name],) = struct.unpack_from(form, data, _HEADER.size + offset)
        return found


def schemas(tables: Tables) -> Schemas:
    """The schemas of an export."""
    offsets: dict[tuple[int, int], dict[str, int]] = {}
    columns = ("domainId", "schemaId", "name", "offset")
    for domain, schema, name, offset in tables.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", columns):
        if isinstance(domain, int) and isinstance(schema, int) and isinstance(name, str) and name in _FORMATS:
            own = offsets.setdefault((domain & 0xFFFFFFFF, schema & 0xFFFFFFFF), {})
            own[name] = offset if isinstance(offset, int) else 0 if offset is None and not own else -1
    return Schemas(offsets)


def _named(value: object, depth: int) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict) and depth:
        for key, one in value.items():
            number = _whole(one)
            if key in _FORMATS and number is not None:
                yield key, number
            else:
                yield from _named(one, depth - 1)
    elif isinstance(value, list) and depth:
        for one in value:
            yield from _named(one, depth - 1)


def _whole(value: object) -> int | None:
    """A number of at most 64 bits, or the text of one."""
    if isinstance(value, str) and len(value) <= 20:
        try:
            value = int(value, 0)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 64 else None
