"""Commands of the documentation that take less than 20 s in user-mode Linux do what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.backends import pace
from testbed.cli import main
from testbed.core.errors import EXIT_OK
from tests.support import shown
from tests.support.runs import cli

LONGEST_S = 20.0  # as `--dry-run` expects it of an idle machine
ELSEWHERE = ("host", "flow", "ssh:", "NAME")
COMMANDS = [
    command
    for command in shown.every()
    if command.words[0] == "run" and not command.root and not any(word.startswith(ELSEWHERE) for word in command.words)
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_shown_works(
    command: shown.Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown.checkout(tmp_path, command.page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pace, "read", pace.Record)  # the same choice on every machine
    assert main([*command.words, "--dry-run", "--json"]) == EXIT_OK
    expected_s = json.loads(capsys.readouterr().out.splitlines()[-1])["expected_s"]
    if expected_s > LONGEST_S:
        pytest.skip(f"takes about {expected_s:.0f} s")
    done = cli(*command.words[1:], cwd=tmp_path)
    assert done.returncode == EXIT_OK, done.stderr
