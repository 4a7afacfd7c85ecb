"""What others wrote, on its way to a terminal."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core import text


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("µs – 50 Gbit/s", "µs – 50 Gbit/s"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nb\tc\0", r"a\nb\tc\x00"),
        ("\x9b2J", r"\x9b2J"),  # an 8-bit control sequence
        ("caf\udce9", r"caf\xe9"),  # a byte that is no UTF-8
        ("\u202egnp.exe", r"\u202egnp.exe"),  # right to left
    ],
)
def test_control_characters_are_shown(said: str, heard: str) -> None:
    assert text.plain(said) == text.shown(said) == heard
    assert text.quoted(said) == f"'{heard}'"


def test_what_is_long_loses_its_middle() -> None:
    assert text.shown("x" * 80) == "x" * 80
    cut = text.shown("begin" + "x" * 5000 + "end")
    assert len(cut) == 80
    assert cut.startswith("begin")
    assert cut.endswith("end")
    assert len(text.shown("\x1b" * 5000)) == 80


def test_a_paragraph_keeps_lines_and_paths_but_no_endless_words() -> None:
    path = "/".join(["", *["folder" * 5] * 10])
    said = text.paragraph(f"{path} cannot be read:\n\tdenied\x1b[2J {'y' * 5000}")
    assert said.startswith(f"{path} cannot be read:\n        denied\\x1b[2J yyy")
    assert len(said) < 500
    assert len(text.paragraph("a b " * 10_000)) == text.LONGEST_PARAGRAPH


def test_arguments_that_are_no_text_are_found() -> None:
    assert text.first_stray(["run", "--name", "ä"]) is None
    assert r"'caf\xe9'" in str(text.first_stray(["run", "caf\udce9"]))
    assert r"'a\x00b'" in str(text.first_stray(["a\0b"]))


@pytest.mark.parametrize(
    ("value", "digits", "said"),
    [
        (49860.4, 4, "49860"), (8890, 3, "8890"), (9999.6, 4, "10000"), (0.0000123456, 4, "0.00001235"), (-2880, 3, "-2880"), (0, 4, "0"),
        (1.5, 4, "1.5"), (100, 3, "100"), (math.inf, 4, "inf"),
    ],
)  # fmt: skip
def test_numbers_have_no_exponent(value: float, digits: int, said: str) -> None:
    assert text.decimal(value, digits) == said


@given(st.floats(-1e15, 1e15), st.integers(1, 9))
def test_a_decimal_is_the_number(value: float, digits: int) -> None:
    said = text.decimal(value, digits)
    assert "e" not in said
    assert float(said) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits), abs=1e-300)


def test_a_command_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["cc", "load", "my file.bpf.c", 3]
    assert shlex.split(text.command(*words)) == ["mltcp", "cc", "load", "my file.bpf.c", "3"]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    for here, program in ((tmp_path, "bin/mltcp"), (Path("/"), str(tmp_path / "bin/mltcp").lstrip("/"))):
        monkeypatch.chdir(here)
        assert shlex.split(text.command(*words, root=True)) == ["sudo", program, "cc", "load", "my file.bpf.c", "3"]
