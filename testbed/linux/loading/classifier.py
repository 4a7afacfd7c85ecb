"""The eBPF classifier that marks in RED's place, at the egress of an interface (clsact)."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.core.environment import ROOT
from testbed.core.errors import MachineError
from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux import netns
from testbed.linux.loading import bpf
from testbed.linux.rtnetlink import Socket, Tc

PROGRAM = Path(ROOT) / "kernel" / "bpf" / "phantom.bpf.c"
CLSACT, CLSACT_HANDLE, EGRESS = 0xFFFFFFF1, 0xFFFF0000, 0xFFFFFFF3
TCA_BPF_CLASSID, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS = 3, 6, 7, 8
DIRECT_ACTION = 1
PRIORITY = 2  # among the filters there: a capture (`testbed.linux.capture.mirror`) sees packets before
ETH_P_ALL = 0x0300  # as on the wire


def load(constants: Mapping[str, int]) -> bpf.Program:
    """Load the classifier with these constants. Raises `MachineError` if the kernel rejects it."""
    return bpf.load_program(bpf.compile_program(PROGRAM), constants)


def attach(namespace: int, index: int, name: str, program: bpf.Program) -> None:
    """Attach the classifier ``name`` to the egress of interface ``index`` in ``namespace`` (a descriptor)."""
    options = (
        attribute(TCA_BPF_CLASSID, struct.pack("=I", 1))
        + attribute(TCA_BPF_FD, struct.pack("=I", program.program_fd))
        + attribute(TCA_BPF_NAME, name.encode() + b"\0")
        + attribute(TCA_BPF_FLAGS, struct.pack("=I", DIRECT_ACTION))
    )
    with Socket(namespace) as route:
        route.add(index, Tc("qdisc", "clsact", CLSACT_HANDLE, CLSACT, b""))
        route.add(index, Tc("filter", "bpf", 0, EGRESS, options, PRIORITY << 16 | ETH_P_ALL))


def held(namespace: int, index: int, program: bpf.Program, constants: Mapping[str, int]) -> dict[str, Any]:
    """The name of the attached program, and its constants."""
    with Socket(namespace) as route:
        filters = [attributes(one.options) for one in route.shown(index, "filter", EGRESS)]
    name = next((each[TCA_BPF_NAME].rstrip(b"\0").decode() for each in filters if TCA_BPF_NAME in each), None)
    return {"filter": name, **bpf.read_constants(program.map_fds, bpf.compile_program(PROGRAM), constants)}


def check() -> None:
    """Raises `MachineError` if this kernel takes no such program, with what would help."""
    program = load({})
    scratch = netns.create()
    try:
        attach(scratch, 1, "check", program)
    except OSError as error:
        raise MachineError(
            "--ecn needs sch_red, or eBPF classifiers instead (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF); this "
            f"machine's kernel has neither ({error}). Use --on uml."
        ) from error
    finally:
        program.close()
        os.close(scratch)
