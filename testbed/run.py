#!/usr/bin/env python3
"""``python testbed/run.py --topo dumbbell --jobs 4``: run one experiment (see --help)."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Started as a file: make the packages importable, but no module of the testbed by its bare name.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from testbed.core import start

    sys.exit(start.command("testbed.run", "testbed.cli", ["run", *sys.argv[1:]]))
