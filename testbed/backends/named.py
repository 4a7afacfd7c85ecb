"""Give network namespaces names for ``ip netns`` while this process runs.

A name is a link in ``/run/netns`` to a descriptor of this process, so it keeps no namespace alive. A small process
removes the links when this one ends, in any case. If both are killed, the next shell removes them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from testbed.core.errors import MachineError

FOLDER = Path("/run/netns")
# End of file on stdin: the owner is gone. Its links are known by where they lead.
REMOVER = """
import os, sys
sys.stdin.read()
folder, owner = sys.argv[1:3]
for name in os.listdir(folder):
    path = os.path.join(folder, name)
    if os.path.islink(path) and os.readlink(path).startswith(owner):
        os.unlink(path)
if sys.argv[3:]:
    os.rmdir(folder)
"""


@contextlib.contextmanager
def namespaces(descriptors: Mapping[str, int], folder: Path = FOLDER) -> Iterator[None]:
    """Make ``ip netns exec NAME`` enter these namespaces inside the block.

    Raises `MachineError` if a name is in use.
    """
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    owner = f"/proc/{os.getpid()}/fd/"
    command = [sys.executable, "-I", "-S", "-c", REMOVER, str(folder), owner, *(["remove it, too"] if made else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        _sweep(folder)
        for name, fd in descriptors.items():
            try:
                (folder / name).symlink_to(f"{owner}{fd}")
            except FileExistsError as error:
                raise MachineError(
                    f"{folder / name}: a network namespace of this name exists, and the shell needs the name for its host. "
                    f"Close the other shell, or remove the name (`ip netns delete {name}`)."
                ) from error
        yield


def _sweep(folder: Path) -> None:
    """Remove links to descriptors of processes that are gone."""
    for path in folder.iterdir():
        if path.is_symlink() and str(path.readlink()).startswith("/proc/") and not path.exists():
            path.unlink()
