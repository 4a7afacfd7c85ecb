"""Queues of a bottleneck: what is sent is what is read back, counters lie where the headers say, and bad requests are refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import queues, registry, spec
from testbed.backends.flow import FlowLevel
from testbed.core.errors import RequestError
from testbed.core.runs.plan import Link
from testbed.linux import setup_steps
from testbed.linux.features import user_mode
from testbed.linux.queues.discipline import Discipline
from testbed.linux.queues.prio import Prio
from testbed.planning.plan import plans, resolve

NAMES = registry.names(registry.QUEUE)
COUNTERS = {
    "codel": ("struct tc_codel_xstats", ["ecn_mark", "ce_mark"]),
    "fq_codel": ("struct tc_fq_codel_xstats", ["qdisc_stats.ecn_mark", "qdisc_stats.ce_mark"]),
    "pie": ("struct tc_pie_xstats", ["ecn_mark"]),
}


def bottleneck(**fields: object) -> Link:
    asked = {"jobs": 2, "system": ["cubic"], "on": "uml", **fields}
    return plans(resolve(spec.read(None, asked)))[0].link


@pytest.mark.parametrize("name", NAMES)
@given(size=st.integers(3000, 10**8), mtu=st.sampled_from([1500, 9000]), marks=st.booleans())
def test_what_is_sent_is_what_is_read_back(name: str, size: int, mtu: int, marks: bool) -> None:
    module = queues.find(name)
    parameters = queues.parameters(name, queues.Buffer(size, mtu + 14, marks))
    assert module.FORMAT.decode(module.FORMAT.encode(parameters)) == parameters
    kept = module.FORMAT.kept(parameters)
    assert kept.keys() == parameters.keys()
    assert all(0 <= parameters[key] - value <= 2 for key, value in kept.items())


@pytest.mark.parametrize("name", COUNTERS)
def test_counters_of_marks_lie_where_the_headers_say(name: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None or not Path("/usr/include/linux/pkt_sched.h").exists():
        pytest.skip("the kernel's headers are compared by gcc: run `make setup`")
    struct, members = COUNTERS[name]
    offsets = [counter.offset for counter in queues.find(name).MARKS]
    claims = "".join(
        f'_Static_assert(__builtin_offsetof({struct}, {member}) == {offset}, "{member}");\n'
        for member, offset in zip(members, offsets, strict=True)
    )
    (tmp_path / "claims.c").write_text(f"#include <linux/types.h>\n#include <linux/pkt_sched.h>\n{claims}")
    assert subprocess.run(["gcc", "-fsyntax-only", tmp_path / "claims.c"], check=False).returncode == 0


def test_the_buffer_becomes_frames() -> None:
    found = bottleneck(queue="fq_codel:target=1ms", buffer="150kB", mtu=1500)
    assert found.queue is not None and found.marks and found.ecn_threshold is None
    assert dict(found.queue.parameters)["limit_packets"] == 150_000 // 1514
    assert dict(found.queue.parameters)["target_us"] == 1000


@pytest.mark.parametrize(
    ("queue", "ecn", "marks"), [("codel", "on", True), ("codel", "off", False), ("sfq", "on", False)]
)
def test_a_queue_marks_if_it_can_and_may(queue: str, ecn: str, marks: bool) -> None:
    assert bottleneck(queue=queue, ecn=ecn).marks is marks


def test_acks_first_has_the_queue_for_data_alone() -> None:
    root = setup_steps.shaper(bottleneck(queue="pie", ack_priority="on"), 3028, user_mode())
    assert isinstance(root.below, Prio)
    assert [isinstance(band, Discipline) for band in root.below.bands] == [False, True]
    assert [(one["parent"], one["drops"], len(one["marks"])) for one in setup_steps.counters(root)] == [
        (0x100001, True, 0), (0x100002, True, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"queue": "fq_code"}, {"queue": "codel", "ecn": "20kB"}, {"queue": "codel:target=5"}, {"queue": "pie:tupdate=15ms"},
        {"queue": "codel:ce_threshold=1ms", "ecn": "off"}, {"queue": "./nowhere.py"}, {"queue": "sfq", "system": ["dctcp"]},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        bottleneck(**fields)


@pytest.mark.parametrize(
    ("queue", "says"),
    [
        ("foo", "cake, codel, fq, fq_codel, pie, sfq, fifo"), ("cake:rtt=0ms", "0ms is not between 2us and 3600s"),
        ("codel:target=2h", "2h is not between"), ("fq:quantum=1B", "1B is not between 256B and"),
        ("fifo:limit=5", "fifo has no options"),
    ],
)  # fmt: skip
def test_a_refusal_states_what_is_possible(queue: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        bottleneck(queue=queue)


def test_the_flow_simulator_has_no_packets() -> None:
    (plan,) = plans(resolve(spec.read(None, {"jobs": 2, "system": ["reno"], "queue": "fq_codel", "on": "flow"})))[:1]
    with pytest.raises(RequestError):
        FlowLevel().check(plan)
