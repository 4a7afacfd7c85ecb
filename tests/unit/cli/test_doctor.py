"""What ``doctor`` says to somebody who is not root, and in a pipe."""

from __future__ import annotations

import json
import os
import re

import pytest

from testbed.cli import doctor
from testbed.core.errors import EXIT_MACHINE, EXIT_OK
from testbed.core.text import command


@pytest.fixture
def anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "_uml", lambda: "Linux")
    monkeypatch.setattr(doctor, "_clang", lambda: "")


def test_what_needs_root_is_said_once_and_blames_nothing(
    anybody: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_network", "_tbf", "_acks_first", "_ours", "_rto_min", "_marking"):
        monkeypatch.setattr(doctor, name, lambda: pytest.fail("only root can try this"))
    assert doctor.report(as_json=False) == EXIT_OK
    shown = capsys.readouterr().out
    assert shown.count("Needs root") == 1 and "netem" in shown and command("doctor", root=True) in shown
    assert "→ a kernel with" not in shown and "red" not in shown
    assert re.search(r"`--on uml` .*works here", shown)
    assert "`--on host` needs root" in shown
    assert doctor.report(as_json=True) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert (found["uml"], found["host"], found["flow"]) == (True, None, True)
    assert any("the flow simulator, " in one["detail"] for one in found["findings"])
    assert {one["detail"] for one in found["findings"] if one["works"] is None} == {"needs root"}


def test_where_nothing_works_the_lines_that_say_why_can_be_told_in_a_pipe(
    anybody: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> str:
        raise OSError("it is broken [here]")

    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(doctor, "_uml", broken)
    monkeypatch.setattr(doctor, "_tools", broken)
    assert doctor.report(as_json=False) == EXIT_MACHINE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "it is broken [here]" in line] == ["NO", "NO"]
    assert sum("begin with NO" in line for line in lines) == 2


def test_what_is_to_be_pasted_is_in_one_line(
    anybody: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pasted = "  sudo mltcp run " + " ".join(["--on [host]"] * 40)
    monkeypatch.setattr(doctor, "_tools", lambda: f"found\nWhat fits:\n{pasted}")
    doctor.report(as_json=False)
    assert pasted in capsys.readouterr().out.splitlines()
