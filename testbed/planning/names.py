"""Names of experiments that have none: what was asked for besides the defaults, readable, in a folder's name."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import msgspec

from core.text import file_name
from testbed.spec import Spec

# Said in front, or no part of what an experiment is: more seeds add to what is there.
_ELSEWHERE = ("name", "topo", "jobs", "trace", "seed", "seeds", "on", "wall_limit")
LONGEST = 100


def default_name(spec: Spec) -> str:
    """``dumbbell-4xsynthetic``, and every field that is not its default: ``-rate-50gbit``.

    Systems, too: a summary and a figure are of those that were compared. What no name can hold (jobs of their own, links,
    events, files) is told apart by a hash.
    """
    trace = "mixed" if spec.job else Path(spec.trace).stem if spec.trace else "synthetic"
    words = [f"{file_name(Path(spec.topo).stem.replace(',', '-'))}-{spec.jobs}x{file_name(trace)}"]
    exact = spec.topo.isidentifier() and (spec.trace is None or spec.trace.isidentifier())
    usual = Spec()
    for name in Spec.__struct_fields__:
        value = getattr(spec, name)
        if name in _ELSEWHERE or value == getattr(usual, name):
            continue
        text = _text(value)
        written = text and re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")
        if written:
            words.append(f"{name}-{written}")
        exact = exact and text is not None and written == text
    whole = "-".join(words)
    if exact and len(whole) <= LONGEST:
        return whole
    rest = msgspec.structs.replace(spec, seed=0, seeds=0, on="auto", wall_limit=None)
    digest = hashlib.sha256(msgspec.json.encode(rest, enc_hook=_plain)).hexdigest()
    return f"{whole[:LONGEST].rstrip('-.')}-{digest[:6]}"


def _plain(value: Any) -> str | int:
    return str(value) if isinstance(value, str) else int(value)


def _text(value: Any) -> str | None:
    """A value as it is typed; None if it is no single one."""
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return "-".join(value)
    if isinstance(value, str | int | float):
        return str(getattr(value, "exact", value))
    return None
