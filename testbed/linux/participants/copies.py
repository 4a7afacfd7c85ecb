"""A process of a run that begins as a copy of this one (`fork`) and continues as one of our modules.

In user-mode Linux starting a Python costs a tenth of a second and more for each worker, a copy a tenth of that. It answers to what
`subprocess.Popen` does, as far as `Child` asks.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import BinaryIO, NoReturn


class Copy:
    """``main()`` of ``module``, with pipes to its stdin and from its stdout, its stderr in ``errors``."""

    def __init__(self, module: str, errors: int, pass_fds: Sequence[int]) -> None:
        entry = importlib.import_module(module).main  # here and once: what is imported is not imported by each copy
        theirs, self_in = os.pipe()
        self_out, answering = os.pipe()
        gc.freeze()  # what is never looked at by the collector stays shared
        self.pid = os.fork()
        if self.pid == 0:
            _become(entry, (theirs, answering, errors), pass_fds)
        os.close(theirs)
        os.close(answering)
        self.stdin: BinaryIO = os.fdopen(self_in, "wb")
        self.stdout: BinaryIO = os.fdopen(self_out, "rb", buffering=0)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code (negative: the signal that killed it); None: it still runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        code = self._reap(0)
        assert code is not None
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _become(entry: object, standard: tuple[int, int, int], pass_fds: Sequence[int]) -> NoReturn:
    """In the copy: only ``standard`` and ``pass_fds`` stay open; never returns into what was copied."""
    code = 1
    try:
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
        kept = sorted({0, 1, 2, *pass_fds})
        for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            os.closerange(low + 1, high)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        assert callable(entry)
        entry()
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
