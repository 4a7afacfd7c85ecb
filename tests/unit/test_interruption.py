"""Who is asked to end ends, also where Python lost the exception."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from core import interruption
from testbed.substrates.progress import Patience, Watch

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    with contextlib.suppress(KeyboardInterrupt):
        interruption.check()


@pytest.mark.parametrize("number", NUMBERS)
def test_what_an_import_swallowed_is_raised_again(number: signal.Signals) -> None:
    for each in NUMBERS:
        signal.signal(each, signal.SIG_DFL)
    interruption.listen()
    with contextlib.suppress(BaseException):  # as a library's import may
        os.kill(os.getpid(), number)
    watch = Watch(Patience(), lambda event: None, virtual=True)
    with pytest.raises(KeyboardInterrupt, match="interrupted" if number == signal.SIGINT else "terminated"):
        watch.look()
    interruption.listen()  # of the next command nobody has asked that
    watch.look()


def test_what_a_shell_ignores_stays_ignored() -> None:
    """A command in the background of a shell hears no Ctrl-C, one behind nohup no closed terminal."""
    script = "from core import interruption; interruption.listen(); import os, signal\n"
    for name in ("INT", "HUP"):
        told = f"os.kill(os.getpid(), signal.SIG{name}); interruption.check(); print('goes on')"
        ignoring = ["env", f"--ignore-signal={name}", sys.executable, "-c", script + told]
        assert subprocess.run(ignoring, capture_output=True, text=True, check=False).stdout == "goes on\n"
