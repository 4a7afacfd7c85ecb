"""A JSON schema of experiment files, for editors; or their fields as Markdown, for the documentation."""

from __future__ import annotations

import argparse
import json

from testbed.core.errors import EXIT_OK
from testbed.spec import field_tables, schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--markdown", action="store_true", help="table of every field and option (docs/reference/fields.md)"
    )


def run(parsed: argparse.Namespace) -> int:
    print(
        field_tables.page() if parsed.markdown else json.dumps(schema.schema(), indent=1),
        end="" if parsed.markdown else "\n",
    )
    return EXIT_OK
