"""The part of the bpf(2) system call that the testbed needs; standard library only."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

BPF_MAP_LOOKUP_ELEM, BPF_OBJ_PIN, BPF_OBJ_GET, BPF_LINK_CREATE, BPF_LINK_UPDATE, BPF_ENABLE_STATS = 1, 6, 7, 28, 29, 32
BPF_CGROUP_SOCK_OPS, BPF_STRUCT_OPS = 3, 44  # enum bpf_attach_type
SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process, which sets ``errno``."""
    return ctypes.CDLL(None, use_errno=True)


class MapReader:
    """A reader of values of one eBPF map. It reuses its buffers, because it runs for every flow and sample."""

    def __init__(self, map_fd: int, key_size: int, value_size: int) -> None:
        self._key = ctypes.create_string_buffer(key_size)
        self._value = ctypes.create_string_buffer(value_size)
        self._attr = ctypes.create_string_buffer(
            _pack((map_fd, 8), (ctypes.addressof(self._key), 8), (ctypes.addressof(self._value), 8), (0, 8))
        )

    def __call__(self, key: bytes) -> bytes | None:
        self._key.raw = key
        found = libc().syscall(SYS_BPF[platform.machine()], BPF_MAP_LOOKUP_ELEM, self._attr, 32)
        return self._value.raw if found == 0 else None


def create_struct_ops_link(map_fd: int) -> int:
    """Register a struct_ops map loaded with BPF_F_LINK; the descriptor that keeps it registered."""
    return _call(BPF_LINK_CREATE, _pack((map_fd, 4), (0, 4), (BPF_STRUCT_OPS, 4), (0, 52)))


def update_struct_ops_link(link_fd: int, map_fd: int) -> None:
    """Put the congestion control of another map (of the same name) in the place of a registered one."""
    _call(BPF_LINK_UPDATE, _pack((link_fd, 4), (map_fd, 4), (0, 56)))


def create_cgroup_link(program_fd: int, cgroup_fd: int) -> int:
    """Run a sock_ops program for the sockets of a cgroup (version 2); the descriptor that keeps it there."""
    return _call(BPF_LINK_CREATE, _pack((program_fd, 4), (cgroup_fd, 4), (BPF_CGROUP_SOCK_OPS, 4), (0, 52)))


def pinned(path: str) -> int:
    """A descriptor of what `pin` has kept."""
    name = ctypes.create_string_buffer(path.encode())
    return _call(BPF_OBJ_GET, _pack((ctypes.addressof(name), 8), (0, 56)))


def pin(fd: int, path: str) -> None:
    """Keep an object alive under a name in a bpf file system, until that name is removed."""
    name = ctypes.create_string_buffer(path.encode())
    _call(BPF_OBJ_PIN, _pack((ctypes.addressof(name), 8), (fd, 4), (0, 52)))


def enable_statistics() -> int:
    """Let the kernel count how often and how long programs run, until this descriptor is closed."""
    return _call(BPF_ENABLE_STATS, bytes(64))


def _call(command: int, attr: bytes) -> int:
    result = libc().syscall(SYS_BPF[platform.machine()], command, ctypes.create_string_buffer(attr, 64), 64)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def _pack(*fields: tuple[int, int]) -> bytes:
    """Little-endian integers of the given sizes, one after the other."""
    return b"".join(value.to_bytes(size, "little") for value, size in fields)
