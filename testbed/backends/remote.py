"""The server of `--on ssh:…` and ``--on vagrant`` on the other machine: ``python -m testbed.backends.remote``.

It first identifies this machine. Then it reads requests on stdin, one line of JSON each, and runs them as `--on host`
would. It answers as `testbed.linux.run_in_kernel` does: events, and results that end a request. An empty line keeps the
connection alive. End of file, or half a minute without any line, means that the caller is gone. The server then ends at
once, as if killed, and the run in progress with it (`testbed.backends.host`).
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import os
import platform
import queue
import select
import signal
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from testbed.backends.host import Host
from testbed.backends.progress import Patience
from testbed.core import environment
from testbed.core.errors import EXIT_FAILED, TestbedError
from testbed.core.runs.events import Error
from testbed.core.runs.plan import Plan
from testbed.linux.run_in_kernel import CallerGoneError, deliver, emit

SILENCE_S = 30.0


def main() -> None:
    signal.alarm(0)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # only events may reach the caller
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(requests,), daemon=True).start()
    try:
        deliver(json.dumps(_identity()).encode(), out)
        while True:
            _answer(json.loads(requests.get()), out)
    except CallerGoneError:
        os._exit(EXIT_FAILED)


def _hear(requests: queue.SimpleQueue[bytes]) -> None:
    pending = b""
    while select.select([0], [], [], SILENCE_S)[0] and (data := os.read(0, 1 << 16)):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if line:
                requests.put(line)
    os._exit(EXIT_FAILED)


def _identity() -> dict[str, Any]:
    """The description of this machine for the caller, and the folder for its files; arguments: the packages that this Python has."""
    return {
        "folder": str(Path(environment.PACKAGES).parent),
        "hostname": platform.node(),
        "kernel": f"{platform.system()} {platform.release()} {platform.version()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "python": f"{sys.executable} {platform.python_version()}",
        "packages": {name: _version(name) for name in sys.argv[1:]} or "sent along",
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _answer(request: dict[str, Any], out: BinaryIO) -> None:
    try:
        for name, content in request["files"].items():
            path = Path(environment.PACKAGES).parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        plan = msgspec.convert(request["plan"], Plan)
        results = b""
        if request["do"] == "check":
            Host().check(plan)
        else:
            results = Host().run(plan, partial(emit, out), msgspec.convert(request["patience"], Patience))
        deliver(results, out)
    except TestbedError as error:
        emit(out, Error(error.exit_code, str(error)))
    except CallerGoneError:
        raise
    except Exception:  # an error of the testbed, to be shown on the other machine
        emit(out, Error(EXIT_FAILED, traceback.format_exc()))


if __name__ == "__main__":
    main()
