"""The command that repeats runs, if it is safe to copy.

A manifest may have any author. So the command is composed of known flags and of values that name nothing on the machine
of the reader: no program (``cmd:``), no custom file, no other machine, no folder to write to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from testbed.core import text
from testbed.spec import Spec, fields

BOOLEAN = frozenset(one.flag for one in fields.of_struct(Spec).values() if one.type is bool)
VALUES = frozenset((*fields.flags(Spec), "--set", "--retries")) - BOOLEAN
SWITCHES = BOOLEAN | frozenset(("--quick", "--quiet", "--json", "--strict"))
# Flags for repeating runs are left out, and so are, with their values, those for backend and concurrency.
ANEW = frozenset(("--again", "--renew"))
LEFT_OUT = ANEW | {"--out", "-j", "--parallel", "--executor", "--verify-sample", "--linux-source"}
ATTACHED = re.compile(r"-j\d+")
HARMLESS = re.compile(
    r"[\w.,:=%+ -]+"
)  # no path, no markup of Markdown, and no special character inside the quotes of a shell
REMOTE = re.compile(r"(ssh:[\w.@:\[\]-]+)(,ssh:[\w.@:\[\]-]+)*")
NOT_OFFERED = "# made with programs or files of its own: its command stands in manifest.json"


def command(recorded: Sequence[object], file: str, results: str) -> str:
    """A manifest's ``command`` again, for the experiment ``file``, into ``results``; or `NOT_OFFERED`."""
    words = [str(word) for word in recorded]
    name = words[1] if words[1:2] and words[1] in ("run", "sweep", "demo") else ""  # none: testbed/run.py
    sweep = name == "sweep"
    kept = list(_kept(words[2:] if name else words[1:], file, sweep=sweep))
    if None in kept:
        return NOT_OFFERED
    again = ("sweep", file) if sweep or not words else (name or "run",)
    return text.command(*again, *(word for word in kept if word is not None), "--out", results)


def names_programs(recorded: Sequence[object]) -> bool:
    """Return True if a manifest's command has custom programs or files, other than an experiment file."""
    return any("cmd:" in str(word) or str(word).endswith((".py", ".c", ".json")) for word in recorded[1:])


def _kept(words: Sequence[str], file: str, *, sweep: bool) -> Iterator[str | None]:
    """The words of the command; None if it cannot be repeated."""
    flag = ""
    for word in words:
        name, given, value = word.partition("=")
        if word.startswith("-"):
            flag = "" if given or word in ANEW else word
            if name in LEFT_OUT or ATTACHED.fullmatch(word):
                continue
            known = word in SWITCHES or name in VALUES
            yield (
                (f"{name}={_value(name, value)}" if given else name)
                if known and (not given or _value(name, value))
                else None
            )
        elif flag in LEFT_OUT:
            flag = ""
        elif flag in VALUES:
            yield _value(flag, word)
        elif sweep and word.endswith(".toml"):
            continue  # `file` replaces all of them
        else:
            yield file if word == file or word.endswith(f"/{file}") else None


def _value(flag: str, value: str) -> str | None:
    if flag == "--on" and REMOTE.fullmatch(value):
        return "ssh:HOST"
    harmless = HARMLESS.fullmatch(value) and not value.startswith((".", "-", "cmd:")) and "=cmd:" not in value
    return value if harmless and not value.endswith((".py", ".c", ".toml", ".json")) else None
