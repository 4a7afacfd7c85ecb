"""``SHA256SUMS`` of a folder, as `sha256sum -c` reads it."""

from __future__ import annotations

import hashlib
from pathlib import Path

FILE = "SHA256SUMS"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def write(folder: Path) -> None:
    """Write those of all files below ``folder``, but its own."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / FILE)
    (folder / FILE).write_text("".join(f"{digest(path)}  {path.relative_to(folder)}\n" for path in paths))
