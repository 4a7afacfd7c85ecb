"""Flags that are fields of an experiment: names, types and choices are those of `Spec`, help is what `described` says."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from testbed.core.errors import RequestError
from testbed.spec import Spec, external, field_help
from testbed.spec.aliases import ALIASES, HIDDEN

if TYPE_CHECKING:
    from testbed.campaign.stored.folders import Again

# What the type of a field does not say.
SHAPES: dict[str, dict[str, Any]] = {
    "ecn": {"nargs": "?", "const": "on"},
    "job": {"action": "append", "metavar": "JOB"},
    "system": {"action": "extend", "nargs": "+"},
    "scheduler": {"action": "extend", "nargs": "+"},
    "stop_when_periodic": {"nargs": "?", "const": 3, "metavar": "ALIKE"},
    "on": {"metavar": "PLACE"},
}
SET = "any field by its path: job.0.trace=s2, link.s1-s2.buffer=2ms"


def add(parser: argparse._ActionsContainer, *names: str, suffix: str = "", **shape: Any) -> None:
    """The fields ``names`` as flags (``rto_min`` is ``--rto-min``); their help ends with a ``suffix``."""
    types = get_type_hints(Spec)
    for name in names:
        known = {"help": field_help.SPEC[name] + suffix, **_shape(types[name]), **SHAPES.get(name, {}), **shape}
        known["help"] = known["help"].replace("%", "%%")
        aliases = [alias for alias, today in ALIASES.items() if today == name]
        shown = [f"--{alias}" for alias in aliases if alias not in HIDDEN]
        parser.add_argument(f"--{name.replace('_', '-')}", *shown, **known)
        for alias in set(aliases) & set(HIDDEN):
            parser.add_argument(f"--{alias.replace('_', '-')}", dest=name, **{**known, "help": argparse.SUPPRESS})


def _shape(kind: Any) -> dict[str, Any]:
    if kind in (int, int | None):
        return {"type": int}
    if get_origin(kind) is not Literal:
        return {}
    return {"choices": list(get_args(kind)), "type": type(get_args(kind)[0])}


def given(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields that flags give, as `testbed.spec` takes them."""
    fields = (*Spec.__struct_fields__, "set")
    found = {name: value for name in fields if (value := getattr(parsed, name, None)) is not None}
    asked = {"quick": parsed.quick, external.ALLOWED: parsed.allow_external_code}
    return found | {name: True for name, wanted in asked.items() if wanted}


def add_retries(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--retries", type=int, metavar="N", help="how often a run that is invalid is repeated (1; 0 under virtual time)"
    )


def add_again(parser: argparse._ActionsContainer) -> None:
    """What becomes of runs that are there: they are kept unless one of these flags is given."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--again", action="store_true", help="run again what is there, and replace it")
    either.add_argument(
        "--renew", action="store_true", help="replace runs of another program, kernel or file, and keep all others"
    )


def again(parsed: argparse.Namespace) -> Again:
    """As `add_again` has it."""
    return "always" if parsed.again else "changed" if parsed.renew else "never"


def add_external(parser: argparse._ActionsContainer, what: str) -> None:
    """Whether code is executed that a file names, and not the command line."""
    parser.add_argument(external.FLAG, action="store_true", help=what)
    parser.add_argument("--trust", dest=external.ALLOWED, action="store_true", help=argparse.SUPPRESS)


def check_retries(retries: int | None) -> None:
    if retries is not None and not 0 <= retries <= 100:
        raise RequestError(f"--retries {retries}: give how often an invalid run is repeated, 0 to 100")
