"""``advise --emulate``, and that what `advise` computes comes out in virtual time: sign and size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import advise as mixes
from testbed.cli import main
from testbed.core.errors import EXIT_OK

SHORT = [
    "100ms/5MB",
    "100ms/5MB",
    "--rate",
    "500mbit",
    "--iterations",
    "20",
    "--seeds",
    "1",
    "--system",
    "reno",
    "mltcp_reno",
]


def test_the_best_options_are_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs that need 90 % of the link; the best two are a faster network and another placement."""
    monkeypatch.chdir(tmp_path)
    assert main(["advise", *SHORT, "--emulate", "--json"]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    emulated = {one["system"]: one["emulated"] for one in found["options"] if one["emulated"] is not None}
    assert len(emulated) == 2
    for one in emulated.values():
        assert abs(one["difference"]) <= 0.1 and one["gain_mean"] > 1.1
        assert (tmp_path / one["folder"]).is_dir()


@pytest.mark.long
@pytest.mark.parametrize("name", mixes.MIXES)
def test_sign_and_size_are_right(name: str, tmp_path: Path) -> None:
    assert all(right for _, right in mixes.rows(name, ["mltcp_reno"], tmp_path))
