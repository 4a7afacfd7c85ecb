"""The wheel's build hook: with what `make setup` built it is a wheel for x86-64 Linux, with the kernel inside; without, a pure one.

It runs in pip's own environment, which has hatchling alone: the checkout's environment finds and copies the files.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "testbed.backends.usermode.shipped"


class WheelHook(BuildHookInterface[Any]):
    """Adds what `testbed.backends.usermode.shipped` exports, and the platform's tag."""

    folder: tempfile.TemporaryDirectory[str] | None = None  # gone with this process, at the latest

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare the wheel's content; not for an editable install, which uses that of the checkout."""
        if version == "editable":
            return
        python = Path(self.root, ".venv/bin/python")
        if not python.exists():
            self._say_pure("`make setup` has not made .venv yet")
            return
        self.folder = tempfile.TemporaryDirectory(prefix="mltcp-wheel-")
        done = subprocess.run(
            [python, "-P", "-m", MODULE, self.folder.name],
            cwd=self.root, env=self._environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            self._say_pure(done.stderr.strip() or f"code {done.returncode}")
            return
        tag = done.stdout.strip()
        self.app.display_info(f"{tag}: with the user-mode Linux kernel, its modules and the transports' core")
        if done.stderr:
            self.app.display_warning(done.stderr.strip())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        build_data["force_include"][self.folder.name] = "testbed/content"

    def _environment(self) -> dict[str, str]:
        """Without what pip sets for its own environment."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**kept, "PYTHONPATH": self.root}

    def _say_pure(self, reason: str) -> None:
        self.app.display_warning(f"a pure wheel, without the user-mode Linux kernel: {reason}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clean up after the build."""
        if self.folder is not None:
            self.folder.cleanup()
