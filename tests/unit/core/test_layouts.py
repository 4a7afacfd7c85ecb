"""Where we read the kernel's structures is where they are: a compiler compares `testbed.core.layouts` with the headers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from testbed.core import layouts
from testbed.core.layouts import LAYOUTS, MESSAGES, NUMBERS, SIZES, UAPI, Layout

ROOT = Path(__file__).parents[3]

BPF = ROOT / "kernel" / "bpf"
NATIVE = ROOT / "testbed" / "transports" / "datagram" / "native"


def claims(layout: Layout) -> list[str]:
    """What must hold, in C."""
    found = [] if layout.size is None else [f"sizeof({layout.name}) == {layout.size}"]
    for member, (offset, kind) in layout.members.items():
        found.append(f"__builtin_offsetof({layout.name}, {member}) == {offset}")
        found.append(f"sizeof((({layout.name} *)0)->{member}) == {SIZES[kind]}")
    return found


def program(headers: Iterable[str], asserted: Iterable[str]) -> str:
    return "".join(
        [
            *(f'#include "{header}"\n' for header in headers),
            *(f'_Static_assert({each}, "{each}");\n' for each in asserted),
        ]
    )


def compiled(compiler: list[str], source: str, folder: Path) -> str:
    """What the compiler has against it."""
    file = folder / "claims.c"
    file.write_text(source)
    done = subprocess.run([*compiler, "-fsyntax-only", str(file)], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def test_the_kernels_structures_and_numbers(tmp_path: Path) -> None:
    if shutil.which("gcc") is None or not Path("/usr/include", UAPI, "tcp.h").exists():
        pytest.skip("the kernel's headers are compared by gcc: run `make setup`")
    theirs = [layout for layout in LAYOUTS if layout.header.startswith(UAPI)]
    headers = {
        "linux/types.h",
        *(layout.header for layout in theirs),
        *NUMBERS,
        *(header for header, _ in MESSAGES.values()),
    }
    asserted = [each for layout in theirs for each in claims(layout)]
    asserted += [f"(sizeof({name}) + 3) / 4 * 4 == {size}" for name, (_, size) in MESSAGES.items()]
    asserted += [f"{name} == {getattr(layouts, name)}" for names in NUMBERS.values() for name in names]
    assert compiled(["gcc"], program(sorted(headers), asserted), tmp_path) == ""
    last = max(offset + SIZES[kind] for offset, kind in layouts.TCP_INFO.members.values())
    assert last == layouts.TCP_INFO_BYTES


@pytest.mark.parametrize("header", sorted({layout.header for layout in LAYOUTS if not layout.header.startswith(UAPI)}))
def test_the_maps_of_our_programs(header: str, tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("our programs are compiled by clang: run `make setup`")
    asserted = [each for layout in LAYOUTS if layout.header == header for each in claims(layout)]
    if header == "mltcp_diag.h":
        asserted.append(f"MLTCP_DIAG_INFO == {layouts.MLTCP_DIAG_INFO}")
    compiler = ["clang", "-target", "bpf", "-I", str(BPF), "-I", str(BPF.parent)]
    if (NATIVE / header).exists():  # a program of this machine's
        compiler = ["clang", "-I", str(NATIVE)]
    assert compiled(compiler, program([header], asserted), tmp_path) == ""


def test_what_is_elsewhere_is_noticed(tmp_path: Path) -> None:
    moved = Layout(layouts.FLOW.name, layouts.FLOW.header, {"iterations": (20, "I")})
    if shutil.which("clang") is None:
        pytest.skip("our programs are compiled by clang: run `make setup`")
    said = compiled(["clang", "-target", "bpf", "-I", str(BPF)], program([moved.header], claims(moved)), tmp_path)
    assert "__builtin_offsetof(struct mltcp_flow, iterations) == 20" in said


def test_readers_skip_what_lies_between() -> None:
    read = layouts.TCP_INFO.reader("tcpi_snd_cwnd", "tcpi_bytes_acked")
    data = bytearray(layouts.TCP_INFO_BYTES)
    data[80], data[120] = 10, 7
    assert read.unpack_from(data) == (10, 7)
