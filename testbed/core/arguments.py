"""argparse as every command line here uses it: an error is one paragraph with exit code 2."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from testbed.core.errors import RequestError


class Parser(argparse.ArgumentParser):
    """argparse that raises `RequestError` and refuses ``--flag=--``, which argparse reads as an empty list."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message}. `{self.prog} --help` lists what there is.")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and "--" in arg_strings:
            raise argparse.ArgumentError(action, "expected a value, not '--'")
        return super()._get_values(action, arg_strings)
