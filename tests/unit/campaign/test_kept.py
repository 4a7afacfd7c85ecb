"""Results are never lost: the folder of an experiment, the runs that are kept, and what killed commands leave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import spec
from testbed.campaign import provenance
from testbed.cli import main
from testbed.core import folders, locks
from testbed.core.errors import EXIT_INVALID, EXIT_MACHINE, EXIT_OK, EXIT_REQUEST, MachineError
from testbed.core.runs import rundir
from testbed.core.runs.load import check, load_run, load_summary
from testbed.core.runs.manifest import Asked
from testbed.core.units import Rate
from testbed.planning import names, plan
from tests.support import processes
from tests.support.properties import examples
from tests.support.runs import INTERRUPTIBLE, ROOT, rounds

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = ("--on", "flow", "--jobs", "1", "--compute", "20ms", "--bytes", "200kB", "--iterations", "2", "--system", "reno", "--alone", "none", "--quiet")  # fmt: skip
BASE = "dumbbell-1xsynthetic-compute-20ms-bytes-200kB-system-reno-iterations-2-isolated_runs-none"

pytestmark = pytest.mark.xdist_group("kept")


def run(out: Path, *flags: str) -> int:
    return main(["run", *SMALL, "--out", str(out), *flags])


def stored(out: Path) -> dict[str, int]:
    """Every run below ``out``, by its path; its manifest's inode, which another run does not have."""
    return {str(path.parent.relative_to(out)): path.stat().st_ino for path in sorted(out.rglob("manifest.json"))}


def seeds(folder: Path) -> list[list[int]]:
    return [list(result.seeds) for result in load_summary(folder).results]


# Names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend", "default", "expected"),
    [
        ("dumbbell-4xsynthetic", "flow", True, "dumbbell-4xsynthetic-on-flow"),
        ("dumbbell-4xsynthetic-loss-0.1", "host", True, "dumbbell-4xsynthetic-loss-0.1-on-host"),
        ("interleaving", "flow", False, "interleaving-on-flow"),
        ("map.rate-1gbit", "host", False, "map-on-host.rate-1gbit"),
    ],
)
def test_a_backend_is_part_of_a_name(name: str, backend: str, default: bool, expected: str) -> None:
    assert names.with_backend(name, backend, default=default) == expected


VALUES: dict[str, list[Any]] = {
    "rate": ["500mbit", "50mbit", "1gbit"],
    "buffer": ["200p", "3ms"],
    "jobs": [2, 3],
    "system": [["reno"], ["reno", "mltcp_reno"], ["mltcp_reno:slope=1"]],
    "offsets": ["overlapped", "0s,1s", "0s,2s"],
    "loss": ["0%", "1%"],
}
REQUESTS = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()})


@pytest.mark.slow
@given(REQUESTS, REQUESTS, REQUESTS)
@examples(60)
def test_different_experiments_have_different_names(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    """Beside one that has the name, two others have the same one only if they are the same."""
    there, one, other = (names.asked(spec.read(None, fields), "uml") for fields in (first, second, third))
    apart = [names.apart("x", there, each, default=False) for each in (one, other)]
    assert (apart[0] == apart[1]) == (one.fields == other.fields)
    assert (names.differences(one, other) == []) == (one.fields == other.fields)
    if one.fields != there.fields:
        assert apart[0] != "x"


@pytest.mark.slow
def test_seeds_and_limits_are_no_part_of_an_experiment() -> None:
    fields: list[dict[str, Any]] = [{}, {"seed": 3, "seeds": 2}, {"wall_limit": "3s"}, {"name": "x"}]
    assert len({repr(names.asked(spec.read(None, one), "uml")) for one in fields}) == 1


@pytest.mark.slow
def test_a_file_is_known_by_name_and_content(tmp_path: Path) -> None:
    def asked(folder: str, duration: str) -> Asked:
        path = tmp_path / folder / "mine.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(duration)
        return names.asked(spec.Spec(trace=str(path)), "uml")

    one, moved, other = asked("a", "1"), asked("b", "1"), asked("a", "2")
    assert one == moved and one.fields == other.fields == {"on": "uml", "trace": "mine.json"}
    assert one.files.keys() == other.files.keys() == {"mine.json"} and one.files != other.files


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mine.py", "my own.py", "a,b.py", "a=b+c.py"])
@pytest.mark.parametrize(
    ("field", "example"),
    [
        ("topo", "two_sites.py"),
        ("collective", "collective_hub.py"),
        ("system", "transport_deadline.py"),
        ("system", "scheduler_flow_first_wins.py"),
        ("scheduler", "scheduler_job_backwards.py"),
        ("trace", "two_bursts.json"),
    ],
)
def test_a_file_of_ones_own_is_known_by_its_content(field: str, example: str, name: str, tmp_path: Path) -> None:
    path = (tmp_path / name).with_suffix(Path(example).suffix)
    path.write_bytes((EXAMPLES / example).read_bytes())
    fields: dict[str, Any] = {field: (str(path),) if field in ("system", "scheduler") else str(path)}

    def asked() -> Asked:
        return names.asked(spec.Spec(**fields), "uml")

    before = asked()
    assert before.files == {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    path.write_bytes(path.read_bytes() + b"\n")
    assert asked().fields == before.fields and asked().files != before.files


# What is kept


@pytest.mark.slow
def test_a_backend_that_is_not_the_default_has_a_folder_of_its_own(tmp_path: Path) -> None:
    assert run(tmp_path) == EXIT_OK
    assert list(stored(tmp_path)) == [f"{BASE}-on-flow/reno/1"]
    file = tmp_path / "mine.toml"
    file.write_text("iterations = 2\n")
    assert run(tmp_path / "named", str(file)) == EXIT_OK
    assert list(stored(tmp_path / "named")) == ["mine-on-flow/reno/1"]
    file.write_text('on = "flow"\n')  # where it goes by itself
    assert run(tmp_path / "own", str(file)) == EXIT_OK
    assert list(stored(tmp_path / "own")) == ["mine/reno/1"]


@pytest.mark.slow
def test_seeds_join_those_that_are_there(tmp_path: Path) -> None:
    assert run(tmp_path, "--name", "x", "--seed", "3") == EXIT_OK
    before = stored(tmp_path)
    assert run(tmp_path, "--name", "x") == EXIT_OK
    assert stored(tmp_path) == before | {"x/reno/1": stored(tmp_path)["x/reno/1"]}
    assert seeds(tmp_path / "x") == [[1, 3]]
    before = stored(tmp_path)
    assert run(tmp_path, "--name", "x", "--seeds", "3") == EXIT_OK
    assert stored(tmp_path).items() >= before.items()
    assert seeds(tmp_path / "x") == [[1, 2, 3]]


def test_what_is_there_is_kept_unless_asked_for_again(tmp_path: Path) -> None:
    assert run(tmp_path, "--name", "x") == EXIT_OK
    before = stored(tmp_path)
    (tmp_path / "x/summary.json").unlink()
    assert run(tmp_path, "--name", "x") == EXIT_OK
    assert stored(tmp_path) == before and seeds(tmp_path / "x") == [[1]]
    assert run(tmp_path, "--name", "x", "--renew") == EXIT_OK
    assert stored(tmp_path) == before
    assert run(tmp_path, "--name", "x", "--again") == EXIT_OK
    assert stored(tmp_path).keys() == before.keys() and stored(tmp_path) != before
    assert not list(tmp_path.rglob(f"{locks.FILE}*"))


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--rate", "50mbit"), ("--system", "cubic"), ("--set", "buffer=3ms")])
def test_another_experiment_of_that_name_has_a_folder_of_its_own(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert run(tmp_path, "--name", "x") == EXIT_OK
    before = stored(tmp_path)
    for _ in range(2):
        assert run(tmp_path, "--name", "x", *flags) in (EXIT_OK, EXIT_INVALID)
        assert stored(tmp_path).items() > before.items() and len(stored(tmp_path)) == len(before) + 1 + flags[0].count(
            "system"
        )
    assert seeds(tmp_path / "x") == [[1]]


@pytest.mark.slow
def test_a_run_of_another_program_is_not_replaced_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--name", "x") == EXIT_OK
    before = stored(tmp_path)
    monkeypatch.setattr(provenance, "source_sha256", lambda: "another")
    capsys.readouterr()
    for flags in ((), ("--seed", "2")):  # whose summary would be of two programs
        assert run(tmp_path, "--name", "x", *flags) == EXIT_REQUEST
        said = capsys.readouterr().err
        assert "--again" in said and "another" in said and "x/reno/1" in said
        assert stored(tmp_path) == before
    assert run(tmp_path, "--name", "x", "--seed", "2", "--renew") == EXIT_OK
    assert seeds(tmp_path / "x") == [[1, 2]]
    assert {load_run(tmp_path / path).manifest.source_sha256 for path in stored(tmp_path)} == {"another"}


@pytest.mark.slow
def test_a_run_over_another_topology_file_is_not_replaced_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("from topologies.dumbbell import Dumbbell\ntopos = {'mine': Dumbbell}\n")
    asked = ("--topo", str(mine), "--name", "x")
    assert run(tmp_path / "out", *asked) == EXIT_OK
    before = stored(tmp_path)
    mine.write_text(mine.read_text() + "# changed\n")
    assert run(tmp_path / "out", *asked) == EXIT_REQUEST
    assert "mine.py" in capsys.readouterr().err and stored(tmp_path) == before
    assert run(tmp_path / "out", *asked, "--again") == EXIT_OK


@pytest.mark.slow
def test_a_folder_that_is_no_run_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "x/reno/1").mkdir(parents=True)
    (tmp_path / "x/reno/1/notes.txt").write_text("mine")
    assert run(tmp_path, "--name", "x") == EXIT_REQUEST
    assert (tmp_path / "x/reno/1/notes.txt").read_text() == "mine"
    (tmp_path / "x/reno/1/notes.txt").unlink()
    assert run(tmp_path, "--name", "x") == EXIT_OK


@pytest.mark.slow
def test_a_sweep_keeps_and_refuses_as_a_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, out = tmp_path / "some.toml", tmp_path / "out"
    file.write_text(
        'on = "flow"\njobs = 1\ncompute = "20ms"\nbytes = "200kB"\niterations = 2\nsystem = ["reno"]\nalone = "none"\n'
        '[sweep]\nrate = ["50mbit", "100mbit"]\n'
    )
    command = ["sweep", str(file), "--out", str(out), "--quiet"]
    assert main(command) == EXIT_OK
    before = stored(out)
    assert len(before) == 2
    assert main(command) == EXIT_OK and stored(out) == before
    assert main([*command, "--seeds", "2"]) == EXIT_OK and stored(out).items() > before.items()
    assert {tuple(map(tuple, seeds(path))) for path in out.iterdir()} == {((1, 2),)}
    before = stored(out)
    assert main([*command, "--iterations", "3"]) == EXIT_OK  # another experiment
    assert stored(out).items() > before.items() and len(stored(out)) == len(before) + 2
    before = stored(out)
    monkeypatch.setattr(provenance, "source_sha256", lambda: "another")
    assert main(command) == EXIT_REQUEST and stored(out) == before
    assert main([*command, "--again", "--iterations", "3"]) == EXIT_OK
    assert len({*stored(out).items()} - {*before.items()}) == 2


# One process at a time

HOLD = """
import sys
from pathlib import Path
from testbed.core import folders, locks
with locks.held(Path(sys.argv[1])) as held:
    held.take(sys.argv[2])
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(out: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has locked an experiment's folder."""
    command = [sys.executable, "-c", HOLD, str(out), name]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_in_use_is_refused_with_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with holder(tmp_path, "x") as process:
        assert run(tmp_path, "--name", "x") == EXIT_MACHINE
        assert str(process.pid) in capsys.readouterr().err and not stored(tmp_path)
        assert run(tmp_path, "--name", "y") == EXIT_OK  # another folder is free
    assert run(tmp_path, "--name", "x") == EXIT_OK  # a killed process holds nothing
    assert not list(tmp_path.glob(f"{locks.FILE}*"))


@pytest.mark.slow
def test_a_lock_excludes_other_commands_of_the_same_process(tmp_path: Path) -> None:
    with locks.held(tmp_path / "out") as first, locks.held(tmp_path / "out") as second:
        first.take("x")
        second.take("y")
        with pytest.raises(locks.InUseError, match=str(os.getpid())):
            second.take("x")
        second.release()
        with pytest.raises(locks.InUseError):
            second.take("x")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_no_other_user_can_open_the_lock(tmp_path: Path) -> None:
    with locks.held(tmp_path) as held:
        held.take("x")
        (file,) = tmp_path.glob(f"{locks.FILE}*")
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    with locks.held(tmp_path) as held:
        held.take("x")
        (file,) = tmp_path.glob(f"{locks.FILE}*")
    file.symlink_to(tmp_path / "victim")
    with locks.held(tmp_path) as held, pytest.raises(MachineError):
        held.take("x")
    assert (tmp_path / "victim").read_text() == "untouched"


# Random commands, killed at random moments


FILE = """
on = "flow"
jobs = 1
compute = "20ms"
bytes = "200kB"
iterations = 2
system = ["reno"]
alone = "none"
"""
RATES, SEEDS = ("500mbit", "50mbit"), (1, 2, 3)
FINISHED = (EXIT_OK, EXIT_INVALID)


@dataclass(frozen=True)
class Command:
    """A command, and how it is ended (None: not)."""

    kind: str  # run or sweep
    rate: str
    seed: int
    seeds: int
    again: bool
    ended: tuple[signal.Signals, float] | None

    @classmethod
    def drawn(cls, draw: random.Random) -> Command:
        how = draw.choice([None, signal.SIGKILL, signal.SIGINT])
        return cls(
            draw.choice(["run", "sweep"]), draw.choice(RATES), draw.choice(SEEDS), draw.choice([1, 2]), draw.random() < 0.2,
            None if how is None else (how, draw.uniform(0.1, 5)),
        )  # fmt: skip

    @property
    def wanted(self) -> set[int]:
        return set(range(self.seed, self.seed + self.seeds))

    def words(self, file: Path, out: Path) -> list[str]:
        seed = ["--seed", str(self.seed)] if self.kind == "run" else ["--set", f"seed={self.seed}"]
        rate = ["--set", f"rate={self.rate}"] if self.rate != RATES[0] else []
        again = ["--again"] if self.again else []
        return [self.kind, str(file), *seed, "--seeds", str(self.seeds), *rate, *again, "--quiet", "--out", str(out)]


@dataclass
class Oracle:
    """What must be on disk, known without looking at how the testbed decides."""

    first: str | None = None  # the rate that has the experiment's own folder
    there: dict[str, set[int]] = field(default_factory=lambda: {rate: set() for rate in RATES})
    summed_up: dict[str, set[int]] = field(default_factory=dict)

    def folder(self, rate: str) -> str:
        return "mine" if rate in (self.first, None) or self.first is None else f"mine-rate-{rate}"

    def heard(self, command: Command, code: int, out: Path) -> None:
        """What a command left, which may be a part of what it was for if it was ended."""
        found = {rate: set[int]() for rate in RATES}
        for path in out.rglob("manifest.json"):
            one = load_run(path.parent)
            check(one)
            found[Rate(one.rate_bps).exact].add(one.seed)
        for rate in RATES:  # nothing is lost, nothing else is made
            new = found[rate] - self.there[rate]
            assert found[rate] >= self.there[rate]
            assert new <= (command.wanted if rate == command.rate else set())
        if command.ended is None:
            assert code in FINISHED
        if code in FINISHED:
            assert found[command.rate] >= command.wanted
            self.summed_up[command.rate] = set(found[command.rate])
        if self.first is None and found[command.rate]:
            self.first = command.rate
        self.there = found
        for rate in RATES:
            for seed in found[rate]:
                assert (out / self.folder(rate) / "reno" / str(seed) / "manifest.json").exists()
            summary = out / self.folder(rate) / "summary.json"
            if summary.exists():
                (told,) = (set(result.seeds) for result in load_summary(summary.parent).results)
                assert told <= found[rate]
                if code in FINISHED and rate == command.rate:
                    assert told == self.summed_up[rate]


@pytest.mark.slow
@pytest.mark.parametrize("round_", rounds(usual=2))
def test_random_commands_killed_at_random_lose_nothing(round_: int, tmp_path: Path) -> None:
    """Three commands in a row; the last, not killed, ends with the bytes of runs that nothing interrupted."""
    draw = random.Random(f"kept {round_}")
    file, out, oracle = tmp_path / "mine.toml", tmp_path / "out", Oracle()
    file.write_text(FILE)
    commands = [Command.drawn(draw) for _ in range(3)]
    last = commands[0]
    commands.append(Command(last.kind, last.rate, last.seed, last.seeds, again=False, ended=None))
    for command in commands:
        process = subprocess.Popen(
            [*INTERRUPTIBLE, sys.executable, "-m", "testbed", *command.words(file, out)], cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if command.ended is not None:
            time.sleep(command.ended[1])
            process.send_signal(command.ended[0])
        code = process.wait()
        processes.until(lambda: not list(out.rglob(".*partial*")), lambda: list(out.rglob(".*partial*")))
        oracle.heard(command, code, out)
    assert not list(out.glob(f"{locks.FILE}*"))
    for rate in RATES:
        scenario, _ = plan.planned(spec.read(str(file), {"rate": rate}))
        for seed in oracle.there[rate]:
            _, (alike,) = plan.plan_seed(scenario, seed)
            manifest = load_run(out / oracle.folder(rate) / alike.folder).manifest
            assert manifest.plan.seed == seed and manifest.asked == names.asked(scenario.spec, "flow")
    digests = {seed: load_run(path).manifest.digest for path, seed in _of(out / oracle.folder(last.rate))}
    whole = tmp_path / "whole"
    assert main(commands[-1].words(file, whole)) in FINISHED
    for path, seed in _of(whole / "mine"):
        assert load_run(path).manifest.digest == digests[seed]


def _of(folder: Path) -> list[tuple[Path, int]]:
    return [(path.parent, int(path.parent.name)) for path in folder.glob("reno/*/manifest.json")]


@pytest.mark.slow
def test_a_summary_is_not_of_runs_that_were_replaced(tmp_path: Path) -> None:
    """Killed after a replaced run was stored, a command leaves no summary of the run that is gone."""
    assert run(tmp_path, "--name", "x", "--seeds", "2") == EXIT_OK
    rundir.forget(tmp_path / "x", tmp_path)
    assert not (tmp_path / "x/summary.json").exists() and not list((tmp_path / "x/figures").iterdir())
    assert run(tmp_path, "--name", "x") == EXIT_OK
    assert json.loads((tmp_path / "x/summary.json").read_text())["results"][0]["seeds"] == [1, 2]


@pytest.mark.slow
def test_a_file_is_put_in_the_place_of_another_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.html"
    folders.put(file, b"old")

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        folders.put(file, b"new")
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_two_experiments_of_one_sweep_cannot_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(f'{FILE}name = "x"\n')
    files = [str(tmp_path / f"{name}.toml") for name in ("a", "b")]
    assert main(["sweep", *files, "--out", str(tmp_path / "out")]) == EXIT_REQUEST
    assert str(tmp_path / "out" / "x") in capsys.readouterr().err and not (tmp_path / "out").exists()
