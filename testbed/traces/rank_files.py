"""Files of several ranks: a folder or prefix that stands for them, the rank in a name, and a file that lists process groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from testbed.core.input_files import MEGABYTE, FileError, read_bytes
from testbed.core.text import quoted, shown
from testbed.traces.json_stream import brief
from testbed.traces.trace import TraceError

ProcessGroups = Mapping[str, tuple[tuple[int, ...], ...]]  # lists of ranks by name

_OF_A_RANK = re.compile(r"(?:^|[._-]|rank)(\d{1,6})\.(?:et|json)(?:\.gz)?$")
_MOST_BYTES = 4 * MEGABYTE
_MOST_RANK = 1 << 20
_MOST_FILES = 64  # of a folder in which process groups are looked for


def rank_of(path: Path) -> int | None:
    """The rank in a name such as ``workload.3.et``."""
    found = _OF_A_RANK.search(path.name)
    return int(found[1]) if found else None


def expanded(paths: Sequence[Path]) -> list[Path]:
    """The same, with the files of all ranks for a folder (``traces/``) or a prefix (``traces/workload``) that has some.

    Raises `TraceError` for a folder that has none.
    """
    return [file for path in paths for file in (_files(path) or [_no_folder(path)])]


def ignored(folder: Path) -> list[Path]:
    """The files of a folder that `expanded` leaves out, without lists of process groups."""
    chosen = _files(folder)
    return [
        file for file in sorted(folder.iterdir()) if file.is_file() and file not in chosen and not is_group_file(file)
    ]


def _no_folder(path: Path) -> Path:
    if path.is_dir():
        raise TraceError(
            f"{shown(str(path), 200)} is a folder without a file of a rank. The name of such a file ends in the rank, as in trace.0.json. "
            "Rename the files, or name them one by one"
        )
    return path


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            there = sorted(path.iterdir())
            return _by_rank([file for file in there if file.name.endswith((".et", ".et.gz"))]) or _by_rank(
                [file for file in there if rank_of(file) is not None]
            )
        if path.exists() or not path.parent.is_dir():
            return []
        return _by_rank(
            [
                file
                for file in sorted(path.parent.iterdir())
                if rank_of(file) is not None and _OF_A_RANK.sub("", file.name) == path.name
            ]
        )
    except (OSError, ValueError):
        return []


def _by_rank(files: Sequence[Path]) -> list[Path]:
    return sorted(files, key=lambda file: (rank_of(file) is None, rank_of(file) or 0, file.name))


def read_groups(path: Path) -> ProcessGroups:
    """The process groups of a JSON file that maps each name to its ranks, or to lists of ranks; raises `TraceError`."""
    try:
        raw = msgspec.json.decode(read_bytes(path, _MOST_BYTES))
    except FileError as error:
        raise TraceError(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{shown(str(path), 200)} is not JSON: {error}") from error
    if not isinstance(raw, dict) or not raw:
        raise TraceError(
            f"{shown(str(path), 200)} lists no process groups. Such a file maps names to ranks: {{'1': [0, 1]}}"
        )
    return {str(name): _lists(str(name), value, path) for name, value in raw.items()}


def _lists(name: str, value: object, path: Path) -> tuple[tuple[int, ...], ...]:
    where = f"{shown(str(path), 200)}: process group {quoted(name)}"
    nested = isinstance(value, list) and bool(value) and all(isinstance(one, list) for one in value)
    found = []
    seen: set[int] = set()
    for ranks in value if nested and isinstance(value, list) else [value]:
        if not isinstance(ranks, list) or not ranks or not all(_is_rank(rank) for rank in ranks):
            raise TraceError(f"{where} is {brief(value)}. Give a list of ranks, such as [0, 1]")
        if len(set(ranks)) < len(ranks) or not seen.isdisjoint(ranks):
            raise TraceError(f"{where} has a rank twice: {brief(ranks)}. A rank is in one list of a group")
        seen.update(ranks)
        found.append(tuple(ranks))
    return tuple(found)


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_RANK


def is_group_file(path: Path) -> bool:
    """Whether this is a file that lists process groups, judged by its contents."""
    if path.suffix != ".json":
        return False
    try:
        read_groups(path)
    except TraceError:
        return False
    return True


def groups_beside(path: Path) -> Path | None:
    """The file that lists process groups in the folder of a trace; raises `TraceError` if there are several.

    A file whose name is the trace's without its rank comes first (``llm.json`` of ``llm.3.et``), then one with "group" in its name.
    """
    try:
        there = [file for file in sorted(path.parent.iterdir()) if file.suffix == ".json" and rank_of(file) is None]
    except OSError:
        return None
    prefix = _OF_A_RANK.sub("", path.name)
    there.sort(key=lambda file: (file.stem != prefix, "group" not in file.name.lower()))
    found = [file for file in there[:_MOST_FILES] if is_group_file(file)]
    if not found or found[0].stem == prefix:
        return found[0] if found else None
    named = [file for file in found if "group" in file.name.lower()] or found
    if len(named) > 1:
        names = ", ".join(quoted(file.name) for file in named[:8])
        raise TraceError(
            f"{path}: several files next to it list process groups ({names}). Name the one that belongs to it: --group-file FILE"
        )
    return named[0]
