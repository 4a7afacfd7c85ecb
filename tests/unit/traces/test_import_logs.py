"""Logs of NCCL and DeepSpeed, against numbers by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.units import Duration
from testbed.traces import importing
from testbed.traces.trace import TraceError
from tests.support.profiles import collectives, imported
from tests.support.records import deepspeed_log, deepspeed_table, nccl_call, nccl_init, nccl_log

MIB = 1 << 20


def written(folder: Path, text: str, name: str = "training.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_an_nccl_log(tmp_path: Path) -> None:
    path = written(tmp_path, nccl_log())
    assert importing.detect(path) == "nccl_log"
    trace = imported(path, iteration=Duration.parse("90ms"))
    assert collectives(trace) == [("all_reduce", 1_200_000), ("all_reduce", 25_000_000), ("all_reduce", 8_000_000)]
    assert trace.ranks == 8 and trace.compute_s == pytest.approx(0.09)
    assert any("times" in one or "by hand" in one for one in trace.assumptions)


def test_an_nccl_log_without_a_period_has_no_computing(tmp_path: Path) -> None:
    assert imported(written(tmp_path, nccl_log())).compute_s == 0


def test_computing_by_hand_is_no_time_of_the_profile(tmp_path: Path) -> None:
    request = importing.Request(iteration=Duration.parse("90ms"))
    path = written(tmp_path, nccl_log())
    assert importing.import_files([path], request, name="mine", model="a model").step_s == 0
    path = written(tmp_path, deepspeed_log())
    assert importing.import_files([path], importing.Request(), name="mine", model="a model").step_s == pytest.approx(
        0.176
    )


def test_the_unit_of_each_nccl_function_is_one_rank(tmp_path: Path) -> None:
    text = nccl_init(ranks=4)
    for step in range(5):
        for place, (name, type_) in enumerate(
            (("AllGather", 9), ("AllReduce", 7), ("ReduceScatter", 6), ("AlltoAll", 0))
        ):
            text += nccl_call(name, 10_000, 4 * step + place, ranks=4, type_=type_)
    assert collectives(imported(written(tmp_path, text))) == [
        ("all_gather", 80_000), ("all_reduce", 40_000), ("reduce_scatter", 80_000), ("all_to_all", 40_000),
    ]  # fmt: skip


def test_communicators_are_groups_and_batches_all_to_alls(tmp_path: Path) -> None:
    text = nccl_init(comm="0xa", ranks=2, name="0x11") + nccl_init(comm="0xb", ranks=4, name="0x22")
    for step in range(5):
        text += nccl_call("AllReduce", 5000, step, comm="0xa", ranks=2)
        for peer in range(4):
            text += nccl_call("Send", 1000 * (peer + 1), step, comm="0xb", ranks=4, root=peer, type_=0)
            text += nccl_call("Recv", 2000, step, comm="0xb", ranks=4, root=peer, type_=0)
    trace = imported(written(tmp_path, text))
    assert {name: len(lists[0]) for name, lists in trace.groups.items()} == {"0x11": 2, "0x22": 4}
    exchanges = [op for op in trace.operations if not op.computes]
    assert [(op.kind, op.group, op.bytes, op.splits) for op in exchanges] == [
        ("all_reduce", "0x11", 20_000, None), ("all_to_all", "0x22", 10_000, (1000, 2000, 3000, 4000)),
    ]  # fmt: skip


def test_sends_of_a_pipeline_keep_their_directions(tmp_path: Path) -> None:
    text = nccl_init(rank=1, ranks=4)
    for step in range(5):
        text += nccl_call("Recv", 3000, 2 * step, ranks=4, root=0) + nccl_call(
            "Send", 3000, 2 * step + 1, ranks=4, root=2
        )
    trace = imported(written(tmp_path, text))
    assert {op.kind for role in trace.all_roles for op in role.operations if not op.computes} == {"send", "recv"}
    assert sum(op.size for op in trace.all_operations if op.kind == "send") >= 12_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node1:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0\n", "COLL"),
        (nccl_init() + nccl_call("AllReduce", 5000, 0), "--steps"),
        (nccl_init() + nccl_call("AllReduce", 5000, 0, type_=99), "datatype '99'"),
        (nccl_init() + nccl_call("AllReduce", 1 << 60, 0) * 5, "implausible"),
        (nccl_init() + nccl_call("Reduce", 5000, 0) * 5, "names no exchange"),
        ("".join(nccl_call("AllGather", 5000, 0).replace(" [nranks=8]", "") * 5), "--ranks"),
        ("".join(nccl_call("AllReduce", 1000 * 3**step, step) for step in range(12)), "--steps"),
    ],
)
def test_an_nccl_log_that_does_not_say_enough(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        imported(written(tmp_path, text))


def test_steps_by_hand_split_a_log_of_equal_exchanges(tmp_path: Path) -> None:
    path = written(tmp_path, nccl_init() + "".join(nccl_call("AllReduce", 5000, op) for op in range(40)))
    assert len(imported(path).operations) == 1
    assert len(imported(path, steps=5).operations) == 8


def test_a_deepspeed_log(tmp_path: Path) -> None:
    path = written(tmp_path, deepspeed_log())
    assert importing.detect(path) == "deepspeed"
    trace = imported(path)
    assert collectives(trace) == [("reduce_scatter", 32 * MIB), ("all_reduce", 4), ("all_gather", 32 * MIB)]
    assert trace.ranks == 8 and trace.compute_s == pytest.approx(0.16, abs=1e-6)
    with pytest.raises(TraceError, match="--iteration"):
        imported(path, iteration=Duration.parse("1s"))


@pytest.mark.parametrize("ranks", [2, 3, 16, 96])
def test_bandwidths_tell_the_number_of_ranks(tmp_path: Path, ranks: int) -> None:
    assert imported(written(tmp_path, deepspeed_log(ranks=ranks))).ranks == ranks


def test_a_deepspeed_summary_needs_the_number_of_steps(tmp_path: Path) -> None:
    rows = [
        ("broadcast", "98.25 MB", 1),
        ("all_gather_into_tensor", "2.0 KB", 20),
        ("reduce_scatter_tensor", "678.86 MB", 40),
    ]
    path = written(tmp_path, "loss 2.5\n" + deepspeed_table(rows))
    with pytest.raises(TraceError, match="--steps"):
        imported(path)
    trace = imported(path, steps=10, iteration=Duration.parse("60ms"))
    assert collectives(trace) == [("all_gather", 2048 * 16)] * 2 + [("reduce_scatter", round(678.86 * MIB))] * 4
    assert trace.compute_s == pytest.approx(0.06)
    with pytest.raises(TraceError, match="smaller --steps"):
        imported(path, steps=1000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (deepspeed_log().replace("comm op: ", "comm op: my_"), "no replay of it: 6 my_all_gather_into_tensor"),
        (deepspeed_log().replace("all_gather_into_tensor", "barrier").split("\n")[0], "1 barrier"),
        (deepspeed_log().replace("time (ms)", "took"), r"18 lines of an exchange \(the first is line 1\) could not be read"),
        (deepspeed_table([]), "a table of log_summary"),
        ("Comm. Op ends\n", "neither a line 'comm op: …' nor a table"),
    ],
)  # fmt: skip
def test_a_deepspeed_log_of_nothing_that_can_be_replayed(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TraceError, match=f"{says}.*comms_logger"):
        imported(written(tmp_path, text))


def test_a_deepspeed_log_that_is_cut_short(tmp_path: Path) -> None:
    """The last line is named; what is before it counts."""
    trace = imported(written(tmp_path, deepspeed_log()[:-60]))
    assert trace.ranks == 8 and any("(the first is line 18)" in text for text in trace.assumptions)


def test_a_wrong_number_of_steps_is_not_proposed_again(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--steps 10 does not fit"):
        imported(written(tmp_path, deepspeed_log()), steps=10)
