"""Other names of fields and words are read as the canonical ones: a file, a flag and ``--set`` take both. Names of folders keep the old ones."""

from __future__ import annotations

from typing import Any

import msgspec

from testbed.core.errors import RequestError, within
from testbed.spec import fields
from testbed.spec.experiment import Spec

ALIASES = fields.aliases(Spec)
TABLES = {"realtime": "real-clock"}  # old names of tables
INSIDE = ("quick", "real-clock")  # tables whose keys are fields as well


def canonical(given: dict[str, Any], source: str) -> dict[str, Any]:
    """``given`` by canonical names, in the tables of a file and in ``--set``; raises `RequestError` if one has both."""
    if both := [old for old, new in TABLES.items() if old in given and new in given]:
        raise RequestError(f"{source}: {both[0]} and {TABLES[both[0]]} are two names of one table; give one of them")
    with within(source):
        result = fields.to_canonical(Spec, {TABLES.get(key, key): value for key, value in given.items()})
    for key in INSIDE:
        if isinstance(result.get(key), dict):
            result[key] = canonical(result[key], f"{source}: {key}")
    if isinstance(result.get("sweep"), dict):
        result["sweep"] = _swept(result["sweep"])
    if isinstance(result.get("set"), list):
        result["set"] = [_set(text) if isinstance(text, str) else text for text in result["set"]]
    return result


def path_of(path: str) -> str:
    """A path by canonical names: ``job.0.window`` is ``job.0.credit_bytes``."""
    return _walked(path)[0]


def in_folder(path: str, value: Any) -> tuple[str, Any]:
    """The field name and ``value`` for a ``path`` in a folder name; a name that is not an old one stays unchanged."""
    _, kind, field = _walked(path)
    typed = path.rsplit(".", maxsplit=1)[-1]
    if field is None:
        return typed, fields.to_folder_form(kind, value) if kind is not None and isinstance(value, dict) else value
    return field.declaration.folder_name or typed, field.to_folder_form(value)


def _swept(swept: dict[str, Any]) -> dict[str, Any]:
    """Paths in folder names that stay are canonical; all others stay as typed."""
    result: dict[str, Any] = {}
    for path, value in swept.items():
        field = _walked(path)[2]
        name = path_of(path) if field is not None and field.declaration.folder_name else path
        result[name] = _swept(value) if path == "zip" and isinstance(value, dict) else value
    return result


def _set(text: str) -> str:
    path, equals, value = text.partition("=")
    return path_of(path) + equals + value


def _walked(path: str) -> tuple[str, type[msgspec.Struct] | None, fields.Field | None]:
    """A path by canonical names, the struct of what lies there, and its field; None where it leads to none."""
    kind: type[msgspec.Struct] | None = Spec
    field: fields.Field | None = None
    words: list[str] = []
    for word in path.split("."):
        if field is not None and field.tables is not None:  # an index, or a link's name
            kind, field = field.tables, None
            words.append(word)
            continue
        name = word if kind is None else fields.aliases(kind).get(word, word)
        field = None if kind is None else fields.of_struct(kind).get(name)
        kind = kind if field is not None else None
        words.append(name)
    return ".".join(words), kind, field
