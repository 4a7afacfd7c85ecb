"""NCCL Inspector's JSON lines (NVIDIA/nccl, ``ext-profiler/inspector``, format v4.0): each exchange of one rank, in
order of their ends.

``coll_msg_size_bytes`` is NCCL's count on one rank: for an all-gather the part that a rank contributes, for a
reduce-scatter the part that it keeps. Times are in whole microseconds since 1970. ``event_trace_ts`` has the form of
``NCCL_INSPECTOR_DUMP_VERBOSE=1``, with one channel. The format has no computes.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from testbed.exports.timeline import Slice

_NAMES = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast",
    "all_to_all": "AlltoAll", "send": "Send", "recv": "Recv",
}  # fmt: skip
_PARTS = ("all_gather", "reduce_scatter", "all_to_all")


def text(slices: Sequence[Slice], hosts: Sequence[str], epoch_us: int) -> str:
    """The file of one rank; ``hosts`` by rank, ``epoch_us``: the start of the run, in microseconds since 1970."""
    numbers: Counter[tuple[str, str]] = Counter()
    lines = []
    for one in sorted((each for each in slices if each.exchanges), key=lambda each: each.end_s):
        of = "coll" if one.peer is None else "p2p"
        numbers[one.group.name, of] += 1
        lines.append(json.dumps(_object(one, hosts, epoch_us, numbers[one.group.name, of] - 1)) + "\n")
    return "".join(lines)


def _object(one: Slice, hosts: Sequence[str], epoch_us: int, number: int) -> dict[str, Any]:
    of, group = "coll" if one.peer is None else "p2p", one.group
    start, end = (epoch_us + round(at * 1e6) for at in (one.start_s, one.end_s))
    members = group.ranks or (one.rank,)
    size = -(-(one.bytes or 0) // len(members)) if one.kind in _PARTS else one.bytes or 0
    algorithm, bus = _bandwidth(one.kind, size, len(members), end - start)
    perf: dict[str, Any] = {
        of: _NAMES[one.kind],
        f"{of}_sn": number,
        f"{of}_msg_size_bytes": size,
        f"{of}_exec_time_us": end - start,
    }
    perf |= {f"{of}_timing_source": "kernel_cpu", f"{of}_algobw_gbs": algorithm, f"{of}_busbw_gbs": bus}
    if one.peer is not None:
        perf["p2p_peer"] = members.index(one.peer)
    kernel = {"channel_id": 0, "kernel_start_ts": start, "kernel_stop_ts": end, "kernel_record_ts": end}
    perf["event_trace_ts"] = {f"{of}_start_ts": start, f"{of}_stop_ts": end, "kernel_events": [kernel]}
    # A communicator's id is a hash; here of its name and its ranks.
    identity = f"0x{zlib.crc32(f'{one.job} {group.name} {members}'.encode()):x}"
    header = {"id": identity, "comm_name": group.name, "rank": members.index(one.rank), "n_ranks": len(members)}
    header["nnodes"] = len({hosts[rank] for rank in members})
    metadata = {
        "inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "mltcp_testbed", "dump_timestamp_us": end,
        "hostname": hosts[one.rank], "pid": 1 + one.rank,
    }  # fmt: skip
    return {"header": header, "metadata": metadata, f"{of}_perf": perf}


def _bandwidth(kind: str, size: int, ranks: int, took_us: int) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s, as NCCL's tests define them."""
    if not took_us:
        return 0.0, 0.0
    algorithm = (size * ranks if kind in _PARTS else size) / took_us / 1e3
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, **dict.fromkeys(_PARTS, (ranks - 1) / ranks)}.get(kind, 1.0)
    return round(algorithm, 6), round(algorithm * factor, 6)
