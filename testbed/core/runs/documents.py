"""Read and write the JSON files of a run and of an experiment, with a check of their format version."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeVar

import msgspec

from testbed.core.runs.determinism_log import Sample
from testbed.core.runs.format_version import check_version
from testbed.core.runs.manifest import Manifest, Recorded, Told
from testbed.core.runs.schedules import Made
from testbed.core.runs.summary import Summary
from testbed.core.runs.verdict import Verdict

Document = TypeVar("Document", Manifest, Verdict, Summary, Made)


def decode(content: bytes | str, kind: type[Document]) -> Document:
    """A file's content, of this release's format. Unknown fields are ignored, so that a new field needs no new version.

    Raises `OtherVersionError`, or `ValueError` (`msgspec.ValidationError` is one), `KeyError`, `TypeError` or `AttributeError` for
    content that no release wrote.
    """
    return msgspec.convert(check_version(msgspec.json.decode(content)), kind, str_keys=True)


def encode(document: Manifest | Verdict | Summary | Told | Recorded | Made | Sample) -> bytes:
    """The text of the file: readable, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(document, enc_hook=_number), indent=1) + b"\n"


def _number(value: object) -> int | float:
    """NumPy's, as they come out of computing."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise NotImplementedError(f"{type(value).__name__} is nothing that a run's file holds")


def read_version(content: bytes) -> object:
    """The format version that a file names, even an unsupported one; raises as `decode`."""
    return msgspec.json.decode(content)["version"]
