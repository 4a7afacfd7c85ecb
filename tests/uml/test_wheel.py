"""The wheel runs on a kernel that is there, from any folder."""

from __future__ import annotations

from pathlib import Path

from tests.support.wheel import environment, mltcp, wheel

__all__ = ["environment", "wheel"]  # fixtures


def test_it_runs_in_the_user_mode_kernel(environment: Path, tmp_path: Path) -> None:
    done = mltcp(environment, tmp_path, "run", "--on", "uml", "--jobs", "2", "--iterations", "3", "--quiet")
    assert done.returncode == 0, done.stderr
