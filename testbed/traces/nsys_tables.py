"""Tables of an ``nsys export --type sqlite``, read within bounds: such a file is not trusted.

A database can define a view or an index that never ends. Only tables are read, with a limit on rows, on the length of a value and on time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from testbed.core.text import shown
from testbed.traces.json_stream import LONGEST, MOST
from testbed.traces.trace import TraceError

MAGIC = b"SQLite format 3\0"
LONGEST_S = 50.0  # for all queries of a file
_MOST_ROWS = 20_000_000  # of a table
_OPERATIONS = 100_000  # of SQLite's machine, between looks at the clock


class Tables:
    """A database that is read only; each method raises `TraceError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._until = time.monotonic() + LONGEST_S
        if path.stat().st_size > MOST:
            raise TraceError(f"{path} has more than {MOST >> 30} GiB: profile fewer steps")
        try:
            self._database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error as error:
            raise TraceError(f"{path} cannot be opened: {shown(error)}") from error
        self._database.text_factory = lambda data: data.decode(errors="replace")
        for limit in (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH):
            self._database.setlimit(limit, LONGEST)
        self._database.set_progress_handler(self._late, _OPERATIONS)
        self._columns: dict[str, list[str]] = {}
        try:
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
                self._database.execute(f"PRAGMA {setting}")
        except sqlite3.Error as error:
            raise self._error(error) from error

    def __enter__(self) -> Tables:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def _late(self) -> int:
        return time.monotonic() > self._until

    def columns(self, table: str) -> list[str]:
        """The names of its columns; none if there is no such table."""
        if table not in self._columns:
            made = [
                row[0]
                for row in self._rows("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
            ]
            real = bool(made) and isinstance(made[0], str) and made[0].lstrip().upper().startswith("CREATE TABLE")
            found = self._rows("SELECT name FROM pragma_table_info(?)", (table,)) if real else ()
            self._columns[table] = [row[0] for row in found if isinstance(row[0], str)]
        return self._columns[table]

    def rows(
        self, table: str, columns: Sequence[str], where: str = "", values: Sequence[object] = ()
    ) -> Iterator[tuple[object, ...]]:
        """``columns`` of a table, NULL for those that it does not have."""
        known = self.columns(table)
        if not known:
            return iter(())
        chosen = ", ".join(f'"{name}"' if name in known else "NULL" for name in columns)
        return self._rows(f'SELECT {chosen} FROM "{table}"{f" WHERE {where}" if where else ""}', values)

    def strings(self, where: str = "", values: Sequence[object] = ()) -> dict[int, str]:
        """Texts by their number, of those that fulfil the condition on ``value``."""
        found = self.rows("StringIds", ("id", "value"), where, values)
        return {number: text for number, text in found if isinstance(number, int) and isinstance(text, str)}

    def _rows(self, query: str, values: Sequence[object]) -> Iterator[tuple[object, ...]]:
        try:
            for count, row in enumerate(self._database.execute(query, values)):
                if count >= _MOST_ROWS:
                    raise TraceError(f"{self.path} has a table of more than {_MOST_ROWS:,} rows: profile fewer steps")
                yield row
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> TraceError:
        if time.monotonic() > self._until:
            return TraceError(f"{self.path} takes longer to read than {LONGEST_S:g} s: profile fewer steps")
        return TraceError(
            f"{self.path} is damaged, or not an export of nsys: {shown(error)}. Export it again: nsys export --type sqlite"
        )
