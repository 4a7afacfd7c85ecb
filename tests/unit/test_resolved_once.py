"""A command resolves its experiment once, and plans it once; a scheduler's run is planned again from what is resolved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from core.errors import EXIT_OK
from testbed import spec
from testbed.cli import main
from testbed.planning import plan
from testbed.planning.profiles import Profile


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counted: Counter[str] = Counter()
    for name in ("resolve", "plans"):
        real = getattr(plan, name)

        def count(*asked: Any, name: str = name, real: Any = real) -> Any:
            counted[name] += 1
            return real(*asked)

        monkeypatch.setattr(plan, name, count)
    return counted


@pytest.mark.parametrize("words", [["run", "--jobs", "2"], ["run", "--system", "reno", "cassini", "--seeds", "3"]])
def test_a_run(words: list[str], calls: Counter[str], tmp_path: Path) -> None:
    assert main([*words, "--on", "uml", "--dry-run", "--out", str(tmp_path)]) == EXIT_OK
    assert calls == {"resolve": 1, "plans": 1}


def test_a_sweep_once_each_experiment(calls: Counter[str], tmp_path: Path) -> None:
    file = tmp_path / "several.toml"
    file.write_text("[sweep]\njobs = [1, 2, 3]\n")
    assert main(["sweep", str(file), "--on", "uml", "--dry-run", "--out", str(tmp_path)]) == EXIT_OK
    assert calls == {"resolve": 3, "plans": 3}


def test_a_scheduler_plans_again_from_what_is_resolved(calls: Counter[str]) -> None:
    scenario, plans = plan.planned(spec.read(None, {"system": ["cassini"], "seeds": 2}))
    last = plans[-1]
    again = plan.replan(scenario, last, {job.job: Profile(1.2, 0.0) for job in last.jobs})
    assert (again.folder, again.measure_capacity) == (last.folder, last.measure_capacity)
    assert again.jobs[0].grid != last.jobs[0].grid and calls == {"resolve": 1, "plans": 1}
