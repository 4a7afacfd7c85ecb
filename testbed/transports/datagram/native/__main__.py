"""``python -m testbed.transports.datagram.native`` builds the core, and prints its path."""

from __future__ import annotations

import sys

from testbed.core import start


def main() -> int:
    """Build the library, print its path, and return an exit code."""
    from testbed.core.errors import EXIT_OK, TestbedError
    from testbed.transports.datagram.native import build

    try:
        print(build(), flush=True)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(start.ended(main))
