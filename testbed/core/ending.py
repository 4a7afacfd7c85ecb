"""End of a command after an outside failure: memory, open files, disk, its own output. One paragraph, and the exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence

EXIT_FAILED, EXIT_REQUEST, EXIT_MACHINE = 1, 2, 3
_MACHINE = {
    errno.EMFILE: "this process may not open more files. Raise the limit (`ulimit -n 4096`).",
    errno.ENFILE: "this machine has no more open files to give. Close other programs.",
    errno.ENOMEM: "there is not enough memory. Free some, or raise the limit (`ulimit -v unlimited`).",
    errno.EAGAIN: "no more processes or threads may be started. Raise the limit (`ulimit -u`).",
}
_REQUEST = {errno.ENAMETOOLONG: "the name is too long. Use a shorter one."}
_OLD_PROCESSOR = "built with baseline optimizations"  # NumPy's words, when it is imported
_LIBRARY = ("failed to map segment", "Cannot allocate memory", "cannot allocate memory", "Too many open files")


def run(module: str, arguments: Sequence[str]) -> int:
    """Return the exit code of ``module.main(arguments)``; errors of the machine are printed without a traceback."""
    if not _standard_streams():
        sys.stderr.write(
            "error: standard output is closed, so that nothing can be printed. Redirect it to a file or to /dev/null.\n"
        )
        return EXIT_FAILED
    try:
        main: Callable[[Sequence[str]], int] = importlib.import_module(module).main
        code = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        return EXIT_FAILED
    except MemoryError:
        return _say(_MACHINE[errno.ENOMEM], EXIT_MACHINE)
    except ImportError as error:
        if not any(one in str(error) for one in _LIBRARY):
            raise
        return _say(f"a library cannot be loaded: {error}. {_MACHINE[errno.ENOMEM]}", EXIT_MACHINE)
    except OSError as error:
        if (answer := explained(error)) is None:
            raise
        return _say(*answer)
    except RuntimeError as error:
        if "can't start new thread" in str(error):
            return _say(_MACHINE[errno.EAGAIN], EXIT_MACHINE)
        if _OLD_PROCESSOR not in str(error):
            raise
        return _say(
            f"this processor is older than x86-64-v2 (SSE 4.2). {' '.join(str(error).split())} Use another machine.",
            EXIT_MACHINE,
        )
    return code


def explained(error: OSError) -> tuple[str, int] | None:
    """Explain an error of the operating system to a user, with the exit code; None: no specific explanation."""
    name = f"{error.filename!r}: " if error.filename is not None and len(str(error.filename)) < 200 else ""
    if error.errno in _MACHINE:
        return f"{name}{_MACHINE[error.errno]}", EXIT_MACHINE
    if error.errno in _REQUEST:
        return f"{name}{_REQUEST[error.errno]}", EXIT_REQUEST
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF):
        what = name or "standard output: "
        return f"{what}it cannot be written: {error.strerror}. Name another place, or free space.", EXIT_FAILED
    return None


def _say(what: str, code: int) -> int:
    _give_up_output()
    sys.stderr.write(f"error: {what}\n")
    return code


def _give_up_output() -> None:
    """Redirect standard output to /dev/null, because Python would retry the failed write at its exit and print an
    error."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:
        os.close(1)


def _standard_streams() -> bool:
    """Whether standard output is open. A closed stream is opened on /dev/null: else the next file would take its number."""
    printed = sys.stdout is not None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)
    return printed
