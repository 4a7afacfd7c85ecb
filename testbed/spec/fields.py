"""One declaration of each field of an experiment: its type, default, unit, meaning, group and limits.

A field is declared where its struct is: ``mtu: Annotated[int, field("bytes of a packet", group="network", low=576)] = 1500``.
From this follow the flag and its help (`testbed.cli.flags`), the JSON schema (`testbed.spec.schema`), the documentation
(`testbed.spec.field_tables`), other names (`testbed.spec.aliases`), and the equivalent command (`words`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as _attribute
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from testbed.core.errors import RequestError
from testbed.core.units import Quantity, Written

GROUPS = ("systems", "workload", "network", "repetition", "measurement", "execution", "results")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """Properties of a field that its type and default do not show."""

    description: str
    group: str = ""  # of `GROUPS`; none for a field of a link, an event or a job
    metavar: str = ""  # of its value; by default that of its type
    if_unset: str = ""  # description of the default None
    aliases: tuple[str, ...] = ()  # other names, which help shows
    old_names: tuple[str, ...] = ()  # other names, which no help shows
    old_values: Mapping[str, str] = _attribute(default_factory=dict)  # words that are read as others
    folder_name: str = ""  # its name in folder names, which keep the former words
    const: Any = None  # value of its flag without an argument
    flag: bool = True  # whether it has one
    advanced: bool = False  # whether help lists its flag in the group of advanced ones
    low: int | str | None = None  # the least; a quantity with its unit
    high: int | str | None = None


def field(description: str, **attributes: Any) -> msgspec.Meta:
    """A field's declaration for its annotation; ``attributes``: those of `Declaration`."""
    made = Declaration(description=description, **attributes)
    return msgspec.Meta(description=_with(description, made.if_unset), extra={"declaration": made})


@dataclass(frozen=True)
class Field:
    """A field as its struct has it."""

    name: str
    type: Any
    default: Any
    declaration: Declaration
    low: Any = None  # its limits, parsed
    high: Any = None

    @property
    def flag(self) -> str:
        return flag(self.name)

    @property
    def usual(self) -> str:
        """The default as typed, or in words; empty if there is none."""
        if isinstance(self.default, tuple) and self.default:
            return " ".join(map(str, self.default))
        if self.default in (None, "", ()) or isinstance(self.default, bool | dict):
            return self.declaration.if_unset
        return str(getattr(self.default, "exact", self.default))

    @property
    def help(self) -> str:
        """Return its description, with the default in brackets."""
        return _with(self.declaration.description, self.usual)

    @property
    def choices(self) -> tuple[Any, ...]:
        """The declaration of a field that takes one of some words."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def tables(self) -> type[msgspec.Struct] | None:
        """The struct of the tables that it holds, if it does."""
        return next((kind for kind in get_args(self.type) if issubclass(_plain(kind), msgspec.Struct)), None)

    @property
    def is_list(self) -> bool:
        """Return True if the field has several values."""
        return get_origin(self.type) is tuple

    @property
    def is_repeated(self) -> bool:
        """Return True if each of its values is a table with its own flag."""
        return self.is_list and self.tables is not None

    @property
    def metavar(self) -> str:
        """The placeholder for its value; empty if help lists the values."""
        if self.choices or self.declaration.metavar:
            return self.declaration.metavar
        if self.type is bool:
            return "true|false"
        if self.type is int:
            return "N"
        if isinstance(self.type, type) and issubclass(self.type, Quantity):
            return self.type.noun.upper()
        return self.name.upper()

    def to_canonical(self, value: Any) -> Any:
        """A value, or the words in its tables, in the canonical spelling."""
        if isinstance(value, str):
            known = self.declaration.old_values.get(value, value)
            return self.type.to_canonical(known) if issubclass(_plain(self.type), Written) else known
        return self._in_tables(value, to_canonical)

    def to_folder_form(self, value: Any) -> Any:
        """A value, or the words in its tables, as names of folders have them."""
        if isinstance(value, str):
            if issubclass(_plain(self.type), Written):
                return self.type.to_folder_form(value)
            return next((old for old, new in self.declaration.old_values.items() if new == value), value)
        return self._in_tables(value, to_folder_form)

    def _in_tables(self, value: Any, change: Callable[[type[msgspec.Struct], dict[str, Any]], Any]) -> Any:
        if self.tables is None:
            return value
        if isinstance(value, dict):
            return {key: change(self.tables, one) if isinstance(one, dict) else one for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [change(self.tables, one) if isinstance(one, dict) else one for one in value]
        return value

    def check(self, value: Any) -> None:
        """Raise `RequestError` if ``value`` is outside the declared limits."""
        if value is None or ((self.low is None or value >= self.low) and (self.high is None or value <= self.high)):
            return
        low, high = self.declaration.low, self.declaration.high
        if low is not None and high is not None:
            raise RequestError(
                f"{value} is not between {low} and {high}. Give a number in this range.", where=self.name
            )
        end, what, way = (low, "less", "more") if high is None else (high, "more", "less")
        raise RequestError(f"{value} is {what} than {end}. Give {end} or {way}.", where=self.name)


def flag(name: str) -> str:
    """Return the flag of a field: ``--rto-min`` for ``rto_min``."""
    return f"--{name.replace('_', '-')}"


@functools.cache
def of_struct(kind: type[msgspec.Struct]) -> Mapping[str, Field]:
    """Return the fields of struct ``kind``, by name."""
    return {one.name: _field(one) for one in msgspec.structs.fields(kind)}


@functools.cache
def aliases(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Other names of a struct's fields, and the canonical ones."""
    return {
        alias: one.name
        for one in of_struct(kind).values()
        for alias in (*one.declaration.aliases, *one.declaration.old_names)
    }


def to_canonical(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` by canonical names and words; raises `RequestError` if it has two names of one field."""
    result: dict[str, Any] = {}
    for key, value in given.items():
        name = aliases(kind).get(key, key)
        if name in result:
            other = next(one for one in given if one != key and aliases(kind).get(one, one) == name)
            raise RequestError(f"{other} and {key} are two names of one field; give one of them")
        result[name] = of_struct(kind)[name].to_canonical(value) if name in of_struct(kind) else value
    return result


def to_folder_form(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` by the names and words that names of folders keep."""
    known = of_struct(kind)
    result: dict[str, Any] = {}
    for name, value in given.items():
        field = known.get(name)
        result[name if field is None else field.declaration.folder_name or name] = (
            value if field is None else field.to_folder_form(value)
        )
    return result


def flags(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield every flag of the fields of ``kind``, aliases and former names included."""
    for one in of_struct(kind).values():
        if one.declaration.flag:
            yield from map(flag, (one.name, *one.declaration.aliases, *one.declaration.old_names))


def words(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> list[str]:
    """Return the command-line words for the ``given`` fields of ``kind``; other names become a flag of that name."""
    found = list[str]()
    for name, value in given.items():
        if value is True:
            found.append(flag(name))
        elif not isinstance(value, list | tuple):
            found += [flag(name), str(value)]
        elif name in of_struct(kind) and not of_struct(kind)[name].is_repeated:
            found += [flag(name), *map(str, value)]
        else:
            found += [word for one in value for word in (flag(name), str(one))]
    return found


def _field(one: msgspec.structs.FieldInfo) -> Field:
    kind, meta = get_args(one.type) if get_origin(one.type) is Annotated else (one.type, None)
    declaration = (meta.extra or {}).get("declaration") if isinstance(meta, msgspec.Meta) else None
    assert isinstance(declaration, Declaration), f"{one.name}: has no description"
    if NoneType in get_args(kind):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    default = one.default_factory() if callable(one.default_factory) else one.default
    default = None if default is msgspec.NODEFAULT else default
    low, high = (kind.parse(end) if isinstance(end, str) else end for end in (declaration.low, declaration.high))
    return Field(one.name, kind, default, declaration, low, high)


def _plain(kind: Any) -> type:
    return kind if isinstance(kind, type) else object


def _with(description: str, usual: str) -> str:
    return f"{description} (default: {usual})" if usual else description
