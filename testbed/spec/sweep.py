"""Expand a file into its experiments: one, or one for every point of its ``[sweep]``.

.. code-block:: toml

    [sweep]                        # every combination
    rate = ["100mbit", "1gbit"]
    trace = ["s1", "s3"]

    [sweep.zip]                    # combined by position: lists of equal length
    jobs = [2, 4]
    buffer = ["1ms", "2ms"]

    [quick.sweep]                  # with --quick: fewer values
    rate = ["100mbit"]
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from itertools import starmap
from pathlib import Path
from typing import Any

from testbed import spec
from testbed.core.errors import RequestError
from testbed.core.text import shown
from testbed.spec import Spec, files
from testbed.spec.aliases import canonical, in_folder, path_of

MOST = 4096  # points of one sweep

Point = dict[str, Any]  # values by path


def read(file: str | None, flags: dict[str, Any]) -> list[Spec]:
    """Return every experiment of ``file`` (None: of the flags), each with a unique name. Raises `RequestError`."""
    if file is None:
        return [spec.read(None, flags)]
    flags = canonical(flags, "the command line")
    fields = files.in_force(spec.read_file(file), flags, file)
    swept = fields.pop("sweep", None)
    if swept is None:
        return [spec.make(fields, flags, file)]
    points = _points(swept, file)
    if given := [
        path for path in points[0] if path_of(path) in {*flags, *(text.split("=")[0] for text in flags.get("set", ()))}
    ]:
        raise RequestError(
            f"{file}: sweep: the file sweeps {given[0]}, but the command line sets it. Leave out one of them."
        )
    names = [
        "-".join(f"{name}-{_word(value)}" for name, value in starmap(in_folder, point.items())) for point in points
    ]
    counts = Counter(names)
    return [_at(fields, point, flags, file, whole=counts[name] > 1) for point, name in zip(points, names, strict=True)]


def _at(fields: dict[str, Any], point: Point, flags: dict[str, Any], file: str, *, whole: bool) -> Spec:
    """Return the experiment at one point; with ``whole``, its name has a hash of each value, because shortened values
    coincide."""
    fields = files.with_room(fields, point)
    for path, value in point.items():
        files.put(fields, path_of(path), value, file)
    named = starmap(in_folder, point.items())
    words = [f"{name}-{_word(value)}{_hash(value) if whole else ''}" for name, value in named]
    fields["name"] = ".".join([str(flags.get("name", fields["name"])), *words])
    return spec.make(
        fields, {key: value for key, value in flags.items() if key != "name"}, f"{file} ({', '.join(words)})"
    )


def _word(value: Any) -> str:
    """A value as part of a folder's name; a file by its name alone."""
    text = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    text = text[:1000]  # only 24 characters of the result are kept
    text = Path(text).stem if "/" in text and not isinstance(value, list) else text
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:24]


def _hash(value: Any) -> str:
    return "-" + hashlib.sha256(str(value).encode()).hexdigest()[:4]


def _points(swept: Any, file: str) -> list[Point]:
    if not isinstance(swept, dict) or not swept:
        raise RequestError(f'{file}: sweep: must be a table of lists, as in rate = ["100mbit", "1gbit"]')
    zipped = swept.get("zip", {})
    crossed = {path: values for path, values in swept.items() if path != "zip"}
    if not isinstance(zipped, dict):
        raise RequestError(f"{file}: sweep.zip: must be a table of lists of equal length.")
    for path, values in [*crossed.items(), *zipped.items()]:
        if not isinstance(values, list) or not values:
            raise RequestError(f"{file}: sweep: {path}: must be a list of values, not {shown(repr(values))}.")
        if path in ("name", "base", "on"):
            raise RequestError(f"{file}: sweep: {path} cannot be swept. Set it above [sweep].")
    if twice := set(crossed) & set(zipped):
        raise RequestError(f"{file}: sweep: {min(twice)} is in both sweep and sweep.zip. Leave it out of one.")
    if len({len(values) for values in zipped.values()}) > 1:
        lengths = ", ".join(f"{path} {len(values)}" for path, values in zipped.items())
        raise RequestError(f"{file}: sweep.zip: its lists must have equal lengths, but they have: {lengths}.")
    count = math.prod(map(len, crossed.values())) * max(map(len, zipped.values()), default=1)
    if count > MOST:
        raise RequestError(
            f"{file}: sweep: describes {count:,} experiments, but the limit is {MOST:,}. Sweep fewer values."
        )
    together = [dict(zip(zipped, values, strict=True)) for values in zip(*zipped.values(), strict=True)] or [{}]
    combined = [dict(zip(crossed, values, strict=True)) for values in itertools.product(*crossed.values())]
    return [{**one, **other} for one in combined for other in together]
