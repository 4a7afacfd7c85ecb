"""Experiments of schedules as they are stored, with rows of any origin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pandas as pd

from testbed.core.runs import documents, rundir
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.schedules import ABOUT, KEYS, NUMBERS, TABLE, Asked, Made, Setting, digest
from testbed.planning import schedules
from testbed.report.study import Study, load_study
from testbed.spec import schedules as spec

ROOT = Path(__file__).parents[2]

FILES = {
    Path(path).stem: Path(path)
    for path in spec.apart([str(path) for path in sorted((ROOT / "experiments").glob("*.toml"))])[0]
}
Makespan = Callable[[str, str, int], float]  # of a setting, a scheduler and a number of servers


def asked(id: str, *settings: Setting, seeds: int = 3) -> Asked:
    return msgspec.structs.replace(spec.read(str(FILES[id]), quick=True), setting=settings, seeds=seeds)


def store(what: Asked, rows: list[schedules.Row], out: Path) -> Study:
    """As `studies.compute` does it, with rows of any origin."""
    table = pd.DataFrame(rows)[[*KEYS, *NUMBERS]].to_csv(index=False).encode()
    made = Made(
        version=VERSION, experiment=what.name, asked=what, testbed="1", source_sha256="0" * 64, git_commit=None, python="3", packages={},
        command=("__main__.py", "sweep", f"experiments/{what.name}.toml"), started="then", wall_s=1.0, digest=digest(table),
    )  # fmt: skip
    rundir.store({TABLE: table, ABOUT: documents.encode(made)}, out / what.name, out)
    return load_study(out, what.name)


def invented(id: str, makespan: Makespan, out: Path, *settings: Setting) -> Study:
    """Rows with these makespans, a little off from seed to seed, and completions that go with them."""
    what, rows = asked(id, *settings), []
    for setting in what.setting:
        for count in what.servers:
            for seed in range(1, what.seeds + 1):
                for name in what.scheduler:
                    took = makespan(setting.name, name, count) * (1 + 0.01 * seed)
                    numbers: schedules.Row = dict.fromkeys(NUMBERS, 1.0)
                    numbers |= {
                        "makespan_s": took,
                        "mean_completion_s": took / 3,
                        "min_completion_s": 1,
                        "max_completion_s": took,
                    }
                    rows.append({"setting": setting.name, "servers": count, "seed": seed, "scheduler": name, **numbers})
    return store(what, rows, out)
