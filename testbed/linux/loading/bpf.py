"""Load eBPF congestion controls and classifiers, through libbpf and one system call.

A struct_ops *link* ties the algorithm to a file descriptor. The kernel removes the link when the process that holds it
ends, also after ``kill -9`` (Linux 6.4, commit 68b04864ca42). Debian 12's libbpf 1.1 does not support such links.
Therefore the map gets ``BPF_F_LINK`` before load, and ``bpf(BPF_LINK_CREATE)`` creates the link.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import io
import os
import re
import shutil
import signal
import stat
import subprocess
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from testbed.core import folders
from testbed.core.environment import ROOT, cache_folder
from testbed.core.errors import MachineError, RequestError, TestbedError
from testbed.linux.loading import bpfsys
from testbed.linux.loading.bpfsys import libc
from testbed.linux.loading.declared import Range

BPF_F_LINK = 1 << 13
BPF_MAP_TYPE_STRUCT_OPS = 26
HEADERS = Path(ROOT) / "kernel" / "bpf"
SEAL_BYTES = hashlib.sha256().digest_size
CWND_EVENT_TX_START = "-DHAVE_CWND_EVENT_TX_START"
MAY_NOT = (
    "An eBPF congestion control may change of a socket its own icsk_ca_priv, snd_cwnd, snd_cwnd_cnt, snd_cwnd_stamp, "
    "snd_ssthresh, the pacing rate and status, ecn_flags, app_limited and icsk_ack.pending, and nothing else; it may call helpers and the "
    "kernel functions declared in kernel/bpf/tcp.h and kernel/bpf/mltcp_cubic.bpf.c; its loops must have an end the kernel "
    "can see; it has no floating point, no signed division, and a stack of 512 bytes; its licence must be compatible with the "
    "GPL; and it must have ssthresh, undo_cwnd and either cong_avoid or cong_control (docs/reference/congestion-controls.md)."
)


@dataclass(frozen=True)
class Program:
    """A loaded program for packets or sockets; it stays where it is attached after `close`."""

    program_fd: int
    map_fds: Mapping[str, int]

    def close(self) -> None:
        for fd in (self.program_fd, *self.map_fds.values()):
            os.close(fd)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A registered congestion control; `close` (or the end of this object, or of the process) takes it away."""

    name: str
    link_fd: int
    map_fds: Mapping[str, int]
    repairs_at: tuple[int, int] | None  # offset and size in .bss
    bss_size: int

    _end: Callable[[], object] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_end", weakref.finalize(self, _close, (self.link_fd, *self.map_fds.values())))

    def close(self) -> None:
        self._end()

    def repairs(self) -> int | None:
        """Return how many calls that the kernel skipped were repaired (kernel/bpf/guard.h); None: not counted."""
        if self.repairs_at is None:
            return None
        offset, size = self.repairs_at
        (bss,) = (fd for name, fd in self.map_fds.items() if name.endswith(".bss"))
        data = bpfsys.MapReader(bss, 4, self.bss_size)(bytes(4)) or b""
        return int.from_bytes(data[offset : offset + size], "little")


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Block signals that end this process, until a new registration has been recorded."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cache_dir() -> Path:
    """Return the folder of compiled programs."""
    return Path(cache_folder())


def compile_program(source: Path) -> bytes:
    """The ELF object of an eBPF program; compiled once per content of its folder and headers."""
    return _compiled(source, _what_the_kernel_has())[1][:-SEAL_BYTES]


def compile_for_others(source: Path) -> dict[str, bytes]:
    """The program for every kernel that another machine may have, by its name in `cache_dir`; none without clang here."""
    if shutil.which("clang") is None:
        return {}
    return dict(_compiled(source, flags) for flags in ([], [CWND_EVENT_TX_START]))


def _compiled(source: Path, flags: list[str]) -> tuple[str, bytes]:
    """Its name in `cache_dir`, the same on every machine, and the content of the file: the object, and its digest."""
    options = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", *flags]
    digest = hashlib.sha256(" ".join(options).encode())
    for folder in dict.fromkeys((source.parent, HEADERS, HEADERS.parent)):
        for header in sorted(folder.glob("*.h")):
            digest.update(header.read_bytes())
    digest.update(source.read_bytes())
    cached = cache_dir() / f"{source.name.removesuffix('.bpf.c')}-{digest.hexdigest()[:16]}.bpf.o"
    if (sealed := _cached(cached)) is not None:
        return cached.name, sealed
    clang = shutil.which("clang")
    if clang is None:
        raise MachineError(
            "clang is not installed, and the congestion controls in eBPF are compiled with it: "
            "run `make setup`, or install the packages clang and libbpf-dev."
        )
    command = [clang, *options, "-I", str(source.parent), "-I", str(HEADERS), "-c", str(source), "-o", "-"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        own = source.parent != HEADERS
        output = done.stderr.decode(errors="replace").strip()
        raise (RequestError if own else MachineError)(f"clang could not compile {source}:\n{output}")
    program = done.stdout
    sealed = program + hashlib.sha256(program).digest()
    with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to stop
        keep(cached, sealed)
    return cached.name, sealed


def keep(path: Path, content: bytes) -> None:
    """Write a file of the cache. Raises `OSError`, also for root in the home folder of another user (`sudo -E`)."""
    if os.geteuid() == 0 and not _is_roots(path.parent.absolute()):
        raise PermissionError(errno.EPERM, "another user may replace the folder", str(path.parent))
    path.parent.mkdir(parents=True, exist_ok=True)
    folders.put(path, content)


def _is_roots(folder: Path) -> bool:
    """Whether only root can replace ``folder`` or its existing parents. Symbolic links do not qualify."""
    first, *above = (path.lstat() for path in (folder, *folder.parents) if os.path.lexists(path))
    movable = [one for one in above if not one.st_mode & stat.S_ISVTX]
    return all(one.st_uid == 0 for one in (first, *above)) and not any(one.st_mode & 0o022 for one in (first, *movable))


def _cached(path: Path) -> bytes | None:
    """A sealed program of the cache, if it is complete and, for root, owned by root."""
    try:
        with path.open("rb") as file:
            if os.geteuid() == 0 and os.fstat(file.fileno()).st_uid != 0:
                return None
            sealed = file.read()
    except OSError:
        return None
    return sealed if hashlib.sha256(sealed[:-SEAL_BYTES]).digest() == sealed[-SEAL_BYTES:] else None


@cache
def _what_the_kernel_has() -> list[str]:
    """Definitions for types that differ between kernels, from the running kernel's BTF."""
    try:
        types = Path("/sys/kernel/btf/vmlinux").read_bytes()
    except OSError:
        return []
    # Linux 7 reports CA_EVENT_TX_START only through a separate operation.
    return [CWND_EVENT_TX_START] if b"\0cwnd_event_tx_start\0" in types else []


def specialise(program: bytes, name: str, constants: Mapping[str, int]) -> bytes:
    """A copy of an ELF object that registers as ``name`` and has its ``.rodata`` constants set.

    Both are patched in the object's bytes, since libbpf offers access to the struct_ops
    data only from 1.4 on. Raises `TestbedError` for a constant the program does not have.
    """
    elf = _elf(program)
    out = bytearray(program)
    ops = elf.get_section_by_name(".struct_ops") or elf.get_section_by_name(".struct_ops.link")
    if ops is None:
        raise TestbedError('the eBPF program has no SEC(".struct_ops") congestion control')
    # The section holds flags, relocated pointers (zero) and the name: its only text.
    match = re.search(rb"[A-Za-z][A-Za-z0-9_.-]{0,14}\0", ops.data())
    if match is None:
        raise TestbedError("the eBPF program's congestion control has no .name")
    at = ops["sh_offset"] + match.start()
    out[at : at + 16] = name.encode().ljust(16, b"\0")
    return with_constants(bytes(out), constants)


def with_constants(program: bytes, constants: Mapping[str, int]) -> bytes:
    """A copy of an ELF object with these constants; raises `TestbedError` for one that it does not have."""
    out = bytearray(program)
    elf = _elf(program)
    rodata: Any = elf.get_section_by_name(".rodata")
    for constant, value in constants.items():
        offset, size = _place(program, constant, ".rodata")
        at = rodata["sh_offset"] + offset
        out[at : at + size] = value.to_bytes(size, "little", signed=value < 0)
    return bytes(out)


def find_constant_ranges(program: bytes) -> dict[str, Range | None]:
    """The constants of an ELF object (``const volatile`` globals) by name, with the numbers that fit each."""
    elf = _elf(program)
    symbols: Any = elf.get_section_by_name(".symtab")
    found: dict[str, Range | None] = {}
    for symbol in symbols.iter_symbols() if symbols else ():
        where, size = symbol["st_shndx"], symbol["st_size"]
        if (
            symbol["st_info"]["type"] == "STT_OBJECT"
            and isinstance(where, int)
            and elf.get_section(where).name == ".rodata"
        ):
            unsigned, signed = (Range.from_bits(8 * size, signed=one) for one in (False, True))
            found[symbol.name] = Range(signed.lowest, unsigned.highest)  # ELF does not record the signedness
    return found


def read_constants(map_fds: Mapping[str, int], program: bytes, constants: Mapping[str, int]) -> dict[str, int]:
    """Return the values of these constants as the kernel holds them, signed or unsigned as declared."""
    if not constants:  # such a program may have no section for them
        return {}
    elf = _elf(program)
    (fd,) = (fd for name, fd in map_fds.items() if name.endswith(".rodata"))
    rodata: Any = elf.get_section_by_name(".rodata")
    data = bpfsys.MapReader(fd, 4, rodata["sh_size"])(bytes(4)) or b""
    places = {name: _place(program, name, ".rodata") for name in constants}
    return {
        name: int.from_bytes(data[at : at + size], "little", signed=constants[name] < 0)
        for name, (at, size) in places.items()
    }


def _elf(program: bytes) -> Any:
    """Imported when there is a program: a guest that has modules would wait for it in vain."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    return ELFFile(io.BytesIO(program))


def _place(program: bytes, variable: str, section: str) -> tuple[int, int]:
    """Offset and size of a global variable in its section; raises `TestbedError` if there is none."""
    elf = _elf(program)
    symbols: Any = elf.get_section_by_name(".symtab")
    for symbol in symbols.get_symbol_by_name(variable) or []:
        where = symbol["st_shndx"]
        if isinstance(where, int) and elf.get_section(where).name == section:
            return symbol["st_value"], symbol["st_size"]
    raise TestbedError(f"the eBPF program has no constant {variable!r}")


def register(program: bytes, name: str, constants: Mapping[str, int]) -> Loaded:
    """Load ``program`` and register its congestion control under ``name`` (15 characters at most).

    Raises `MachineError` where the kernel refuses, with the verifier's own words.
    """
    if name in available():
        raise TestbedError(
            f"a congestion control named {name!r} is already registered on this machine by "
            f"another program; `mltcp cc status` lists them."
        )
    return _registered(program, name, constants, None)


def replace(program: bytes, name: str, constants: Mapping[str, int], link_fd: int) -> Loaded:
    """Replace the program of ``link_fd`` by ``program`` atomically; its connections keep their state."""
    return _registered(program, name, constants, link_fd)


def _registered(program: bytes, name: str, constants: Mapping[str, int], replaces: int | None) -> Loaded:
    lib = _libbpf()
    bss: Any = _elf(program).get_section_by_name(".bss")
    counts = bss is not None and b"ca_repairs" in program
    repairs = _place(program, "ca_repairs", ".bss") if counts else None
    with _collected_log() as log, _opened(specialise(program, name, constants), name, log) as (obj, maps):
        ops = next((m for m in maps.values() if lib.bpf_map__type(m) == BPF_MAP_TYPE_STRUCT_OPS), None)
        if ops is None:
            raise TestbedError('the eBPF program has no SEC(".struct_ops") congestion control')
        lib.bpf_map__set_map_flags(ops, lib.bpf_map__map_flags(ops) | BPF_F_LINK)
        if lib.bpf_object__load(obj):
            raise MachineError(f"the kernel refuses the program of {name}: {_tail(log)}\n{MAY_NOT}")
        fds: dict[str, int] = {}
        own = -1
        loaded: Loaded | None = None
        try:
            with _uninterrupted():
                own = _linked(ops, name, replaces, log)
                fds = _kept({key: m for key, m in maps.items() if m != ops})
                loaded = Loaded(name, own, fds, repairs, bss["sh_size"] if bss else 0)
        except BaseException:
            if loaded is not None:
                loaded.close()
            elif own >= 0:
                _close((own, *fds.values()))
            raise
    return loaded


def _linked(ops: Any, name: str, replaces: int | None, log: list[str]) -> int:
    """The descriptor of the link that registers a loaded map."""
    lib = _libbpf()
    # Up to libbpf 1.1 this fills the map and no more; from 1.2 on it also makes the link (in vain for a name that
    # is taken by the one to be replaced).
    link = lib.bpf_map__attach_struct_ops(ops)
    if replaces is not None:
        own = os.dup(replaces)
        _update(own, lib.bpf_map__fd(ops), name, log)
    elif not link:
        raise MachineError(f"the kernel refuses to register {name}: {_tail(log)}\n{MAY_NOT}")
    else:
        fd = lib.bpf_link__fd(link)
        own = fd if _is_link(fd) else _link(lib.bpf_map__fd(ops), name)
    if link:
        # The destructor would undo it (1.1: empty the map; later: close our descriptor).
        lib.bpf_link__disconnect(link)
        lib.bpf_link__destroy(link)
    os.set_inheritable(own, False)
    return int(own)


def load_program(program: bytes, constants: Mapping[str, int]) -> Program:
    """Load the one program of an object, for packets or sockets; raises `MachineError` where the kernel refuses."""
    lib = _libbpf()
    with _collected_log() as log, _opened(with_constants(program, constants), "a program", log) as (obj, maps):
        if lib.bpf_object__load(obj):
            raise MachineError(f"the kernel refuses an eBPF program: {_tail(log)}")
        fd = os.dup(lib.bpf_program__fd(lib.bpf_object__next_program(obj, None)))
        os.set_inheritable(fd, False)
        return Program(fd, _kept(maps))


@contextlib.contextmanager
def _opened(image: bytes, name: str, log: list[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """An object that libbpf has read, and its maps by name; closed with the block."""
    lib = _libbpf()
    obj = lib.bpf_object__open_mem(image, len(image), None)
    if not obj:
        raise MachineError(f"libbpf cannot read the program of {name}: {_tail(log)}\n{MAY_NOT}")
    try:
        maps = {}
        bpf_map = lib.bpf_object__next_map(obj, None)
        while bpf_map:
            maps[lib.bpf_map__name(bpf_map).decode()] = bpf_map
            bpf_map = lib.bpf_object__next_map(obj, bpf_map)
        yield obj, maps
    finally:
        lib.bpf_object__close(obj)


def _kept(maps: Mapping[str, Any]) -> dict[str, int]:
    """Descriptors of our own of loaded maps."""
    lib = _libbpf()
    fds = {name: os.dup(lib.bpf_map__fd(m)) for name, m in maps.items()}
    for fd in fds.values():
        os.set_inheritable(fd, False)
    return fds


def available() -> list[str]:
    """Return the names of all congestion controls of this machine, of all namespaces."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def _link(map_fd: int, name: str) -> int:
    try:
        return bpfsys.create_struct_ops_link(map_fd)
    except OSError as error:
        hint = (
            " (a callback is missing, or struct_ops links, which need Linux 6.4)" if error.errno == errno.EINVAL else ""
        )
        raise MachineError(f"the kernel refuses to register {name}: {error.strerror}{hint}\n{MAY_NOT}") from error


def _update(link_fd: int, map_fd: int, name: str, log: list[str]) -> None:
    try:
        bpfsys.update_struct_ops_link(link_fd, map_fd)
    except OSError as error:
        os.close(link_fd)
        raise MachineError(f"the kernel refuses to replace {name}: {error.strerror} {_tail(log)}") from error


def _is_link(fd: int) -> bool:
    return fd >= 0 and "link" in os.readlink(f"/proc/self/fd/{fd}")  # anon_inode:bpf_link, or bpf-map


@cache
def _libbpf() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise MachineError("libbpf 1.x is not installed: run `make setup`, or install the package libbpf1.") from error
    pointer = ctypes.c_void_p
    signatures = {
        "bpf_object__open_mem": (pointer, [ctypes.c_char_p, ctypes.c_size_t, pointer]),
        "bpf_object__load": (ctypes.c_int, [pointer]),
        "bpf_object__close": (None, [pointer]),
        "bpf_object__next_map": (pointer, [pointer, pointer]),
        "bpf_object__next_program": (pointer, [pointer, pointer]),
        "bpf_program__fd": (ctypes.c_int, [pointer]),
        "bpf_map__type": (ctypes.c_int, [pointer]),
        "bpf_map__name": (ctypes.c_char_p, [pointer]),
        "bpf_map__fd": (ctypes.c_int, [pointer]),
        "bpf_map__map_flags": (ctypes.c_uint32, [pointer]),
        "bpf_map__set_map_flags": (ctypes.c_int, [pointer, ctypes.c_uint32]),
        "bpf_map__attach_struct_ops": (pointer, [pointer]),
        "bpf_link__fd": (ctypes.c_int, [pointer]),
        "bpf_link__disconnect": (None, [pointer]),
        "bpf_link__destroy": (ctypes.c_int, [pointer]),
    }
    for function, (result, arguments) in signatures.items():
        getattr(lib, function).restype = result
        getattr(lib, function).argtypes = arguments
    return lib


_PRINTER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


@contextlib.contextmanager
def _collected_log() -> Iterator[list[str]]:
    """What libbpf would print (its warnings hold the verifier's log) while the block runs."""
    lines: list[str] = []

    def collect(level: int, form: bytes, arguments: int) -> int:
        if level == 0:  # LIBBPF_WARN
            buffer = ctypes.create_string_buffer(65536)
            libc().vsnprintf(buffer, ctypes.c_size_t(len(buffer)), form, ctypes.c_void_p(arguments))
            lines.append(buffer.value.decode(errors="replace").strip())
        return 0

    printer = _PRINTER(collect)
    lib = _libbpf()
    lib.libbpf_set_print.restype = ctypes.c_void_p
    previous = lib.libbpf_set_print(printer)
    try:
        yield lines
    finally:
        lib.libbpf_set_print(ctypes.c_void_p(previous))


def _tail(log: list[str]) -> str:
    text = [line for line in "\n".join(log).splitlines() if line.strip()]
    return "\n".join(text[-12:]) or os.strerror(ctypes.get_errno())
