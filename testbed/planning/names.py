"""Folder names of experiments: made from the fields that differ from the defaults, or from those of another experiment.

``dumbbell-4xsynthetic-rate-50gbit`` is the name of an experiment that has none; ``interleaving-on-flow`` is that of a named one that
runs on another backend than its file selects, or whose folder holds another experiment (`testbed.campaign.stored.folders`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from testbed.core.runs.manifest import Asked
from testbed.core.text import file_name
from testbed.spec import Spec
from testbed.spec.aliases import canonical
from testbed.spec.fields import to_folder_form

# Fields that do not identify an experiment: new seeds are added to existing ones, and a limit changes no result.
NO_PART = ("name", "seed", "seeds", "wall_limit")
# Fields at the start or at the end of a default name.
_ELSEWHERE = (*NO_PART, "topo", "jobs", "trace", "on")
LONGEST = 100  # characters of a default name
LONGEST_NAME = 200  # characters of any name, as in `testbed.spec`
DIGITS = 6  # of a hash
MOST_FILE_BYTES = 64 << 20
_FILE = re.compile(r"[^,:+=\s]+\.(?:py|json|toml|c|et|csv)(?![A-Za-z0-9_])")


def default_name(spec: Spec) -> str:
    """Return ``dumbbell-4xsynthetic`` and every field that differs from its default (``-rate-50gbit``).

    The name includes the systems, because a summary compares them. A hash stands for jobs, links, events, and files, which no
    folder name can hold. `with_backend` adds the backend.
    """
    trace = "mixed" if spec.job else Path(spec.trace).stem if spec.trace else "synthetic"
    words = [f"{file_name(Path(spec.topo).stem.replace(',', '-'))}-{spec.jobs}x{file_name(trace)}"]
    exact = spec.topo.isidentifier() and (spec.trace is None or spec.trace.isidentifier())
    usual = Spec()
    for name in Spec.__struct_fields__:
        value = getattr(spec, name)
        if name in _ELSEWHERE or value == getattr(usual, name):
            continue
        word, holds = _word(*_in_folder(name, _text(value)))
        words += [word] if word else []
        exact = exact and holds
    whole = "-".join(words)
    if exact and len(whole) <= LONGEST:
        return whole
    rest = msgspec.structs.replace(spec, seed=0, seeds=0, on="auto", wall_limit=None)
    digest = hashlib.sha256(
        msgspec.json.encode(to_folder_form(Spec, msgspec.to_builtins(rest, enc_hook=_plain)))
    ).hexdigest()
    return f"{whole[:LONGEST].rstrip('-.')}-{digest[:DIGITS]}"


def with_backend(name: str, backend: str, *, default: bool) -> str:
    """``name`` with the backend in it: ``interleaving-on-flow``, ``map-on-flow.rate-1gbit``. ``default``: it is a `default_name`."""
    word, exact = _word("on", backend)
    return _with(name, [word, *([] if exact else [_hash(backend)])], default=default)


def apart(name: str, there: Asked, asked: Asked, *, default: bool) -> str:
    """``name`` with every field in which an experiment differs from the one that has its folder."""
    words, exact = [], True
    for field, _, value in differences(there, asked):
        word, holds = _word(*_in_folder(field, _text(value)))
        words += [word] if word else []
        exact = exact and holds
    return _with(name, words if exact else [*words, digest(asked)], default=default)


def digest(asked: Asked) -> str:
    """A few digits that distinguish experiments."""
    fields = to_folder_form(Spec, canonical(dict(asked.fields), "asked"))
    return _hash(msgspec.json.encode(fields, order="deterministic").decode())


def differences(there: Asked, asked: Asked) -> list[tuple[str, Any, Any]]:
    """The fields in which two experiments differ, and what each has."""
    found = []
    for field in Spec.__struct_fields__:
        before, after = (_value(one.fields, field) for one in (there, asked))
        if before != after:
            found.append((field, before, after))
    return found


def asked(spec: Spec, backend: str) -> Asked:
    """The requested experiment, run on ``backend``."""
    usual = Spec()
    fields: dict[str, Any] = {"on": backend}
    files: dict[str, str] = {}
    for name in Spec.__struct_fields__:
        value = getattr(spec, name)
        if name not in (*NO_PART, "on") and value != getattr(usual, name):
            fields[name] = _by_name(msgspec.to_builtins(value, enc_hook=_exact), files)
    return Asked(fields, files)


def _by_name(value: Any, files: dict[str, str]) -> Any:
    """``value`` with the files in it by their names alone; their digests are put into ``files``."""
    if isinstance(value, dict):
        return {key: _by_name(one, files) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_by_name(one, files) for one in value]
    if not isinstance(value, str):
        return value
    path, colon, options = value.partition(":")  # a path on its own may have blanks and commas
    if (name := _noted(path, files)) != path:
        return f"{name}{colon}{_by_name(options, files)}"
    return _FILE.sub(lambda found: _noted(found[0], files), value)


def _noted(name: str, files: dict[str, str]) -> str:
    path = Path(name)
    try:
        if not path.is_file() or path.stat().st_size > MOST_FILE_BYTES:
            return name
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return name
    if files.setdefault(path.name, found) != found and found not in files[path.name]:
        files[path.name] += f"+{found}"  # another file of the same name
    return path.name


def _value(fields: Mapping[str, Any], field: str) -> Any:
    """The values of an experiment's fields as typed, defaults included."""
    fields = canonical(dict(fields), "asked")  # a stored run may have an older name
    if field in fields or field in (*NO_PART, "on"):
        return fields.get(field)
    return _by_name(msgspec.to_builtins(getattr(Spec(), field), enc_hook=_exact), {})


def _with(name: str, words: list[str], *, default: bool) -> str:
    """``words`` at the end of a default name; of a chosen name before its first dot, where the figure's id ends."""
    stem, dot, rest = (name, "", "") if default else name.partition(".")
    whole = "-".join((stem, *words)) + dot + rest
    if len(whole) <= LONGEST_NAME:
        return whole
    short = f"{'-'.join((stem, *words))[:LONGEST].rstrip('-.')}-{_hash(whole)}{dot}{rest}"
    return short if len(short) <= LONGEST_NAME else f"{short[:LONGEST].rstrip('-.')}-{_hash(whole)}"


def _in_folder(field: str, text: str | None) -> tuple[str, str | None]:
    """The name of a field in names of folders, and its value."""
    ((name, value),) = to_folder_form(Spec, {field: text}).items()
    return name, value


def _word(name: str, text: str | None) -> tuple[str, bool]:
    """Return ``rate-50gbit`` (empty if no character is valid in a folder name), and whether it represents the complete
    value."""
    written = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") if text else ""
    return (f"{name}-{written}" if written else ""), text is not None and written == text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:DIGITS]


def _plain(value: Any) -> str | int:
    return str(value) if isinstance(value, str) else int(value)


def _exact(value: Any) -> str | int:
    """A quantity as typed."""
    return str(getattr(value, "exact", value))


def _text(value: Any) -> str | None:
    """A value as typed; None if it is not a single value."""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return "-".join(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return str(getattr(value, "exact", value))
    return None
