"""Flags that are fields of an experiment: name, type, choices and help follow from the declaration in `Spec`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from testbed.core.errors import RequestError
from testbed.spec import Spec, external, fields

if TYPE_CHECKING:
    from testbed.campaign.stored.folders import Again

SET = "field by its path: link.s1-s2.buffer=2ms"
ADVANCED = "advanced"  # the last group of help


def add_all(parser: argparse.ArgumentParser) -> dict[str, argparse._ArgumentGroup]:
    """Add every field of an experiment that has a flag, in the groups of `testbed.spec.fields.GROUPS`, and `ADVANCED`."""
    groups = {title: parser.add_argument_group(title) for title in (*fields.GROUPS, ADVANCED)}
    for title in fields.GROUPS:
        for name, field in fields.of_struct(Spec).items():
            if field.declaration.flag and field.declaration.group == title:
                add(groups[ADVANCED if field.declaration.advanced else title], name)
    return groups


def add(parser: argparse._ActionsContainer, *names: str, **shape: Any) -> None:
    """The fields ``names`` as flags (``rto_min`` is ``--rto-min``); ``shape``: arguments of argparse that differ."""
    for name in names:
        field = fields.of_struct(Spec)[name]
        known = {"help": field.help, **_shape(field), **shape}
        known["help"] = known["help"].replace("%", "%%")
        parser.add_argument(field.flag, *map(fields.flag, field.declaration.aliases), **known)
        for old in field.declaration.old_names:
            parser.add_argument(fields.flag(old), dest=name, **{**known, "help": argparse.SUPPRESS})


def _shape(field: fields.Field) -> dict[str, Any]:
    """Return the keyword arguments of ``add_argument`` for a field."""
    if field.choices:
        words = isinstance(field.choices[0], str)
        return {"choices": list(field.choices), "type": field.to_canonical if words else type(field.choices[0])}
    if field.type is bool:
        return {"action": "store_const", "const": True}
    shape: dict[str, Any] = {"metavar": field.metavar}
    if field.type is int:
        shape["type"] = int
    if field.is_list:
        shape |= {"action": "append"} if field.is_repeated else {"action": "extend", "nargs": "+"}
    if field.declaration.const is not None:
        shape |= {"nargs": "?", "const": field.declaration.const}
    return shape


def given(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields that flags give, as `testbed.spec` takes them."""
    found = {
        name: value for name in (*fields.of_struct(Spec), "set") if (value := getattr(parsed, name, None)) is not None
    }
    asked = {"quick": parsed.quick, external.ALLOWED: parsed.allow_external_code}
    return found | {name: True for name, wanted in asked.items() if wanted}


def add_retries(parser: argparse._ActionsContainer) -> None:
    """Add ``--retries``."""
    parser.add_argument(
        "--retries", type=int, metavar="N", help="repetitions of an invalid run (default: 1; 0 under virtual time)"
    )


def add_again(parser: argparse._ActionsContainer) -> None:
    """Stored runs are kept unless one of these flags is given."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--again", action="store_true", help="repetition of stored runs, which are replaced")
    either.add_argument("--renew", action="store_true", help="repetition of runs of another program, kernel or file")


def again(parsed: argparse.Namespace) -> Again:
    """Return the value of the flags that `add_again` added."""
    return "always" if parsed.again else "changed" if parsed.renew else "never"


def add_external(parser: argparse._ActionsContainer, what: str) -> None:
    """Add the flag that permits execution of code named by a file instead of the command line."""
    parser.add_argument(external.FLAG, action="store_true", help=what)
    parser.add_argument("--trust", dest=external.ALLOWED, action="store_true", help=argparse.SUPPRESS)


def check_retries(retries: int | None) -> None:
    """Raises `RequestError` unless 0 ≤ ``retries`` ≤ 100 or it is None."""
    if retries is not None and not 0 <= retries <= 100:
        raise RequestError(f"--retries {retries}: an invalid run can be repeated 0 to 100 times. Give such a number.")
