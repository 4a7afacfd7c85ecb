"""`tools/messages.py` finds the messages of errors, of missing abilities, and of parsers."""

from __future__ import annotations

import re

import pytest

from tools import messages

METAPHORS = re.compile(r"\b(told|nobody|somebody|whoever|lives on|has no words|understands|one's own)\b")


def test_it_prints_known_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert messages.main([]) == 0
    said = capsys.readouterr().out.splitlines()
    assert all(re.match(r"testbed/[a-z_0-9/]+\.py:\d+: .", line) for line in said)
    for file, text in (
        ("planning/plan.py", "requires ECN, but no bottleneck marks packets"),
        ("backends/flow/__init__.py", "the flow simulator models neither"),
        ("core/arguments.py", "unrecognized arguments: {…}"),
    ):
        assert any(line.startswith(f"testbed/{file}:") and text in line for line in said), text


def test_messages_use_no_metaphor() -> None:
    found = [f"{path}:{line}: {text}" for path, line, text in messages.messages(messages.ROOT / "testbed")]
    assert [line for line in found if METAPHORS.search(line)] == []
