"""Experiments that compute schedules without emulation: files with ``kind = "schedules"``.

.. code-block:: toml

    kind = "schedules"
    servers = [20, 10]                       # every combination of these with settings and seeds
    scheduler = ["sjf_bco", "first_fit", "best_of:n={trials}"]
    seeds = 10

    [[setting]]
    name = "0.5"
    ratio = 0.5                              # communication ÷ computing

`testbed.core.runs.schedules.Asked` documents the fields. ``base`` and ``[quick]`` work as in other experiment files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from testbed.core import options, system_text, toml
from testbed.core.errors import RequestError, within
from testbed.core.input_files import read_text
from testbed.core.runs.schedules import Asked, Setting
from testbed.core.text import quoted, shown
from testbed.schedulers import job
from testbed.spec import files

KIND = "schedules"
MOST = 100_000  # schedules of one experiment
MOST_SERVERS = 100_000
MOST_GPUS = 1000  # of a server
LARGEST_PUBLISHED = 32  # GPUs of the largest job of the published mix
MOST_OF_FEW = 8  # jobs, and GPUs of one of them
TRIALS = "{trials}"


def apart(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split ``paths`` into files of schedules and other experiment files; an unreadable file counts as one of the
    others."""
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
    found = files.in_force(files.read(Path(file), Asked.__struct_fields__), {"quick": quick}, file)
    given: dict[str, Any] = found if seeds is None else {**found, "seeds": seeds}
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
            raise RequestError(f"{name}: it is empty. Give at least one.")
        if twice := [value for value, count in Counter(values).items() if count > 1]:
            raise RequestError(f"{name}: {shown(twice[0], 100)} is given twice. Give it once.")
    for count in asked.servers:
        if not 1 <= count <= MOST_SERVERS:
            raise RequestError(f"servers: {count} are not between 1 and {MOST_SERVERS}")
    for setting in asked.setting:
        with within(f"setting {setting.name}"):
            (_check_few if asked.jobs == "few" else _check_published)(setting, asked)
    if TRIALS in asked.scheduler[0]:
        raise RequestError(f"scheduler: {asked.scheduler[0]} comes first, but {TRIALS} means the number of schedules that the first one evaluated. Put another one first.")  # fmt: skip
    for text in asked.scheduler:
        for setting in asked.setting:
            job.check(with_options(text.replace(TRIALS, "1"), setting.options))
    if (count := math.prod((len(asked.setting), len(asked.servers), len(asked.scheduler), asked.seeds))) > MOST:
        raise RequestError(
            f"it describes {count:,} schedules, but the limit is {MOST:,}. Give fewer settings or seeds."
        )


def _check_published(setting: Setting, asked: Asked) -> None:
    if setting.largest is not None or setting.seconds:
        raise RequestError('largest and seconds need `jobs = "few"`. Add it, or leave them out.')
    if not (0 < setting.ratio <= 1000):
        raise RequestError(f"ratio: {setting.ratio:g} is not above 0 and at most 1000.")
    if setting.most is not None and not 0 < setting.most < 1:
        raise RequestError(f"most: {setting.most:g} is not between 0 and 1.")
    if setting.most is not None and setting.ratio * (1 - setting.most) > setting.most:
        raise RequestError(
            f"most: communication already takes more than the fraction {setting.most:g}. Give a larger one, or a smaller ratio."
        )
    for name in ("alpha", "xi1", "xi2_s"):
        value = getattr(setting, name)
        if value is not None and not 0 <= value <= 1000:
            raise RequestError(f"{name}: {value:g} is not between 0 and 1000")
    if setting.gpus is not None and not 1 <= setting.gpus <= MOST_GPUS:
        raise RequestError(f"gpus: {setting.gpus} are not between 1 and {MOST_GPUS}")
    if setting.gpus is not None and min(asked.servers) * setting.gpus < LARGEST_PUBLISHED:
        raise RequestError(
            f"gpus: {min(asked.servers)} servers of {setting.gpus} are too few for the largest job, which needs {LARGEST_PUBLISHED}. Give more."
        )
    for name, most in (("intra", 1e6), ("reduce", 1e6), ("load", 100)):
        value = getattr(setting, name)
        if value is not None and not 0 < value <= most:
            raise RequestError(f"{name}: {value:g} is not above 0 and at most {most:g}.")
    _check_options(setting.options, asked.scheduler)


def _check_few(setting: Setting, asked: Asked) -> None:
    """Raise `RequestError` if ``setting``, for few jobs, has fields other than its name and one of `largest` and
    `seconds`."""
    if setting != Setting(name=setting.name, largest=setting.largest, seconds=setting.seconds):
        raise RequestError("with few jobs, a setting has only `largest` or `seconds`. Leave out the other fields.")
    if (setting.largest is None) == (not setting.seconds):
        raise RequestError(
            "few jobs need either `largest` (GPUs of the largest job) or `seconds` (times of jobs with one GPU). Give one of them."
        )
    if setting.largest is not None and not 1 <= setting.largest <= MOST_OF_FEW:
        raise RequestError(f"largest: {setting.largest} is not between 1 and {MOST_OF_FEW}")
    if len(setting.seconds) > MOST_OF_FEW or not all(0 < one <= 1e6 for one in setting.seconds):
        raise RequestError(f"seconds: give at most {MOST_OF_FEW} times, each above 0.")
    if asked.servers != (1,):
        raise RequestError("few jobs run on one server. Write `servers = [1]`.")


def _check_options(given: str, schedulers: Sequence[str]) -> None:
    names = {name for text in schedulers for name in _options_of(text)}
    for key, _ in system_text.pairs(given):
        if key not in names:
            raise RequestError(f"options: none of the schedulers has the option {quoted(key)}. Leave it out.")


def with_options(scheduler: str, given: str) -> str:
    """``scheduler`` as typed, and with what of the options ``given`` it has."""
    has = [pair for pair in system_text.pairs(given) if pair[0] in _options_of(scheduler)]
    return str(system_text.part(scheduler).having(has))


def _options_of(scheduler: str) -> set[str]:
    """The names of a scheduler's options; none if it is a file."""
    if not job.is_named(scheduler):
        return set()
    return options.names(options.declared(job.find(system_text.name_of(scheduler)).Options))
