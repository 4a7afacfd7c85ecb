"""GOAL schedules: rings and all-to-alls become collectives, all else stays messages, and no byte or time is lost."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import testbed
from testbed.planning.groups import Grouped
from testbed.planning.trace_demand import demand
from testbed.traces import matching
from testbed.traces.importing import Request, import_trace
from testbed.traces.trace import Trace, TraceError, load
from tests.support import goal
from tests.support.goal import Schedule
from tests.support.profiles import cli

RATE = 10**10


def read(text: str, folder: Path) -> Trace:
    path = folder / "job.goal"
    path.write_text(text)
    return import_trace([path], Request(), name="job", model="job")


def kinds(trace: Trace) -> list[list[tuple[str, int]]]:
    """Of each role: its operations but computes."""
    return [[(op.kind, op.size) for op in role.operations if not op.computes] for role in trace.all_roles]


def sent(trace: Trace) -> list[int]:
    """Bytes that each rank sends."""
    grouped = Grouped(trace, None, 1)
    found = [0] * (trace.ranks or 0)
    for one in trace.matched.exchanges:
        for flows in grouped.rounds(one):
            for (source, _), size in flows.items():
                found[source] += size
    return found


def length_s(trace: Trace) -> float:
    """One iteration if each exchange has links of its own."""
    grouped = Grouped(trace, None, 1)
    takes = [sum(max(flows.values()) * 8 / RATE for flows in grouped.rounds(one)) for one in trace.matched.exchanges]
    return matching.ends_s(matching.times(trace.matched, takes))


@pytest.mark.parametrize(
    ("rounds", "reduce_ns", "kind"),
    [(6, 0, "all_reduce"), (6, 20_000, "all_reduce"), (3, 0, "all_gather"), (3, 20_000, "reduce_scatter")],
)
def test_a_ring_is_a_collective(rounds: int, reduce_ns: int, kind: str, tmp_path: Path) -> None:
    schedule = Schedule(4)
    ends = goal.ring(schedule, range(4), 250_000, rounds, goal.computes(schedule, range(4), 10**6), reduce_ns)
    goal.computes(schedule, range(4), 500_000, ends)
    trace = read(schedule.text(), tmp_path)
    assert kinds(trace) == [[(kind, 1_000_000)]] and trace.ranks == 4
    assert sent(trace) == schedule.sent == [rounds * 250_000] * 4
    # 1 ms, rounds of 250 kB at 10 Gbit/s, the additions, 0.5 ms.
    assert length_s(trace) == pytest.approx(1.5e-3 + rounds * 200e-6 + 3 * reduce_ns / 1e9)
    assert trace.compute_s == pytest.approx(1.5e-3 + 3 * reduce_ns / 1e9)


def test_a_layer_after_the_other_gathers_its_own_parameters(tmp_path: Path) -> None:
    """Two all-gathers with a layer's computing between them are not an all-reduce."""
    schedule = Schedule(3)
    after = goal.computes(schedule, range(3), 10**6)
    passed: list[list[str]] = [[one] for one in after]
    for number in range(4):
        came = [schedule.recv(rank, (rank - 1) % 3, 1000) for rank in range(3)]
        for rank in range(3):
            schedule.send(rank, (rank + 1) % 3, 1000, *passed[rank])
            passed[rank] = [came[rank]]
            if number == 1:
                passed[rank] = [schedule.add(rank, "calc 700000", came[rank])]
    assert kinds(read(schedule.text(), tmp_path)) == [[("all_gather", 3000), ("all_gather", 3000)]]


def test_messages_of_all_to_all_others_are_an_all_to_all(tmp_path: Path) -> None:
    schedule = Schedule(4)
    once = goal.all_to_all(schedule, range(4), 1000, goal.computes(schedule, range(4), 10**6))
    again = goal.all_to_all(schedule, range(4), 1000, goal.computes(schedule, range(4), 10**6, once))
    goal.computes(schedule, range(4), 10**6, again)
    trace = read(schedule.text(), tmp_path)
    assert kinds(trace) == [[("all_to_all", 4000), ("all_to_all", 4000)]]
    assert sent(trace) == schedule.sent == [6000] * 4
    assert trace.compute_s == pytest.approx(3e-3)


def test_pipeline_stages_are_roles_with_messages(tmp_path: Path) -> None:
    schedule = goal.training(data=3, stages=3)
    trace = read(schedule.text(), tmp_path)
    assert [role.ranks for role in trace.roles] == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert trace.groups == {"group1": ((0, 1, 2), (3, 4, 5), (6, 7, 8))}
    gradients, message = ("all_reduce", 600_000), 100_000
    assert sorted(kinds(trace)[0]) == [gradients, ("recv", message), ("send", message)]
    assert sorted(kinds(trace)[1]) == [gradients, *2 * [("recv", message)], *2 * [("send", message)]]
    assert {op.peer for op in trace.roles[1].operations if op.point_to_point} == {"+3", "-3"}
    assert sent(trace) == schedule.sent
    # 2 + 3 + 3 ms forward, 4 + 4 ms back, four messages of 80 µs, a ring of four rounds of 160 µs, 20 µs of additions, 0.5 ms.
    assert length_s(trace) == pytest.approx((16 + 4 * 0.08 + 4 * 0.16 + 0.02 + 0.5) / 1e3)


def test_groups_of_rows_and_columns(tmp_path: Path) -> None:
    """Rings of the rows of 3 × 3 ranks, then of the columns: two groups, and all ranks do the same."""
    schedule = Schedule(9)
    ends = goal.computes(schedule, range(9), 10**6)
    for ranks in ([0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8]):
        for rank, end in zip(ranks, goal.ring(schedule, ranks, 1000, 4, [ends[rank] for rank in ranks]), strict=True):
            ends[rank] = end
    goal.computes(schedule, range(9), 1000, ends)
    trace = read(schedule.text(), tmp_path)
    assert [len(lists) for lists in trace.groups.values()] == [3, 3] and len(trace.all_roles) == 1
    assert kinds(trace) == [[("all_reduce", 3000), ("all_reduce", 3000)]] and sent(trace) == [8000] * 9


@pytest.mark.parametrize("spoil", ["size", "early", "late", "two ranks", "one way"])
def test_what_may_be_something_else_stays_messages(spoil: str, tmp_path: Path) -> None:
    ranks = 2 if spoil == "two ranks" else 4
    schedule = Schedule(ranks)
    goal.ring(schedule, range(ranks), 1000, 2 * (ranks - 1), goal.computes(schedule, range(ranks), 10**6))
    text = schedule.text()
    lines = text.splitlines()
    if spoil == "size":
        text = text.replace("send 1000b to 2", "send 999b to 2", 1).replace("recv 1000b from 1", "recv 999b from 1", 1)
    elif spoil == "early":  # another message goes out as soon as the first part has come
        first = next(line.partition(":")[0] for line in lines if "recv" in line)
        text = text.replace("rank 0 {", f"rank 0 {{\nx: send 5b to 2 tag 9\nx requires {first}").replace(
            "rank 2 {", "rank 2 {\ny: recv 5b from 0 tag 9"
        )
    elif spoil == "late":  # a part waits for something else
        last = [line.partition(":")[0] for line in lines if "send" in line][5]
        text = text.replace("rank 0 {", f"rank 0 {{\nx: calc 9000000\n{last} requires x")
    elif spoil == "one way":  # rank 3 sends a part for whose predecessor it does not wait
        second, came = (
            [line.partition(":")[0] for line in lines if "send" in line][-1],
            [line.partition(":")[0] for line in lines if "recv" in line][-2],
        )
        text = text.replace(f"{second} requires {came}\n", "")
    trace = read(text, tmp_path)
    assert {op.kind for op in trace.all_operations} == {"compute", "send", "recv"}
    assert sum(sent(trace)) == sum(schedule.sent) - (spoil == "size") + 5 * (spoil == "early")


def test_dependencies_labels_and_comments(tmp_path: Path) -> None:
    """irequires waits for what the other one waits for; no label is needed; a message to the own rank is a dependency; eager sends cannot block."""
    text = """// two ranks
num_ranks 2 /* and
no more */
rank 1 {
recv 0b from 0
a: calc 5000000 cpu 3; b: calc 1000000; b irequires a
s: send 8000b to 0 tag 12345678901234 cpu 0 nic 1 ; s requires a
r: recv 4000b from 0 tag 2; r requires s
}
rank 0 {
q: calc 2000000
own: send 10b to 0 tag 5
own requires q
got: recv 10b from 0 tag 5
x: send 4000b to 1 tag 2
x requires got
y: recv 8000b from 1 tag 12345678901234
y requires x
send 0b to 1
}"""
    path = tmp_path / "job.goal.gz"
    path.write_bytes(gzip.compress(text.encode()))
    trace = import_trace([path], Request(), name="job", model="job")
    first, second = trace.roles
    assert [(op.kind, op.size, op.after) for op in first.operations if not op.computes] == [
        ("send", 1, ()), ("send", 4000, ("compute1",)), ("recv", 8000, ()),
    ]  # fmt: skip
    assert [op.after for op in second.operations if op.computes] == [(), ()], "b begins when a does"
    assert length_s(trace) == pytest.approx(6e-3, rel=0.01)


def test_computes_of_several_cpus(tmp_path: Path) -> None:
    """One after the other they take longer, which the import says."""
    text = (
        "num_ranks 2\nrank 0 {\ncalc 5000000 cpu 1\ncalc 5000000 cpu 2\nsend 9b to 1\n}\nrank 1 {\nrecv 9b from 0\n}\n"
    )
    assert any(one.startswith("warning: ") for one in read(text, tmp_path).assumptions)
    assert not any(one.startswith("warning: ") for one in read(text.replace("cpu 2", "cpu 1"), tmp_path).assumptions)


BAD = {
    "no rank": "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\n",
    "no bracket": "num_ranks 1\nrank 0 {\ncalc 1\n",
    "unmatched": "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\ncalc 1\n}\n",
    "other tag": "num_ranks 2\nrank 0 {\nsend 1b to 1 tag 3\n}\nrank 1 {\nrecv 1b from 0 tag 4\n}\n",
    "any source": "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from -1\n}\n",
    "any tag": "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0 tag -1\n}\n",
    "label": "num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}\n",
    "twice": "num_ranks 1\nrank 0 {\na: calc 1\na: calc 1\n}\n",
    "circle": "num_ranks 2\nrank 0 {\na: calc 1\nb: send 1b to 1\na requires b\nb requires a\n}\nrank 1 {\nrecv 1b from 0\n}\n",
    "deadlock": "num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: send 1b to 1\nb requires a\n}\nrank 1 {\na: recv 1b from 0\nb: send 1b to 0\nb requires a\n}\n",
    "word": "num_ranks 1\nrank 0 {\na: jump 1\n}\n",
    "sign": "num_ranks 1\nrank 0 {\na: calc 1 $\n}\n",
    "negative": "num_ranks 1\nrank 0 {\ncalc -1\n}\n",
    "unit": "num_ranks 2\nrank 0 {\nsend 1kb to 1\n}\nrank 1 {\nrecv 1b from 0\n}\n",
    "size": "num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}\n",
    "ranks": "num_ranks 99999999\nrank 0 {\ncalc 1\n}\n",
    "rank": "num_ranks 1\nrank 7 {\ncalc 1\n}\n",
    "silent": "num_ranks 1\nrank 0 {\ncalc 1\n}\n",
    "rank twice": "num_ranks 1\nrank 0 {\ncalc 1\n}\nrank 0 {\ncalc 1\n}\n",
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_schedule_is_refused(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.goal"
    path.write_text(BAD[what])
    assert cli(path, "-o", tmp_path / "out.json") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and str(path) in error and len(error) < 1000
    assert not (tmp_path / "out.json").exists()


def test_several_files_and_binary_ones(tmp_path: Path) -> None:
    path = tmp_path / "job.goal"
    path.write_text(goal.training().text())
    with pytest.raises(TraceError):
        import_trace([path, path], Request(), name="job", model="job")
    path.write_bytes(path.read_bytes()[:100] + b"\xff\xfe" + path.read_bytes()[100:])
    with pytest.raises(TraceError):
        import_trace([path], Request(), name="job", model="job")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["ring", "gather", "all", "pairs", "compute"]), st.integers(1, 5000), st.booleans()),
        min_size=1, max_size=5,
    ),
    st.integers(3, 5), st.booleans(),
)  # fmt: skip
def test_no_byte_and_no_computing_is_lost(steps: list[tuple[str, int, bool]], ranks: int, beside: bool) -> None:
    """Of any mix of patterns, one after the other or at once."""
    schedule, everyone = Schedule(ranks), range(ranks)
    first = goal.computes(schedule, everyone, 10**6)
    ends, computed_ns = first, 10**6 * ranks
    for tag, (what, size, reduces) in enumerate(steps):
        before = first if beside else ends
        if what == "compute":
            ends = goal.computes(schedule, everyone, size, before)
            computed_ns += size * ranks
        elif what == "all":
            ends = goal.all_to_all(schedule, everyone, size, before, tag)
        elif what == "pairs":
            sends = [schedule.send(rank, (rank + 1) % ranks, size, before[rank], tag=tag) for rank in everyone]
            ends = [
                schedule.add(rank, "calc 0", sends[rank], schedule.recv(rank, (rank - 1) % ranks, size, tag=tag))
                for rank in everyone
            ]
        else:
            rounds = (2 if what == "ring" else 1) * (ranks - 1)
            ends = goal.ring(schedule, everyone, size, rounds, before, 100 * reduces, tag)
            computed_ns += 100 * reduces * (ranks - 1) * ranks
    goal.computes(schedule, everyone, 10**6, ends)
    computed_ns += 10**6 * ranks
    if not any(schedule.sent):
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = read(schedule.text(), Path(folder))
    assert sent(trace) == schedule.sent
    assert (
        sum(op.duration or 0 for role in trace.all_roles for op in role.operations for _ in role.ranks) == computed_ns
    )
    collectives = sum(
        op.kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all") for op in trace.roles[0].operations
    )
    there = sum(what in ("ring", "gather", "all") for what, _, _ in steps)
    assert collectives <= there
    if not beside or all(what != "pairs" for what, _, _ in steps):  # a message of the same size may be a part of either
        assert collectives == there


def test_a_schedule_is_replayed(tmp_path: Path) -> None:
    """On the flow backend an iteration takes what its parts come to; and it can be scheduled."""
    path = tmp_path / "job.goal"
    path.write_text(goal.training(data=3, stages=2).text())
    assert cli(path, "-o", tmp_path / "job.json", "--check") == 0
    trace = load(str(tmp_path / "job.json"))
    results = testbed.run(
        on="flow", topo="star", trace=str(tmp_path / "job.json"), jobs=1, rate="10gbit", mtu=9000, iterations=4, noise="0%",
        isolated_runs="none", system="reno", out=str(tmp_path),
    )  # fmt: skip
    # 2 + 3 ms, 4 ms back, two messages of 80 µs, four rounds of 160 µs, additions, optimizer; headers take 1 % of the exchanges.
    expected = (9 + 2 * 0.08 + 4 * 0.16 + 0.02 + 0.5) / 1e3
    assert float(results.summary["mean_s"].iloc[0]) == pytest.approx(expected, rel=0.02)
    asked = demand(trace)
    assert asked.gpus == 6 and asked.compute_s == pytest.approx(9.52e-3)
    assert asked.gradient_bytes == round((100_000 + 800_000) * 6 / 10)


def chain_of_receives(count: int) -> str:
    """Messages that are received in another order than they are sent, and behind them a chain of receives with a compute each."""
    sends = ["s1: send 10b to 1 tag 1", "s2: send 10b to 1 tag 2", "s2 requires s1"]
    receives = ["r2: recv 10b from 0 tag 2", "r1: recv 10b from 0 tag 1", "r1 requires r2", "q0: recv 9b from 0"]
    receives += [f"q{n}: recv 9b from 0\nq{n} requires q{n - 1}" for n in range(1, count)]
    receives += [f"c{n}: calc 5\nc{n} requires q{n}" for n in range(count)]
    rows = ["num_ranks 2", "rank 0 {", *sends, *["send 9b to 1"] * count, "}", "rank 1 {", *receives, "}"]
    return "\n".join(rows) + "\n"


def test_a_chain_of_receives_is_no_square_of_dependencies(tmp_path: Path) -> None:
    trace = read(chain_of_receives(100), tmp_path)
    assert max(len(op.after) for op in trace.all_operations) <= 3
    assert sum(op.duration or 0 for op in trace.all_operations) == 500
    with pytest.raises(TraceError):
        read(chain_of_receives(3000), tmp_path)
