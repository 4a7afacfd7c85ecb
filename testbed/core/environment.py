"""Find the checkout's Python environment and continue in it.

Runs under any Python from 3.9 on, without packages. `run.py` and ``python -m testbed`` may be started by the first
``python`` on the PATH, ``sudo``'s included.
"""

from __future__ import annotations

import os
import sys

# The folder of the package `testbed`, for PYTHONPATH.
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The folder that holds topologies/, workloads/, analysis/ and kernel/: the checkout, or `testbed/content` in a wheel.
IS_CHECKOUT = os.path.isfile(os.path.join(PACKAGES, "kernel", "Kbuild"))
ROOT = PACKAGES if IS_CHECKOUT else os.path.join(PACKAGES, "testbed", "content")

CACHE = "MLTCP_CACHE"  # in the environment of user-mode Linux: the cache folder of the machine outside


def cache_folder() -> str:
    """Folder that keeps compiled programs and kernels between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get(CACHE) or os.path.join(base, "mltcp")


def enter(module: str) -> None:
    """Continue as ``python -m module`` in the checkout's environment, if not there already.

    Where the running interpreter has the packages itself (a `pip install` of the
    project), it is as good. Ends with code 3 before ``make setup``.
    """
    own = os.path.join(ROOT, ".venv")
    if os.path.realpath(sys.prefix) == os.path.realpath(own):
        return
    python = os.path.join(own, "bin", "python")
    if os.access(python, os.X_OK):
        # Under sudo no bytecode is written: it would be root's, in a checkout that is not.
        quietly = ["-B"] if "SUDO_UID" in os.environ and os.geteuid() == 0 else []
        os.execv(python, [python, "-P", *quietly, "-m", module, *sys.argv[1:]])
    if sys.version_info >= (3, 11):
        try:
            import mininet  # noqa: F401
            import msgspec  # noqa: F401
            import pyroute2  # noqa: F401

            return
        except ImportError:
            pass
    command = "make setup" if os.getcwd() == ROOT else f"make -C {ROOT} setup"
    sys.stderr.write(
        "The testbed's Python environment is not there yet.\n"
        f"Run `{command}` once (as root: it also installs the system packages), then this again.\n"
    )
    sys.exit(3)
