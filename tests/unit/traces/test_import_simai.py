"""Workload text of SimAI and ASTRA-sim 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.traces import importing
from testbed.traces.trace import Trace, TraceError, load, save
from tests.support.profiles import cli, imported
from tests.support.simai_workloads import HEADER, ROWS, workload


def of(text: str, folder: Path, **options: Any) -> Trace:
    path = folder / "workload.txt"
    path.write_text(text)
    assert importing.detect(path) == "simai"
    trace = imported(path, **options)
    save(trace, folder / "again.json")
    assert load(str(folder / "again.json")) == trace
    return trace


def test_the_loop_of_a_transformer(tmp_path: Path) -> None:
    trace = of(workload(), tmp_path)
    assert trace.groups == {
        "tp": ((0, 1), (2, 3), (4, 5), (6, 7)),
        "dp": ((0, 2, 4, 6), (1, 3, 5, 7)),
        "ep": ((0, 2), (1, 3), (4, 6), (5, 7)),
        "dp_ep": ((0, 4), (1, 5), (2, 6), (3, 7)),
    }
    assert trace.placement is not None and trace.placement.inside == ("tp",)
    assert [(op.id, op.group, op.duration or op.bytes, op.after) for op in trace.operations] == [
        ("compute1", None, 2_000_001, ()),
        ("all_reduce1", "tp", 1_000_000, ("compute1",)),
        ("compute2", None, 3_000_000, ("all_reduce1",)),
        ("all_to_all1", "ep", 600_000, ("compute2",)),
        ("compute3", None, 4_000_000, ("all_to_all1",)),
        ("all_to_all2", "ep", 600_000, ("compute3",)),
        ("compute4", None, 1_000_000, ("all_to_all2",)),
        ("all_reduce2", "dp_ep", 2_000_000, ("compute4",)),
        ("compute5", None, 1_500_000, ()),
        ("all_reduce3", "tp", 1_000_000, ("compute5",)),
        ("compute6", None, 500_002, ("all_reduce3",)),
        ("reduce_scatter1", "dp", 8_000_000, ("compute6",)),
    ]


def test_layers_are_computed_again_from_a_checkpoint(tmp_path: Path) -> None:
    header = HEADER.replace("checkpoints: 0 checkpoint_initiates: 0", "checkpoints: 1 1 checkpoint_initiates: 1 2")
    once, twice = of(workload(), tmp_path), of(workload(header), tmp_path)
    assert twice.compute_s - once.compute_s == pytest.approx(0.002)
    assert twice.bytes_per_iteration - once.bytes_per_iteration == 1_000_000


def test_one_stage_of_a_pipeline(tmp_path: Path) -> None:
    header = HEADER.replace("pp: 1", "pp: 2").replace("all_gpus: 8", "all_gpus: 16 pp_comm 4000000")
    trace = of(workload(header), tmp_path)
    assert trace.ranks == 8 and trace.operations == of(workload(), tmp_path).operations
    assert any("left out" in one and "2 pipeline stages" in one for one in trace.assumptions)


def test_what_a_group_of_one_rank_exchanges_is_left_out(tmp_path: Path) -> None:
    trace = of(workload(HEADER.replace("NPU_group: 2", "NPU_group: 1")), tmp_path)
    assert "tp" not in trace.groups and trace.ranks == 8 and trace.compute_s == pytest.approx(0.012000003)
    assert any("left out" in one and "2 exchanges" in one for one in trace.assumptions)


def test_workloads_of_astra_sim_1(tmp_path: Path) -> None:
    rows = (
        "conv1 -1 1000 NONE 0 2000 NONE 0 3000 ALLREDUCE 512 5",
        "conv2 -1 10000 NONE 0 20000 NONE 0 30000 ALLREDUCE 1024 5",
    )
    trace = of(workload("DATA", rows), tmp_path)
    assert trace.version == 1 and trace.ranks is None
    assert [(op.id, op.duration or op.bytes, op.after) for op in trace.operations] == [
        ("compute1", 41_000, ()), ("all_reduce1", 1024, ("compute1",)),
        ("compute2", 23_000, ()), ("all_reduce2", 512, ("compute2",)), ("compute3", 2_000, ()),
    ]  # fmt: skip
    assert of(workload("DATA", rows), tmp_path, ranks=4).ranks == 4
    assert [op.bytes for op in of(workload("MICRO", rows[:1]), tmp_path, ranks=4).operations] == [512]
    old = of(workload("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", ROWS[:2]), tmp_path, ranks=4)
    assert old.groups == {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3))}


@pytest.mark.parametrize(
    "text",
    [
        workload("HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 1"),
        workload("HYBRID_TRANSFORMER model_parallel_NPU_group: 2"),
        workload(HEADER.replace("all_gpus: 8", "all_gpus: 9")),
        workload(HEADER.replace("ep: 2", "ep: 3")),
        workload(HEADER.replace("ep: 2", "ep: two")),
        workload(HEADER.replace("ep: 2", "ep:")),
        workload(HEADER.replace("checkpoints: 0 ", "checkpoints: 2 1 ")),
        workload().replace("\n3\n", "\n4\n"),
        workload(rows=(ROWS[1].replace("ALLREDUCE", "BROADCAST"),)),
        workload(rows=(ROWS[1].replace("ALLREDUCE", "ALLREDUCEALLTOALL"),)),
        workload(rows=(ROWS[1].replace(" 100", ""),)),
        workload(rows=(ROWS[1].replace("2000000", "-5"),)),
        workload(rows=(ROWS[1].replace("2000000", "1e999"),)),
        workload(rows=("idle -1 5 NONE 0 5 NONE 0 5 NONE 0 100",)),
        workload("DATA", ROWS),
    ],
)
def test_what_cannot_be_imported_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.txt"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"workload\.txt"):
        imported(path)


def test_its_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two tensor-parallel ranks share a server and its 10 Gbit/s: 12 ms of computing, two all-to-alls of 0.48 ms, gradients of 9.6 ms."""
    path = tmp_path / "workload.txt"
    path.write_text(workload())
    assert cli(path, "-o", tmp_path / "mine.json", "--check") == 0
    assert "ranks     8" in capsys.readouterr().out
    results = testbed.run(
        on="flow", topo="star", jobs=1, trace=str(tmp_path / "mine.json"), rate="10gbit", mtu=9000, iterations=2, noise="0%", system="reno",
        isolated_runs="none", out=tmp_path / "results",
    )  # fmt: skip
    assert float(results.summary["ideal_s"].iloc[0]) == pytest.approx(0.012 + 2 * 0.00048 + 0.0096, rel=0.01)
