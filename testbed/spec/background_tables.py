"""``[[background]]``: a source of background traffic as a table of an experiment's file, which becomes its text.

::

    [[background]]
    kind = "poisson"
    load = 0.3
    sizes = "websearch"

is ``--background poisson:load=0.3,sizes=websearch``.
"""

from __future__ import annotations

from typing import Any

from testbed.core import system_text
from testbed.core.errors import RequestError
from testbed.traffic import kinds


def texts(sources: Any) -> Any:
    """``background`` of an experiment with its tables as text; anything that is no list stays. Raises `RequestError`."""
    if not isinstance(sources, list | tuple):
        return sources
    return [_text(one, f"background.{number}") for number, one in enumerate(sources)]


def _text(source: Any, where: str) -> Any:
    if not isinstance(source, dict):
        return source
    options = dict(source)
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise RequestError(f'name its kind, as in kind = "poisson". There are {", ".join(kinds.KINDS)}', where=where)
    pairs = []
    for key, value in options.items():
        words = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str | bool | int | float) for one in words):
            raise RequestError(f"{key}: give a text, a number, true or false, or a list of hosts", where=where)
        pairs.append((key, "+".join(("on" if one else "off") if isinstance(one, bool) else str(one) for one in words)))
    try:
        return str(system_text.Part(kind).having(pairs))
    except RequestError as error:
        raise RequestError(str(error), where=where) from error
