"""What the script of clean roots reports; it builds none here."""

from __future__ import annotations

import os

import pytest

from testbed.core.errors import EXIT_FAILED, EXIT_MACHINE, EXIT_OK
from tools import clean_roots
from tools.clean_roots import Demo


@pytest.mark.parametrize(
    ("demos", "code"),
    [
        ([("3.11", Demo(20, 40, "a")), ("3.11", Demo(59, 90, "a"))], EXIT_OK),
        ([("3.11", Demo(20, 40, "a")), ("3.13", Demo(20, 40, "b"))], EXIT_OK),  # another Python
        ([("3.11", Demo(20, 40, "a")), ("3.11", Demo(20, 40, "b"))], EXIT_FAILED),
        ([("3.11", Demo(61, 90, "a")), ("3.11", Demo(20, 40, "a"))], EXIT_FAILED),
        ([("3.11", Demo(0, 90, "a")), ("3.11", Demo(20, 40, "a"))], EXIT_FAILED),  # no figure at all
    ],
)
def test_late_figures_and_different_digests_fail(
    demos: list[tuple[str, Demo]], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = iter(demos)
    monkeypatch.setattr(clean_roots, "once", lambda suite, stale: next(left))
    monkeypatch.setattr(clean_roots, "check_tools", lambda tools, what: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert clean_roots.main(["--times", "2", "bookworm"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].startswith(
        f"bookworm Python 3.11: first figure {demos[0][1].first_figure_s:.1f} s"
    )


def test_it_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(clean_roots, "check_tools", lambda tools, what: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert clean_roots.main(["sid"]) == EXIT_MACHINE and "root" in capsys.readouterr().err
