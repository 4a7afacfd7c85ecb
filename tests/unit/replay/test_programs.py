"""What a real program says is kept, in part."""

from __future__ import annotations

import os

from testbed.linux.participants.program import KEPT_BYTES, Program, _Tail
from testbed.replay.messages import Messages
from testbed.transports import Delivery, Message


def test_the_end_of_what_a_program_says_is_kept() -> None:
    said = _Tail()
    for _ in range(100):
        os.write(said.writing, b"x" * 65_536)
    os.write(said.writing, b"its last words")
    os.close(said.writing)
    said.hearing.join()
    said.seek(0)
    assert len(said.read()) == KEPT_BYTES and said.read().endswith(b"its last words")


def test_what_became_of_its_messages_goes_with_the_iteration_that_it_tells_next() -> None:
    """In ns after the start, as a replay says it; what never came stays 0."""
    messages = Messages()
    messages.add(
        1, Message(0, 0, 0, 100, "gradient"), False, Delivery(100, 80, "fraction", ((0, 20),), 0, 1_500, 2_500)
    )
    messages.add(2, Message(0, 0, 0, 100, "gradient"), False, Delivery(100, 0, "deadline", ((0, 100),)))
    program = Program.__new__(Program)  # without its process
    program._start_ns, program._beside = 1_000, []
    told = [
        program._translated({"messages": messages.to_rows(0), "datagrams": None}),
        program._translated([0, 1_000, 1_100, 1_200, 7, 0]),
        program._translated([1, 1_200, 1_300, 1_400, 7, 0]),
    ]
    beside = {"messages": messages.to_rows(1_000), "datagrams": None}
    assert told == [None, [0, 0, 100, 200, 7, 0, [], beside], [1, 200, 300, 400, 7, 0, []]]
    assert [row[-5:-3] for row in beside["messages"] or []] == [[500, 1_500], [0, 0]]
