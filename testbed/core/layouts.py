"""Offsets in the kernel's structures, and its constants; standard library only, because hosts import it.

`tests/unit/core/test_layouts.py` checks all of it against the kernel's headers, and ours against `kernel/bpf`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

SIZES = {"B": 1, "I": 4, "i": 4, "Q": 8, "q": 8}


@dataclass(frozen=True)
class Layout:
    """Members of one C structure: offset and type (as `struct` has it) of each, in memory order."""

    name: str
    header: str
    members: dict[str, tuple[int, str]]
    size: int | None = None  # bytes of the complete struct, where it matters

    def reader(self, *members: str) -> struct.Struct:
        """Return a function that unpacks these fields."""
        form, at = "=", 0
        for offset, kind in (self.members[member] for member in members):
            form, at = f"{form}{offset - at}x{kind}", offset + SIZES[kind]
        return struct.Struct(form)


UAPI = "linux/"
TCP_INFO = Layout(
    "struct tcp_info",
    f"{UAPI}tcp.h",
    {
        "tcpi_rtt": (68, "I"),
        "tcpi_rttvar": (72, "I"),
        "tcpi_snd_ssthresh": (76, "I"),
        "tcpi_snd_cwnd": (80, "I"),
        "tcpi_total_retrans": (100, "I"),
        "tcpi_bytes_acked": (120, "Q"),
        "tcpi_busy_time": (168, "Q"),
        "tcpi_rwnd_limited": (176, "Q"),
        "tcpi_sndbuf_limited": (184, "Q"),
        "tcpi_delivered_ce": (196, "I"),
    },
)
TCP_INFO_BYTES = 200  # bytes up to the last field read here
# The MLTCP state of a flow, which our modules report in a separate attribute.
MLTCP_INFO = Layout(
    "struct mltcp_info", "mltcp_diag.h", {"iterations": (0, "I"), "factor": (4, "I"), "ratio": (8, "i")}, 12
)
RED_XSTATS = Layout(
    "struct tc_red_xstats", f"{UAPI}pkt_sched.h", {"early": (0, "I"), "pdrop": (4, "I"), "marked": (12, "I")}
)
QUEUE_STATS = Layout(
    "struct gnet_stats_queue",
    f"{UAPI}gen_stats.h",
    {"qlen": (0, "I"), "backlog": (4, "I"), "drops": (8, "I")},
)
BASIC_STATS = Layout("struct gnet_stats_basic", f"{UAPI}gen_stats.h", {"bytes": (0, "Q"), "packets": (8, "I")})
# In maps of the testbed's eBPF programs: a look-up writes the complete value.
FLOW_KEY = Layout("struct mltcp_flow_key", "mltcp_reno.bpf.c", {"netns": (0, "Q")}, 48)
JOB_KEY = Layout("struct mltcp_job_key", "mltcp_reno.bpf.c", {"netns": (0, "Q"), "mark": (8, "I")}, 16)
JOB = Layout("struct mltcp_job", "mltcp_reno.bpf.c", {"sent": (0, "Q"), "total_bytes": (8, "Q")}, 24)
FLOW = Layout(
    "struct mltcp_flow", "mltcp_reno.bpf.c", {"start": (0, "Q"), "total_bytes": (8, "Q"), "iterations": (16, "I")}, 24
)
# The state that our transports keep of each peer, in memory shared with the sampler (testbed/transports/datagram/native).
PEER = Layout(
    "struct dg_flow_sample",
    "counters.h",
    {"window": (0, "Q"), "rtt_us": (8, "Q"), "acked": (16, "Q"), "resent": (24, "Q")},
    32,
)
# io_uring, the same on every processor.
IORING_PARAMETERS = Layout(
    "struct io_uring_params",
    f"{UAPI}io_uring.h",
    {
        "sq_entries": (0, "I"),
        "cq_entries": (4, "I"),
        "sq_off.tail": (44, "I"),
        "sq_off.ring_mask": (48, "I"),
        "sq_off.array": (64, "I"),
        "cq_off.head": (80, "I"),
        "cq_off.tail": (84, "I"),
        "cq_off.cqes": (100, "I"),
    },
    120,
)
IORING_SQE = Layout(
    "struct io_uring_sqe",
    f"{UAPI}io_uring.h",
    {"opcode": (0, "B"), "fd": (4, "i"), "addr": (16, "Q"), "len": (24, "I")},
    64,
)
IORING_CQE = Layout("struct io_uring_cqe", f"{UAPI}io_uring.h", {"res": (8, "i")}, 16)
PHANTOM = Layout("struct queue", "phantom.bpf.c", {"marks": (0, "Q")}, 24)
MAP_INDEX_BYTES = 4  # of an array's key
LAYOUTS = (
    TCP_INFO,
    MLTCP_INFO,
    RED_XSTATS,
    QUEUE_STATS,
    BASIC_STATS,
    FLOW_KEY,
    FLOW,
    JOB_KEY,
    JOB,
    PEER,
    PHANTOM,
    IORING_PARAMETERS,
    IORING_SQE,
    IORING_CQE,
)

# Messages: how long each is before its attributes.
INET_DIAG_MSG_BYTES, TCMSG_BYTES = 72, 20
MESSAGES = {
    "struct inet_diag_msg": (f"{UAPI}inet_diag.h", INET_DIAG_MSG_BYTES),
    "struct tcmsg": (f"{UAPI}rtnetlink.h", TCMSG_BYTES),
}
NLM_F_REQUEST, NLM_F_ECHO = 1, 8
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
TC_H_ROOT = 0xFFFFFFFF
TCA_STATS2, TCA_STATS_BASIC, TCA_STATS_QUEUE, TCA_STATS_APP = 7, 1, 3, 4
SOCK_DIAG_BY_FAMILY, INET_DIAG_INFO, INET_DIAG_VEGASINFO = 20, 2, 3
MLTCP_DIAG_INFO = 0x3E00  # reported on a query for a congestion control's state: INET_DIAG_VEGASINFO
SO_NETNS_COOKIE = 71
NETLINK_SOCK_DIAG = 4
IORING_OFF_SQES, IORING_OP_SEND, IORING_OP_RECV, IORING_ENTER_GETEVENTS = 0x10000000, 26, 27, 1
SYS_IO_URING_SETUP, SYS_IO_URING_ENTER = 425, 426
NUMBERS = {
    f"{UAPI}netlink.h": ("NLM_F_REQUEST", "NLM_F_ECHO", "NETLINK_SOCK_DIAG"),
    f"{UAPI}rtnetlink.h": ("RTM_NEWQDISC", "RTM_GETQDISC", "TCA_STATS2"),
    f"{UAPI}pkt_sched.h": ("TC_H_ROOT",),
    f"{UAPI}gen_stats.h": ("TCA_STATS_BASIC", "TCA_STATS_QUEUE", "TCA_STATS_APP"),
    f"{UAPI}sock_diag.h": ("SOCK_DIAG_BY_FAMILY",),
    f"{UAPI}inet_diag.h": ("INET_DIAG_INFO", "INET_DIAG_VEGASINFO"),
    f"{UAPI}io_uring.h": ("IORING_OFF_SQES", "IORING_OP_SEND", "IORING_OP_RECV", "IORING_ENTER_GETEVENTS"),
    "asm/socket.h": ("SO_NETNS_COOKIE",),
}
