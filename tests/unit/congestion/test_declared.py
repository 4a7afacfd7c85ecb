"""Parameters of custom congestion controls: what a built module or an eBPF object declares, and what is refused."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.congestion import catalogue, linux
from testbed.core.errors import RequestError
from testbed.core.runs.plan import CongestionControl
from testbed.linux.loading import bpf, declared, modules
from testbed.linux.loading.declared import Range

ROOT = Path(__file__).parents[3]
INTEGERS = {"byte": "B", "short": "h", "ushort": "H", "int": "i", "uint": "I", "long": "q", "ulong": "Q", "ullong": "Q"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cubic:beta=5000", "5000 is not between 0.000977 and 0.999"), ("hybla:rtt0=0ms", "0ms is not between 1ms and 10000s"),
        ("dcqcn:r_ai=1tbit", "1tbit is not between 1kbit and 100gbit"), ("vegas:alpha=-1", "-1 is not between 0 and 1000"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_with_the_range(name: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        catalogue.parse(name)


def module(folder: Path, **types: str) -> Path:
    """A file with what the kernel's build writes into `.modinfo`."""
    words = ["license=GPL", *(f"parmtype={name}:{kind}" for name, kind in types.items()), "parm=step:of no type"]
    file = folder / "tcp_mine.ko"
    file.write_bytes(b"\x7fELF\x01" + b"\0".join(word.encode() for word in words) + b"\0")
    return file


def cc(**constants: int) -> CongestionControl:
    return CongestionControl("./tcp_mine.c:…", "mine", constants, "/tmp/tcp_mine.c")


def test_a_module_says_what_it_takes(tmp_path: Path) -> None:
    found = declared.read_ranges(module(tmp_path, step="int", fast="bool", name="charp", steps="array of int"))
    assert found == {"step": Range(-(2**31), 2**31 - 1), "fast": Range(0, 1), "name": None, "steps": None}
    assert declared.read_ranges(module(tmp_path)) == {}


@pytest.mark.parametrize("kind", INTEGERS)
@given(value=st.integers(-(2**65), 2**65))
def test_a_value_fits_its_type_or_is_refused(kind: str, value: int) -> None:
    """As C has it: the module of `struct` knows the same types."""
    try:
        struct.pack(f"={INTEGERS[kind]}", value)
        fits = True
    except struct.error:
        fits = False
    bits = 8 * struct.calcsize(f"={INTEGERS[kind]}")
    declares = {"step": Range.from_bits(bits, signed=INTEGERS[kind].islower())}
    assert declares["step"] == declared._range(kind)
    if fits:
        declared.check(cc(step=value), declares)
    else:
        with pytest.raises(RequestError, match=str(value)):
            declared.check(cc(step=value), declares)


@pytest.mark.parametrize("declares", [{}, {"alpha": None, "beta": None}])
def test_what_is_not_declared_is_refused_with_what_is(declares: dict[str, Range | None]) -> None:
    with pytest.raises(RequestError) as refused:
        declared.check(cc(alfa=1), declares)
    assert all(word in str(refused.value) for word in ("alfa", *declares))


@pytest.mark.skipif(shutil.which("clang") is None, reason="without clang nothing is compiled")
def test_an_ebpf_object_says_what_it_takes() -> None:
    compiled = bpf.compile_program(ROOT / "examples" / "mine.bpf.c")
    found = bpf.find_constant_ranges(compiled)
    assert list(found) == ["step"]
    with pytest.raises(RequestError, match="stride"):
        declared.check(cc(stride=1), found)
    with pytest.raises(RequestError, match=str(2**64)):
        declared.check(cc(step=2**64), found)
    assert {"slope", "intercept"} <= set(
        bpf.find_constant_ranges(bpf.compile_program(catalogue.PROGRAMS / "mltcp_reno.bpf.c"))
    )


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("cubic:beta=0.5,hystart=off", {"beta": 512, "hystart": 0}), ("vegas:alpha=6", {"alpha": 6}), ("hybla:rtt0=40ms", {"rtt0": 40}),
    ],
)  # fmt: skip
def test_parameters_of_the_kernels_own_are_options(text: str, constants: dict[str, int]) -> None:
    found = catalogue.parse(text)
    assert found.constants == constants and catalogue.of_the_kernel(found)
    assert catalogue.at_boot([found]) == [f"tcp_{found.name}.{name}={value}" for name, value in constants.items()]


@pytest.mark.parametrize(
    "text", ["cubic:beta=1.5", "cubic:bta=0.5", "reno:beta=0.5", "vegas:alpha=-1", "cubic:hystart=maybe"]
)
def test_what_a_parameter_of_the_kernel_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        catalogue.parse(text)


@pytest.mark.parametrize("config", ["kernel/uml/config", "vagrant/box/kernel.config"])
def test_kernels_that_are_built_have_every_congestion_control_that_is_listed(config: str) -> None:
    """The user-mode kernel's configuration says what it has: a name is listed (testbed/congestion/linux.py) if and only if it is there."""
    assert {family.name for family in linux.FAMILIES} == set(catalogue.built_in(ROOT / config))


def test_every_congestion_control_of_the_user_mode_kernel_is_documented() -> None:
    text = (ROOT / "docs/reference/congestion-controls.md").read_text()
    assert not [name for name in catalogue.built_in() if f"`{name}`" not in text]


def test_a_switch_is_read_back_as_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "tcp_cdg" / "parameters"
    held.mkdir(parents=True)
    for name, text in {"use_ff": "Y", "use_shadow": "N", "window": "8", "title": "word"}.items():
        (held / name).write_text(text + "\n")
    monkeypatch.setattr(modules, "LOADED", tmp_path)
    assert modules.parameters("tcp_cdg") == {"use_ff": 1, "use_shadow": 0, "window": 8}
