"""Which backend runs experiments that would go to a real clock: by what it was measured to carry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import backends
from testbed.backends import ssh
from testbed.backends.progress import Patience
from testbed.backends.usermode import kernel
from testbed.campaign import proposal
from testbed.campaign.executors import reach
from testbed.campaign.executors.reach import Need, Reach, UserModeKernels
from testbed.campaign.tasks import Completed, Failed, Outcome, Task
from testbed.cli import main
from testbed.core.errors import EXIT_MACHINE, EXIT_OK, EXIT_REQUEST, MachineError, TestbedError
from testbed.core.runs import documents, rundir
from testbed.core.runs.events import Event
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.manifest import Told
from testbed.core.runs.plan import Clock, Plan
from testbed.core.runs.verdict import Row, Verdict, Word
from testbed.linux.sampling import disturbances
from testbed.spec import limits
from tests.support.manifests import manifest

ROOT = Path(__file__).parents[3]
FAST = str(Path(__file__).parents[2] / "data" / "agreement_fast.toml")
INTERLEAVING, AGREEMENT, LOSSY = (
    str(ROOT / "experiments" / f"{name}.toml") for name in ("interleaving", "agreement", "lossy")
)
BOTH = UserModeKernels()
CALM = pd.DataFrame({"waited_s": [0.001]})


class Fake:
    """A backend that carries so much, as a run on it reports."""

    def __init__(self, capacity_bps: float | None) -> None:
        self.name, self.limits = "vagrant", limits.LINUX
        self.clock: Clock = "real"
        self.capacity_bps = capacity_bps
        self.ran: list[Plan] = []
        self.error: TestbedError | None = None

    def check(self, plan: Plan) -> None:
        """It takes every plan."""

    def identity(self) -> None:
        """No kernel of ours."""

    def fails(self, error: TestbedError) -> Fake:
        self.error = error
        return self

    def run(self, plan: Plan, on_event: Callable[[Event], None], patience: Patience) -> bytes:
        self.ran.append(plan)
        if self.error is not None:
            raise self.error
        made = manifest(plan, measured={"capacity_bps": self.capacity_bps})
        told = msgspec.convert(
            {name: getattr(made, name) for name in Told.__struct_fields__}, Told, from_attributes=True
        )
        files = {"manifest.json": documents.encode(told), disturbances.TABLE: b"waited_s\n0.001\n"}
        return rundir.pack(files)


def test_the_unshaped_path_is_measured_once_for_each_size_of_frames() -> None:
    backend = Fake(3e9)
    found = reach.measure(backend, [9000, 1500, 1500])
    assert found.bps == {1500: 3e9, 9000: 3e9} and [plan.link.mtu for plan in backend.ran] == [1500, 9000]
    assert all(plan.measure_capacity and plan.iterations == 1 for plan in backend.ran)
    assert list(found.disturbances["waited_s"]) == [0.001, 0.001]
    with pytest.raises(MachineError, match="vagrant"):
        reach.measure(Fake(None), [1500])


def test_a_backend_that_cannot_even_be_measured_carries_nothing(
    vm: Callable[..., Fake], capsys: pytest.CaptureFixture[str]
) -> None:
    backend = vm(2e9).fails(TestbedError("not every worker answered within 90 s"))
    assert main(["sweep", INTERLEAVING, "--on", "vagrant", "--measure", "backend"]) == EXIT_OK
    shown = capsys.readouterr()
    assert shown.out == "uml\n" and "not every worker answered" in " ".join(shown.err.split())
    assert main(["sweep", AGREEMENT, "--on", "vagrant", "--measure", "flags"]) == EXIT_MACHINE
    backend.fails(MachineError("no module loaded"))  # which is not a matter of speed
    assert main(["sweep", INTERLEAVING, "--on", "vagrant", "--measure", "backend"]) == EXIT_MACHINE


@given(
    carried=st.floats(1e6, 1e12),
    needed=st.lists(st.tuples(st.sampled_from("abc"), st.integers(10**6, 10**11)), min_size=1, max_size=6),
    in_vm=st.booleans(),
    here=st.booleans(),
    possible_here=st.booleans(),
    measured=st.sampled_from(["vagrant", "host"]),
)
def test_the_decision(
    carried: float, needed: list[tuple[str, int]], in_vm: bool, here: bool, possible_here: bool, measured: str
) -> None:
    """There, if it carries three times what each needs; else in virtual time, in the VM if that is built there."""
    decision = reach.decide(
        measured, Reach({1500: carried}, CALM, "Linux"), [Need(name, 1500, bps) for name, bps in needed],
        UserModeKernels(in_vm, here, possible_here),
    )  # fmt: skip
    too_much = {(name, bps) for name, bps in needed if 3 * bps > carried}
    assert {(need.experiment, need.bps) for need in decision.beyond} == too_much
    there = measured == "vagrant" and (in_vm or not (here or possible_here))
    assert decision.backend == (measured if not too_much else "vagrant-uml" if there else "uml")
    assert decision.to_build == (bool(too_much) and not (in_vm if there else here))
    assert str(decision).count(". ") == 0 and not decision.only_virtual


def test_each_size_of_frames_has_its_capacity() -> None:
    found = Reach({1500: 2e7, 9000: 9e7}, CALM, "Linux")
    fits, not_fits = Need("a", 9000, 3 * 10**7), Need("b", 1500, 10**7)
    assert reach.decide("vagrant", found, [fits], BOTH).backend == "vagrant"
    assert reach.decide("vagrant", found, [fits, not_fits], BOTH).beyond == (not_fits,)


def test_what_cannot_run_against_a_real_clock_is_not_asked_of_one() -> None:
    decision = reach.decide("vagrant", Reach({}, CALM, ""), [], BOTH)
    assert (decision.backend, decision.only_virtual) == ("uml", True)


@pytest.fixture
def vm(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fake]:
    """A VM that carries so much, whose user-mode kernel is there or not, in front of a machine that can build one or not."""

    def make(capacity_bps: float, *, built_there: bool = False, possible_here: bool = True) -> Fake:
        backend = Fake(capacity_bps)
        monkeypatch.setattr(backends, "find", lambda place, plans: backend)
        monkeypatch.setattr(ssh, "has_user_mode_kernel", lambda place: built_there)
        if not possible_here:
            monkeypatch.setattr(kernel, "check_possible", lambda: (_ for _ in ()).throw(MachineError("no")))
            monkeypatch.setattr(kernel, "is_built", lambda: False)
        return backend

    return make


@pytest.mark.parametrize(
    ("capacity_bps", "circumstances", "backend"),
    [
        (2e9, {}, "vagrant"),
        (2e7, {}, "uml"),
        (2e7, {"built_there": True}, "vagrant-uml"),
        (2e7, {"possible_here": False}, "vagrant-uml"),
        (2e9, {"built_there": True}, "vagrant"),
    ],
)
def test_the_command_prints_the_backend_alone(
    capacity_bps: float, circumstances: dict[str, bool], backend: str, vm: Callable[..., Fake],
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    vm(capacity_bps, **circumstances)
    asked = ["sweep", INTERLEAVING, AGREEMENT, LOSSY, "--quick", "--on", "vagrant", "--measure", "backend"]
    assert main([*asked, "--out", str(tmp_path / "out")]) == EXIT_OK
    assert capsys.readouterr().out == f"{backend}\n" and not (tmp_path / "out").exists()


def test_experiments_for_virtual_time_alone_need_no_measurement(
    vm: Callable[..., Fake], capsys: pytest.CaptureFixture[str]
) -> None:
    backend = vm(2e9)
    assert main(["sweep", LOSSY, "--on", "vagrant", "--measure", "backend"]) == EXIT_OK
    assert capsys.readouterr().out == "uml\n" and backend.ran == []


@pytest.mark.parametrize("on", [[], ["--on", "uml"], ["--on", "flow"]])
def test_only_a_real_clock_is_measured(on: list[str], vm: Callable[..., Fake]) -> None:
    vm(2e9)
    assert main(["sweep", INTERLEAVING, *on, "--measure", "backend"]) == EXIT_REQUEST


@pytest.mark.parametrize("what", [[INTERLEAVING, AGREEMENT], [LOSSY]])
def test_flags_are_for_one_experiment_that_runs_there(what: list[str], vm: Callable[..., Fake]) -> None:
    vm(2e7)
    assert main(["sweep", *what, "--on", "vagrant", "--measure", "flags"]) == EXIT_REQUEST


def came_out(what: str) -> Outcome:
    """A run that failed, has this verdict, or is invalid by this invariant."""
    if what == "failed":
        return Failed(TestbedError("a worker is late"))
    word: Word = "valid" if what == "valid" else "suspect" if what == "suspect" else "invalid"
    rows = (Row(what, what, 1.0, {}, "invalid", ""),) if word == "invalid" else ()
    return Completed({"verdict.json": documents.encode(Verdict(VERSION, word, rows))}, word, None)


def flags(words: str) -> dict[str, str]:
    split = words.split()
    return dict(zip(split[::2], split[1::2], strict=True))


@pytest.mark.parametrize(
    ("outcomes", "rate", "size"),
    [
        (["suspect"], "50mbit", "2800kB"),
        (["I4", "valid"], "20mbit", "1120kB"),
        (["I4", "failed", "valid"], "10mbit", "560kB"),
        (["I21", "valid"], "50mbit", "2800kB"),  # the machine had a bad moment
        (["I21", "I21", "I4", "I21", "I4", "suspect"], "5mbit", "280kB"),
    ],
)
def test_agreement_gets_a_rate_that_a_short_run_confirms(
    outcomes: list[str], rate: str, size: str, vm: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A quarter of what is carried, and half of it as often as that is invalid; bytes go with the rate."""
    vm(2e8)
    left, tried = list(outcomes), list[Plan]()

    def carry_out(task: Task, _backend: Any) -> Outcome:
        tried.append(task.plan)
        return came_out(left.pop(0))

    monkeypatch.setattr(proposal, "carry_out", carry_out)
    assert main(["sweep", FAST, "--on", "vagrant", "--measure", "flags"]) == EXIT_OK
    given = flags(capsys.readouterr().out)
    assert (given["--rate"], given["--bytes"]) == (rate, size) and not left
    assert all(plan.iterations == proposal.TRIAL_ITERATIONS and plan.system.label == "mltcp_reno" for plan in tried)


@pytest.mark.parametrize(("outcome", "trials"), [("I4", 4), ("failed", 4), ("I21", 8)])
def test_a_rate_that_none_holds_is_an_error(
    outcome: str, trials: int, vm: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates so low that 100 ms hold too few frames to judge them are not tried."""
    vm(2e8)
    tried: list[int] = []

    def carry_out(task: Task, _backend: Any) -> Outcome:
        tried.append(task.plan.link.rate_bps)
        return came_out(outcome)

    monkeypatch.setattr(proposal, "carry_out", carry_out)
    assert main(["sweep", FAST, "--on", "vagrant", "--measure", "flags"]) == EXIT_MACHINE
    assert sorted(set(tried)) == [5 * 10**6, 10**7, 2 * 10**7, 5 * 10**7] and len(tried) == trials


def test_what_carries_less_than_can_be_judged_is_not_tried(vm: Callable[..., Fake]) -> None:
    backend = vm(1e7)
    assert main(["sweep", FAST, "--on", "vagrant", "--measure", "flags"]) == EXIT_MACHINE
    assert len(backend.ran) == 1  # which measures


def test_a_machine_that_cannot_run_it_at_any_rate_says_so(
    vm: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vm(2e7)
    monkeypatch.setattr(proposal, "carry_out", lambda _task, _backend: Failed(MachineError("no module loaded")))
    assert main(["sweep", FAST, "--on", "vagrant", "--measure", "flags"]) == EXIT_MACHINE
    assert "no module loaded" in capsys.readouterr().err


def test_what_fits_needs_no_flags(vm: Callable[..., Fake], capsys: pytest.CaptureFixture[str]) -> None:
    backend = vm(4e9)
    assert main(["sweep", FAST, "--on", "vagrant", "--measure", "flags"]) == EXIT_OK
    assert capsys.readouterr().out == "\n" and len(backend.ran) == 1
