"""Fit text to the width of a terminal: tables omit columns, and prose wraps between words.

A table omits columns from the right until the others fit; the columns that name its rows always stay.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from testbed.core.text import paragraph, plain

NARROWEST, USUAL = 20, 100
NAME = 40  # characters of a name that stay on one line
PROSE = 24  # minimum width of a column of prose; a narrower one goes below the row
INDENT = "  "
_PIECES = re.compile(r"[^,:/+ ]*[,:/+ ]+|[^,:/+ ]+")  # pieces of a name, which may wrap after one of these characters

Cell = str | Text


def width(usual: int = USUAL) -> int:
    """Columns: those of ``COLUMNS``, else the terminal's, else the ``usual`` ones."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return max(NARROWEST, int(given))
    return max(NARROWEST, shutil.get_terminal_size((usual, 24)).columns) if sys.stdout.isatty() else usual


def console(usual: int = USUAL) -> Console:
    """Return a console for standard output, as wide as `width`; it does not alter printed text."""
    return Console(width=width(usual), highlight=False, markup=False, soft_wrap=True)


def errors() -> Console:
    """Return a console for standard error, as wide as its terminal, or as `width` without one."""
    found = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    if not found.is_terminal:
        found.width = width()
    return found


def say_error(message: object) -> None:
    """Print a message to standard error at once, each of its lines wrapped."""
    for line in paragraph(message).split("\n"):
        print("\n".join(wrapped(line, errors().width)), file=sys.stderr, flush=True)


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """Prose in lines of so many columns, all but the first after ``indent``; a longer word gets a separate line."""
    return textwrap.wrap(text, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
        ""
    ]


def say(to: Console, text: str, *, style: str = "", indent: str = "") -> None:
    """Print prose, wrapped."""
    for line in wrapped(plain(text), to.width, indent):
        to.print(Text(line, style=style))


def folded(name: str) -> list[str]:
    """A name in lines of `NAME` columns, cut behind its punctuation alone."""
    lines = [""]
    for piece in _PIECES.findall(name):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > NAME:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


@dataclass(frozen=True)
class Column:
    """A column of a `Sheet`."""

    heading: str = ""  # with line breaks where there are several lines
    right: bool = False
    prose: bool = False  # wrapped within the remaining width; only for the last column

    @property
    def title(self) -> str:
        """The heading in one line."""
        return re.sub(r"-\n(?=[a-z])", "", self.heading).replace("\n", " ").strip()


@dataclass(frozen=True)
class Sheet:
    """A table. The first ``names`` columns always stay; if they need the full width, the others go below them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    names: int = 1
    space: int = 2  # columns between two columns

    def print(self, to: Console) -> tuple[str, ...]:
        """Print the columns that fit, list the omitted ones in a line, and return their titles."""
        lines, left_out = self.lines(to.width)
        for line in lines:
            to.print(line)
        if left_out:
            say(to, f"Columns left out at a width of {to.width}: {', '.join(left_out)}.", style="dim")
        return left_out

    def lines(self, columns: int) -> tuple[list[Text], tuple[str, ...]]:
        """The lines, and the titles of the columns that are left out."""
        sheet = self
        if sheet._needs(range(len(sheet.columns))) > columns:
            sheet = replace(sheet, space=1)
        if sheet.names > 1 and sheet._needs(range(len(sheet.columns))) > columns:
            sheet = sheet._stacked()
        shown = sheet._fitting(columns)
        left_out = tuple(column.title for number, column in enumerate(sheet.columns) if number not in shown)
        title = [Text(line, style="bold") for line in wrapped(plain(self.title), columns)] if self.title else []
        return [*title, *sheet._drawn(shown, columns)], left_out

    def _stacked(self) -> Sheet:
        """The names of a row below each other in one column."""
        first = Column("\n".join(filter(None, (column.heading for column in self.columns[: self.names]))))
        rows = [[Text("\n" + INDENT).join(map(_text, row[: self.names])), *row[self.names :]] for row in self.rows]
        return replace(self, columns=[first, *self.columns[self.names :]], rows=rows, names=1)

    def _cell(self, number: int, cell: Cell) -> list[Text]:
        lines = list(_text(cell).split("\n", allow_blank=True))
        if number >= self.names or self.columns[number].prose:
            return lines
        return [Text(part, style=line.style) for line in lines for part in folded(line.plain)]

    def _wide(self, number: int) -> int:
        """Columns that this one takes."""
        heading = max((cell_len(line) for line in self.columns[number].heading.split("\n")), default=0)
        cells = (line.cell_len for row in self.rows for line in self._cell(number, row[number]))
        return max(heading, *cells, 0)

    def _needs(self, shown: Sequence[int]) -> int:
        wide = [0 if self.columns[number].prose else self._wide(number) for number in shown]
        return sum(wide) + self.space * (len(wide) - 1)

    def _fitting(self, columns: int) -> list[int]:
        """Return the indices of the columns that fit; columns of prose go below the others if the rest of the line is
        too narrow."""
        shown = list(range(len(self.columns)))
        while self._needs(shown) > columns:
            last = max((number for number in shown[self.names :] if not self.columns[number].prose), default=None)
            if last is None:
                break
            shown.remove(last)
        return shown

    def _drawn(self, shown: Sequence[int], columns: int) -> Iterator[Text]:
        tabular = [number for number in shown if not self.columns[number].prose]
        prose = next((number for number in shown if self.columns[number].prose), None)
        kinds, wide = [self.columns[number] for number in tabular], [self._wide(number) for number in tabular]
        if any(column.heading for column in kinds):
            heads = [[Text(line) for line in column.heading.split("\n")] for column in kinds]
            lowest = max(map(len, heads))
            heads = [[Text()] * (lowest - len(head)) + head for head in heads]
            for head in _joined(heads, kinds, wide, self.space):
                head.stylize("dim")
                yield head
        left = columns - self._needs(shown)
        for row in self.rows:
            cells = [self._cell(number, row[number]) for number in tabular]
            prose_text = "" if prose is None else plain(_text(row[prose]).plain)
            if prose_text and prose is not None and left >= PROSE:
                beside = [Text(line) for line in wrapped(prose_text, left)]
                yield from _joined([*cells, beside], [*kinds, self.columns[prose]], [*wide, left], self.space)
                continue
            yield from _joined(cells, kinds, wide, self.space)
            yield from (
                Text(2 * INDENT + line)
                for line in (wrapped(prose_text, columns - 2 * len(INDENT)) if prose_text else ())
            )


def _text(cell: Cell) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(cell)


def _joined(
    cells: Iterable[Sequence[Text]], columns: Sequence[Column], wide: Sequence[int], apart: int
) -> Iterator[Text]:
    """A row's lines."""
    for parts in zip_longest(*cells, fillvalue=Text()):
        line = Text()
        for number, (part, column, size) in enumerate(zip(parts, columns, wide, strict=True)):
            space = Text(" " * max(0, size - part.cell_len))
            line.append_text(Text(" " * apart if number else ""))
            line.append_text(space + part if column.right else part + space)
        line.rstrip()
        yield line
