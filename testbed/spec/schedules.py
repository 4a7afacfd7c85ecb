"""Experiments that compute schedules and emulate nothing: files with ``kind = "schedules"``.

.. code-block:: toml

    kind = "schedules"
    servers = [20, 10]                       # every combination of these with settings and seeds
    scheduler = ["sjf_bco", "first_fit", "best_of:n={trials}"]
    seeds = 10

    [[setting]]
    name = "0.5"
    ratio = 0.5                              # communication ÷ computing

What all fields mean stands at `core.runs.schedules.Asked`. ``base`` and ``[quick]`` are as in any experiment's file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import job_schedulers
from core import toml
from core.errors import RequestError, within
from core.reading import read_text
from core.runs.schedules import Asked
from core.text import shown
from testbed.spec import files

KIND = "schedules"
MOST = 100_000  # schedules of one experiment
MOST_SERVERS = 100_000
TRIALS = "{trials}"


def apart(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of experiments' files those of schedules, and the others; a file that cannot be read is one of the others."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for path in paths:
        found[_is_one(Path(path))].append(path)
    return found[True], found[False]


def _is_one(path: Path) -> bool:
    try:
        return toml.loads(read_text(path, files.MOST_BYTES)).get("kind") == KIND
    except (RequestError, toml.TomlError):
        return False


def read(file: str, *, quick: bool = False, seeds: int | None = None) -> Asked:
    """A checked experiment; raises `RequestError`."""
    fields = files.in_force(files.read(Path(file), Asked.__struct_fields__), {"quick": quick}, file)
    given: dict[str, Any] = fields if seeds is None else {**fields, "seeds": seeds}
    try:
        asked = msgspec.convert(given, Asked)
    except msgspec.ValidationError as error:
        raise RequestError(f"{file}: {error}") from error
    with within(file):
        _check(asked)
    return asked


def _check(asked: Asked) -> None:
    if not 1 <= asked.seeds <= 1000:
        raise RequestError(f"seeds: {asked.seeds} are not between 1 and 1000")
    if not 0 <= asked.alpha <= 1000:
        raise RequestError(f"alpha: {asked.alpha:g} is not between 0 and 1000")
    for name, values in (("setting", [one.name for one in asked.setting]), ("servers", asked.servers), ("scheduler", asked.scheduler)):  # fmt: skip
        if not values:
            raise RequestError(f"{name}: there is none")
        if twice := [value for value, count in Counter(values).items() if count > 1]:
            raise RequestError(f"{name}: {shown(twice[0], 100)} stands there twice")
    for count in asked.servers:
        if not 1 <= count <= MOST_SERVERS:
            raise RequestError(f"servers: {count} are not between 1 and {MOST_SERVERS}")
    for setting in asked.setting:
        if not (0 < setting.ratio <= 1000):
            raise RequestError(f"setting {setting.name}: ratio: {setting.ratio:g} is not above 0, nor 1000 at the most")
        if setting.most is not None and not 0 < setting.most < 1:
            raise RequestError(f"setting {setting.name}: most: {setting.most:g} is no share between 0 and 1")
        if setting.most is not None and setting.ratio * (1 - setting.most) > setting.most:
            raise RequestError(f"setting {setting.name}: communication alone takes more than most, {setting.most:g}")
    if TRIALS in asked.scheduler[0]:
        raise RequestError(f"scheduler: {asked.scheduler[0]} is the first one, and {TRIALS} stands for what the first one evaluated")  # fmt: skip
    for text in asked.scheduler:
        job_schedulers.check(text.replace(TRIALS, "1"))
    if (count := math.prod((len(asked.setting), len(asked.servers), len(asked.scheduler), asked.seeds))) > MOST:
        raise RequestError(f"it stands for {count:,} schedules, and {MOST:,} is the most")
