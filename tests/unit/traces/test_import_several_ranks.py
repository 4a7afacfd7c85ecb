"""Profiles of several ranks are one job; that times are right is `test_import_truth`'s."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.traces.importing import Request, import_trace
from testbed.traces.trace import Trace, TraceError, load, save
from tests.support.training import Job, Training, trainings

STAGES = {"pp": ((0, 2), (1, 3)), "dp": ((0, 1), (2, 3))}  # two, of two ranks each
JOB = Job(style="pipeline", layers=(1.0, 2.0), sizes=(1000, 2000), exchange=0.5)
CLOCKS = [0.0, 5.0, -70.0, 1e6]


def imported(folder: Path, found: list[Training]) -> Trace:
    paths = [one.write(folder) for one in found]
    trace = import_trace(paths, Request(), name="mine", model="a model")
    save(trace, folder / "trace.json")
    return load(str(folder / "trace.json"))


def ranks(trace: Trace) -> set[tuple[int, ...]]:
    return {role.ranks for role in trace.all_roles}


def test_a_rank_without_a_profile_does_what_the_one_at_its_place_does(tmp_path: Path) -> None:
    found = trainings([JOB] * 4, STAGES, CLOCKS)
    whole = imported(tmp_path, found)
    part = imported(tmp_path, [found[1], found[2]])
    assert ranks(whole) == ranks(part) == {(0, 1), (2, 3)}
    assert whole.groups == part.groups == STAGES
    assert whole.roles == part.roles


def test_ranks_that_differ_need_all_profiles(tmp_path: Path) -> None:
    found = trainings([JOB, replace(JOB, layers=(3.0, 3.0)), JOB, JOB], STAGES, CLOCKS)
    assert ranks(imported(tmp_path, found)) == {(0,), (1,), (2, 3)}
    with pytest.raises(TraceError, match="none of rank 2"):
        imported(tmp_path, found[:2])


def test_peers_as_ranks_and_groups_without_a_description(tmp_path: Path) -> None:
    found = trainings([JOB] * 4, STAGES, CLOCKS)
    for one in found:
        stages = one._line("pp")
        for event in one.made.events:
            told = event["args"]
            told.pop("Process Group Description", None)
            for field in {"Dst Rank", "Src Rank"} & set(told):
                told[field] = stages[told[field]]
    trace = imported(tmp_path, found)
    assert ranks(trace) == {(0, 1), (2, 3)}
    assert list(trace.groups.values()) == list(STAGES.values())


def test_messages_and_collectives_that_do_not_match_are_refused(tmp_path: Path) -> None:
    one_less = replace(JOB, layers=JOB.layers[:1], sizes=JOB.sizes[:1])
    pairs = [Training(JOB, 0, {"pp": ((0, 1),)}), Training(one_less, 1, {"pp": ((0, 1),)})]
    with pytest.raises(TraceError, match="rank 0 sends 2 messages to rank 1"):
        imported(tmp_path, pairs)
    pairs = [Training(replace(job, style="ddp"), rank, {"dp": ((0, 1),)}) for rank, job in enumerate((JOB, one_less))]
    with pytest.raises(TraceError, match="collective 1 is"):
        imported(tmp_path, pairs)
