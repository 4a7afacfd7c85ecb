"""Drives a command line over and over in this process; for `tests/unit/spec/test_hostile_requests.py`, which starts it with little memory.

Reads a JSON list of command lines (the first word names the program), and answers each with a line of JSON: its exit
code, what it said, and how long it took of processor time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence

MEMORY_BYTES = 1 << 30
HANG_S = 1800  # on the slowest machine: only what would never answer takes so long


def answer(main: Callable[[Sequence[str]], int], arguments: list[str]) -> dict[str, object]:
    said, printed, begun = io.StringIO(), io.StringIO(), time.process_time()
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            code: object = main(arguments)
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
    faulthandler.cancel_dump_traceback_later()
    return {"code": code, "said": said.getvalue(), "printed": printed.getvalue(), "cpu_s": time.process_time() - begun}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from testbed.cli import main

    _, *lines = json.load(sys.stdin)
    for line in lines:
        print(json.dumps(answer(main, line)), flush=True)
