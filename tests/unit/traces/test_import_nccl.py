"""NCCL Inspector and NCCL's example profiler, against numbers by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.units import Duration
from testbed.traces import importing, repeating
from testbed.traces.trace import Trace, TraceError
from tests.support.profiles import collectives, imported
from tests.support.records import inspected, inspector, nccl_profiler, profiled


def written(folder: Path, text: str, name: str = "record.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def check_overlapped(trace: Trace) -> None:
    """50 ms, an all-reduce, 30 ms beside it and after it, another all-reduce, which the end waits for."""
    assert collectives(trace) == [("all_reduce", 8_000_000), ("all_reduce", 4_000_000)]
    assert [op.duration for op in trace.operations if op.computes] == [50_000_000, 30_000_000]
    assert [op.after for op in trace.operations if not op.computes] == [("compute1",), ("compute2",)]


def test_an_inspector_record_with_times(tmp_path: Path) -> None:
    path = written(tmp_path, inspector())
    assert importing.detect(path) == "nccl_inspector"
    trace = imported(path)
    check_overlapped(trace)
    assert trace.ranks == 8 and trace.noise == "0%"
    (name,) = trace.groups
    assert name == "0x7d3f"


@pytest.mark.parametrize(("name", "text"), [("nccl_inspector", inspector()), ("nccl_profiler", nccl_profiler())])
def test_a_long_record_says_what_it_leaves_out(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (repeating, importing.find(name)):
        monkeypatch.setattr(module, "MOST", 8)
    assert any("8 of 12" in one for one in imported(written(tmp_path, text)).assumptions)


def test_the_time_of_writing_tells_when_an_exchange_ended(tmp_path: Path) -> None:
    check_overlapped(imported(written(tmp_path, inspector(verbose=False))))


def test_an_inspector_record_written_at_the_end_has_no_times(tmp_path: Path) -> None:
    path = written(tmp_path, inspector(verbose=False, written_us=10**9))
    assert imported(path).compute_s == 0
    assert imported(path, iteration=Duration.parse("80ms")).compute_s == pytest.approx(0.08)


def test_sizes_of_the_inspector_are_those_of_one_rank(tmp_path: Path) -> None:
    text = "".join(
        inspected("AllGather", 10_000, 1000 + 300 * step, 50)
        + inspected("ReduceScatter", 20_000, 1100 + 300 * step, 50)
        for step in range(6)
    )
    assert sorted(collectives(imported(written(tmp_path, text)))) == [
        ("all_gather", 80_000),
        ("reduce_scatter", 160_000),
    ]


def test_an_all_gather_is_waited_for(tmp_path: Path) -> None:
    """100 us of computing, then an all-gather of 50 us during which computing stands still."""
    text = "".join(inspected("AllGather", 10_000, 1000 + 150 * step, 50) for step in range(6))
    trace = imported(written(tmp_path, text))
    assert trace.compute_s == pytest.approx(100e-6)


def test_messages_of_the_inspector_are_an_all_to_all(tmp_path: Path) -> None:
    text = "".join(
        inspected(name, 8192 * (peer + 1), 1000 * step, 50, ranks=4, rank=0, peer=peer)
        for step in range(1, 7)
        for peer in range(4)
        for name in ("Send", "Recv")
    )
    trace = imported(written(tmp_path, text))
    assert [(op.kind, op.splits) for op in trace.operations if not op.computes] == [
        ("all_to_all", (8192, 16384, 24576, 32768))
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (inspected("Gather", 10_000, 0, 5) * 4, "1 Gather|4 Gather"),
        (inspected("AllReduce", 10_000, 0, 5).replace('"n_ranks": 8, ', ""), "object 1 has no 'n_ranks'"),
        (inspected("AllReduce", 1 << 60, 0, 5), "plausible"),
        (inspected("AllReduce", 10_000, 0, 5)[:-9], "at byte"),
        (inspected("AllReduce", 10_000, 0, 5).replace('"rank": 2', '"rank": "two"'), "'rank' is 'two'"),
        (
            "".join(inspected("AllReduce", 10_000, step, 5, comm=comm, verbose=False, written_us=9) for step in range(5) for comm in "ab"),
            "NCCL_INSPECTOR_DUMP_VERBOSE",
        ),
        (
            "".join(inspected("AllReduce", 10_000, step, 5, comm=comm, rank=rank) for step in range(5) for comm in "ab" for rank in (0, 1)),
            "a process for each GPU",
        ),
    ],
)  # fmt: skip
def test_an_inspector_record_that_does_not_say_enough(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        imported(written(tmp_path, text))


def test_a_record_of_the_example_profiler(tmp_path: Path) -> None:
    path = written(tmp_path, nccl_profiler())
    assert importing.detect(path) == "nccl_profiler"
    check_overlapped(imported(path))
    assert imported(path).ranks is None and imported(path, ranks=4).ranks == 4


def test_the_example_profiler_does_not_tell_how_many_ranks_gather(tmp_path: Path) -> None:
    path = written(tmp_path, "[\n" + "".join(profiled("AllGather", 5000, 1000 * step, 50) for step in range(1, 7)))
    with pytest.raises(TraceError, match="--ranks"):
        imported(path)
    assert collectives(imported(path, ranks=4)) == [("all_gather", 80_000)]


def test_without_kernels_times_are_those_of_the_cpu(tmp_path: Path) -> None:
    text = "[\n" + "".join(profiled("AllReduce", 5000, 1000 * step, 50, kernels=False) for step in range(1, 7))
    assert any("kernel" in one for one in imported(written(tmp_path, text)).assumptions)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[\n" + profiled("Reduce", 5000, 100, 5) * 5, "5 Reduce"),
        (("[\n" + profiled("AllReduce", 5000, 100, 5))[:-30], "is not JSON"),
        ("[\n" + profiled("AllReduce", 5000, 100, 5).replace("ncclFloat32\"", "ncclFloat3\""), "'Datatype' is 'ncclFloat3'"),
        ("[\n" + profiled("AllReduce", 1 << 58, 100, 5), "implausible"),
    ],
)  # fmt: skip
def test_a_record_of_the_example_profiler_that_makes_no_sense(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        imported(written(tmp_path, text))


def test_ranks_are_of_one_communicator(tmp_path: Path) -> None:
    text = "[\n" + "".join(
        profiled("AllReduce", 5000, 1000 * step, 50) + profiled("AllReduce", 3000, 1000 * step + 200, 50, comm=7)
        for step in range(1, 7)
    )
    path = written(tmp_path, text)
    with pytest.raises(TraceError, match="--group"):
        imported(path, ranks=4)
    assert collectives(imported(path, ranks=4, group="7")) == [("all_reduce", 12_000)]
