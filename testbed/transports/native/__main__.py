"""``python -m testbed.transports.native`` builds the core, and says where it is."""

from __future__ import annotations

import sys

from testbed.core.errors import TestbedError
from testbed.transports.native import build

if __name__ == "__main__":
    try:
        print(build())
    except TestbedError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
