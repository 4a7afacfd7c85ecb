"""``mltcp judge RESULTS``: judge stored runs by the rules of this testbed.

A verdict follows from the stored tables, so better rules need no new runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.campaign import stored
from testbed.campaign.verdict import Case, judge
from testbed.core.runs import documents, rundir
from testbed.core.runs.load import LoadError, check, load_run
from testbed.core.text import shown


def again(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Judge and update every run below ``folder`` (results folder, experiment folder, or run directory).

    Yields the run directory and its verdict before and now. Raises `LoadError` if there is none or one is unreadable;
    runs before it are judged.
    """
    try:
        manifests = sorted(folder.rglob("manifest.json"))
    except OSError as error:
        raise LoadError(f"{shown(folder, 200)} cannot be read: {error.strerror}") from error
    if not manifests:
        raise LoadError(
            f"{shown(folder, 200)} holds no run. Name a run directory, or a folder with run directories, such as results."
        )
    for manifest in manifests:
        run = load_run(manifest.parent)
        check(run)
        stored.check(run.plan, manifest)
        try:
            verdict = judge(
                Case(
                    run.manifest,
                    run.iterations,
                    run.links,
                    run.flows,
                    run.disturbances,
                    run.messages,
                    run.lives,
                    run.nics,
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise LoadError(
                f"{manifest.parent} cannot be judged: its manifest or verdict is incomplete or has a wrong value "
                f"({type(error).__name__}: {error}). Run it again."
            ) from error
        if verdict != run.verdict:
            rundir.write_text(run.path / "verdict.json", documents.encode(verdict).decode(), folder)
        yield run.path, run.verdict.verdict, verdict.verdict
