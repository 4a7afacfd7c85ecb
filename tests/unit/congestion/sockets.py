"""kernel/tcp_mltcp_*.c as libraries for user space, and sockets for them (linux/kernel.h)."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

from tests.unit.congestion.core import ONE, ROOT, DcqcnParams, Params

STUBS = Path(__file__).with_name("linux")
TX_START = 0
ECN_OK = 1
FOREVER = 2**32 - 1


class Sock(ctypes.Structure):
    """struct sock"""

    _fields_ = [
        ("state", c_uint64 * 13),
        *((name, c_uint64) for name in ("bytes_acked", "bytes_sent", "tcp_mstamp", "delivered_mstamp", "pacing_rate")),
        ("ops", c_void_p),
        *((name, c_uint32) for name in (
            "snd_cwnd", "snd_cwnd_cnt", "snd_cwnd_clamp", "snd_ssthresh", "snd_una", "snd_nxt", "write_seq", "rcv_nxt",
            "lsndtime", "packets_out", "max_packets_out", "app_limited", "notsent_lowat", "delivered", "delivered_ce",
            "lost", "mss_cache", "min_rtt", "mark", "tcp_state", "pacing_status", "gso_max_size", "wmem_queued",
            "wmem_alloc", "ecn_flags", "ca_state", "pending",
        )),
    ]  # fmt: skip


class Ops(ctypes.Structure):
    """struct tcp_congestion_ops"""

    _fields_ = [
        ("init", CFUNCTYPE(None, POINTER(Sock))),
        ("release", CFUNCTYPE(None, POINTER(Sock))),
        ("ssthresh", CFUNCTYPE(c_uint32, POINTER(Sock))),
        ("cong_avoid", CFUNCTYPE(None, POINTER(Sock), c_uint32, c_uint32)),
        ("cong_control", CFUNCTYPE(None, POINTER(Sock), c_void_p)),
        ("set_state", CFUNCTYPE(None, POINTER(Sock), c_uint8)),
        ("cwnd_event", CFUNCTYPE(None, POINTER(Sock), c_int)),
        ("in_ack_event", CFUNCTYPE(None, POINTER(Sock), c_uint32)),
        ("pkts_acked", CFUNCTYPE(None, POINTER(Sock), c_void_p)),
        ("undo_cwnd", CFUNCTYPE(c_uint32, POINTER(Sock))),
        ("get_info", CFUNCTYPE(c_size_t, POINTER(Sock), c_uint32, POINTER(c_int), c_void_p)),
        ("flags", c_uint32),
        ("owner", c_void_p),
        ("name", c_char_p),
    ]


class Both(ctypes.Structure):
    """struct cc_params of MLTCP-DCQCN"""

    _fields_ = [("dcqcn", DcqcnParams), ("mltcp", Params)]


class Info(ctypes.Structure):
    """struct mltcp_info"""

    _fields_ = [("iterations", c_uint32), ("factor", c_uint32), ("ratio", c_int)]


def build(base: str, folder: Path) -> ctypes.CDLL:
    """Compile MLTCP's form of ``base`` in ``folder``, with empty files in place of Linux's headers, and load it."""
    source = folder / base
    shutil.copytree(ROOT / "kernel", source)
    shutil.copy(STUBS / "cc_module.h", source)
    for name in {name for path in source.glob("*.[ch]") for name in re.findall(r"#include <(.+)>", path.read_text())}:
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).touch()
    library = folder / f"{base}.so"
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-unused-parameter", "-Wno-sign-compare",
         "-shared", "-fPIC", "-include", str(STUBS / "kernel.h"), "-isystem", str(source), "-o", str(library),
         str(source / f"tcp_mltcp_{base}.c")],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(library))


class Module:
    """MLTCP's form of one base, with some of its parameters changed."""

    def __init__(self, library: ctypes.CDLL, **changes: int) -> None:
        self.library = library
        self.ops = POINTER(Ops).in_dll(library, "cc_ops").contents
        both = Both.in_dll(library, "cc_parameters") if self.ops.name == b"mltcp_dcqcn" else None
        self.mltcp: Params = both.mltcp if both else Params.in_dll(library, "cc_parameters")
        self.dcqcn: DcqcnParams | None = both.dcqcn if both else None
        self.factor(2.0)
        for name in ("share", "floor_cwnd", "host_limit"):
            setattr(self.mltcp, name, changes.get(name, 0))

    def factor(self, f: float) -> None:
        """F is ``f`` for every r, and r is known."""
        self.mltcp.slope, self.mltcp.intercept, self.mltcp.total_bytes = 0, round(f * ONE), 1_000_000

    def clock(self, seconds: float) -> None:
        """The time of all sockets, in jiffies."""
        c_uint32.in_dll(self.library, "tcp_jiffies32").value = round(1000 * seconds)

    def socket(self, cwnd: int, ssthresh: int = 2, mark: int = 0) -> Sock:
        """A connection with ECN, in congestion avoidance unless ``ssthresh`` says otherwise."""
        sk = Sock(
            snd_cwnd=cwnd, snd_ssthresh=ssthresh, snd_cwnd_clamp=FOREVER, ecn_flags=ECN_OK, app_limited=1, mark=mark,
            mss_cache=1448, tcp_state=1,
        )  # fmt: skip
        self.ops.init(sk)
        return sk

    def ack(self, sk: Sock, segments: int) -> None:
        """So many are ACKed."""
        self.ops.cong_avoid(sk, 0, segments)

    def told(self, sk: Sock) -> Info:
        """What sock_diag reports."""
        info, attribute = Info(), c_int()
        assert self.ops.get_info(sk, 1 << 2, byref(attribute), byref(info))
        return info
