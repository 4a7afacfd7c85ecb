"""A JSON schema of experiment files, for editors."""

from __future__ import annotations

import argparse
import json

from core.errors import EXIT_OK
from testbed.spec import described


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(_parsed: argparse.Namespace) -> int:
    print(json.dumps(described.schema(), indent=1))
    return EXIT_OK
