"""Experiment files: reading and merging their tables, before `testbed.spec` interprets them.

A file may stand on another one (``base``); its tables ``[quick]`` and ``[real-clock]`` take the
place of its other fields in some cases; any field can be put in by its path.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from testbed import registry
from testbed.core import system_text, toml
from testbed.core.environment import ROOT
from testbed.core.errors import RequestError, VirtualTimeOnlyError, within
from testbed.core.input_files import MissingError, is_file, read_text
from testbed.core.text import command, did_you_mean, quoted, shown
from testbed.schedulers import job
from testbed.spec import backend_names
from testbed.spec.aliases import canonical, path_of

Fields = dict[str, Any]

MOST_BYTES = 10**6  # of an experiment's file
MOST_DEEP = 8  # tables in tables
MOST_BASES = 16  # files that stand one on another

OVERLAYS = ("quick", "real-clock")  # tables of fields that hold in some cases only, the later on top


def in_force(fields: Fields, flags: Fields, source: str) -> Fields:
    """A file's ``fields`` with those of the `OVERLAYS` that hold merged into them; raises `RequestError`.

    ``[quick]`` holds with ``--quick``, ``[real-clock]`` where the clock is a real one; that has no fields but
    ``impossible`` if the experiment cannot be had there (`VirtualTimeOnlyError`).
    """
    fields = dict(fields)
    on = flags.get("on", fields.get("on", "auto"))
    holds = {"quick": flags.get("quick", False), "real-clock": isinstance(on, str) and backend_names.in_real_time(on)}
    for name in OVERLAYS:
        overlay = fields.pop(name, {})
        if not isinstance(overlay, dict):
            raise RequestError(f'{source}: {name}: must be a table of fields, as in rate = "300mbit"')
        if stray := sorted(set(overlay) & {"name", "base", "on", *OVERLAYS}):
            raise RequestError(f"{source}: {name}: {stray[0]} cannot differ here. Put it above the table.")
        if holds[name] and "impossible" in overlay:
            raise VirtualTimeOnlyError(
                f"{source}: this experiment runs only under virtual time (--on uml): {overlay['impossible']}"
            )
        if holds[name]:
            fields = _overlaid(fields, overlay)
    return fields


def _overlaid(fields: Fields, overlay: Fields) -> Fields:
    fields = with_room(fields, overlay)
    if isinstance(fields.get("sweep"), dict):
        fields["sweep"] = _without(fields["sweep"], overlay)
        if not fields["sweep"]:
            del fields["sweep"]
    return _merged(fields, overlay)


def _without(swept: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The fields that are still swept if the fields ``given`` have one value each."""
    left = {path: values for path, values in swept.items() if path_of(path) not in given}
    if isinstance(left.get("zip"), dict):
        left["zip"] = _without(left["zip"], given)
    return {path: values for path, values in left.items() if path != "zip" or values}


def read(path: Path, fields: Collection[str], above: tuple[Path, ...] = ()) -> Fields:
    """The tables of a file merged over its ``base``; all values except tables are replaced.

    ``fields``: the names there are. Raises `RequestError`.
    """
    path = shipped(path)
    found = _from_here(canonical(_read_toml(path), str(path)), path.parent)
    known = (*fields, "base", "sweep", *OVERLAYS)
    if "kind" in found and "kind" not in fields:
        raise RequestError(
            f"{path}: its kind {quoted(str(found['kind']))} is computed, not run. Use `{command('sweep', path)}`"
        )
    if stray := [key for key in found if key not in known]:
        hint = did_you_mean(stray[0], known, f"Known fields: {', '.join(known)}.")
        raise RequestError(f"{path}: unknown field `{stray[0]}`. {hint}")
    found.setdefault("name", re.sub(r"[^A-Za-z0-9._-]+", "_", path.stem).lstrip("._-")[:64] or "experiment")
    base = found.pop("base", None)
    if base is None:
        return found
    if not isinstance(base, str):
        raise RequestError(f'{path}: base: name a file, as in base = "other.toml"')
    below = path.parent / base
    if not is_file(below):
        raise RequestError(f"{path}: base: there is no file {shown(below, 200)}")
    if len(above) > MOST_BASES or below.resolve() in {one.resolve() for one in (path, *above)}:
        raise RequestError(f"{path}: base: {base} leads back to this file. Name another file.")
    return _merged(with_room(read(below, fields, (*above, path)), found), found)


def is_named(path: Path) -> bool:
    """Return True if the file sets `name`; otherwise the experiment is named after the file."""
    return "name" in _read_toml(shipped(path))


def shipped(path: Path) -> Path:
    """The testbed's own file for ``experiments/…`` or ``examples/…`` that is missing here; any other path unchanged."""
    own = Path(ROOT) / path
    return own if path.parts[:1] in (("experiments",), ("examples",)) and not is_file(path) and is_file(own) else path


def with_room(fields: Fields, coming: Collection[str]) -> Fields:
    """``fields`` without what those that are coming take the place of: a job of one kind, that of the other."""
    gone: set[str] = set()
    for key, others in (
        ("trace", {"compute", "bytes"}),
        ("compute", {"trace"}),
        ("bytes", {"trace"}),
        ("job", {"jobs"}),
        ("jobs", {"job"}),
    ):
        if key in coming:
            gone |= others - set(coming)
    return {key: value for key, value in fields.items() if key not in gone}


# File names in these values are relative to the experiment file: ./mine.py,3  mine.json,workers=4  reno+tcp_mine.c:step=4
_NAMES_FILES = ("topo", "trace", "collective", "system", "cc", "job", "congestion", "transport", "flow_scheduler")
_FILE = re.compile(r"(?:^|(?<=\+))(?![/~])[^,:+]+\.(?:py|json|toml|c)(?=[,:+]|$)")


def _from_here(fields: Fields, folder: Path) -> Fields:
    def moved(value: Any) -> Any:
        if isinstance(value, str):
            return _FILE.sub(lambda match: str(folder / match[0]), value)
        if isinstance(value, list):
            return [moved(one) for one in value]
        return _from_here(value, folder) if isinstance(value, dict) else value

    inside = {"sweep", "zip", *OVERLAYS}

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(each) for each in value]
        mine = isinstance(value, str) and (not job.is_named(value) or registry.is_file_name(system_text.name_of(value)))
        return str(folder / value) if mine else value

    if "scheduler" in fields:
        fields = {**fields, "scheduler": placed(fields["scheduler"])}
    return {
        key: moved(value)
        if key.split(".")[-1] in _NAMES_FILES
        else _from_here(value, folder) if key in inside and isinstance(value, dict) else value
        for key, value in fields.items()
    }  # fmt: skip


def _merged(below: Fields, above: Fields) -> Fields:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def put(fields: Fields, path: str, value: Any, where: str) -> None:
    """Set what lies at ``path`` (``rate``, ``job.0.trace``, ``link.s1-s2.rate``) without changing what others hold."""
    if "" in path.split(".") or path.count(".") > MOST_DEEP:
        raise RequestError(
            f"{where}: {quoted(path)} is not the path of a field. Write for instance rate or job.0.trace."
        )
    key, *rest = path.split(".")
    holder: Any = fields
    while rest:
        if rest[0].isdecimal() and isinstance(holder, dict) and key not in holder:
            raise RequestError(f"{where}: {path}: the file has no [[{key}]]. Add one, or leave out the path.")
        inner = holder[_index(holder, key, path, where)] if key in holder or isinstance(holder, list) else {}
        if not isinstance(inner, dict | list):
            raise RequestError(
                f"{where}: {path}: {key} is {shown(repr(inner))}, which has no fields. Shorten the path."
            )
        copy = dict(inner) if isinstance(inner, dict) else list(inner)
        holder[_index(holder, key, path, where)] = copy
        holder, key, *rest = copy, *rest
    holder[_index(holder, key, path, where)] = value


def _index(holder: Any, key: str, path: str, where: str) -> Any:
    if not isinstance(holder, list):
        return key
    if not key.isdecimal() or int(key) >= len(holder):
        raise RequestError(f"{where}: {path}: {quoted(key)} is not a number from 0 to {len(holder) - 1}.")
    return int(key)


def toml_value(text: str) -> Any:
    """A value as TOML has it; text needs no quotes."""
    try:
        return toml.loads(f"value = {text}")["value"]
    except toml.TomlError:
        return text


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path, MOST_BYTES)
    except MissingError as error:
        raise RequestError(
            f"{error}. Name an experiment file; `mltcp list experiments` lists those of the testbed."
        ) from error
    with within(f"{shown(path, 200)} is not TOML"):
        return toml.loads(text)
