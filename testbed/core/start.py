"""Start a command so that a signal gives exit code 130 also while Python imports modules and exits.

Python ends by the signal itself before the first line of `ended`. Runs under Python 3.9 or newer, with the standard
library only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

EXIT_INTERRUPTED = 130


def command(package: str, module: str, arguments: Sequence[str]) -> int:
    """The exit code of ``module.main(arguments)`` in the checkout's environment, where ``package`` is the program."""

    def work() -> int:
        from testbed.core.environment import enter

        enter(package)

        from testbed.core import ending

        return ending.run(module, arguments)

    return ended(work)


def ended(work: Callable[[], int]) -> int:
    """The exit code of ``work()``, or of its interruption. After it no signal but SIGKILL ends the process, which has to exit."""
    try:
        try:
            from testbed.core import interruption

            interruption.listen()
            return interruption.guarded(work)
        finally:
            _ignore()
    except KeyboardInterrupt:
        _ignore()
        sys.stderr.write("\ninterrupted\n")
        return EXIT_INTERRUPTED


def _ignore() -> None:
    """Python restores its default handlers before the process is over, and would end by a late signal."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
