"""Sample queues and flows in one process: ``python -m testbed.linux.sampling.sampler``.

Every interval it queries each bottleneck's qdisc (rtnetlink) and each flow's socket (sock_diag, by its addresses),
because a dump would walk the machine's complete socket table. It writes ``links.csv``, ``flows.csv`` and, if NICs have
a rate, ``nics.csv``.

It is configured by one line of JSON on stdin (`Config`). On end of file there it stops, and prints its cost as one line
of JSON.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from testbed.congestion import curves
from testbed.core import layouts
from testbed.core.clock import PeriodicTimer, punctual, sleep_until
from testbed.core.layouts import (
    INET_DIAG_INFO,
    INET_DIAG_MSG_BYTES,
    INET_DIAG_VEGASINFO,
    MLTCP_DIAG_INFO,
    NETLINK_SOCK_DIAG,
    RTM_GETQDISC,
    SO_NETNS_COOKIE,
    SOCK_DIAG_BY_FAMILY,
    TC_H_ROOT,
    TCA_STATS2,
    TCA_STATS_APP,
    TCA_STATS_BASIC,
    TCA_STATS_QUEUE,
    TCMSG_BYTES,
)
from testbed.linux.loading.bpfsys import MapReader
from testbed.linux.sampling.netlink import Field, Question, Questions, message, opened

U32, NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
TCP_INFO = layouts.TCP_INFO.reader(
    "tcpi_rtt", "tcpi_snd_cwnd", "tcpi_total_retrans", "tcpi_bytes_acked",
    "tcpi_busy_time", "tcpi_rwnd_limited", "tcpi_sndbuf_limited", "tcpi_delivered_ce",
)  # fmt: skip
MODULE_INFO = layouts.MLTCP_INFO.reader("iterations", "factor", "ratio")
SENT = layouts.BASIC_STATS.reader("bytes", "packets")
WAITING = layouts.QUEUE_STATS.reader("backlog", "drops")
COUNT = struct.Struct("=I")
OF_RED = layouts.RED_XSTATS.reader("early", "pdrop", "marked")
MARKED_BY_PHANTOM = layouts.PHANTOM.reader("marks")
LEARNED = layouts.FLOW.reader("start", "total_bytes")
ITERATIONS = layouts.FLOW.reader("iterations")
OF_JOB = layouts.JOB.reader("sent", "total_bytes")
OF_PEER = layouts.PEER.reader("window", "rtt_us", "acked", "resent")
SHARES_EVERY_NS = 500_000_000
CPU_EVERY_NS = 1_000_000_000
WRITTEN_AT_ONCE = 1 << 20
MAPPED = bytes(10) + b"\xff\xff"  # prefix of an IPv4 address in IPv6
NOTHING = bytes(layouts.FLOW.size or 0)  # state of a flow before its first iteration boundary
Sockets = Callable[[int, int], socket.socket]  # by namespace and netlink's family
Carried = dict[tuple[int, str], int]  # bytes acknowledged, by job and direction of a bottleneck


@dataclass(frozen=True)
class Config:
    """Objects to sample. Descriptors are inherited, and ``start_ns`` is on the monotonic clock."""

    folder: str
    start_ns: int
    wait_from_ns: int
    interval_ns: int
    virtual_time: bool
    # name, namespace, index; the counter of marks and drops below the root (`setup_steps.counters`), or the map of the
    # program that marks; its bands, and their parent
    links: list[dict[str, Any]]
    nics: list[dict[str, Any]]  # as links
    # job, worker, flow, links it crosses, may_end, namespace, saddr, sport, daddr, dport; MLTCP's state: a map (eBPF), or
    # from sock_diag (module)
    flows: list[dict[str, Any]]
    columns: dict[
        str, list[str]
    ]  # header of each table (a copy from `testbed.core.runs.rows`, whose import here would need a library)

    def header(self, table: str) -> str:
        """The first line of a table."""
        return ",".join(self.columns[table]) + "\n"


def _map(descriptor: int | None, key_bytes: int, value: layouts.Layout) -> MapReader | None:
    return None if descriptor is None else MapReader(descriptor, key_bytes, value.size or 0)


def _of_qdisc(index: int, parent: int) -> bytes:
    return message(RTM_GETQDISC, struct.pack("=BxxxiIII", socket.AF_UNSPEC, index, 0, parent, 0))


class BelowProbe:
    """Counters of a queue below the token bucket of a link."""

    def __init__(self, link: str, counters: dict[str, Any]) -> None:
        """``counters``: as `testbed.linux.setup_steps.counters` has them."""
        self.link, self.drops = link, counters["drops"]
        self.marks = [
            (Field(TCMSG_BYTES, TCA_STATS2, TCA_STATS_APP, *each["path"]), each["offset"]) for each in counters["marks"]
        ]
        self.queue = Field(TCMSG_BYTES, TCA_STATS2, TCA_STATS_QUEUE)

    def marked(self, data: bytes) -> int:
        """Packets that it marked."""
        return sum(int(COUNT.unpack_from(data, self._place(field, data) + offset)[0]) for field, offset in self.marks)

    def dropped(self, data: bytes) -> int:
        """Packets that it dropped, where the root does not count these."""
        return int(WAITING.unpack_from(data, self._place(self.queue, data))[1]) if self.drops else 0

    def _place(self, field: Field, data: bytes) -> int:
        at = field.find(data)
        if at is None:
            raise RuntimeError(f"link {self.link} has no statistics of its queue any more")
        return at


class LinkProbe:
    """Counters of the qdisc at one end of a link."""

    def __init__(self, link: dict[str, Any], sockets: Sockets) -> None:
        self.name = link["name"]
        asked = sockets(link["namespace"], socket.NETLINK_ROUTE)
        parents = [TC_H_ROOT, *(one["parent"] for one in link["counters"])]
        self.questions = [Question(asked, _of_qdisc(link["index"], parent)) for parent in parents]
        self.bands = [(band, Question(asked, _of_qdisc(link["index"], parent))) for band, parent in link["bands"]]
        self.marks_of = _map(link["marks_map"], layouts.MAP_INDEX_BYTES, layouts.PHANTOM)
        self.below = [BelowProbe(self.name, one) for one in link["counters"]]
        self.basic = Field(TCMSG_BYTES, TCA_STATS2, TCA_STATS_BASIC)
        self.queue = Field(TCMSG_BYTES, TCA_STATS2, TCA_STATS_QUEUE)

    def line(self, at: str, answers: Iterator[bytes]) -> str:
        """Return the counters as a line of ``links.csv``: bytes and packets sent, packets dropped, packets marked,
        bytes waiting."""
        data = next(answers)
        basic, queue = self.basic.find(data), self.queue.find(data)
        if basic is None or queue is None:
            raise RuntimeError(f"link {self.name} has no queue any more")
        sent, packets = SENT.unpack_from(data, basic)
        backlog, drops = WAITING.unpack_from(data, queue)
        marks = self._marked_by_phantom()
        if self.below and self.below[0].drops:
            drops = 0
        for probe in self.below:
            data = next(answers)
            marks += probe.marked(data)
            drops += probe.dropped(data)
        return f"{at},{self.name},{sent},{packets},{drops},{marks},{backlog}\n"

    def queue_lines(self) -> str:
        """Return lines of ``priority_queues.csv``; a queue without marking drops only by overflow."""
        lines = []
        answers = Questions([question for _, question in self.bands]).ask()
        for (band, _), data in zip(self.bands, answers, strict=True):
            found = [Field(TCMSG_BYTES, TCA_STATS2, kind).find(data) for kind in (TCA_STATS_BASIC, TCA_STATS_QUEUE)]
            if None in found:
                raise RuntimeError(f"link {self.name} has no band {band} any more")
            sent, packets = SENT.unpack_from(data, found[0] or 0)
            _, drops = WAITING.unpack_from(data, found[1] or 0)
            red = Field(TCMSG_BYTES, TCA_STATS2, TCA_STATS_APP).find(data)
            early, full, marks = (0, drops, 0) if red is None else OF_RED.unpack_from(data, red)
            lines.append(f"{self.name},{band},{sent},{packets},{marks},{early},{full}\n")
        return "".join(lines)

    def _marked_by_phantom(self) -> int:
        value = None if self.marks_of is None else self.marks_of(bytes(layouts.MAP_INDEX_BYTES))
        return 0 if value is None else int(MARKED_BY_PHANTOM.unpack_from(value)[0])


class FlowProbe:
    """The state of one flow's sending socket."""

    def __init__(self, flow: dict[str, Any], sockets: Sockets) -> None:
        self.job, self.links, self.may_end = flow["job"], flow["links"], flow["may_end"]
        self.prefix = f"{flow['job']},{flow['worker']},{flow['flow']}"
        asked = sockets(flow["namespace"], NETLINK_SOCK_DIAG)
        saddr, daddr = socket.inet_aton(flow["saddr"]), socket.inet_aton(flow["daddr"])
        body = struct.pack(
            "=BBBxI2s2s16s16sIQ",
            socket.AF_INET, socket.IPPROTO_TCP, self._requested_extensions(flow["state_in_diag"]), U32,
            flow["sport"].to_bytes(2, "big"), flow["dport"].to_bytes(2, "big"),
            saddr.ljust(16, b"\0"), daddr.ljust(16, b"\0"), 0, NO_COOKIE,
        )  # fmt: skip
        self.questions = [Question(asked, message(SOCK_DIAG_BY_FAMILY, body))]
        self.info = Field(INET_DIAG_MSG_BYTES, INET_DIAG_INFO)
        self.state = Field(INET_DIAG_MSG_BYTES, MLTCP_DIAG_INFO) if flow["state_in_diag"] else None
        self.state_of = _map(flow["state_map"], layouts.FLOW_KEY.size or 0, layouts.FLOW)
        self.job_of = _map(flow["jobs_map"], layouts.JOB_KEY.size or 0, layouts.JOB)
        self.parameters = flow["parameters"]
        netns = asked.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)
        # struct mltcp_flow_key: addresses as in IPv6, source port in host order, target port as on the wire
        self.key = b"".join((
            netns, MAPPED, saddr, MAPPED, daddr, struct.pack("=H", flow["sport"]), flow["dport"].to_bytes(2, "big"), bytes(4),
        ))  # fmt: skip
        self.job_key = netns + struct.pack("=II", flow["mark"], 0)
        self.acked = 0
        # So far: time with data to send, of which held up by the receiver's window, by the send buffer.
        self.limited_us = [0, 0, 0]

    @staticmethod
    def _requested_extensions(state_in_diag: bool) -> int:
        return 1 << (INET_DIAG_INFO - 1) | (1 << (INET_DIAG_VEGASINFO - 1) if state_in_diag else 0)

    def line(self, at: str, answers: Iterator[bytes]) -> str | None:
        """A line of ``flows.csv``, None if its job has left: congestion window (segments), smoothed RTT (us), bytes acked,
        segments retransmitted; r, iterations, F.
        """
        data = next(answers)
        where = self.info.find(data)
        if where is None:
            if self.may_end:
                return None
            raise RuntimeError(f"flow {self.prefix} is gone")
        rtt, cwnd, retrans, self.acked, *self.limited_us, marked = TCP_INFO.unpack_from(data, where)
        return f"{at},{self.prefix},{cwnd},{rtt},{self.acked},{retrans},{self._mltcp(data, cwnd, marked)}\n"

    def _mltcp(self, data: bytes, cwnd: int, marked: int) -> str:
        """MLTCP's three columns; empty for other congestion controls, r also while it is unknown."""
        if self.state_of:
            state = self.state_of(self.key) or NOTHING
            ratio, (iterations,) = self._ratio(state), ITERATIONS.unpack_from(state)
            f = curves.factor(self.parameters, ratio)
            if cwnd < self.parameters.get("floor_cwnd", 0) and not marked:
                f = max(f, curves.ONE)
        elif self.state and (at := self.state.find(data)):
            iterations, f, ratio = MODULE_INFO.unpack_from(data, at)
        else:
            return ",,"
        return f"{f'{ratio / 1024:.4f}' if ratio >= 0 else ''},{iterations},{f / 1024:.4f}"

    def _ratio(self, state: bytes) -> int:
        """r of the flow, or of its job where its sockets share one."""
        start, total = LEARNED.unpack_from(state)
        sent, total = max(0, self.acked - start), total or self.parameters["total_bytes"]
        if self.job_of and (job := self.job_of(self.job_key)):
            sent, total = OF_JOB.unpack_from(job)
        return curves.log_ratio(sent) if self.parameters.get("ratio") else ratio_of(sent, total)


def ratio_of(sent: int, total: int) -> int:
    """r in 1/1024 as the kernel computes it (``mltcp_share_of``); -1 while it is unknown."""
    if total == 0 or sent // 2 > total:
        return -1
    return int(min(1024, (sent << 10) // total))


@functools.cache
def _mapped(file: int) -> mmap.mmap:
    """Once, however many flows count there: each mapping holds a descriptor."""
    return mmap.mmap(file, 0, prot=mmap.PROT_READ)


class CountedProbe:
    """A flow that is not TCP: its transport counts in memory that both have (`testbed.transports.datagram`)."""

    questions: tuple[Question, ...] = ()  # no query is sent

    def __init__(self, flow: dict[str, Any]) -> None:
        self.job, self.links, self.at = flow["job"], flow["links"], flow["at"]
        self.prefix = f"{flow['job']},{flow['worker']},{flow['flow']}"
        self.counters = _mapped(flow["counters"])

    def line(self, at: str, _answers: Iterator[bytes]) -> str:
        """Return the counters as a line of ``flows.csv``, without columns of MLTCP."""
        window, rtt, self.acked, resent = OF_PEER.unpack_from(self.counters, self.at)
        return f"{at},{self.prefix},{window},{rtt},{self.acked},{resent},,,\n"


class CpuMeter:
    """Busy and stolen time of the machine's cores over windows of a second."""

    def __init__(self) -> None:
        self.last = self._read()
        self.busiest: list[float] = []
        self.steal: list[float] = []

    @staticmethod
    def _read() -> dict[str, list[int]]:
        with open("/proc/stat") as stat:
            rows = [line.split() for line in stat if line.startswith("cpu") and line[3].isdigit()]
        return {row[0]: [int(value) for value in row[1:9]] for row in rows}

    def tick(self) -> None:
        now = self._read()
        busy, steal = [], []
        for core, values in now.items():
            delta = [b - a for a, b in zip(self.last.get(core, values), values, strict=True)]
            total = sum(delta) or 1
            busy.append(1 - (delta[3] + delta[4]) / total)
            steal.append(delta[7] / total)
        self.last = now
        self.busiest.append(max(busy))
        self.steal.append(max(steal))


def main() -> None:
    config = Config(**json.loads(sys.stdin.readline()))
    sockets = functools.cache(opened)
    links = [LinkProbe(link, sockets) for link in config.links]
    nics = [LinkProbe(nic, sockets) for nic in config.nics]
    by_tcp = [FlowProbe(flow, sockets) for flow in config.flows if "counters" not in flow]
    flows: list[FlowProbe | CountedProbe] = [
        *by_tcp, *(CountedProbe(flow) for flow in config.flows if "counters" in flow)
    ]  # fmt: skip
    queues, senders = _questions([*links, *nics]), _questions(flows)
    with (
        _table(config, "links") as link_file,
        _table(config, "nics", "links") if nics else open(os.devnull, "w") as nic_file,
        _table(config, "flows") as flow_file,
    ):
        cpu = CpuMeter()
        samples, worst = 0, 0
        next_cpu = next_shares = shares_at = config.start_ns
        acked_before: Carried = {}
        due = config.start_ns - config.interval_ns

        def now() -> int:
            """Virtual time is not read from the clock: nothing else here takes time, and the sampler must not advance it."""
            return due if config.virtual_time else time.monotonic_ns()

        def ask_timed(questions: Questions) -> tuple[str, Iterator[bytes], int]:
            """When it was asked, as tables have it; the answers; how long that took in ns."""
            before, answers, after = now(), questions.ask(), now()
            return f"{((before + after) // 2 - config.start_ns) / 1e9:.6f}", iter(answers), after - before

        punctual()
        sleep_until(config.wait_from_ns)
        timer = PeriodicTimer(config.start_ns, config.interval_ns)
        while not _stop_requested(timer):
            # Instants that could not be kept are left out, not made up for.
            due += timer.expirations() * config.interval_ns
            at, answers, took_ns = ask_timed(queues)
            link_file.writelines(link.line(at, answers) for link in links)
            nic_file.writelines(nic.line(at, answers) for nic in nics)
            worst = max(worst, took_ns)
            at, answers, _ = ask_timed(senders)
            lines = [flow.line(at, answers) for flow in flows]
            flow_file.writelines(line for line in lines if line is not None)
            if None in lines:
                flows = [flow for flow, line in zip(flows, lines, strict=True) if line is not None]
                senders = _questions(flows)
            samples += 1
            if due >= next_cpu and not config.virtual_time:
                cpu.tick()
                next_cpu = due + CPU_EVERY_NS
            if due >= next_shares:
                acked_now = _carried(flows)
                _print_shares(acked_now, acked_before, due - shares_at)
                acked_before, shares_at = acked_now, due
                next_shares = due + SHARES_EVERY_NS
    if any(link.bands for link in links):
        with _table(config, "priority_queues") as band_file:
            band_file.writelines(link.queue_lines() for link in links)
    used = os.times()
    print(json.dumps({
        "samples": samples, "cpu_s": used.user + used.system,
        "wall_s": (now() - config.start_ns) / 1e9, "slowest_link_read_us": worst / 1000,
        "busiest_core": cpu.busiest[1:], "steal": cpu.steal[1:], "senders": _senders(by_tcp),
    }), flush=True)  # fmt: skip


def _questions(probes: Sequence[LinkProbe | FlowProbe | CountedProbe]) -> Questions:
    return Questions([question for probe in probes for question in probe.questions])


def _table(config: Config, name: str, columns: str | None = None) -> TextIO:
    """A file of the run, with the ``columns`` of this table, if they are another's."""
    table = open(os.path.join(config.folder, f"{name}.csv"), "w", buffering=WRITTEN_AT_ONCE)  # noqa: SIM115
    table.write(config.header(columns or name))
    return table


def _carried(flows: Sequence[FlowProbe | CountedProbe]) -> Carried:
    found: Carried = {}
    for flow in flows:
        for name in flow.links:
            found[flow.job, name] = found.get((flow.job, name), 0) + flow.acked
    return found


def _senders(flows: list[FlowProbe]) -> list[dict[str, Any]]:
    """Of each job how long its flows had something to send, and what else than congestion control held them up."""
    jobs = {flow.job: [one.limited_us for one in flows if one.job == flow.job] for flow in flows}
    names = ("busy_s", "receive_window_s", "send_buffer_s")
    return [
        {"job": job, **{name: sum(times) / 1e6 for name, times in zip(names, zip(*limited, strict=True), strict=True)}}
        for job, limited in jobs.items()
    ]


def _stop_requested(timer: PeriodicTimer) -> bool:
    """Sleep until it expires; True as soon as stdin ends."""
    return sys.stdin in select.select([sys.stdin, timer], [], [])[0]


def _print_shares(now: Carried, before: Carried, span_ns: int) -> None:
    if before and span_ns > 0:
        print(json.dumps({"shares_bps": shares(now, before, span_ns)}), flush=True)


def shares(now: Carried, before: Carried, span_ns: int) -> dict[int, dict[str, float]]:
    """Return the rate of each job over each direction of a bottleneck since ``before``, in bit/s of payload."""
    found: dict[int, dict[str, float]] = {}
    for (job, link), acked in now.items():
        found.setdefault(job, {})[link] = max(0, acked - before.get((job, link), 0)) * 8e9 / span_ns
    return found


if __name__ == "__main__":
    main()
