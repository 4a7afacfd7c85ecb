"""What a user may get wrong: one clear paragraph, the right exit code, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import plan, spec
from testbed.cli import main
from testbed.errors import EXIT_OK, EXIT_REQUEST, RequestError

BAD = [
    (["--topo", "torus"], "there is no topology 'torus'; there are dumbbell"),
    (["--topo", "./none.py"], "there is no file ./none.py"),
    (["--topo", "dumbbell,x"], "whole numbers"),
    (["--topo", "dumbbell,1", "--jobs", "4"], "4 jobs of 2 workers do not fit"),
    (["--cc", "renoo"], "there is no congestion control 'renoo'"),
    (["--cc", "reno", "reno"], "names one twice"),
    (["--cc", "reno:slope=1"], "takes no parameters"),
    (["--cc", "mltcp_reno:sloppe=1"], "is not a parameter of mltcp_reno"),
    (["--cc", "mltcp_reno:slope=fast"], "slope in"),
    (["--cc", "mltcp_reno:slope=99"], "out of range"),
    (["--trace", "resnet51"], "there is no trace 'resnet51'"),
    (["--trace", "resnet50", "--compute", "1ms", "--bytes", "1MB"], "not both"),
    (["--compute", "1ms"], "needs both"),
    (["--workers", "3"], "two workers"),
    (["--rate", "500"], "rate: the rate '500' has no unit"),
    (["--rate", "0mbit"], "too slow"),
    (["--rate=-5mbit"], "negative"),
    (["--rate", "9e99gbit"], "beyond anything"),
    (["--rate", "500mbps"], "bits or bytes"),
    (["--buffer", "1"], "has no unit"),
    (["--buffer", "100B"], "do not hold two frames"),
    (["--mtu", "12"], "not between 576"),
    (["--mtu", "big"], "invalid int value: 'big'"),
    (["--jobs", "0"], "jobs: 0 is not between"),
    (["--seeds", "0"], "seeds: 0"),
    (["--iterations", "-3"], "iterations: -3"),
    (["--noise", "2"], "not between 0 and 100 %"),
    (["--offsets", "5ms"], "1 given for 2 jobs"),
    (["--offsets", "5,6"], "has no unit"),
    (["--sample", "1us"], "would be the experiment"),
    (["--rto-min", "1s"], "not between 1ms and 200ms"),
    (["--name", "../x"], "cannot name a folder"),
    (["--colour", "blue"], "unrecognized arguments"),
    (["nowhere.toml"], "there is no file nowhere.toml"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_a_wrong_request(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments, "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr().err
    assert says in shown
    assert shown.startswith("error: ")
    assert "Traceback" not in shown
    assert shown.count("\n") <= 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs = ", "is not TOML"),
        ("jobs = 'two'", "jobs: Expected `int`, got `str`"),
        ("job = 2", "unknown field `job`"),
        ("rate = 500", "needs a unit"),
        ("cc = 'reno'", "cc: Expected `array`"),
        ("trace = 'nosuch'", "there is no trace"),
        ("acks = 'second'", "acks: Invalid enum value"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    assert main(["run", str(path), "--dry-run"]) == EXIT_REQUEST
    shown = capsys.readouterr().err
    assert says in shown
    assert "wrong.toml" in shown


def test_an_unreadable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path)]) == EXIT_REQUEST
    assert "cannot be read" in capsys.readouterr().err
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert main(["run", str(binary)]) == EXIT_REQUEST
    assert "is not TOML" in capsys.readouterr().err


def test_dry_run_prints_every_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--topo", "dumbbell", "--jobs", "4", "--dry-run"]) == EXIT_OK
    shown = capsys.readouterr().out
    assert shown.count("run reno") == shown.count("run mltcp_reno") == 2
    assert "shape each bottleneck" in shown


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("jobs = 3\nrate = '100mbit'\ntrace = 'resnet50'\n")
    asked = spec.read(str(path), {"jobs": 2, "compute": "1s", "bytes": "1MB"})
    assert (asked.jobs, asked.rate, asked.trace, asked.name) == (2, 100_000_000, None, "mine")


def test_the_ideal_iteration_counts_every_byte() -> None:
    # 28 MB + 0.5 s at 500 Mbit/s, MTU 1500: 0.968 s (docs/results.md)
    asked = spec.read(None, {"compute": "500ms", "bytes": "28MB"})
    assert plan.plans(asked)[0].jobs[0].ideal_s == pytest.approx(0.9684, abs=1e-4)


def test_default_jobs_fill_96_percent_of_the_link() -> None:
    for jobs in (2, 4, 8):
        made = plan.plans(spec.read(None, {"jobs": jobs}))[0]
        assert made.jobs[0].ideal_s == pytest.approx(1.0, abs=1e-6)
        compute = made.jobs[0].operations[0]["duration_ns"] / 1e9
        assert jobs * (1 - compute) == pytest.approx(0.96, abs=1e-6)


def test_offsets_are_drawn_from_the_seed_within_five_percent() -> None:
    def offsets(**changes: object) -> list[int]:
        return [job.offset_ns for job in plan.plans(spec.read(None, {"jobs": 8, **changes}))[0].jobs]

    assert offsets() == offsets()
    assert offsets() != offsets(seed=2)
    assert max(offsets()) <= 0.05e9
    assert max(offsets(offsets="uniform")) > 0.05e9
    given = ",".join(f"{10 * i}ms" for i in range(8))
    assert offsets(offsets=given) == [10_000_000 * i for i in range(8)]


def test_each_run_is_followed_by_one_job_alone() -> None:
    made = plan.plans(spec.read(None, {"jobs": 3, "seeds": 2}))
    assert [(p.seed, p.cc.name, p.alone) for p in made[:4]] == [
        (1, "reno", None), (1, "reno", 0), (1, "mltcp_reno", None), (1, "mltcp_reno", 0),
    ]  # fmt: skip
    assert [job.offset_ns for job in made[1].jobs] == [0]
    assert [p.measure_capacity for p in made] == [True] + [False] * 7


def test_variants_have_folders_of_their_own() -> None:
    made = plan.plans(spec.read(None, {"cc": ["mltcp_reno", "mltcp_reno:slope=2"]}))
    folders = {p.folder for p in made if p.alone is None}
    assert len(folders) == 2
    assert Path("mltcp_reno/1") in folders


def test_jobs_cross_the_bottleneck() -> None:
    topo, _ = plan.topology_of(spec.read(None, {"jobs": 2, "workers": 3, "trace": "resnet50"}))
    assert plan.place(topo, 2, 3) == [("l1", "l2", "r1"), ("l3", "l4", "r2")]
    with pytest.raises(RequestError, match="do not fit"):
        plan.place(topo, 5, 3)
