"""kernel/mltcp.h and kernel/dcqcn.h as a library for user space, with UBSan, and with ASan where CORE_ASAN is set."""

from __future__ import annotations

import ctypes
import os
import subprocess
from ctypes import c_bool, c_int8, c_int32, c_uint8, c_uint16, c_uint32, c_uint64
from pathlib import Path

ROOT = Path(__file__).parents[3]
ONE = 1024
CA_PRIV_BYTES = 104  # what the kernel gives a congestion control per socket


class Params(ctypes.Structure):
    """struct mltcp_params"""

    _fields_ = [
        ("slope", c_int32), ("intercept", c_int32), ("curve", c_uint32), ("gap_factor", c_uint32),
        ("first_gap_us", c_uint32), ("learn", c_uint32), ("ratio", c_uint32), ("share", c_uint32), ("given", c_uint32), ("restart", c_uint32), ("host_limit", c_uint32), ("floor_cwnd", c_uint32),
        ("apply", c_uint32), ("total_bytes", c_uint64),
    ]  # fmt: skip


class State(ctypes.Structure):
    """struct mltcp"""

    _fields_ = [
        ("start", c_uint64), ("total_bytes", c_uint64), ("gap_us", c_uint32), ("inverse", c_uint32),
        ("iterations", c_uint16), ("carry", c_uint16), ("pauses", c_uint8), ("rare", c_uint8), ("shift", c_int8),
        ("outsized", c_uint8, 1), ("begun", c_uint8, 1), ("halved", c_uint8, 1), ("provisional", c_uint8, 1),
    ]  # fmt: skip


class DcqcnParams(ctypes.Structure):
    """struct dcqcn_params"""

    _fields_ = [
        *((name, c_uint32) for name in ("line_rate", "r_ai", "r_hai", "g", "cnp_interval", "alpha_timer",
                                        "rate_timer", "fast_recovery")),
        ("byte_counter", c_uint64),
    ]  # fmt: skip


class Dcqcn(ctypes.Structure):
    """struct dcqcn"""

    _fields_ = [
        ("current_rate", c_uint64), ("target_rate", c_uint64), ("bytes_at", c_uint64), ("alpha", c_uint32),
        ("cnp_at", c_uint32), ("alpha_at", c_uint32), ("rate_at", c_uint32), ("timer_count", c_uint16),
        ("byte_count", c_uint16),
    ]  # fmt: skip


def build(folder: Path) -> ctypes.CDLL:
    """Compile into ``folder`` and load."""
    library = folder / "core.so"
    sanitizers = "undefined,address" if os.environ.get("CORE_ASAN") else "undefined"
    subprocess.run(
        ["gcc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all",
         "-static-libubsan", "-shared", "-fPIC", "-I", str(ROOT / "kernel"), "-o", str(library),
         str(Path(__file__).with_name("core.c"))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    core = ctypes.CDLL(str(library))
    p, s, dp, d = (ctypes.POINTER(kind) for kind in (Params, State, DcqcnParams, Dcqcn))
    signatures = {
        "core_scale": (c_uint32, [s, p, c_uint64, c_uint32]),
        "core_tx_start": (c_bool, [s, p, c_uint64, c_uint64, c_uint32]),
        "core_ratio": (c_int32, [s, p, c_uint64]),
        "core_know": (None, [s, c_uint64]),
        "core_factor": (c_uint32, [p, c_int32]),
        "core_given": (c_uint64, [p, c_uint32]),
        "core_reduced": (c_uint32, [c_uint32, c_uint32, c_uint32]),
        "core_window": (c_uint32, [p, c_uint32, c_uint32]),
        "core_threshold": (c_uint32, [p, c_uint32, c_uint32]),
        "core_dcqcn_init": (None, [d, dp, c_uint32, c_uint64]),
        "core_dcqcn_cnp": (c_bool, [d, dp, c_uint32, c_uint64]),
        "core_dcqcn_advance": (None, [d, dp, c_uint32, c_uint64, c_uint32]),
    }
    for name, (result, arguments) in signatures.items():
        getattr(core, name).restype = result
        getattr(core, name).argtypes = arguments
    return core
