"""argparse as every command line here uses it: an error is one paragraph with exit code 2."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import Any, NoReturn

from testbed.core.errors import RequestError


class Parser(argparse.ArgumentParser):
    """argparse that raises `RequestError`, shows examples first, and refuses ``--flag=--`` (for argparse an empty list)."""

    examples: tuple[str, ...] = ()  # arguments, as they follow the program's name

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message}. `{self.prog} --help` lists what there is.")

    def format_help(self) -> str:
        columns = max(40, shutil.get_terminal_size().columns - 4)
        lines = [
            " \\\n      ".join(
                textwrap.wrap(f"{self.prog} {example}", columns, break_long_words=False, break_on_hyphens=False)
            )
            for example in self.examples
        ]
        return (
            "".join(["examples:\n", *(f"  {line}\n" for line in lines), "\n"] if lines else []) + super().format_help()
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here: argparse leaves them to the parser above, which names its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and "--" in arg_strings:
            raise argparse.ArgumentError(action, "expected a value, not '--'")
        return super()._get_values(action, arg_strings)
