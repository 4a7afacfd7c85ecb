"""A JSON schema of experiment files, for editors."""

from __future__ import annotations

import argparse
import json

from testbed.core.errors import EXIT_OK
from testbed.spec import field_help


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(_parsed: argparse.Namespace) -> int:
    print(json.dumps(field_help.schema(), indent=1))
    return EXIT_OK
