"""What a run does to a kernel, as data: which steps, in which order, and what a kernel that differs is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed import backends, spec
from testbed.cli import main
from testbed.core.errors import EXIT_MACHINE, EXIT_OK, MachineError, RequestError, TestbedError
from testbed.core.runs.plan import Burst, EcnThreshold, Link, Plan
from testbed.linux import features, settings, setup_steps
from testbed.linux.fake_kernel import Recording
from testbed.linux.features import Features
from testbed.linux.queues import tree, turns
from testbed.linux.queues.classify import Dscp, PureAcks
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.netem import Netem
from testbed.linux.queues.prio import Htb, Prio
from testbed.linux.queues.rates import ticks
from testbed.linux.queues.red import Red
from testbed.linux.queues.setting import Nic, Queues
from testbed.linux.queues.tbf import Tbf
from testbed.linux.rtnetlink import Tc
from testbed.linux.settings import behind, packet_spraying
from testbed.planning.plan import plans, resolve
from testbed.transports import ltp

ROOT = Path(__file__).parents[3]

REAL, VIRTUAL = Features(), features.user_mode()


def planned(**fields: Any) -> Plan:
    return plans(resolve(spec.read(None, {"jobs": 1, **fields})))[0]


def recorded(plan: Plan, can: Features) -> Recording:
    """A kernel after all steps."""
    kinds = {cc.spec: step.change.asked["kind"] for cc in plan.ccs for step in setup_steps.changes(plan, can)
             if isinstance(step.change, settings.Setting) and step.change.what == f"congestion control {cc.spec}"}  # fmt: skip
    kernel = Recording(kinds)
    for stage in setup_steps.STAGES:
        settings.apply_all(setup_steps.settings(setup_steps.changes(plan, can), stage), kernel)
    return kernel


def test_planning_what_to_change_touches_no_kernel() -> None:
    program = (
        "import sys, testbed.linux.setup_steps, testbed.linux.fake_kernel\n"
        "print([name for name in ('pyroute2', 'mininet.node', 'mininet.net', 'elftools') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("can", [REAL, VIRTUAL])
def test_the_stages_come_in_their_order(can: Features) -> None:
    made = planned(ecn="20kB", ack_priority="on", delay="1ms", cc=["mltcp_dctcp"])
    steps = setup_steps.changes(made, can)
    stages = [stage for stage, _ in groupby(steps, key=lambda step: step.stage)]
    assert stages == [
        stage for stage in setup_steps.STAGES if stage != "capacity" or (can is REAL and made.measure_capacity)
    ]
    assert steps == setup_steps.changes(made, can)


def test_a_dumbbell_step_by_step() -> None:
    steps = setup_steps.changes(planned(cc=["mltcp_reno:slope=2"], nic="inf", ecn="off", preset="paper"), VIRTUAL)
    wired, steps = steps[:4], steps[4:]
    first = [step.change for step in wired if isinstance(step.change, settings.Setting)]
    assert [(change.where, change.what) for change in first] == [
        (node, settings.ADDRESSES) for node in ("l1", "r1", "s1", "s2")
    ]
    sysctls = ["ip_forward", "tcp_slow_start_after_idle", "tcp_no_metrics_save", "tcp_timestamps", "tcp_sack", "tcp_ecn",
               "tcp_rmem", "tcp_wmem"]  # fmt: skip
    settled = [step.change for step in steps if isinstance(step.change, settings.Setting)]
    nodes = [(change.where, change.what) for change in settled if change.what.startswith("net.")]
    assert nodes[:32] == [(node, f"net.ipv4.{key}") for node in ("l1", "r1", "s1", "s2") for key in sysctls]
    devices = ["l1-eth0", "s1-eth1", "r1-eth0", "s2-eth1", "s1-eth0", "s2-eth0"]
    rest = [
        (step.change.where, step.change.what)
        for step in steps[32:]
        if not isinstance(step.change, setup_steps.Capacity)
    ]
    assert sorted(rest[:12]) == sorted((device, what) for device in devices for what in ("mtu, up", "offloads"))
    assert [what for _, what in rest[:4]] == ["mtu, up", "offloads"] * 2
    assert rest[12:15] == [
        ("s1-eth0", "shaper"),
        ("s2-eth0", "shaper"),
        ("kernel", "congestion control mltcp_reno:slope=2"),
    ]
    assert {where for where, _ in rest[15:]} == {"l1", "r1"}
    assert all(what.startswith("net.mltcp_reno.") for _, what in rest[15:])


def test_a_kernel_is_told_in_that_order_and_holds_it() -> None:
    kernel = recorded(planned(ecn="20kB", ack_priority="on", delay="1ms", cc=["mltcp_reno"], preset="paper"), VIRTUAL)
    assert [what for what, _ in groupby(kernel.calls, key=lambda call: call[0])][:4] == [
        "addressing", "sysctl", "link", "offloads",
    ]  # fmt: skip
    assert [(what, kind) for what, where, kind in kernel.calls if where == "s1-eth0" and what in ("qdisc", "filter")] == [
        ("qdisc", "tbf"), ("qdisc", "prio"), ("filter", "u32"), ("qdisc", "bfifo"), ("qdisc", "red"),
    ]  # fmt: skip
    assert [kind for what, where, kind in kernel.calls if where == "s1-eth1" and what == "qdisc"] == ["netem"]
    assert kernel.calls[-1] == ("register", "kernel", "mltcp_reno")


def test_a_kernel_has_one_set_of_parameters_for_all() -> None:
    setup_steps.changes(planned(cc=["cubic:beta=0.5"]), VIRTUAL)
    with pytest.raises(RequestError):
        setup_steps.changes(planned(cc=["cubic:beta=0.5"]), REAL)
    with pytest.raises(RequestError):
        setup_steps.changes(planned(cc=["cubic:beta=0.5+cubic"]), VIRTUAL)


def test_without_red_a_phantom_queue_marks_in_front() -> None:
    made = planned(ecn="20kB", cc=["reno"])
    queues = setup_steps.settings(setup_steps.changes(made, replace(REAL, red=False)), "queues")
    of = [setting for setting in queues if setting.where == "s1-eth0"]
    assert [setting.what for setting in of] == ["phantom queue", "shaper"]
    assert isinstance(of[1], Queues) and isinstance(of[1].root, Tbf) and setup_steps.counters(of[1].root) == []
    recorded(made, replace(REAL, red=False))


def marked(bands: int, *, acks_first: bool) -> Link:
    return Link(500_000_000, 62_500, 1500, acks_first, EcnThreshold(20_000, 40_000, 0.1), bands)


@pytest.mark.parametrize(
    ("acks_first", "bands", "parents"),
    [
        (False, 1, [0x10001]), (True, 1, [0x100002]),
        (False, 8, [0x100000 + band for band in range(1, 9)]), (True, 8, [0x100000 + band for band in range(2, 10)]),
    ],
)  # fmt: skip
def test_every_band_of_data_marks(acks_first: bool, bands: int, parents: list[int]) -> None:
    root = setup_steps.shaper(marked(bands, acks_first=acks_first), 3028, VIRTUAL)
    assert [counter["parent"] for counter in setup_steps.counters(root)] == parents
    assert parents == [message.parent for message in tree.messages(root) if message.kind == "red"]


def test_bands_drop_sooner_what_is_served_first_and_hosts_drop_nothing() -> None:
    made = planned(topo="star", workers=3, jobs=1, priority_queues="3,drop-non-ect", ecn="30kB", system=["reno"])
    found = {
        setting.link: setting.root
        for setting in setup_steps.settings(setup_steps.changes(made, VIRTUAL), "queues")
        if isinstance(setting, Queues)
    }
    switch, host = found["s1-h1"].below, found["h1-s1"].below  # type: ignore[union-attr]
    assert isinstance(switch, Prio) and isinstance(host, Prio)
    assert switch.classify == host.classify == (PureAcks(), Dscp(4))
    control, *data = switch.bands
    assert isinstance(control, Fifo)
    assert [(band.min_bytes, band.otherwise) for band in data if isinstance(band, Red)] == [
        (10_000, "drop"), (20_000, "drop"), (30_000, "drop"),
    ]  # fmt: skip
    assert all(isinstance(band, Fifo) for band in host.bands) and len(host.bands) == 4
    assert setup_steps.band_parents(found["s1-h1"]) == {3: 0x100001, 2: 0x100002, 1: 0x100003, 0: 0x100004}  # type: ignore[arg-type]
    recorded(made, VIRTUAL)


def test_a_host_with_bands_has_them_before_its_interface_too() -> None:
    made = planned(priority_queues="2", system=["reno"])
    (one,) = {setting.root.below for setting in setup_steps.settings(setup_steps.changes(made, VIRTUAL), "queues") if isinstance(setting, Nic)}  # fmt: skip
    assert isinstance(one, Prio) and all(isinstance(band, Fifo) for band in one.bands) and len(one.bands) == 3


def test_thresholds_may_be_solved_for() -> None:
    """Those of `testbed.models.thresholds`, the highest band first; a port with no room for them is refused."""
    made = planned(priority_queues="4,mlt-thresholds", ecn="20kB", buffer="200kB")
    for link in made.bottlenecks.values():
        starts = [one.min_bytes for one in link.selective]
        assert starts == sorted(starts) and starts[0] < starts[-1] == link.selective[-1].max_bytes
    with pytest.raises(RequestError, match="packets are too few for 4 bands"):
        planned(priority_queues="4,mlt-thresholds", ecn="on", buffer="8kB")


def test_one_band_may_be_below_that_of_control() -> None:
    """As MLT asks for it, which then sends its own control there: it marks as without, and drops nothing by choice."""
    made = planned(priority_queues="1,separate-control", system=["reno"], ecn="on")
    assert all((link.bands, link.control, link.selective) == (1, True, ()) for link in made.bottlenecks.values())
    plain = planned(priority_queues="1", system=["reno"], ecn="on")
    assert [link.ecn_threshold for link in made.bottlenecks.values()] == [
        link.ecn_threshold for link in plain.bottlenecks.values()
    ]
    assert not any(link.control for link in plain.bottlenecks.values())
    assert planned(priority_queues="1,drop-non-ect", system=["reno"], ecn="on").bottlenecks["s1-s2"].selective
    (job,) = planned(system=["mlt:bands=1+apart"], ecn="on", jobs=1).jobs
    assert job.transport == "mlt:bands=1+apart"


@pytest.mark.parametrize(
    "asked",
    ["0", "8", "2,separate-control,drop-non-ect", "drop-non-ect", "4,keep", "4,drop,drop", "", "4 ,drop-non-ect", "²"],
)
def test_no_bands_are_refused(asked: str) -> None:
    with pytest.raises(RequestError, match="priority_queues"):
        planned(priority_queues=asked, system=["reno"])


def test_bands_that_drop_need_a_threshold_and_a_scheduler_has_its_own() -> None:
    with pytest.raises(RequestError, match="--ecn off has none"):
        planned(priority_queues="4,drop-non-ect", ecn="off", system=["reno"])
    with pytest.raises(RequestError, match="sets its own priority queues"):
        planned(priority_queues="4", ecn="off", system=["priority"])


def test_hosts_have_an_address_for_each_path_and_routers_go_by_it() -> None:
    made = msgspec.structs.replace(planned(topo="leafspine,2,4,2", system=["reno"]), paths=4)
    kernel = recorded(made, VIRTUAL)
    assert kernel.addresses("h1", "h1-eth0") == ["10.128.0.1", "10.129.0.1", "10.130.0.1", "10.131.0.1"]
    assert len({kernel.host_routes("l1")[f"10.{128 + path}.0.3"] for path in range(4)}) == 4
    hashed = recorded(msgspec.structs.replace(made, paths=8, paths_hashed=True), VIRTUAL)
    assert len(hashed.addresses("h1", "h1-eth0")) == 8
    assert all(len(set(hashed.host_routes("l1")[f"10.{128 + path}.0.3"])) == 4 for path in range(8))
    assert not any(call[0] in ("address", "route") for call in recorded(planned(topo="leafspine,2,4,2"), VIRTUAL).calls)


def test_routers_take_turns_where_tcp_is_to_be_sprayed() -> None:
    """Of the packets that come from its hosts alone; what the kernel holds otherwise stops the run."""
    made = planned(topo="leafspine,2,4,2", system=["reno:spray=on"], jobs=1, workers=2, scheduler="spread")
    kernel = recorded(made, VIRTUAL)
    assert made.paths == 1 and kernel.turns("l1", "l1-eth4")[3] == "0x00030000/0x00030000 at 4 to way3"
    assert len({tuple(kernel.way("l1", f"way{number}").values()) for number in range(4)}) == 4
    assert [call[1] for call in kernel.calls if call[0] == "turns"] == ["l1-eth4", "l2-eth4"]
    assert not any(call[0] == "turns" for call in recorded(planned(topo="leafspine,2,4,2"), VIRTUAL).calls)
    for fields, words in (
        ({"topo": "dumbbell"}, "only one path"), ({"topo": "leafspine,2,3,2"}, "among 3 paths"),
        ({"topo": "fattree,4", "link": {"a1-e1": {"loss": "1%"}}}, "has a delay or a loss"),
        ({"event": [{"at": "1s", "link": "l1-s1", "state": "down"}]}, "a link that fails"),
    ):  # fmt: skip
        with pytest.raises(RequestError, match=words):
            setup_steps.changes(planned(**{"topo": "leafspine,2,4,2", "system": ["reno:spray=on"], **fields}), VIRTUAL)


def test_filters_that_take_turns_are_read_as_they_were_written() -> None:
    names = {7: "way0", 9: "way1"}
    sent = [one for one in turns.messages(3, list(names)) if one.what == "filter"]
    assert turns.held(sent, names) == turns.asked(3, list(names.values()))
    assert turns.held(sent, {7: "way0"})[1].endswith("to interface 9")
    asked = packet_spraying("l1", ("l1-eth0",), 3, ({"10.0.0.0/30": "10.0.0.9"}, {"10.0.0.0/30": "10.0.0.13"}))
    kernel = Recording()
    settings.apply_all([asked], kernel)
    kernel._turns["l1-eth0"] = kernel._turns["l1-eth0"][:1]
    assert asked.read(kernel) != asked.asked


def test_a_transport_may_want_bands_and_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ltp.Options, "bands", "3,drop", raising=False)
    monkeypatch.setattr(ltp.Options, "sprays", True, raising=False)
    made = planned(topo="leafspine,2,4,2", system=["ltp"])
    assert made.paths == 4 and made.sender.bands == 3
    assert all(len(link.selective) == 3 and link.control for link in made.bottlenecks.values())
    assert planned(topo="leafspine,2,4,2", system=["ltp"], priority_queues="2").sender.bands == 2
    monkeypatch.setattr(ltp.Options, "hashes", 8, raising=False)
    found = [planned(topo=topo, system=["ltp"]) for topo in ("leafspine,2,4,2", "dumbbell")]
    assert [(one.paths, one.paths_hashed) for one in found] == [(8, True), (1, False)]
    with pytest.raises(RequestError, match="Remove --ecn off"):
        planned(system=["ltp"], ecn="off")
    with pytest.raises(RequestError, match="a link that fails"):
        planned(topo="leafspine,2,4,2", system=["ltp"], event=[{"at": "1s", "link": "l1-s1", "state": "down"}])


def test_nine_bands_are_more_than_htb_tells_apart() -> None:
    """The kernel takes a ninth priority for the eighth, without a word: ACKs get a level of their own."""
    root = setup_steps.shaper(marked(8, acks_first=True), 3028, replace(REAL, prio=False, red=False))
    assert isinstance(root.below, Htb) and root.below.classify == (PureAcks(),)
    acks, data = root.below.bands
    assert isinstance(acks, Fifo) and isinstance(data, Htb)
    assert len(data.bands) == 8 and data.classify == (Dscp(8),)
    with pytest.raises(ValueError, match="8 levels"):
        Htb((Fifo(1),) * 9, (), 1)


TREES: list[Tbf | Netem] = [
    Tbf(500_000_000, 3028, Fifo(62_500, made_above=True)),
    Tbf(400_000_000_000, 12_500_000, Red(5_000, 5_000, 1.0, 62_500)),
    Tbf(1_000_000, 3028, Prio((Fifo(10_000), Red(1, 2, 0.5, 20_000, "drop")), (PureAcks(),))),
    Tbf(10**9, 3028, Htb((Fifo(10_000), Fifo(20_000), Fifo(30_000)), (PureAcks(), Dscp(2)), 10**9)),
    Netem(10**6, 10**5, 0.01, 0.001, 10**9, 7),
    Netem(10**6, 10**5, 0.75, 0.001, 10**9, 7, Burst(0.01, 0.1)),
]


@pytest.mark.parametrize("root", TREES)
def test_every_tree_is_read_back_whole(root: Tbf | Netem) -> None:
    setting = Queues("s1", "s1-eth0", "s1-s2", root)
    ((row),) = settings.apply_all([setting], Recording())
    assert row.value == setting.asked and row.where == "s1-eth0"


def _messages() -> Iterator[tuple[Tbf | Netem, int]]:
    for root in TREES:
        yield from ((root, number) for number in range(len(tree.messages(root))))


@pytest.mark.parametrize(("root", "number"), list(_messages()))
def test_whatever_the_kernel_forgets_stops_the_run(root: Tbf | Netem, number: int) -> None:
    """Every qdisc, class and filter of a tree; a token bucket's own FIFO counts as its limit."""
    lost = tree.messages(root)[number]
    kernel = Recording(spoil=lambda message: None if message == lost else message)
    with pytest.raises(TestbedError, match="but the kernel holds"):
        settings.apply_all([Queues("s1", "s1-eth0", "s1-s2", root)], kernel)


def _with(change: Callable[[Any], Any], root: Tbf | Netem) -> Callable[[Tc], Tc]:
    """A kernel that makes another tree's message of each."""
    other = dict(zip(tree.messages(root), tree.messages(change(root)), strict=True))
    return lambda message: other[message]


@pytest.mark.parametrize(
    ("root", "change"),
    [
        (TREES[0], lambda root: replace(root, rate_bps=root.rate_bps + 8)),
        (TREES[0], lambda root: replace(root, burst_bytes=root.burst_bytes + 64)),
        (TREES[0], lambda root: replace(root, below=Fifo(62_501, made_above=True))),
        (TREES[1], lambda root: replace(root, rate_bps=root.rate_bps + 8)),
        (TREES[1], lambda root: replace(root, below=Red(5_000, 5_001, 1.0, 62_500))),
        (TREES[1], lambda root: replace(root, below=Red(5_000, 5_000, 0.999, 62_500))),
        (TREES[1], lambda root: replace(root, below=Red(5_000, 5_000, 1.0, 62_500, "drop"))),
        (TREES[4], lambda root: replace(root, delay_ns=root.delay_ns + 1)),
        (TREES[4], lambda root: replace(root, loss=0.011)),
        (TREES[4], lambda root: replace(root, burst=Burst(0.01, 0.1))),
        (TREES[5], lambda root: replace(root, burst=None)),
        (TREES[5], lambda root: replace(root, burst=Burst(0.01, 0.101))),
        (TREES[5], lambda root: replace(root, loss=0.011)),
        (TREES[4], lambda root: replace(root, seed=8)),
    ],
)
def test_a_kernel_that_rounds_otherwise_stops_the_run(root: Tbf | Netem, change: Callable[[Any], Any]) -> None:
    with pytest.raises(TestbedError, match=r"set to .*kernel holds"):
        settings.apply_all([Queues("s1", "s1-eth0", "s1-s2", root)], Recording(spoil=_with(change, root)))


def test_what_arrives_must_be_led_through_the_device_that_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = behind("s1-eth0", Queues("s1", "ifb-eth0", "h1-s1", TREES[4]))
    ((row),) = settings.apply_all([setting], Recording())
    assert row.value == setting.asked and setting.asked["through"] == "ifb-eth0"
    monkeypatch.setattr(Recording, "led_through", lambda *_: "")
    with pytest.raises(TestbedError, match="but the kernel holds"):
        settings.apply_all([setting], Recording())


def test_what_a_kernel_cannot_tell_is_unknown() -> None:
    """Before Linux 6.6 netem has no seed of its own, and does not show one."""
    netem = TREES[4]
    seedless = netem.options().replace(bytes([12, 0, 14, 0]), bytes([12, 0, 99, 0]))
    ((row),) = settings.apply_all(
        [Queues("s1", "s1-eth0", "s1-s2", netem)], Recording(spoil=lambda message: replace(message, options=seedless))
    )
    assert row.value["seed"] == tree.UNKNOWN
    assert {**row.value, "seed": 7} == tree.expected(netem)


def test_a_bucket_is_a_time() -> None:
    """By a reciprocal of 32 bits; exact at rates that divide a second."""
    assert ticks(3028, 62_500_000) == 3028 * 16 // 64
    assert ticks(1 << 20, 3_750_000_000) == (1 << 20) * 10**9 // 3_750_000_000 // 64
    assert ticks(64, 1) == 10**9


@pytest.mark.parametrize(
    ("fields", "lacks", "words"),
    [
        ({"delay": "1ms"}, {"netem": False}, "netem"),
        ({"ack_priority": "on"}, {"prio": False, "htb": False}, "PRIO or HTB"),
        ({"rto_min": "5ms"}, {"rto_min": False}, "Linux 6.11"),
        ({"priority_queues": "4"}, {"prio": False, "htb": False}, "PRIO or HTB"),
        ({"priority_queues": "4,drop-non-ect"}, {"red": False}, "no queueing discipline RED"),
        ({"topo": "leafspine,2,2,2", "system": ["reno:spray=on"]}, {"netem": False}, "cannot redirect"),
    ],
)
def test_what_the_run_refuses_the_plan_of_steps_refuses(
    fields: dict[str, Any], lacks: dict[str, Any], words: str
) -> None:
    setup_steps.changes(planned(**fields), REAL)
    with pytest.raises(MachineError, match=words):
        setup_steps.changes(planned(**fields), replace(REAL, **lacks))


def test_a_program_cannot_have_what_needs_marks_everywhere() -> None:
    made = planned(job=[{"cmd": "true"}], cc=["dctcp"], ecn="20kB", on="host")
    with pytest.raises(RequestError, match="opens its own sockets"):
        setup_steps.changes(made, REAL)


def test_a_program_has_no_mark_to_share_a_ratio_by() -> None:
    made = planned(job=[{"cmd": "true"}], cc=["mltcp_reno:share=mark"], on="host")
    with pytest.raises(RequestError, match="share=mark"):
        setup_steps.changes(made, REAL)


def test_the_dry_run_says_every_step_and_refuses_as_the_run_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "foreseen", lambda place: REAL)
    asked = ["run", "--on", "host", "--jobs", "1", "--cc", "reno", "--delay", "1ms", "--dry-run"]
    assert main(asked) == EXIT_OK
    shown = capsys.readouterr().out
    made = planned(on="host", cc=["reno"], delay="1ms")
    for line in setup_steps.lines(setup_steps.changes(made, REAL)):
        assert line.text in shown
    for step in setup_steps.changes(made, REAL):
        assert step.change.line in shown
    monkeypatch.setattr(backends, "foreseen", lambda place: replace(REAL, netem=False))
    assert main(asked) == EXIT_MACHINE
    assert "netem" in capsys.readouterr().err
