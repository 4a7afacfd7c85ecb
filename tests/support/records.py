"""What NCCL, DeepSpeed and profilers write besides PyTorch's profiles, small and made after their documentation."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

FLOAT = 7  # ncclFloat32


def nccl_init(process: int = 0, comm: str = "0x5581", rank: int = 0, ranks: int = 8, name: str = "0x7d3f") -> str:
    return (
        f"node1:{800 + process}:{900 + process} [{process}] NCCL INFO ncclCommInitRank comm {comm} rank {rank} nranks {ranks} "
        f"cudaDev {process} nvmlDev {process} busId 1b000 commId {name} - Init COMPLETE\n"
    )


def nccl_call(
    name: str, count: int, op: int, *, process: int = 0, comm: str = "0x5581", ranks: int = 8, type_: int = FLOAT, root: int = 0
) -> str:  # fmt: skip
    return (
        f"node1:{800 + process}:{950 + process} [{process}] NCCL INFO {name}: opCount {op:x} sendbuff 0x7f0100 recvbuff 0x7f0200 "
        f"count {count} datatype {type_} op 0 root {root} comm {comm} [nranks={ranks}] stream 0x55a0\n"
    )


def nccl_log(steps: int = 6, processes: int = 2) -> str:
    """Data-parallel training: parameters are broadcast, the first step has one bucket, the others three; every second one sums a loss."""
    written = ["epoch 0 begins\n", *(nccl_init(process, rank=process) for process in range(processes))]
    counts = [1000, 5000]
    names = ["Broadcast"] * 2
    for step in range(steps):
        own = [300_000, 6_250_000, 2_000_000] if step else [8_550_000]
        own += [1] if step % 2 == 0 else []
        counts += own
        names += ["AllReduce"] * len(own)
    for op, (name, count) in enumerate(zip(names, counts, strict=True)):
        written += [nccl_call(name, count, op, process=process) for process in range(processes)]
    return "".join(written)


class DeepSpeed:
    """A verbose log under construction, of ``ranks`` ranks."""

    def __init__(self, ranks: int = 8) -> None:
        self.ranks, self.now, self.text = ranks, datetime(2024, 5, 7, 10), ""

    def op(self, name: str, after_ms: int, takes_ms: int, size: str, nbytes: int) -> None:
        self.now += timedelta(milliseconds=after_ms + takes_ms)
        factor = 2 if name == "all_reduce" else self.ranks
        algorithm = nbytes * factor * 8 / takes_ms / 1e6
        self.text += (
            f"[{self.now:%Y-%m-%d %H:%M:%S},{self.now.microsecond // 1000:03d}] [INFO] [logging.py:96:log_dist] [Rank 0] comm op: {name} "
            f"| time (ms): {takes_ms:.2f} | msg size: {size} | algbw (Gbps): {algorithm:.2f} | busbw (Gbps): {algorithm * (self.ranks - 1) / self.ranks:.2f}\n"
        )


def deepspeed_log(steps: int = 6, ranks: int = 8) -> str:
    """ZeRO: 60 ms, an all-gather of 4 MiB a rank, 100 ms, a reduce-scatter of 32 MiB, a loss."""
    log = DeepSpeed(ranks)
    for _ in range(steps):
        log.op("all_gather_into_tensor", 60, 5, "4.0 MB", 4 << 20)
        log.op("reduce_scatter_tensor", 100, 10, "32.0 MB", 32 << 20)
        log.op("all_reduce", 0, 1, "4.0 B", 4)
    return log.text


def deepspeed_table(rows: Sequence[tuple[str, str, int]], ranks: int = 16) -> str:
    """The table of ``log_summary()``: operation, size and count of each row."""
    header = (
        "Comm. Op",
        "Message Size",
        "Count",
        "Total Latency(ms)",
        "Avg Latency(ms)",
        "tput_avg (Gbps)",
        "busbw_avg (Gbps)",
    )
    text, last = "".join(f"{one: <20}" for one in header) + "\n", ""
    for name, size, count in rows:
        text += f"{name}\n" if name != last else ""
        last = name
        algorithm = 0.4 if name == "broadcast" else 1468.06
        bus = 0.4 if name == "broadcast" else algorithm * (ranks - 1) / ranks
        cells = ("", size, count, f"{count * 9.69:.2f}", "9.69", f"{algorithm:.2f}", f"{bus:.2f}")
        text += "".join(f"{one: <20}" for one in cells) + "\n"
    return text


def inspected(
    name: str, nbytes: int, start_us: int, took_us: int, *, sn: int = 0, comm: str = "0x7d3f", called: str = "DP", ranks: int = 8, rank: int = 2,
    peer: int | None = None, verbose: bool = True, written_us: int | None = None,
) -> str:  # fmt: skip
    """An object of NCCL Inspector, times since the begin of the record."""
    of, begin = "coll" if peer is None else "p2p", 1_748_030_000_000_000
    perf: dict[str, Any] = {
        of: name,
        f"{of}_sn": sn,
        f"{of}_msg_size_bytes": nbytes,
        f"{of}_exec_time_us": took_us,
        f"{of}_timing_source": "kernel_gpu",
    }
    perf |= {f"{of}_algobw_gbs": 1.5, f"{of}_busbw_gbs": 2.5} | ({} if peer is None else {"p2p_peer": peer})
    if verbose:
        channels = [
            {
                "channel_id": 0,
                "kernel_start_ts": begin + start_us,
                "kernel_stop_ts": begin + start_us + took_us,
                "kernel_record_ts": 0,
            }
        ]
        channels.append({**channels[0], "channel_id": 1, "kernel_start_ts": begin + start_us + 5})
        perf["event_trace_ts"] = {
            f"{of}_start_ts": begin + start_us - 40,
            f"{of}_stop_ts": begin + start_us - 30,
            "kernel_events": channels,
        }
    written = begin + (start_us + took_us if written_us is None else written_us)
    header = {"id": comm, "comm_name": called, "rank": rank, "n_ranks": ranks, "nnodes": 1}
    metadata = {
        "inspector_output_format_version": "v4.0",
        "dump_timestamp_us": written,
        "hostname": "node1",
        "pid": 812,
    }
    return json.dumps({"header": header, "metadata": metadata, f"{of}_perf": perf}) + "\n"


def inspector(steps: int = 6, **fields: Any) -> str:
    """60 ms, an all-reduce of 8 MB that takes 10 ms, 20 ms beside it and after it, one of 4 MB that takes 5 ms: 85 ms in all."""
    text, now = "", 1000
    for step in range(steps):
        text += inspected("AllReduce", 8_000_000, now + 50_000, 10_000, sn=2 * step, **fields)
        text += inspected("AllReduce", 4_000_000, now + 80_000, 5_000, sn=2 * step + 1, **fields)
        now += 85_000
    return text


def profiled(name: str, count: int, start_us: float, took_us: float, *, comm: int = 1 << 63, peer: int | None = None, kernels: bool = True) -> str:  # fmt: skip
    """The lines of NCCL's example profiler for one exchange."""
    category, own = ("COLL", {"SeqNum": 0}) if peer is None else ("P2P", {"Peer": peer})
    args = {**own, "CommHash": comm, "Rank": 0, "Count": count, "Datatype": "ncclFloat32", "nChannels": 1}
    common: dict[str, Any] = {"id": 0, "pid": 812, "tid": 1}
    events = [{"name": name, "cat": category, "ph": "b", **common, "ts": start_us - 30, "args": args}]
    if kernels:
        events.append({"name": "KernelCh", "cat": "GPU", "ph": "b", **common, "ts": start_us, "args": {"Channel": 0}})
        events.append({"name": "KernelCh", "cat": "GPU", "ph": "e", **common, "ts": start_us + took_us})
    events.append(
        {"name": name, "cat": category, "ph": "e", **common, "ts": start_us + took_us + (7 if kernels else 0)}
    )
    api = f'{{"name": "{name}", "cat": "{category}_API", "ph": "b", "id": 0, "pid": 812, "tid": 1, "ts": 0.000000, "args": {{"count": {count}, "datatype": ncclFloat32, "Stream": 0x5020}}}},\n'
    return api + "".join(json.dumps(event) + ",\n" for event in events)


def nccl_profiler(steps: int = 6) -> str:
    """The iteration of `inspector`, as the example profiler has it."""
    text, now = "[\n", 1000.0
    for _ in range(steps):
        text += profiled("AllReduce", 2_000_000, now + 50_000, 10_000) + profiled(
            "AllReduce", 1_000_000, now + 80_000, 5_000
        )
        now += 85_000
    return text + "{}]\n"


COMMUNICATOR = 0xE62DEDAA97644A11
_SCHEMA = 1 << 24  # the first number of a static schema of NVTX
_NSYS = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER,
    jsonTextId INTEGER, jsonText TEXT, binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER, type INTEGER, name TEXT, description TEXT,
    arrayOrUnionDetail INTEGER, offset INTEGER);
"""


class Nsys:
    """An export of Nsight Systems under construction; times in microseconds. NCCL runs on stream 20, everything else on stream 7."""

    PROCESS = 812 << 24

    def __init__(self, payload: str = "binary") -> None:
        self.database, self.payload = sqlite3.connect(":memory:"), payload
        self.database.executescript(_NSYS)
        self._names: dict[str, int] = {}
        self._correlation = 0
        self.add("TARGET_INFO_GPU", 0, "H100")
        for schema, entries in (
            (0, (("NCCL communicator ID", 0), ("No. of ranks", 8), ("Rank", 12))),
            (5, (("NCCL communicator ID", 0), ("Message size [bytes]", 8), ("Reduction operation", 16))),
        ):
            for index, (name, offset) in enumerate(entries):
                self.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", 1, _SCHEMA + schema, index, None, 18, name, None, None, offset)

    def add(self, table: str, *row: object) -> None:
        self.database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def name(self, text: str) -> int:
        if text not in self._names:
            self._names[text] = len(self._names) + 1
            self.add("StringIds", self._names[text], text)
        return self._names[text]

    def kernel(self, name: str, launch: float, start: float, took: float, *, device: int = 0) -> None:
        self._correlation += 1
        stream = 20 if name.startswith("nccl") else 7
        row = (round(start * 1e3), round((start + took) * 1e3), device, 1, stream, self._correlation)
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", *row, self.PROCESS, self.name(name), self.name(name))
        call = (round(launch * 1e3), round(launch * 1e3) + 2000, 0, self.PROCESS + 1, self._correlation)
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", *call, self.name("cudaLaunchKernel_v7000"), 0)

    def range(self, name: str, start: float, took: float, schema: int | None = None, **values: int) -> None:
        text, data = None, None
        if schema is not None and self.payload == "binary":
            body = struct.pack("<QQi4x" if schema == 5 else "<Qii", *values.values())
            data = struct.pack("<QQQQ", 1, _SCHEMA + schema, len(body), 32 + len(body)) + body
        elif schema is not None and self.payload == "json":
            keys = {
                "comm": "NCCL communicator ID",
                "size": "Message size [bytes]",
                "ranks": "No. of ranks",
                "rank": "Rank",
                "op": "Reduction operation",
            }
            text = json.dumps({"Payload": {keys[key]: value for key, value in values.items()}})
        row = (round(start * 1e3), round((start + took) * 1e3), 59, None, None, self.PROCESS + 1, self.name(name), 1)
        self.add("NVTX_EVENTS", *row, None, text, data)

    def collective(self, name: str, size: int, launch: float, start: float, took: float) -> None:
        self.range(f"nccl{name}", launch - 3, 8, 5, comm=COMMUNICATOR, size=size, op=0)
        self.kernel(f"ncclDevKernel_{name}_Sum_f32_RING_LL", launch, start, took)

    def content(self) -> bytes:
        self.database.commit()
        return bytes(self.database.serialize())


def nsys(steps: int = 5, payload: str = "binary", named: str = "ProfilerStep#{}") -> bytes:
    """Forward 20 ms, backward 30 ms, an all-reduce of 8 MB of 10 ms beside 30 ms of backward, one of 4 MB of 15 ms, then 10 ms of optimizer: 105 ms in all.

    The CPU launches all of a step within a millisecond of its begin.
    """
    made = Nsys(payload)
    made.range("ncclCommInitRankConfig", 10, 50, 0, comm=COMMUNICATOR, ranks=8, rank=2)
    for step in range(steps):
        now = 1000.0 + 105_000 * step
        if named:
            made.range(named.format(step), now, 105_000)
        made.kernel("forward", now + 10, now + 20, 19_980)
        made.kernel("backward", now + 30, now + 20_000, 30_000)
        made.collective("AllReduce", 8_000_000, now + 60, now + 50_000, 10_000)
        made.kernel("backward", now + 90, now + 50_000, 30_000)
        made.collective("AllReduce", 4_000_000, now + 120, now + 80_000, 15_000)
        made.kernel("optimizer", now + 150, now + 95_000, 10_000)
    return made.content()


class Ascend:
    """A trace_view.json under construction; times in microseconds since the begin, written as text."""

    BEGIN = 1_695_115_378_000_000

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        for pid, name in ((1, "Python"), (4, "Ascend Hardware"), (5, "Communication"), (6, "Overlap Analysis")):
            self.events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        self.events.append(
            {"ph": "M", "name": "thread_name", "pid": 5, "tid": 0, "args": {"name": "Group 0 Communication"}}
        )
        self.events.append({"ph": "M", "name": "thread_name", "pid": 5, "tid": 1, "args": {"name": "Plane 0"}})

    def at(self, moment: float) -> str:
        return f"{self.BEGIN + round(moment)}.000"

    def event(self, name: str, start: float, took: float, pid: int = 1, tid: int = 1, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": self.at(start), "dur": took, "args": args}
        )

    def launched(self, name: str, launch: float, start: float, took: float, pid: int, tid: int, **args: Any) -> None:
        number = len(self.events)
        self.event(name, start, took, pid, tid, **args)
        for phase, moment, where in (("s", launch, (1, 1)), ("f", start, (pid, tid))):
            flow = {
                "ph": phase,
                "bp": "e",
                "name": "torch_to_npu",
                "id": number,
                "pid": where[0],
                "tid": where[1],
                "ts": self.at(moment),
            }
            self.events.append({**flow, "cat": "async_npu"})

    def content(self) -> bytes:
        return json.dumps(self.events).encode()


def ascend(steps: int = 4, **told: Any) -> bytes:
    """The iteration of `nsys`."""
    made, told = Ascend(), {"rank_size": 8, **told}
    for step in range(steps):
        now = 1000.0 + 105_000 * step
        made.event(f"ProfilerStep#{step}", now, 105_000)
        for launch, start, took in ((30, 20, 49_980), (90, 50_000, 30_000), (150, 95_000, 10_000)):
            made.launched(
                "aclnnMatmul",
                now + launch,
                now + max(start, launch + 5),
                took - max(0, launch + 5 - start),
                4,
                10,
                **{"Task Type": "AI_CORE", "Stream Id": 2},
            )
        for number, (launch, start, took, count) in enumerate(
            ((60, 50_000, 10_000, 2_000_000), (120, 80_000, 15_000, 1_000_000))
        ):
            args = {"connection_id": 1, "data_type": "FP32", "alg_type": "HD-MESH", "count": count, **told}
            args = {key: value for key, value in args.items() if value is not None}
            made.launched(f"hcom_allReduce__524_{number}_1", now + launch, now + start, took, 5, 0, **args)
            made.event("Notify_Wait", now + start, took, 4, 11, **{"Task Type": "NOTIFY_WAIT_SQE"})
            made.event("Memcpy", now + start, took, 5, 1)
        made.event("Communication", now, 5, 6, 1)
    return made.content()
