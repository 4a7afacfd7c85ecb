"""The jobs that ``mltcp advise`` is asked about, as ``--job`` has them.

A job is a name of the library, a file, or ``COMPUTE/BYTES`` (``500ms/28MB``), with options behind it: ``gpt2,workers=4``. Or it is a
line of `mltcp import`: ``--model llama-7b --dp 4 --device h100``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import RequestError
from testbed.core.text import quoted
from testbed.core.units import Duration, Size
from testbed.traces import model_jobs
from testbed.traces import trace as traces

_SYNTHETIC = re.compile(r"(?P<compute>[0-9][^/,]*)/(?P<bytes>[0-9][^/,]*)(?P<options>,.*)?")
USUAL_JOBS = 2  # like the one that is named


def jobs(words: Sequence[str], copies: int | None, folder: Path) -> list[str]:
    """One for each word, as ``--job``; ``copies`` of a single one. Traces of models go to ``folder``. Raises `RequestError`."""
    if not words:
        raise RequestError("TRACE: no job is named. Name a trace for each job: `mltcp advise gpt2 bert-base`.")
    if copies is not None and len(words) > 1:
        raise RequestError(
            f"--jobs: {copies} is given with {len(words)} jobs, but it repeats a single job. Name each job once instead."
        )
    if copies is not None and copies < 1:
        raise RequestError(f"--jobs: {copies} is less than 1. Give how many jobs like {quoted(words[0])} there are.")
    repeated = copies or USUAL_JOBS if len(words) == 1 else 1
    return [job for job in (_job(word, folder) for word in words) for _ in range(repeated)]


def _job(word: str, folder: Path) -> str:
    if model_jobs.is_line(word):
        trace = model_jobs.from_line(word)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{trace.name}-{hashlib.sha256(word.encode()).hexdigest()[:8]}.json"
        traces.save(trace, path)
        return str(path)
    found = _SYNTHETIC.fullmatch(word)
    if found is None:
        return word
    try:
        compute, size = Duration.parse(found["compute"]), Size.parse(found["bytes"])
    except RequestError as error:
        raise RequestError(
            f"TRACE: {quoted(word)} is no COMPUTE/BYTES. {error} Write a time and a size with their units: 500ms/28MB."
        ) from error
    return f"synthetic,compute={compute.exact},bytes={size.exact}{found['options'] or ''}"
