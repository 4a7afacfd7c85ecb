"""What fails outside a command ends it with one paragraph and its exit code."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.core import ending
from testbed.core.errors import EXIT_FAILED, EXIT_MACHINE, EXIT_REQUEST
from tests.support.paths import ROOT

LIST = [sys.executable, "-m", "testbed", "schedule", "--scheduler", "list"]
TRACE = '{"version": 1, "name": "x", "operations": [{"id": "a", "kind": "compute", "duration": "1ms", "after": [""]}]}'


def one_paragraph(said: str) -> bool:
    return said.startswith("error: ") and "Traceback" not in said and "Exception ignored" not in said


def test_a_closed_standard_output_is_refused() -> None:
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *LIST], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_FAILED and one_paragraph(done.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_standard_output_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(LIST, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == EXIT_FAILED and one_paragraph(done.stderr)


def test_a_reader_that_has_left_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "sh", *LIST],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, EXIT_FAILED) and not done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EMFILE, "x", "name"), EXIT_MACHINE), (OSError(errno.ENOMEM, "x"), EXIT_MACHINE), (OSError(errno.EAGAIN, "x"), EXIT_MACHINE),
        (OSError(errno.ENAMETOOLONG, "x", "n" * 300), EXIT_REQUEST), (OSError(errno.ENOSPC, "x"), EXIT_FAILED),
    ],
)  # fmt: skip
def test_errors_of_the_operating_system_have_exit_codes(error: OSError, code: int) -> None:
    found = ending.explained(error)
    assert found is not None and found[1] == code


def test_a_processor_that_is_too_old_is_named() -> None:
    words = "NumPy was built with baseline optimizations: \n(X86_V2) but your machine doesn't support:\n(X86_V2)."
    program = f"""
import sys, types
from testbed.core import ending
def main(arguments):
    raise RuntimeError({words!r})
sys.modules["old"] = types.SimpleNamespace(main=main)
sys.exit(ending.run("old", []))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_MACHINE and one_paragraph(done.stderr)
    assert "x86-64-v2" in done.stderr and "another machine" in done.stderr


def test_an_error_of_the_program_stays_one() -> None:
    assert ending.explained(OSError(errno.EINVAL, "x")) is None


@pytest.mark.parametrize("text", ["set = 9000\n", "set = [1]\n", "set = nan\n"])
def test_a_value_of_another_type_in_a_file_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert main(["run", str(path), "--on", "flow", "--dry-run"]) == EXIT_REQUEST
    assert one_paragraph(capsys.readouterr().err)


def test_an_operation_after_an_empty_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    path.write_text(TRACE)
    assert main(["run", "--trace", str(path), "--on", "flow", "--dry-run"]) == EXIT_REQUEST
    assert one_paragraph(capsys.readouterr().err)


def test_a_name_that_is_too_long_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / ("x" * 300))
    arguments = [
        "run",
        "--on",
        "flow",
        "--jobs",
        "1",
        "--iterations",
        "2",
        "--alone",
        "none",
        "--system",
        "reno",
        "--out",
        out,
    ]
    try:
        code = main(arguments)
    except OSError as error:
        found = ending.explained(error)
        assert found is not None
        code = found[1]
    assert code == EXIT_REQUEST


def limited(flag: str, value: int, *check: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", f"from testbed.core import rlimits\nrlimits.check({', '.join(check)})"]
    return subprocess.run(
        ["sh", "-c", f'ulimit {flag} {value}; "$@"', "sh", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("flag", "value", "memory"), [("-n", 20, "0"), ("-v", 500_000, "600")])
def test_too_small_a_limit_is_named_before_the_run(flag: str, value: int, memory: str) -> None:
    done = limited(flag, value, memory)
    assert "MachineError" in done.stderr and f"ulimit {flag}" in done.stderr


@pytest.mark.parametrize(("flag", "value", "memory"), [("-n", 4096, "0"), ("-Sn", 20, "0"), ("-v", 500_000, "400")])
def test_a_limit_that_is_enough_or_may_be_raised_is_none(flag: str, value: int, memory: str) -> None:
    assert limited(flag, value, memory).returncode == 0
