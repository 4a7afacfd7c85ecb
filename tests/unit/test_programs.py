"""What a real program says is kept, in part."""

from __future__ import annotations

import os

from testbed.linux.participants.program import KEPT_BYTES, _Tail


def test_the_end_of_what_a_program_says_is_kept() -> None:
    said = _Tail()
    for _ in range(100):
        os.write(said.writing, b"x" * 65_536)
    os.write(said.writing, b"its last words")
    os.close(said.writing)
    said.hearing.join()
    said.seek(0)
    assert len(said.read()) == KEPT_BYTES and said.read().endswith(b"its last words")
