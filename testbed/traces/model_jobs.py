"""A job from a model's public dimensions and how it is trained: ``--model llama-70b --tp 8 --pp 4 --dp 16 --device h100``.

`from_line` reads such a line, `build` takes the same as keywords. Both make a trace of version 2 whose computes have work
(`testbed.traces.devices` converts it into time). Its exchanges have the bytes of the formulas in docs/reference/model-jobs.md.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from testbed.core import options
from testbed.core.arguments import Parser
from testbed.core.errors import RequestError, within
from testbed.core.text import did_you_mean, quoted
from testbed.traces import model_files, recommenders, transformers
from testbed.traces.layout import Layout
from testbed.traces.model_files import Recommender
from testbed.traces.trace import Trace

FLAG = "--model"


def names() -> list[str]:
    """The models that come with the testbed."""
    return model_files.names()


def is_line(text: str) -> bool:
    """Return True if ``text`` describes a job by its model."""
    return text.split(maxsplit=1)[:1] == [FLAG] or text.lstrip().startswith(f"{FLAG}=")


def flag(option: str) -> str:
    """Return the flag of an option of `Layout`."""
    return f"--{option.replace('_', '-')}"


def from_line(line: str) -> Trace:
    """The job of ``--model NAME [--tp N …]``; raises `RequestError`."""
    with within(quoted(line, 200)):
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise RequestError(f"{error}. Close the quotes") from error
        parser = Parser(prog="mltcp import", add_help=False, allow_abbrev=False)
        parser.add_argument(FLAG, required=True)
        for one in options.declared(Layout):
            parser.add_argument(flag(one.name))
        given = {name: text for name, text in vars(parser.parse_args(words)).items() if text is not None}
        return build(given.pop("model"), **given)


def build(model: str, **given: Any) -> Trace:
    """Return the trace of a model (a name or ``./mine.toml``), with options of `Layout` as values or as text.

    Raises `RequestError`.
    """
    layout = layout_of(given)
    found = model_files.load(model)
    if isinstance(found, Recommender):
        return recommenders.trace(Path(model).stem, found, layout)
    return transformers.trace(Path(model).stem, found, layout)


def layout_of(given: dict[str, Any]) -> Layout:
    """Options by name, as values or as text; None: not given. Raises `RequestError`."""
    declared = {one.name: one for one in options.declared(Layout)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in declared:
            hint = did_you_mean(name, list(declared), f"There are {', '.join(declared)}.")
            raise RequestError(f"{quoted(name)} is no option of a model. {hint}")
        if value is None:
            continue
        text = ("on" if value else "off") if isinstance(value, bool) else getattr(value, "exact", str(value))
        try:
            values[name] = declared[name].read(text)
        except (ValueError, RequestError, ZeroDivisionError, OverflowError) as error:
            raise RequestError(str(error), where=flag(name)) from error
    return Layout(**values)
