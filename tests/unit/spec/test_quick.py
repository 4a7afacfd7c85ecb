"""``[quick]`` of an experiment's file: in force when asked for, and else as if it were not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import spec
from testbed.cli import main
from testbed.core.errors import RequestError
from testbed.planning import plan
from testbed.spec import sweep

FILE = """
rate = "1gbit"
seeds = 10

[sweep]
jobs = [2, 4, 6, 8]
buffer = ["1ms", "2ms"]

[quick]
seeds = 2

[quick.sweep]
jobs = [2, 8]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    return path


def test_without_it_the_file_is_as_it_stands(file: Path) -> None:
    specs = sweep.read(str(file), {})
    assert len(specs) == 8
    assert {one.seeds for one in specs} == {10}


def test_it_overrides_fields_and_values_of_a_sweep(file: Path) -> None:
    specs = sweep.read(str(file), {"quick": True})
    assert [(one.jobs, one.buffer, one.seeds) for one in specs] == [
        (2, "1ms", 2), (2, "2ms", 2), (8, "1ms", 2), (8, "2ms", 2),
    ]  # fmt: skip
    assert specs[0].name == "some.jobs-2.buffer-1ms"


def test_flags_win(file: Path) -> None:
    assert {one.seeds for one in sweep.read(str(file), {"seeds": 5, "quick": True})} == {5}


def test_it_is_inherited(file: Path, tmp_path: Path) -> None:
    above = tmp_path / "above.toml"
    above.write_text('base = "some.toml"\n[quick]\niterations = 7\n')
    first = sweep.read(str(above), {"quick": True})[0]
    assert (first.seeds, first.iterations) == (2, 7)


def test_a_file_without_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "plain.toml"
    path.write_text('rate = "1gbit"')
    assert spec.read(str(path), {"quick": True}) == spec.read(str(path), {})


@pytest.mark.parametrize("content", ["quick = 3", '[quick]\nname = "other"', '[quick]\nbase = "some.toml"'])
def test_what_it_cannot_hold(tmp_path: Path, content: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(content)
    with pytest.raises(RequestError, match=r"quick: "):
        spec.read(str(path), {})


def test_a_wrong_field_in_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[quick]\nseedz = 3")
    spec.read(str(path), {})
    with pytest.raises(RequestError, match="seedz"):
        spec.read(str(path), {"quick": True})


def test_jobs_alone_for_the_first_seed_only() -> None:
    specs = [spec.make({"seeds": 3, "alone": alone}, {}, "here") for alone in ("each", "first")]
    alone = [[one.seed for one in plan.plans(plan.resolve(each)) if one.alone is not None] for each in specs]
    assert alone == [[1, 1, 2, 2, 3, 3], [1, 1]]
    scheduled = spec.make({"seeds": 2, "alone": "first", "cc": ["reno", "cassini"]}, {}, "here")
    assert [one.seed for one in plan.plans(plan.resolve(scheduled)) if one.alone is not None] == [
        1,
        1,
        2,
    ]  # CASSINI's profiles


@pytest.mark.parametrize(("words", "said"), [(["--quick"], True), ([], False)])
def test_the_plan_names_the_points_that_it_leaves_out(
    words: list[str], said: bool, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = file.with_name("whole.toml")
    other.write_text("seeds = 2\n[quick]\nseeds = 1\n")
    assert main(["sweep", str(file), str(other), "--dry-run", *words]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("The quick set")]
    assert lines == (["The quick set keeps fewer points of: some 4 of 8."] if said else [])
