"""`testbed.core.runs.shell`: an answer as names of files."""

from __future__ import annotations

import random

import pytest

from testbed.core.runs.shell import as_names, from_names

FILE_NAME = 255  # characters that it may have


@pytest.mark.parametrize("length", [1, 150, 151, 10_000])
def test_an_answer_is_complete_or_absent(length: int) -> None:
    answer = random.Random(1).randbytes(length)
    names = as_names(12, answer)
    assert all(len(name) <= FILE_NAME and "/" not in name for name in names)
    assert from_names(12, sorted(names, reverse=True)) == answer
    assert from_names(12, [*names[1:], *as_names(1, b"earlier"), *as_names(121, b"later")]) is None
