"""Chakra traces of all ranks: work in place of times, ASTRA-sim's micro-benchmarks and custom collectives, process groups of a file."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.core.errors import RequestError
from testbed.core.units import Size
from testbed.traces.importing import Imported, Request, import_files
from testbed.traces.trace import Trace, TraceError, load, save
from tests.support.profiles import Chakra, cli
from tests.support.stage_traces import ACTIVATION, SHARD, WEIGHTS, stage


def whole(*paths: Path, **options: Any) -> Imported:
    fields = {
        key: options.pop(key) for key in ("group", "ranks", "iteration", "group_file", "element_size") if key in options
    }
    return import_files(list(paths), Request(**fields), name="mine", model="a model", **options)


def again(trace: Trace, folder: Path) -> Trace:
    save(trace, folder / "again.json")
    return load(str(folder / "again.json"))


@pytest.mark.parametrize("form", ["et", "json", "jsonizer"])
def test_work_of_all_ranks(form: str, tmp_path: Path) -> None:
    trace = whole(stage(tmp_path / "generated", form)).trace
    assert trace.version == 2 and trace.ranks == 8 and trace.native_rate is None
    assert trace.groups == {"1": ((0, 1), (2, 3)), "5": ((0, 2), (1, 3), (4, 6), (5, 7))}
    first, last = trace.roles
    assert (first.ranks, last.ranks) == ((0, 1, 2, 3), (4, 5, 6, 7))
    seen = [
        (op.id, op.bytes, op.flops, op.memory_bytes, op.group, op.peer, op.tag, op.after) for op in first.operations
    ]
    assert seen == [
        ("all_gather1", 2 * SHARD, None, None, "1", None, 0, ()),
        ("compute1", None, 2e12, 10**9, None, None, 0, ("all_gather1",)),
        ("send1", ACTIVATION, None, None, None, "+4", 7, ("compute1",)),
        ("recv1", ACTIVATION, None, None, None, "+4", 8, ()),
        ("compute2", None, 4e12, 2 * 10**9, None, None, 0, ("recv1",)),
        ("all_reduce1", WEIGHTS, None, None, "5", None, 0, ("compute2",)),
    ]
    assert [(op.id, op.after) for op in last.operations] == [
        ("recv1", ()), ("compute1", ("recv1",)), ("send1", ("compute1",)), ("all_reduce1", ("compute1",)),
    ]  # fmt: skip
    assert again(trace, tmp_path) == trace
    said = " ".join(trace.assumptions)
    assert "comm_group.json" in said and "one rank's part" in said and "--device" in said


def test_micro_batches_overlap_in_a_pipeline(tmp_path: Path) -> None:
    """The file has a micro-batch after the other; the second goes forward while the first one is away."""
    for rank in range(2):
        made = Chakra()
        for number in range(2):
            if rank == 0:
                forward = made.work(10**12, 10)
                made.send(ACTIVATION, 1, made.work(10**12, 10, forward), tag=number)
                made.work(3 * 10**12, 10, made.recv(ACTIVATION, 1, tag=number))
            else:
                made.send(ACTIVATION, 0, made.work(4 * 10**12, 10, made.recv(ACTIVATION, 0, tag=number)), tag=number)
        made.write(tmp_path, f"t.{rank}.et")
    first, last = whole(tmp_path).trace.roles
    assert [op.flops for op in first.operations if op.computes] == [1e12, 1e12, 1e12, 1e12, 3e12, 3e12]
    assert [op.tag for op in first.operations if op.kind == "send"] == [0, 1]
    assert [op.after for op in last.operations if op.computes] == [("recv1",), ("recv2",)]


def test_numbers_of_elements_are_not_bytes(tmp_path: Path) -> None:
    folder = stage(tmp_path / "generated")
    plain, two = whole(folder).trace, whole(folder, element_size=Size(2)).trace
    assert two.bytes_per_iteration == 2 * plain.bytes_per_iteration
    assert [op.flops for op in two.all_operations] == [op.flops for op in plain.all_operations]
    assert [op.memory_bytes for op in two.all_operations if op.computes] == [
        2 * (op.memory_bytes or 0) for op in plain.all_operations if op.computes
    ]
    metadata = Chakra()
    metadata.messages[0].attr.add(name="schema", string_val="symbolic_tensor_network")
    metadata.collective(5, metadata.work(5, 5))
    warned = whole(metadata.write(tmp_path, "stage.0.et")).trace.assumptions
    assert any(one.startswith("warning: ") for one in warned)
    assert not any(one.startswith("warning: ") for one in plain.assumptions)


def test_one_group_or_kind_of_it(tmp_path: Path) -> None:
    folder = stage(tmp_path / "generated")
    imported = whole(folder, group="1")
    assert {op.kind for op in imported.trace.all_operations} == {"compute", "all_gather"}
    assert [(one.group.name, one.chosen) for one in imported.groups] == [("1", True), ("5", False)]
    kinds = {op.kind for op in whole(folder, only=frozenset({"all_reduce"})).trace.all_operations}
    assert kinds == {"compute", "all_reduce"}


def test_without_a_group_file_the_ranks_that_name_a_group_are_in_it(tmp_path: Path) -> None:
    folder = stage(tmp_path / "generated")
    lists = (folder / "comm_group.json").rename(tmp_path / "lists.txt")
    assert whole(folder).trace.groups == whole(folder, group_file=lists).trace.groups
    named = lists.rename(folder / "llm.json")
    assert whole(folder / "llm").trace.groups == whole(*folder.glob("*.et"), named).trace.groups


def test_one_rank_of_work_stands_for_all(tmp_path: Path) -> None:
    made = Chakra()
    gathered = made.collective(SHARD, type=2, pg_name="1")
    worked = made.work(2 * 10**12, 10**9, gathered)
    made.collective(WEIGHTS, worked, pg_name="5")
    path = made.write(tmp_path, "llm.0.et")
    (tmp_path / "comm_group.json").write_text(json.dumps({"1": [0, 1], "2": [2, 3], "5": [0, 2], "6": [1, 3]}))
    trace = whole(path).trace
    assert trace.ranks == 4 and trace.groups == {"1": ((0, 1), (2, 3)), "5": ((0, 2), (1, 3))}
    assert [(op.kind, op.bytes, op.flops) for op in trace.operations] == [
        ("all_gather", 2 * SHARD, None), ("compute", None, 2e12), ("all_reduce", WEIGHTS, None),
    ]  # fmt: skip
    (tmp_path / "comm_group.json").unlink()
    only = whole(path, group="5").trace
    assert only.version == 2 and only.ranks is None and again(only, tmp_path) == only
    assert whole(path, group="5", ranks=16).trace.ranks == 16


def test_a_micro_benchmark(tmp_path: Path) -> None:
    """One all-gather of 1 MiB a rank among four: each rank sends and receives 3 MiB."""
    for rank in range(4):
        made = Chakra()
        made.collective(1 << 20, type=2)
        made.write(tmp_path, f"all_gather.{rank}.et")
    imported = whole(tmp_path)
    (op,) = imported.trace.operations
    assert (op.kind, op.bytes, imported.trace.groups) == ("all_gather", 4 << 20, {"dp": ((0, 1, 2, 3),)})
    assert imported.trace.alike
    alone = whole(tmp_path / "all_gather.0.et", ranks=4).trace
    assert alone.operations == imported.trace.operations and alone.ranks == 4


def test_a_custom_collective(tmp_path: Path) -> None:
    """A ring all-reduce of 4 MB by hand: six rounds of 1 MB, each send behind what came in before it."""
    part = 1_000_000
    for rank in range(4):
        made = Chakra()
        last: tuple[int, ...] = ()
        for number in range(6):
            sent = made.send(part, (rank + 1) % 4, *last, tag=1)
            came = made.recv(part, (rank - 1) % 4, sent, tag=1)
            last = (made.compute(20, came),) if number < 3 else (came,)
        made.write(tmp_path, f"ring.{rank}.et")
    trace = whole(tmp_path / "ring").trace
    assert trace.ranks == 4 and not trace.groups
    for role in trace.roles:
        assert sum(op.size for op in role.operations if op.kind == "send") == 6 * part
        assert [op.duration for op in role.operations if op.computes] == [20_000] * 3
    by_rank = {role.ranks: {op.id: op.after for op in role.operations} for role in trace.roles}
    own = by_rank[next(ranks for ranks in by_rank if 1 in ranks)]
    assert own["recv2"] == () and own["send2"] == ("compute1",) and own["send6"] == ("recv5",)
    assert again(trace, tmp_path) == trace
    assert len(trace.matched.exchanges) == 24


def refused(
    build: Callable[[list[Chakra]], Any], folder: Path, names: tuple[str, ...] = ("t.0.et", "t.1.et"), **more: Any
) -> str:
    made = [Chakra() for _ in names]
    build(made)
    paths = [one.write(folder, name) for one, name in zip(made, names, strict=True)]
    with pytest.raises(TraceError) as error:
        whole(*paths, **more)
    assert str(folder) in str(error.value)
    return str(error.value)


def on_both(*sizes: int, **more: Any) -> Callable[[list[Chakra]], Any]:
    return lambda made: [one.collective(size, **more) for one, size in zip(made, sizes, strict=True)]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (on_both(10, 20), "in the same order"),
        (lambda made: (on_both(10, 10)(made), made[0].collective(5)), "rank 1 has only 1"),
        (lambda made: (made[0].send(5, 1), made[1].compute(5)), "receives 0"),
        (lambda made: (made[0].send(5, 1), made[1].recv(6, 0)), "whose receive"),
        (lambda made: (made[0].send(5, 1, tag=1), made[1].recv(5, 0, tag=2)), "is missing"),
        (lambda made: (made[0].send(5, 2), made[1].compute(5)), "no peer 2"),
        (on_both(5, 5, involved_dim=[True, False]), "involved_dim"),
        (lambda made: [one.work(5, 5) for one in made], "exchanges nothing"),
        (lambda made: (made[0].collective(5, pg_name="1"), made[1].node("x", 4)), "neither computes"),
        (on_both(1 << 50, 1 << 50), "implausible"),
        (lambda made: [one.node("x", 4, num_ops=-1) for one in made], "'num_ops' is -1"),
        (lambda made: [one.node("x", 4, 1, num_ops=1) for one in made] and on_both(5, 5)(made), "never"),
        (
            lambda made: (
                made[0].send(5, 1, made[0].recv(5, 1)), made[1].send(5, 0, made[1].recv(5, 0))
            ),
            "waits for itself",
        ),
    ],
)  # fmt: skip
def test_ranks_that_do_not_fit(build: Callable[[list[Chakra]], Any], says: str, tmp_path: Path) -> None:
    if says == "never":  # a node that waits for itself waits for nothing
        made = [Chakra(), Chakra()]
        build(made)
        assert whole(*(one.write(tmp_path, f"t.{rank}.et") for rank, one in enumerate(made))).trace.ranks == 2
        return
    said = refused(build, tmp_path)
    assert says in said


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    assert "no file of rank 1" in refused(on_both(5, 5), tmp_path, names=("t.0.et", "t.2.et"))
    assert "files of ranks 0 to 1" in refused(
        on_both(5, 5, pg_name="1"), tmp_path, group_file=lists(tmp_path, {"1": [0, 1, 2]})
    )
    assert "Is the process-group file" in refused(
        on_both(5, 5, pg_name="1"), tmp_path, group_file=lists(tmp_path, {"1": [0]})
    )
    assert "--ranks 3" in refused(on_both(5, 5), tmp_path, ranks=3)


def lists(folder: Path, groups: Any) -> Path:
    path = folder / "lists.json"
    path.write_text(json.dumps(groups))
    return path


def test_its_replay_takes_what_its_work_and_bytes_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 10 Gbit/s and 100 TFLOP/s: 0.2 ms gathering, 20 ms, 0.8 ms there, 60 ms, 0.8 ms back, 40 ms, 3.2 ms of gradients."""
    out = tmp_path / "mine.json"
    assert cli(stage(tmp_path / "generated"), "-o", out, "--check") == 0
    said = capsys.readouterr().out
    assert "ranks     8" in said and "6 TFLOP and 3 GB" in said
    asked: dict[str, Any] = {
        "on": "flow", "topo": "star", "jobs": 1, "trace": str(out), "rate": "10gbit", "mtu": 9000, "iterations": 2, "noise": "0%",
        "system": "reno", "isolated_runs": "none", "out": tmp_path / "results",
    }  # fmt: skip
    with pytest.raises(RequestError):
        testbed.run(**asked)
    results = testbed.run(**asked, peak="100tflops", mfu="100%", memory="10tb/s")
    assert float(results.summary["ideal_s"].iloc[0]) == pytest.approx(0.125, rel=0.01)
    assert float(results.summary["mean_s"].iloc[0]) == pytest.approx(0.125, rel=0.02)


GROUPS = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3), "": (0, 1, 2, 3)}


@pytest.mark.parametrize("seed", range(25))
def test_ranks_that_can_be_carried_out_are_imported_as_they_are(seed: int, tmp_path: Path) -> None:
    """Nodes drawn in an order in which they can happen: all of them are there, and none waits for ever."""
    draw = random.Random(seed)
    made = [Chakra() for _ in range(4)]
    own: list[list[int]] = [[] for _ in made]
    exchanged = [Counter[str]() for _ in made]
    computed = [0] * 4

    def after(rank: int) -> list[int]:
        return draw.sample(own[rank], min(len(own[rank]), draw.randint(0, 2)))

    for _ in range(draw.randint(5, 40)):
        size = draw.randint(1, 1000)
        kind = draw.random()
        if kind < 0.4:
            rank = draw.randrange(4)
            own[rank].append(made[rank].work(size * 10**9, size, *after(rank)))
            computed[rank] += size * 10**9
        elif kind < 0.7:
            name = draw.choice(sorted(GROUPS))
            for rank in GROUPS[name]:
                own[rank].append(made[rank].collective(size, *after(rank), pg_name=name))
                exchanged[rank]["all_reduce"] += size
        else:
            source, target = draw.sample(range(4), 2)
            tag = draw.randrange(2)
            own[source].append(made[source].send(size, target, *after(source), tag=tag))
            own[target].append(made[target].recv(size, source, *after(target), tag=tag))
            exchanged[source]["send"] += size
            exchanged[target]["recv"] += size
    for rank in range(4):
        own[rank].append(made[rank].collective(1, *after(rank)))
        exchanged[rank]["all_reduce"] += 1
    (tmp_path / "lists.json").write_text(json.dumps({name: list(ranks) for name, ranks in GROUPS.items() if name}))
    files = [one.write(tmp_path, f"t.{rank}.et") for rank, one in enumerate(made)]
    trace = again(whole(*files, group_file=tmp_path / "lists.json").trace, tmp_path)
    for role in trace.all_roles:
        for rank in role.ranks:
            found: Counter[str] = Counter()
            for op in role.operations:
                found[op.kind] += op.size
            assert found == Counter({**exchanged[rank], "compute": 0})
            assert sum(op.flops or 0 for op in role.operations) == computed[rank]
