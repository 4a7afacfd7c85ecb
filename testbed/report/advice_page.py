"""An answer of ``mltcp advise`` as one HTML file that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from testbed.campaign.advice import wording
from testbed.campaign.advice.document import Answers
from testbed.core import folders
from testbed.core.text import plain
from testbed.core.units import Rate


def page(answers: Answers) -> str:
    """Return the complete page; text from traces and topologies is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined, finalize=_printable,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters.update(
        title=wording.title,
        headline=wording.headline,
        word=wording.answer_word,
        answer=wording.answer_option,
        gain=wording.gain,
        interval=wording.interval_text,
        times=lambda gain: f"{gain:.2f}×",
        rate=lambda rate: str(Rate.parse(rate)),
    )
    return environment.get_template("advice.html.j2").render(answers=answers.rates or (answers,))


def _printable(value: Any) -> Any:
    """Return text without control characters; markup stays unchanged."""
    return plain(value) if type(value) is str else value


def write(answers: Answers, path: Path) -> None:
    """Write `page`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folders.put(path, page(answers).encode())
