"""Claims as data: the claims of papers and of this testbed, read from the ``claims.toml`` next to the figures.

A claim names the table of its figure that measures it (`Measure`), and the expected number. `testbed.report.grading`
turns both into a verdict. A sentence of an abstract names the claims that judge it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from testbed.core.errors import RequestError

FILE, THREATS = "claims.toml", "threats.toml"
OURS = "ours"
PAPERS = {
    "MLTCP": "MLTCP: Congestion Control for DNN Training (arXiv 2402.09589; HotNets 2024)",
    "LTP": "Boosting Distributed Machine Learning Training Through Loss-tolerant Transmission Protocol (LTP, IWQoS 2023)",
    "MLT": "Domain-specific Communication Optimization for Distributed DNN Training (DLCP, 2020; MLT, NSDI 2024)",
    "SJF-BCO": "On Scheduling Ring-All-Reduce Learning Jobs in Multi-Tenant GPU Clusters with Communication Contention (SJF-BCO, MobiHoc 2022)",
    OURS: "Claims of this testbed, and of papers other than these four",
}
FEWEST_SEEDS = 5  # for any verdict

Arm = Literal["", "paper", "recommended", "placebo"]
Average = Literal["geometric", "mean", "median", "every"]
Kind = Literal["magnitude", "universal", "bound", "existence"]
Source = Literal["published", "recalled", "ours"]


class Measure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a number is computed from the table of a figure.

    ``value``: a column or an expression of columns, for the ``rows`` that a query selects, in each of the ``cases``
    (columns whose values distinguish cases). With ``numerator`` and ``denominator`` (queries) it is the ratio of both,
    paired by ``per``. If one of them selects several systems (column ``fastest``), the one with the smallest value
    counts, and ``each`` distinguishes cases of the denominator. ``by_arm``: of the column ``arm``, only the base and
    the claim's own arm count; the arm placebo is graded as well, as the control. ``learning``: replaces ``rows``, and
    includes the iterations in which MLTCP still learns.
    """

    value: str
    table: str = ""  # the figure's own
    rows: str = ""
    by_arm: bool = False
    learning: str = ""
    cases: tuple[str, ...] = ()
    numerator: str = ""
    denominator: str = ""
    fastest: str = ""
    each: tuple[str, ...] = ()
    per: tuple[str, ...] = ("seed",)  # columns that distinguish repetitions of a case
    average: Average = "geometric"
    never: float | None = None  # value of an event that never occurred


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One claim. A magnitude has a number (``claimed``, a ratio); every other kind has bounds."""

    id: str
    paper: Literal["MLTCP", "LTP", "MLT", "SJF-BCO", "ours"]
    sentence: str
    source: Source
    kind: Kind
    figure: str
    measure: Measure
    stated: str = ""  # place of the claim in the paper
    condition: str = ""
    unit: str = ""
    arm: Arm = ""
    claimed: float | None = None
    above: float | None = None  # strictly
    below: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    base: str = ""  # rows of the base: if it does the same, there is no difference
    needs: int = FEWEST_SEEDS  # seeds, or sampled lists of jobs
    iterations: int = 0  # number of iterations that a 99th percentile needs
    open: str = ""  # why these runs cannot decide it, independent of their result
    speed: bool | None = (
        None  # the number compares speeds, so one side of 1 is slower; None: True for a ratio of two groups of rows
    )
    control: str = ""  # an experiment in which it must fail, or another control
    beside: str = ""  # id of the same claim of another arm, which is shown next to it
    headline: int = 0  # its place on the report's first screen; 0: none
    differs: str = ""  # why the number differs from the claimed one

    @property
    def bound(self) -> str:
        """The expected number, as text."""
        if self.claimed is not None:
            return f"{self.claimed:g}"
        if self.measure.average == "every":
            return "every run"
        both = (("> ", self.above), ("≥ ", self.at_least), ("< ", self.below), ("≤ ", self.at_most))
        return ", ".join(f"{sign}{value:g}" for sign, value in both if value is not None)


class Sentence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence of an abstract in our words, the ids of claims that judge it, and the part that none can judge."""

    paper: str
    abstract: str
    says: str
    claims: tuple[str, ...] = ()
    but: str = ""


class Threat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A possible objection to claims, its kind (a heading), and the answer to it."""

    about: str
    says: str
    done: str


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``claims.toml``, with the ``threats.toml`` next to it."""

    claim: tuple[Claim, ...] = ()
    sentence: tuple[Sentence, ...] = ()
    threat: tuple[Threat, ...] = ()


@cache
def read(folder: Path) -> Content:
    """The claims and threats of a folder of figures; raises `RequestError` for a file that is none."""
    return together(_read(folder / FILE), _read(folder / THREATS))


def _read(path: Path) -> Content:
    if not path.is_file():
        return Content()
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Content)
    except msgspec.MsgspecError as error:
        raise RequestError(f"{path}: {error}. Compare it with the file of a built-in figure.") from error


def of_figures(files: Iterable[str | None]) -> Content:
    """Read all claims, sentences and threats in the folders of these figures' files, each folder once."""
    folders = dict.fromkeys(Path(file).parent for file in files if file is not None)
    return together(*map(read, folders))


def together(*content: Content) -> Content:
    """Concatenate contents, in order."""
    return Content(
        tuple(claim for one in content for claim in one.claim), tuple(sentence for one in content for sentence in one.sentence),
        tuple(threat for one in content for threat in one.threat),
    )  # fmt: skip
