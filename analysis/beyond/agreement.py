"""The same experiment in virtual time, on a machine's own kernel or in a VM, side by side."""

from __future__ import annotations

from pathlib import Path

from testbed.core.runs.load import Experiment, LoadError
from testbed.report import agreement
from testbed.report.finding import Finding, graded, not_measured
from testbed.report.study import Study

ID = "agreement"
POSITION = 480
TITLE = "The same experiment wherever it runs"
TEXT = (
    "Two jobs on one link slow enough for a real clock, wherever they were run: under virtual time (uml), on the machine's own kernel "
    "(host), in the VM (vagrant); against the computed ideal. Left, one job alone; right, both, the last ten iterations. A job alone and MLTCP once "
    "settled leave nothing to chance and should agree; what the base does depends on chance (`scale`)."
)
CLAIM = "The numbers do not depend on where the experiment runs (a job alone; MLTCP once settled)."
SOURCE = "derived here"
CONTROLS = {CLAIM: "a backend where everything takes 1.2 times as long"}
SEVERAL_BACKENDS = True
CLOSE, NEAR = 0.02, 0.05  # relative difference of means


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``agreement.{png,pdf,csv}``."""
    return agreement.draw(_one_of_each(study), out)[1]


def find(study: Study) -> list[Finding]:
    """Whether the backends agree."""
    experiments = _one_of_each(study)
    if len(experiments) < 2:
        return [not_measured(CLAIM, SOURCE, "it takes two backends at least; `make agreement` runs it wherever it can")]
    try:
        found = agreement.table(experiments)
    except LoadError as error:
        return [not_measured(CLAIM, SOURCE, str(error))]
    chance = (found["state"] == "steady") & (found["role"] != "treatment")
    judged = found[~chance]
    means = judged.pivot_table(index="backend", columns=["cc", "state"], values="ratio", sort=False)
    apart = float((means.max() / means.min()).max() - 1)
    each = "; ".join(
        f"{name} " + ", ".join(f"{ratio:.3f}" for ratio in means.loc[name].dropna()) for name in means.index
    )
    pairs = judged[["cc", "state"]].drop_duplicates()
    order = ", ".join(f"{row.cc} {agreement.STATES[str(row.state)]}" for row in pairs.itertuples())
    return [
        Finding(
            CLAIM, SOURCE, f"iteration time ÷ ideal ({order}): {each}", apart, "largest relative difference of two means (0: none)", None,
            int(judged.groupby("backend")["seed"].nunique().min()), graded(apart <= CLOSE, apart <= NEAR),
            f"reproduced if all means agree within {CLOSE:.0%}, partly if within {NEAR:.0%}", study.paths,
        )
    ]  # fmt: skip


def _one_of_each(study: Study) -> list[Experiment]:
    """One experiment per backend; one backend alone is drawn as well, against the ideal."""
    return list({experiment.runs[0].manifest.backend: experiment for experiment in study.experiments}.values())
