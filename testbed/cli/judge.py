"""Judge stored runs again, by the rules of this testbed."""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.core import text
from testbed.core.errors import EXIT_INVALID, EXIT_OK, RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", help="run directory, or folder with run directories")


def run(parsed: argparse.Namespace) -> int:
    from testbed.campaign import judge
    from testbed.core.runs.load import LoadError

    if not parsed.results:
        raise RequestError("judge: name a run directory, or a folder with some, such as results.")
    count, invalid = 0, False
    try:
        for path, before, now in judge.again(Path(parsed.results)):
            count += 1
            invalid |= now == "invalid"
            if now != before:
                print(text.plain(f"{path}: {before}, now {now}"))
    except LoadError as error:
        raise RequestError(str(error)) from error
    print(f"{text.count(count, 'run')} judged")
    return EXIT_INVALID if invalid else EXIT_OK
