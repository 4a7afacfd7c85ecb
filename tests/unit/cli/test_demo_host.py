"""``make demo-host`` never fails because a clock was real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import demo_host


@pytest.mark.parametrize(
    ("on_uml", "on_host", "ends", "says"),
    [
        (0, 0, 0, "Verdict on this machine's kernel: valid\n"),
        (0, 4, 0, "Verdict on this machine's kernel: invalid; its clock is real"),
        (0, 1, 1, "Verdict on this machine's kernel: none; the run did not get to its end"),
        (0, 3, 3, "Verdict on this machine's kernel: none"),
        (3, 0, 3, ""),
    ],
)
def test_it_ends_well_whatever_the_real_clock_did(
    on_uml: int, on_host: int, ends: int, says: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        if "-v" in command:
            return 0
        commands.append(command)
        if "compare" in command:
            return 0
        place = command[command.index("--on") + 1]
        code = on_uml if place == "uml" else on_host
        if code in (0, 4):
            (tmp_path / f"demo.{place}").mkdir()
            (tmp_path / f"demo.{place}/summary.json").write_text(
                json.dumps({"verdict": "valid" if code == 0 else "invalid"})
            )
        return code

    monkeypatch.setattr(demo_host, "run", run)
    monkeypatch.setattr(demo_host, "RESULTS", tmp_path)
    monkeypatch.setattr(demo_host, "SUDO", ["sudo"])
    assert demo_host.main(["--topo", "dumbbell", "--jobs", "4"]) == ends
    assert says in capsys.readouterr().out
    assert [command[0] for command in commands[:2]].count("sudo") == (on_uml == 0)
    assert ("compare" in commands[-1]) == (on_uml == 0 and on_host in (0, 4))


def test_who_gets_no_root_is_told_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo_host, "run", lambda command: int("-v" in command))
    monkeypatch.setattr(demo_host, "SUDO", ["sudo"])
    assert demo_host.main([]) == 3
    assert "takes root, and sudo gave none" in capsys.readouterr().out
