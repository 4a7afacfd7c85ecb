"""``mltcp export``: several formats at once, each complete or absent, and nothing overwritten unasked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli import main

RUN = Path(__file__).parents[2] / "data/runs/v4/plain/mltcp_reno/1"


def export(*words: object) -> int:
    return main(["export", str(RUN), *map(str, words)])


def test_several_formats_at_once_and_a_file_for_each_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    code = export(
        "--perfetto", tmp_path / "a.json", "--chakra", tmp_path / "a.{rank}.et", "--nccl-inspector", tmp_path / "a.jsonl", "--csv", tmp_path / "a.csv",
        "--matrix", tmp_path / "m.csv", "--parquet", tmp_path / "tables",
    )  # fmt: skip
    assert code == 0
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    parquet = {f"tables/{path.stem}.parquet" for path in RUN.glob("*.csv")}
    assert made == {"a.json", "a.0.et", "a.1.et", "a.jsonl", "a.csv", "m.csv", *parquet}
    assert {line.removeprefix(f"{tmp_path}/") for line in capsys.readouterr().out.split()} == made
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert export("--perfetto", tmp_path / "a.json", "--csv", tmp_path / "a.csv", "--force") == 0
    assert first == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}  # the same bytes again


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "no format is named"),
        (("--csv", "there"), "is there already. Name another file, or give --force"),
        (("--csv", "new", "--chakra", "{rank}.et", "--matrix", "there"), "is there already"),
        (("--csv", "same", "--matrix", "same"), "named for two formats"),
        (("--csv", "nowhere/a.csv"), "there is no folder"),
        (("--beside", "there"), "no format is named"),
        (("--beside", "there", "--csv", "new"), "Give --perfetto FILE, too"),
        (("--csv", "new", "--job", "9"), "no such job"),
        (("--chakra", "new", "--rank", "2"), "ranks 0 to 1"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    words: tuple[str, ...],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("mine")
    assert export(*words) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert os.listdir() == ["there"] and Path("there").read_text() == "mine"


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """As a limit on the size of files, which any process may set itself."""
    limited = (
        "import resource, signal, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "from testbed.cli import main; raise SystemExit(main(['export', *sys.argv[1:]]))"
    )
    command = [sys.executable, "-c", limited, str(RUN), "--perfetto", str(tmp_path / "a.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "a.json could not be written: File too large" in " ".join(done.stderr.split())
    assert os.listdir(tmp_path) == []


def test_what_is_no_run_directory_is_said_in_a_paragraph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "--csv", str(tmp_path / "a.csv")]) == 1
    assert "manifest.json is missing" in " ".join(capsys.readouterr().err.split())


def test_a_folder_that_is_not_there_is_a_wrong_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path / "none"), "--csv", str(tmp_path / "a.csv")]) == 2
    assert "there is no folder" in capsys.readouterr().err
