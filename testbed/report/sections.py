"""A figure with its context: the files drawn, unusable runs, and the commands that made the runs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed import registry
from testbed.core.runs.load import LoadError, Run
from testbed.report import bases, figures
from testbed.report.figures import Figure
from testbed.report.study import Study, load_study


@dataclass(frozen=True)
class Section:
    """One figure of the report; ``files`` is empty if there is nothing to draw."""

    figure: Figure
    study: Study
    files: tuple[Path, ...]
    problems: tuple[str, ...]

    @property
    def every_run(self) -> list[Run]:
        """The runs behind it, those of jobs alone included."""
        return [run for experiment in self.study.experiments for run in (*experiment.runs, *experiment.alone.values())]

    @property
    def wall_s(self) -> float:
        """The sum of their wall-clock times."""
        return sum(run.manifest.wall_s for run in self.every_run)


def every(results: Path, out: Path, only: Collection[str] | None = None) -> Iterator[Section]:
    """Draw every figure to ``out``, in the order of the report (only those in ``only``); an error of one does not stop
    the others."""
    for figure in figures.every():
        if only is None or figure.ID in only:
            yield one(figure, results, out)


def one(figure: Figure, results: Path, out: Path) -> Section:
    """Draw a figure to ``out`` from the runs in ``results``."""
    study = load_study(
        results,
        figure.ID,
        several_backends=getattr(figure, "SEVERAL_BACKENDS", False),
        experiments_of=getattr(figure, "EXPERIMENTS", None),
    )
    problems = list(study.problems)
    files: tuple[Path, ...] = ()
    try:
        files = () if study.is_empty else tuple(bases.draw(figure, study, out))
    except LoadError as error:
        problems.append(f"{error}. The figure is not drawn.")
    except OSError:  # the folder for figures is not writable, which stops all
        raise
    except Exception as error:
        # Errors in one run directory do not stop the other figures; this figure's section reports that it is missing.
        problems.append(_describe(error, figure))
    section = Section(figure, study, files, tuple(problems))
    for run in section.every_run:
        run.forget()
    return section


def _describe(error: Exception, figure: Figure) -> str:
    """Describe an error of a figure's code: its place in a custom file, or in the testbed."""
    file = getattr(figure, "__file__", None)
    if file is None or Path(file).is_relative_to(registry.folder("analysis")):
        what = f"{type(error).__name__}: {error}"
        return f"{figure.ID} could not be made from these results ({what}): a fault of this program."
    near = os.path.relpath(file)
    return (
        f"an error in {registry.located(error, file if near.startswith(os.pardir) else near)}. The figure is not drawn."
    )
