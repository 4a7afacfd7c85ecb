"""Generate docs/reference/fields.md: every field of an experiment and every option of its values (``mltcp schema
--markdown``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from testbed import transports
from testbed.schedulers import flow, job
from testbed.spec import fields
from testbed.spec.experiment import Event, LinkSpec, Spec
from testbed.spec.job import Job

HEAD = """# Experiment fields and options

This page lists every field of an experiment file, and every option of a transport or scheduler.

- A field is a key in the file and a flag of `mltcp run`: `rto_min` is `--rto-min`. A flag overrides the file.
- A quantity needs its unit: `500mbit`, `64kB`, `1.5ms`.

The code generates this page (`mltcp schema --markdown`).
"""
TABLES: Mapping[str, type[msgspec.Struct]] = {
    "A job: `[[job]]`": Job,
    "A link: `[link.NAME]`": LinkSpec,
    "An event: `[[event]]`": Event,
}


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for group in fields.GROUPS:
        own = [field for field in fields.of_struct(Spec).values() if field.declaration.group == group]
        yield f"## {group.capitalize()}\n\n{_fields(own)}"
    experiment = {name: field.declaration.description for name, field in fields.of_struct(Spec).items()}
    for title, kind in TABLES.items():
        every = fields.of_struct(kind).values()
        own = [field for field in every if experiment.get(field.name) != field.declaration.description]
        same = ", ".join(f"`{field.name}`" for field in every if field not in own)
        yield f"## {title}\n" + (f"\nAs the fields above: {same}.\n" if same else "") + f"\n{_fields(own)}"
    yield "## Options of transports: `ltp:fraction=0.9`\n\n" + _options(
        {name: transports.find(name).Options for name in transports.names()}
    )
    yield "## Options of flow schedulers: `cassini:step=2`\n\n" + _options(
        {name: flow.find(name).Options for name in flow.names()}
    )
    yield "## Options of job schedulers: `sjf_bco:horizon=4`\n\n" + _options(
        {name: job.find(name).Options for name in job.names()}
    )


def _fields(every: Iterable[fields.Field]) -> str:
    return _table(
        ("field", "value", "default", "meaning"),
        (
            (
                ", ".join(f"`{name}`" for name in (one.name, *one.declaration.aliases)),
                ", ".join(f"`{choice}`" for choice in one.choices) or one.metavar,
                f"`{one.usual}`" if one.usual and one.usual != one.declaration.if_unset else one.usual,
                one.declaration.description,
            )
            for one in every
        ),
    )


def _options(every: Mapping[str, type[Any]]) -> str:
    """One row for each option; names that share an option share its row."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, kind in every.items():
        for one in dataclasses.fields(kind):
            names.setdefault((one.name, one.metadata["meaning"]), []).append(f"`{name}`")
    return _table(
        ("option", "of", "meaning"),
        ((f"`{option}`", ", ".join(of), meaning) for (option, meaning), of in names.items()),
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
