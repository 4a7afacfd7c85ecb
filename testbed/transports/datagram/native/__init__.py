"""Build and load the transports' C core, a shared library for ctypes, whose file name contains a digest of its sources.

``make setup`` builds it (``python -m testbed.transports.datagram.native``). Otherwise the first plan that needs it
builds it, if there is a C compiler. It needs only libc, and runs on any x86-64 machine (or this machine's
architecture). A run finds it below ``build/`` of the checkout, or in the content of a wheel.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import secrets
import shutil
import subprocess
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path

from testbed.core.environment import IS_CHECKOUT, ROOT, cache_folder
from testbed.core.errors import MachineError

FOLDER = Path(__file__).parent
# Bsymbolic: its files call each other, even if the process has loaded other libraries with these names.
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-s", "-Wl,-Bsymbolic", "-pthread")
BASELINE = {"x86_64": ("-march=x86-64",)}  # without extensions of this machine
NEVER = 2**64 - 1
DATA_HEADER = 60  # DG_DATA_HEADER
KEY_BYTES, MAC_BYTES = 16, 8  # SIPHASH_KEY, SIPHASH_MAC
UDP_IP_HEADERS = 28


class Congestion(Structure):
    """``struct congestion_settings`` of the C core."""

    _fields_ = (
        ("control", c_uint32), ("step_permille", c_uint32), ("decrease_permille", c_uint32), ("first_permille", c_uint32),
        ("increase_wins", c_uint32), ("by_gradient", c_uint32), ("low_ns", c_uint64), ("high_ns", c_uint64),
    )  # fmt: skip


class Settings(Structure):
    """``struct dg_settings`` of the C core."""

    _fields_ = (
        ("rank", c_uint32), ("ranks", c_uint32), ("segment", c_uint32), ("reorder", c_uint32), ("rtts_permille", c_uint32),
        ("acks", c_uint32), ("coalesce_ns", c_uint64), ("silence_ns", c_uint64), ("seed", c_uint64 * 2),
        ("congestion", Congestion), ("control_tag", c_uint32),
        ("offset_permille", c_uint32), ("slope_permille", c_uint32), ("discards", c_uint32),
    )  # fmt: skip


class Close(Structure):
    """``struct dg_closing_rule`` of the C core."""

    _fields_ = (
        ("tolerance", c_double), ("fraction", c_double), ("lt_ns", c_int64), ("after_ns", c_int64), ("group", c_uint64),
        ("shared_lt", c_uint32), ("keep", c_uint32),
    )  # fmt: skip


class Result(Structure):
    """``struct dg_result`` of the C core."""

    _fields_ = (
        ("bytes", c_uint64), ("delivered", c_uint64), ("resent", c_uint64), ("first_ns", c_uint64), ("last_ns", c_uint64),
        ("clock_ns", c_uint64), ("holes", c_uint64), ("reason", c_uint32), ("done", c_uint32), ("gone", c_uint32),
        ("stalled", c_uint32),
    )  # fmt: skip


class Counters(Structure):
    """``struct dg_counters`` of the C core."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "acked",
            "sent",
            "resent",
            "rate_bps",
            "rtprop_ns",
            "rtt_ns",
            "window",
            "stale",
            "malformed",
            "burst",
            "handed",
        )
    )


class OwnCounters(Structure):
    """``struct endpoint_counters`` of the C core."""

    _fields_ = tuple(
        (name, c_uint64) for name in ("overflowed", "not_sent", "foreign", "wake_ups", "received", "sent", "forged")
    )


class Span(Structure):
    """``struct dg_span`` of the C core."""

    _fields_ = (("offset", c_uint64), ("bytes", c_uint64))


class Packet(Structure):
    """``struct dg_packet`` of the C core."""

    _fields_ = (
        ("rank", c_uint32), ("header_bytes", c_uint32), ("payload_bytes", c_uint32), ("tag", c_uint32),
        ("payload", c_void_p), ("header", ctypes.c_uint8 * 1400),
    )  # fmt: skip


_SENDS = (c_void_p, c_uint32, c_uint32, c_uint32, c_uint64, c_void_p)
_TAGS = (c_char_p,)
_CRITICAL = (POINTER(Span), c_size_t)
_FUNCTIONS = {
    "endpoint_open": (
        c_void_p,
        (
            POINTER(Settings),
            POINTER(c_char_p),
            POINTER(c_uint16),
            c_int,
            c_int,
            c_int,
            c_char_p,
            c_int,
            c_uint64,
            POINTER(c_char_p),
            c_uint32,
            c_int,
        ),
    ),
    "endpoint_close": (None, (c_void_p,)),
    "endpoint_call": (None, (c_void_p, c_uint32)),
    "endpoint_await": (c_int, (c_void_p, c_uint32, c_uint64)),
    "endpoint_segment": (c_uint32, (c_void_p, c_uint32)),
    "endpoint_send": (c_void_p, (*_SENDS, *_TAGS, *_CRITICAL)),
    "endpoint_receive": (c_void_p, (*_SENDS, POINTER(Close), *_CRITICAL)),
    "endpoint_wait": (None, (c_void_p, c_void_p, c_uint64, POINTER(Result))),
    "endpoint_holes": (c_size_t, (c_void_p, c_void_p, POINTER(Span), c_size_t)),
    "endpoint_follow": (c_int, (c_void_p, c_void_p, c_uint64)),
    "endpoint_heard": (c_uint32, (c_void_p, POINTER(c_uint64), c_uint32)),
    "endpoint_release": (None, (c_void_p, c_void_p)),
    "endpoint_read": (None, (c_void_p, c_uint32, POINTER(Counters), POINTER(OwnCounters))),
    "endpoint_end": (None, (c_void_p, c_uint32)),
    "means_of": (None, (c_char_p, c_uint64, c_uint32, c_uint32, c_int, POINTER(c_double))),
    # The state machine and the MAC alone, for tests.
    "siphash": (None, (c_char_p, c_char_p, c_size_t, c_char_p)),
    "dg_new": (c_void_p, (POINTER(Settings),)),
    "dg_delete": (None, (c_void_p,)),
    "dg_call": (None, (c_void_p, c_uint32, c_uint64)),
    "dg_connected": (c_int, (c_void_p, c_uint32)),
    "dg_send": (c_void_p, (*_SENDS, *_TAGS, *_CRITICAL, c_uint64)),
    "dg_receive": (c_void_p, (*_SENDS, POINTER(Close), *_CRITICAL, c_uint64)),
    "dg_result": (None, (c_void_p, POINTER(Result))),
    "dg_holes": (c_size_t, (c_void_p, POINTER(Span), c_size_t)),
    "dg_release": (None, (c_void_p, c_void_p)),
    "dg_input": (c_int, (c_void_p, c_char_p, c_size_t, c_uint64, c_uint64)),
    "dg_marked": (None, (c_void_p, c_uint32)),
    "dg_output": (c_int, (c_void_p, c_uint64, POINTER(Packet))),
    "dg_next": (c_uint64, (c_void_p, c_uint64)),
    "dg_tick": (None, (c_void_p, c_uint64)),
    "dg_gone": (None, (c_void_p, c_uint32)),
    "dg_end": (None, (c_void_p, c_uint32)),
    "dg_is_gone": (c_int, (c_void_p, c_uint32)),
    "dg_read": (None, (c_void_p, c_uint32, POINTER(Counters))),
}


def sources() -> list[Path]:
    """The sources of the library."""
    return sorted(FOLDER.glob("*.[ch]"))


def path() -> Path:
    """The path of the built library, present or future: its name identifies its sources."""
    content = hashlib.sha256(" ".join((*_flags(), platform.machine())).encode())
    for source in sources():
        content.update(source.name.encode() + b"\0" + source.read_bytes())
    below = Path(f"transports-{content.hexdigest()[:16]}", "libtransport.so")
    here = Path(ROOT, "build") / below
    return here if IS_CHECKOUT or here.exists() else Path(cache_folder()) / below


def _flags() -> tuple[str, ...]:
    return (*FLAGS, *BASELINE.get(platform.machine(), ()))


def build() -> Path:
    """Build it, unless it is there; raises `MachineError`."""
    target = path()
    if target.exists():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise MachineError("ltp needs its core, which is built by a C compiler, and there is none: `make setup`.")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{secrets.token_hex(8)}.so")
    words = [compiler, *_flags(), "-o", str(beside), *(one.name for one in sources() if one.suffix == ".c")]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=FOLDER)
        if done.returncode:
            raise MachineError(f"ltp needs its core, which could not be built ({compiler}):\n{done.stderr.strip()}")
        os.rename(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    return target


@cache
def load() -> ctypes.CDLL:
    """Load the library. Raises `MachineError`."""
    where = path()
    try:
        library = ctypes.CDLL(str(where), use_errno=True)
    except OSError as error:
        raise MachineError(
            f"ltp needs its core, {where.name}, built for this machine: `make setup` ({error})."
        ) from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
