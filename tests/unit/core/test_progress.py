"""When a run is given up, and when it is not: recorded consoles, and a clock of our own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed import spec
from testbed.backends import progress, uml
from testbed.backends.progress import Patience, Watch
from testbed.core.errors import TestbedError
from testbed.core.runs import events
from testbed.core.runs.plan import Plan
from testbed.planning import plan
from testbed.replay import computing

PATIENCE = Patience(idle_s=300, still_s=60, set_up_s=90, computing_s=1800)


class Clock:
    """Wall time, which passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def phase(text: str = "jobs") -> events.Phase:
    return events.Phase(text)


def tick(bps: float = 1e8) -> events.Shares:
    return events.Shares({0: {"s1-s2": bps, "s2-s1": 0}, 1: {}})


def iteration(number: int) -> events.Iteration:
    return events.Iteration(1, 0, number, 0.0, 1.0)


class Run:
    """A run that says what a test has it say; ``wait`` lets wall time pass, looked at every second or so."""

    def __init__(self, patience: Patience = PATIENCE, *, virtual: bool = True) -> None:
        self.clock = Clock()
        self.heard: list[events.Event] = []
        self.cores = 1.0  # that it has
        self.used_s = 0.0
        self.watch = Watch(patience, self.heard.append, virtual=virtual, clock=self.clock, used_s=lambda: self.used_s)

    def say(self, *events: events.Event) -> Run:
        for event in events:
            self.watch(event)
        return self

    def wait(self, seconds: float) -> Run:
        for _ in range(round(seconds * 2)):
            self.clock.now += 0.5
            self.used_s += 0.5 * self.cores
            self.watch.check_progress()
        return self


def test_a_run_that_spins_is_ended() -> None:
    run = Run().say(phase(), tick(), iteration(3)).wait(59)
    with pytest.raises(TestbedError, match=r"60 s of wall time.*iteration 3 of job 1"):
        run.wait(2)


def test_setting_up_takes_longer_on_a_busy_machine() -> None:
    run = Run().say(phase("network")).wait(85)
    with pytest.raises(TestbedError, match=r"did not advance for 90 s .*\(it was at: network\)"):
        run.wait(6)


def test_who_waits_for_a_core_does_not_spin() -> None:
    run = Run().say(phase(), tick())
    run.cores = 0.1
    run.wait(500)
    with pytest.raises(TestbedError, match="did not advance for 60 s"):
        run.wait(150)
    run = Run().say(phase(), tick())
    run.cores = 0.0
    run.wait(1795)
    with pytest.raises(TestbedError, match="did not advance"):  # nor does who does nothing at all get on
        run.wait(10)


def test_a_slow_run_goes_on() -> None:
    """Half a second of virtual time in fifty of wall time, for hours."""
    run = Run().say(phase())
    for _ in range(200):
        run.wait(50).say(tick())
    assert len(run.heard) == 201


def test_long_computing_of_a_job_is_no_standstill() -> None:
    """Under virtual time that takes no wall time; nothing is acknowledged meanwhile."""
    run = Run(Patience(idle_s=10_000)).say(phase())
    run.say(*[tick(0)] * 19_000).wait(1)
    with pytest.raises(TestbedError, match=r"acknowledged .*10000 s of virtual time"):
        run.say(*[tick(0)] * 1_100).wait(1)


@pytest.mark.parametrize("sign", [tick(1.0), iteration(8), phase("network")])
def test_bytes_iterations_and_phases_are_progress(sign: events.Event) -> None:
    run = Run().say(phase())
    for _ in range(10):
        run.say(*[tick(0)] * 590, sign).wait(1)
    with pytest.raises(TestbedError, match=r"for 300 s of virtual time .*\[\[event\]\].*--loss"):
        run.say(*[tick(0)] * 601).wait(1)


def test_what_a_run_is_given_travels_to_other_machines() -> None:
    given = Patience(wanted=((0, 100), (1, 2)))
    assert msgspec.convert(json.loads(msgspec.json.encode(given)), Patience) == given


def test_a_job_that_stands_still_while_others_go_on_ends_the_run() -> None:
    """It waits for bytes that have come, say; a job that has all its iterations goes on for the others' sake alone."""
    patience = Patience(idle_s=300, tick_s=0.5, wanted=((0, 100), (1, 2)))
    run = Run(patience).say(iteration(0))
    for _ in range(590):
        run.say(tick())
    run.wait(1)
    with pytest.raises(TestbedError, match=r"job 1 .*300 s of virtual time.*other jobs"):
        run.say(*[tick()] * 20).wait(1)
    run = Run(patience).say(iteration(0), iteration(1), *[tick()] * 2000)
    run.wait(1)


def test_who_announces_computing_has_half_an_hour() -> None:
    run = Run().say(phase(), tick(), events.Computing("job 0", True)).wait(1799)
    run.say(events.Computing("job 0", False)).wait(59)
    with pytest.raises(TestbedError, match="did not advance for 60 s"):
        run.wait(2)
    run = Run().say(phase(), events.Computing("job 0", True))
    with pytest.raises(TestbedError, match=r"1800 s .*job 0 .*computation"):
        run.wait(1801)
    assert [type(event) for event in run.heard] == [events.Phase]


def test_a_given_wall_limit_is_absolute() -> None:
    run = Run(Patience(wall_s=100)).say(phase())
    with pytest.raises(TestbedError, match=r"100 s \(--wall-limit\)"):
        for number in range(30):
            run.say(tick(), iteration(number)).wait(5)
    assert run.clock.now == pytest.approx(1100, abs=1)


def test_results_that_arrive_are_progress() -> None:
    run = Run().say(phase(), tick(), events.Results(1 << 30, ""))
    for _ in range(10):
        run.watch.data()
        run.wait(50)
    with pytest.raises(TestbedError, match="did not advance"):
        run.wait(70)


def test_words_of_who_spins_are_no_progress() -> None:
    run = Run().say(phase())
    with pytest.raises(TestbedError, match="did not advance"):
        for _ in range(200):
            run.watch.data()
            run.wait(1)


def test_while_this_process_is_stopped_no_time_passes() -> None:
    """All are stopped and go on (Ctrl-Z, a virtual machine that pauses): the run had no more time than we had."""
    run = Run().say(phase(), tick())
    run.clock.now += 3600
    run.wait(50)


def test_on_a_real_clock_only_progress_counts() -> None:
    run = Run(virtual=False).say(phase("network")).wait(250).say(tick(0)).wait(40)
    with pytest.raises(TestbedError, match=r"acknowledged .*300 s of time .*program"):
        run.say(tick(0)).wait(15)
    run = Run(virtual=False)
    for _ in range(10):
        run.say(tick()).wait(299)


def made(**fields: Any) -> Plan:
    usual = {} if "trace" in fields else {"compute": "500ms", "bytes": "28MB"}
    return plan.plans(plan.resolve(spec.read(None, {**usual, **fields})))[0]


def test_what_a_plan_is_given() -> None:
    usual = progress.patience(made())
    assert (usual.idle_s, usual.wall_s, usual.computing_s, usual.tick_s) == (pytest.approx(300, abs=1), None, 1800, 0.5)
    assert 60 <= usual.still_s < 65 and usual.set_up_s == usual.still_s + 4 * 3
    assert progress.patience(made(compute="10s")).idle_s == pytest.approx(1000, abs=2)
    later = made(
        event=[{"at": "600s", "link": "s1-s2", "state": "down"}, {"at": "900s", "link": "s1-s2", "state": "up"}]
    )
    assert progress.patience(later).idle_s == 1200
    assert progress.patience(made(), 7.0).wall_s == 7
    assert progress.patience(made(sample_interval="300ms")).tick_s == 0.6
    fast = made(rate="50gbit", mtu=9000, bytes="2GB", buffer="2MB")
    assert 70 < progress.patience(fast).still_s < 90  # half a second of it: 350 000 packets
    slow = made(rate="1gbit", mtu=1500, system=["ltp"])  # who makes datagrams itself has more to do for each: 42 000
    assert 75 < progress.patience(slow).still_s < 90 > 65 > progress.patience(made(rate="1gbit", mtu=1500)).still_s


def test_many_small_messages_take_their_time() -> None:
    """A ring of 32 whose layers go together was given up after 93 s, in which it had no more than begun an iteration."""
    asked: dict[str, Any] = {
        "topo": "leafspine,16,2,2", "jobs": 1, "workers": 32, "collective": "ring", "trace": "t5-layers", "keep_duty": True, "mtu": 1500, "rto_min": "5ms",
    }  # fmt: skip
    whole, windowed = (
        progress.patience(made(**asked)),
        progress.patience(made(**asked, credit_bytes="320kB", partition_bytes="80kB")),
    )
    assert whole.still_s < 120 and 500 < windowed.still_s < 1800


def test_many_rows_take_memory() -> None:
    """That ring of 32, told message by message, was killed for want of it."""
    asked: dict[str, Any] = {
        "topo": "leafspine,16,2,2", "jobs": 1, "workers": 32, "collective": "ring", "trace": "t5-layers", "mtu": 1500, "iterations": 2,
        "credit_bytes": "320kB", "partition_bytes": "80kB",
    }  # fmt: skip
    by_tcp, rounds, each = (
        uml._memory_mb(made(**asked, **more))
        for more in (
            {"message_log": "per-message"},
            {"system": ("mlt",)},
            {"system": ("mlt",), "message_log": "per-message"},
        )
    )
    assert by_tcp == rounds and each > rounds + 500


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Something that runs, as long as a test."""
    with subprocess.Popen(["sleep", "600"]) as running:
        yield running
        running.kill()


def test_a_console_is_followed_until_the_kernel_is_given_up(
    process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says goes on to the observer; its own words do not; and then it is silent."""
    lines = [msgspec.json.encode(event) for event in (phase("network"), phase("jobs"), tick(), iteration(0))]
    (tmp_path / "console").write_bytes(b"\n".join([b"printk: words", *lines, b""]))
    clock, heard = Clock(), list[events.Event]()

    def sleep(seconds: float) -> None:
        clock.now += 0.25

    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(TestbedError, match=r"virtual clock .*60 s .*iteration 0 of job 1"):
        uml._follow(process, tmp_path, Watch(PATIENCE, heard.append, virtual=True, clock=clock))
    assert [type(event) for event in heard] == [events.Phase, events.Phase, events.Shares, events.Iteration]
    assert clock.now == pytest.approx(1060, abs=1)


def test_computing_is_announced_in_a_line_of_its_own(tmp_path: Path) -> None:
    console = tmp_path / "console"
    console.touch()
    with pytest.raises(ZeroDivisionError), computing.announced("job 0, worker 1", str(console)):
        assert json.loads(console.read_text()) == {"event": "computing", "who": "job 0, worker 1", "begins": True}
        _ = 1 / 0
    assert json.loads(console.read_text().splitlines()[-1])["begins"] is False
