"""Other names of fields, by the name of today: a file, a flag and `--set` take both."""

from __future__ import annotations

from typing import Any

from testbed.core.errors import RequestError
from testbed.spec import fields
from testbed.spec.experiment import Spec

ALIASES = {
    alias: name
    for name, field in fields.of(Spec).items()
    for alias in (*field.declaration.aliases, *field.declaration.old_names)
}
INSIDE = ("quick", "realtime")  # tables whose keys are fields, too; a sweep's are named as they are typed


def canonical(given: dict[str, Any], source: str) -> dict[str, Any]:
    """``given`` by the names of today, in the tables of a file and in ``--set``; raises `RequestError` if one has both."""
    result: dict[str, Any] = {}
    for key, value in given.items():
        name = ALIASES.get(key, key)
        if name in result:
            earlier = next(alias for alias, today in ALIASES.items() if today == name)
            raise RequestError(f"{source}: {earlier} and {name} are two names of one field; give one of them")
        if key in INSIDE and isinstance(value, dict):
            value = canonical(value, f"{source}: {key}")
        if key == "set" and isinstance(value, list):
            value = [_path(text) if isinstance(text, str) else text for text in value]
        result[name] = value
    return result


def _path(text: str) -> str:
    path, equals, value = text.partition("=")
    return ALIASES.get(path, path) + equals + value
