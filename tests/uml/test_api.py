"""The public interface on a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed


def test_a_run_in_the_user_mode_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    results = testbed.run(jobs=2, iterations=3, system="reno", on="uml", isolated_runs="none")
    assert results.verdict in ("valid", "suspect")
    assert results.table("flows")["cwnd_segments"].gt(0).any()
    assert capfd.readouterr() == ("", "")
