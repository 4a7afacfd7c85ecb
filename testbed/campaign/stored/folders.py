"""Experiment folders and their stored runs: results are replaced only on request.

`testbed.planning.names` names the folder: by the file or ``--name``, else by the fields; with the backend if ``--on``
overrides the default one. If a folder of that name holds another experiment, the fields that differ extend the name.
Seeds are not part of an experiment: runs of new seeds are added.

A run is kept if it has the same plan, files, program, and kernel. Otherwise nothing is run without ``--again`` or
``--renew``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.backends import Backend
from testbed.campaign import driver, provenance
from testbed.campaign.driver import Wanted
from testbed.core.errors import RequestError
from testbed.core.locks import Locks
from testbed.core.runs.load import LoadError, load_run
from testbed.core.runs.manifest import Asked
from testbed.core.text import shown
from testbed.planning import names, plan
from testbed.planning.plan import Planned
from testbed.spec import files

Again = Literal["never", "changed", "always"]  # which existing runs are repeated
# Run directories of an experiment, and those of jobs alone; below one more folder each where job schedulers are compared.
TOGETHER, ALONE = ("*/[0-9]*", "*/*/[0-9]*"), ("isolated/*/*/[0-9]*", "*/isolated/*/*/[0-9]*")
MOST_TOLD = 5  # runs that a message names
Backends = Callable[[Wanted], Sequence[Backend]]  # possible backends of a run


def named(
    planned: Sequence[Planned],
    out: Path,
    file: str | None = None,
    *,
    elsewhere: bool = False,
    locks: Locks | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Planned]:
    """Return experiments with the names of their folders below ``out``, which are locked.

    ``elsewhere``: ``--on`` names another backend than the default one. A default name, and one made from ``file``, then
    includes the backend. A name chosen by the user includes it only if another experiment holds that folder. ``tell``
    is called for names in use. Raises `InUseError`.
    """
    is_files = file is not None and not files.is_named(Path(file))
    found, notices = [], list[str]()
    for each in planned:
        default = not each[0].spec.name
        usual = each[0].experiment
        if elsewhere and (default or is_files):
            usual = names.with_backend(usual, each[0].spec.on, default=default)
        found.append(_named(each, usual, out, default=default, locks=locks))
        if (name := found[-1][0].experiment) != usual:
            notices.append(f"{out / usual} holds another experiment; results go to {out / name}.")
    for words in notices[:MOST_TOLD]:
        tell(words)
    if len(notices) > MOST_TOLD:
        tell(f"The same holds for {len(notices) - MOST_TOLD} more experiments.")
    return found


def _named(each: Planned, name: str, out: Path, *, default: bool, locks: Locks | None) -> Planned:
    scenario, _ = each
    for _ in range(2):
        there = stored(out / name)
        if there is not None and _is_other(there, scenario.asked):
            name = _apart(name, out, there, scenario.asked, default=default)
        if locks is None:
            break
        locks.take(name)
        there = stored(out / name)
        if there is None or not _is_other(there, scenario.asked):
            break
    return plan.renamed(each, name)


def _apart(name: str, out: Path, there: Asked, asked: Asked, *, default: bool) -> str:
    """Another name for the request, with its differences from the experiment that has the name."""
    found = names.apart(name, there, asked, default=default)
    for candidate in (found, f"{found}-{names.digest(asked)}"):
        other = stored(out / candidate)
        if other is None or not _is_other(other, asked):
            return candidate
    raise RequestError(
        f"{out / found}: holds a different experiment than its name states, and results are never replaced without --again or --renew. Move that folder, or "
        "name another experiment (--name)."
    )


def _is_other(there: Asked, asked: Asked) -> bool:
    return bool(names.differences(there, asked))


def stored(experiment: Path) -> Asked | None:
    """The request for the runs of an experiment folder; None: there are no runs, or they do not record it."""
    for run in _runs(experiment):
        try:
            return load_run(run).manifest.asked
        except LoadError:
            continue
    return None


def _runs(experiment: Path) -> Iterator[Path]:
    """Its run directories, those of jobs in isolation last."""
    for pattern in (*TOGETHER, *ALONE):
        for manifest in sorted(experiment.glob(f"{pattern}/manifest.json")):
            yield manifest.parent


def _seeds(experiment: Path, patterns: Sequence[str]) -> set[int]:
    found = {path.parent.name for pattern in patterns for path in experiment.glob(f"{pattern}/manifest.json")}
    return {int(name) for name in found if name.isdecimal()}


@dataclass(frozen=True)
class Work:
    """Requested runs, existing runs of other seeds, and the runs to execute."""

    asked: list[Wanted]
    beside: list[Wanted]  # of other seeds: complete, and part of the summary
    todo: list[Wanted]  # in order; one that waits for others may exist already
    again: Again
    backends_for: Backends

    @property
    def kept(self) -> list[Wanted]:
        """Requested runs that are kept instead of run."""
        todo = {run.folder for run in self.todo}
        return [run for run in self.asked if run.folder not in todo]

    def describe_kept(self) -> str:
        """Number of kept runs, in a line."""
        count = len(self.kept)
        return f"{count} {'run is' if count == 1 else 'runs are'} there already and kept; --again runs {'it' if count == 1 else 'them'} again."

    def summed_up(self, scenario: plan.Scenario) -> list[Wanted]:
        """The runs of an experiment, those of other seeds too, by seed."""
        runs = [run for run in (*self.asked, *self.beside) if run.scenario.experiment == scenario.experiment]
        return sorted(runs, key=lambda run: run.plan.seed)

    def is_there(self, run: Wanted) -> bool:
        """Return True if a run whose schedule is known by now is kept. Raises `RequestError` if another run has its folder."""
        if self.again == "always":
            return False
        reasons = _differences(run, self.backends_for)
        if reasons and self.again == "never":
            raise RequestError(_refused({run.folder: reasons}))
        return reasons == []


def work(planned: Sequence[Planned], out: Path, backends_for: Backends, again: Again) -> Work:
    """Runs to execute and to keep for `named` experiments; raises `RequestError` if a run would be replaced without a request."""
    beside = [run for one in planned for run in _complete_runs_of_other_seeds(one, out)]
    if again != "always":
        planned, serving = zip(*[_without_repeating(one, out) for one in planned], strict=True)
        folders = {run.folder for run in beside}
        beside += [run for runs in serving for run in runs if run.folder not in folders]
    return select_work(driver.wanted(planned, out), beside, backends_for, again)


def select_work(asked: list[Wanted], beside: list[Wanted], backends_for: Backends, again: Again) -> Work:
    """Select the missing runs among ``asked``, as `work` does, given existing runs ``beside`` of other seeds."""
    every = [*asked, *beside]
    standing = {run.folder: _differences(run, backends_for) for run in every if not run.waits}
    for run in every:
        if run.waits:
            known = all(standing.get(folder) == [] for folder in run.needs)
            standing[run.folder] = _differences(run.scheduled(), backends_for) if known else None
    changed = {folder: reasons for folder, reasons in standing.items() if reasons}
    if changed and again == "never":
        raise RequestError(_refused(changed))
    todo = [run for run in asked if again == "always" or standing[run.folder] != []]
    todo += [run for run in beside if standing[run.folder]]  # else the summary would mix two program versions
    return Work(asked, beside, todo, again, backends_for)


def _differences(run: Wanted, backends_for: Backends) -> list[str] | None:
    """Return how the stored run differs; empty: it is kept; None: there is none."""
    found: list[str] | None = None
    for backend in backends_for(run):
        one = provenance.differences(run.plan, run.folder, backend, run.scenario.asked)
        if not one:
            return one
        found = one if found is None or len(one) < len(found) else found
    return found


def _refused(changed: dict[Path, list[str]]) -> str:
    lines = [f"{folder}: {'; '.join(reasons)}" for folder, reasons in list(changed.items())[:MOST_TOLD]]
    if len(changed) > MOST_TOLD:
        lines.append(f"and {len(changed) - MOST_TOLD} more")
    runs = "1 run that is there differs" if len(changed) == 1 else f"{len(changed)} runs that are there differ"
    return (
        f"{runs} from what would be run now. Nothing was run or replaced. Add --renew to replace these, --again to run all again, "
        "or choose another name (--name) or results folder (--out).\n"
        + "\n".join(f"  {shown(line, 600)}" for line in lines)
    )


def _without_repeating(each: Planned, out: Path) -> tuple[Planned, list[Wanted]]:
    """An experiment without the isolated runs for which one of another seed is there and serves; and those that do."""
    scenario, plans = each
    asked = {run.folder: run for run in driver.wanted([each], out) if run.plan.alone is not None}
    missing = {folder for folder in asked if not _holds_something(folder)}
    if not missing or scenario.spec.isolated_runs != "auto":
        return each, []
    kept: dict[Path, plan.Isolated] = {}
    runs: dict[Path, Wanted] = {}
    for seed in sorted(_seeds(out / scenario.experiment, ALONE)):
        try:
            other, its = plan.plan_seed(scenario, seed)
        except RequestError:  # no request leads to it
            continue
        for one in plan.isolated_runs(other, its):
            run = Wanted(other, one.plan, out)
            if run.folder not in asked and _holds_something(run.folder):
                kept[run.folder], runs[run.folder] = one, run
    if not kept:
        return each, []
    wanted = {run.folder for run in driver.wanted([(scenario, plan.plans(scenario, [*kept.values()]))], out)}
    rest = [one for one in plans if (folder := Wanted(scenario, one, out).folder) in wanted or folder not in missing]
    return (scenario, rest), [*runs.values()] if len(rest) < len(plans) else []


def _complete_runs_of_other_seeds(each: Planned, out: Path) -> list[Wanted]:
    """Return the runs of other seeds, for each seed whose runs are complete."""
    scenario, plans = each
    experiment = out / scenario.experiment
    found: list[Wanted] = []
    for seed in sorted(_seeds(experiment, TOGETHER) - {own.seed for own in plans}):
        try:
            other, its = plan.plan_seed(scenario, seed)
        except RequestError:  # no request leads to it
            continue
        runs = driver.wanted([(other, its)], out)
        needed = [run for run in runs if run.plan.alone is None or scenario.spec.isolated_runs in ("each", "none")]
        if all(_holds_something(run.folder) for run in needed):
            found += [run for run in runs if _holds_something(run.folder)]
    return found


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
