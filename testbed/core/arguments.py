"""argparse as every command line here uses it: an error is one paragraph with exit code 2."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any, NoReturn

from testbed.core.errors import RequestError
from testbed.core.text import closest

SIDE_BY_SIDE = 80  # columns from which a flag and its help share a line
GUTTER, NARROW_GUTTER = 26, 6  # columns before the help of a flag; the second below `SIDE_BY_SIDE`


class Formatter(argparse.HelpFormatter):
    """Format help text in lines no wider than the terminal, broken only between words."""

    def __init__(self, prog: str) -> None:
        columns = shutil.get_terminal_size().columns
        super().__init__(prog, 2, GUTTER if columns >= SIDE_BY_SIDE else NARROW_GUTTER, columns)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return fitted(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(fitted(" ".join(text.split()), width, indent, indent))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Every name, and the values once; wrapped where that is too long."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        values = "" if action.nargs == 0 else self._format_args(action, self._get_default_metavar_for_optional(action))
        entry = f"{', '.join(action.option_strings)} {values}".rstrip()
        return "\n".join(fitted(entry, self._width - self._current_indent, later=" " * NARROW_GUTTER))

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], _groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        """Options that may be left out are one word of the usage: each is described below it."""
        if usage is None:
            actions = list(actions)
            needed = [action for action in actions if action.required or not action.option_strings]
            more = len(actions) > len(needed) + 1  # than --help
            values = (" ".join([*each.option_strings[:1], self._format_args(each, each.dest)]) for each in needed)
            usage = " ".join(["%(prog)s", *["[OPTION ...]"] * more, *values])
        line = f"{'usage: ' if prefix is None else prefix}{usage % {'prog': self._prog}}"
        self._add_item(lambda: "\n".join(fitted(line, self._width, later=" " * NARROW_GUTTER)) + "\n\n", [])


def fitted(text: str, columns: int, first: str = "", later: str = "") -> list[str]:
    """Wrap ``text`` to lines of at most ``columns`` characters, indented by ``first`` and then by ``later``."""
    return textwrap.wrap(
        text, columns, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    ) or [first]


class Parser(argparse.ArgumentParser):
    """argparse that raises `RequestError`, shows examples first, and refuses ``--flag=--`` (for argparse an empty list)."""

    examples: tuple[str, ...] = ()  # arguments, as they follow the program's name

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{"formatter_class": Formatter, **named})

    def error(self, message: str) -> NoReturn:
        raise RequestError(
            f"{message.removesuffix('?')}{'?' if message.endswith('?') else '.'} `{self.prog} --help` lists all arguments."
        )

    def format_help(self) -> str:
        """Return the help, examples first; a wrapped example ends its lines with a backslash, so that it can be pasted
        into a shell."""
        columns = shutil.get_terminal_size().columns - len(" \\")
        lines = [
            " \\\n".join(fitted(f"{self.prog} {example}", columns, "  ", " " * NARROW_GUTTER))
            for example in self.examples
        ]
        return "\n".join([*(["examples:", *lines, ""] if lines else []), super().format_help()])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here: argparse leaves them to the parser above, which names its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            shown = [
                name for action in self._actions if action.help != argparse.SUPPRESS for name in action.option_strings
            ]
            name = next((each.partition("=")[0] for each in unknown if each.startswith("--")), "")
            close = closest(name, shown) if name else None
            self.error(f"unrecognized arguments: {' '.join(unknown)}" + (f". Did you mean {close!r}?" if close else ""))
        return found, unknown

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and "--" in arg_strings:
            raise argparse.ArgumentError(action, "expected a value, not '--'")
        return super()._get_values(action, arg_strings)
