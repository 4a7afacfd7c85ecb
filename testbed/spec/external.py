"""Code that an experiment's file names: a topology, a congestion control, a program.

Root does not execute it without ``--allow-external-code``, because another user may have written the file. Files that
the user names on the command line are the user's own choice, and need no flag.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.core.errors import RequestError
from testbed.core.text import quoted

ALLOWED = "allow_external_code"  # among flags, which are fields otherwise
FLAG = "--allow-external-code"
SUFFIXES = (".py", ".c")  # suffixes of code files in the value of a field: ./mine.py,2  reno+./tcp_mine.c:step=4


def check(fields: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Raises `RequestError` if root would execute what ``fields`` name and ``flags`` do not, before any of it is executed."""
    if os.geteuid() != 0 or flags.get(ALLOWED):
        return
    typed = {*flags, *(text.partition("=")[0] for text in flags.get("set", ()))}
    for where, what in _named({name: value for name, value in fields.items() if name not in typed}):
        raise RequestError(
            f"names {quoted(what)}, which would be executed as root. Another user may have written these files. Read both, then "
            f"add {FLAG}; or run this without root (--on uml, --on flow), or name it on the command line.",
            where=where,
        )


def _named(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields of an experiment, and the code that each of them names."""
    for name in ("topo", "queue", "scheduler", "collective", "system"):
        for text in _texts(fields.get(name)):
            if _is_code(text):
                yield name, text
    for text in _texts(fields.get("background")):
        if text.startswith("cmd"):
            yield "background", text
    jobs = fields.get("job")
    for number, job in enumerate(jobs if isinstance(jobs, list) else []):
        for name, value in job.items() if isinstance(job, dict) else ():
            if name == "cmd" or (name in ("cc", "trace", "collective", "transport") and _is_code(str(value))):
                yield f"job.{number}.{name}", str(value)


def _is_code(text: str) -> bool:
    return any(part.endswith(SUFFIXES) for part in re.split("[,:+]", text))


def _texts(value: Any) -> list[str]:
    return (
        [value]
        if isinstance(value, str)
        else [one for one in value if isinstance(one, str)]
        if isinstance(value, list)
        else []
    )
