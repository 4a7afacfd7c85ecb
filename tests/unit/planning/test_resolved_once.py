"""A command resolves its experiment once, and plans it once; a scheduler's run is planned again from what is resolved."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.cli import main
from testbed.core import units
from testbed.core.errors import EXIT_OK
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


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each text has been read as a quantity."""
    read: Counter[str] = Counter()
    number = units._NUMBER

    class Counting:
        def fullmatch(self, text: str) -> Any:
            read[text] += 1
            return number.fullmatch(text)

    monkeypatch.setattr(units, "_NUMBER", Counting())
    return read


def test_every_quantity_is_read_once(read: Counter[str]) -> None:
    """Each text here occurs once, whatever is asked of it later: of which link, for which seed, for which system."""
    asked: dict[str, Any] = {
        "jobs": 3, "workers": 3, "seeds": 2, "system": ["reno", "mltcp_reno"], "rate": "501mbit", "buffer": "1.01ms", "ecn": "0.31ms,0.41ms,3%",
        "delay": "1.1ms", "jitter": "0.9ms", "loss": "0.11%", "corrupt": "0.12%", "noise": "2.3%", "nic": "499mbit", "host_queue": "pfifo_fast:21ms",
        "rto_min": "19ms", "sample_interval": "9ms", "compute": "101ms", "bytes": "1.01MB", "sndbuf": "1.1MB", "wall_limit": "600s",
        "link": {"s1-s2": {"rate": "401mbit", "buffer": "2.02ms", "ecn": "0.2ms", "loss": "0.13%"}},
        "event": [{"at": "1.23s", "link": "s1-s2", "rate": "333mbit"}],
    }  # fmt: skip
    found = spec.make(asked, {}, "here")
    assert len(plan.plans(plan.resolve(found))) > 4
    read = Counter({text: times for text, times in read.items() if text not in ("0%", "20ms")})  # defaults
    assert sum(read.values()) == len(read) == 24, read


def test_so_is_what_options_and_traces_say(read: Counter[str], tmp_path: Path) -> None:
    trace = tmp_path / "mine.json"
    trace.write_text(
        json.dumps({
            "version": 1, "name": "mine", "model": "none", "source": {"kind": "derived from published numbers"},
            "native_rate": "1.7gbit",
            "operations": [
                {"id": "a", "kind": "compute", "duration": "11.1ms"}, {"id": "b", "kind": "all_reduce", "bytes": "1.11MB", "after": ["a"]},
            ],
        })
    )  # fmt: skip
    job = {"trace": str(trace), "workers": 3}
    asked = {
        "topo": "star", "seeds": 3, "start_offsets": "1.04ms,1.05ms,1.06ms", "ecn": "on", "rto_min": "19ms", "priority_queues": "4,drop-non-ect",
        "system": ["reno", "mltcp_reno:first_gap=1.07ms", "mlt:tolerance=10.5%", "mltcp_reno:first_gap=1.09ms"],
        "job": [job, job, {**job, "cc": "mltcp_cubic:first_gap=1.08ms"}],
    }  # fmt: skip
    assert len(plan.plans(plan.resolve(spec.make(asked, {}, "here")))) > 12
    texts = ("1.7gbit", "11.1ms", "1.11MB", "1.04ms", "1.05ms", "1.06ms", "1.07ms", "1.08ms", "1.09ms", "10.5%")
    assert {text: read[text] for text in texts} == dict.fromkeys(texts, 1)


def test_a_scheduler_plans_again_from_what_is_resolved(calls: Counter[str]) -> None:
    scenario, plans = plan.planned(spec.read(None, {"system": ["cassini"], "seeds": 2}))
    last = plans[-1]
    again = plan.replan(scenario, last, {job.job: Profile(1.2, 0.0) for job in last.jobs})
    assert (again.folder, again.measure_capacity) == (last.folder, last.measure_capacity)
    assert again.jobs[0].grid != last.jobs[0].grid and calls == {"resolve": 1, "plans": 1}
