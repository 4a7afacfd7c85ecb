"""PyTorch profiles of Ascend: a list of events, whose tracks tell what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.units import Size
from testbed.traces import importing
from testbed.traces.trace import Trace, TraceError
from tests.support.profiles import collectives, imported
from tests.support.records import Ascend, ascend


def written(folder: Path, content: bytes) -> Path:
    path = folder / "trace_view.json"
    path.write_bytes(content)
    return path


def check(trace: Trace) -> None:
    assert collectives(trace) == [("all_reduce", 8_000_000), ("all_reduce", 4_000_000)]
    assert trace.compute_s == pytest.approx(0.09, abs=1e-4)
    durations = {op.id: (op.duration or 0) / 1e6 for op in trace.operations if op.computes}
    first, second = (op for op in trace.operations if not op.computes)
    assert [durations[first.after[0]], durations[second.after[0]]] == pytest.approx([50, 30], abs=0.1)


def test_a_list_of_events(tmp_path: Path) -> None:
    path = written(tmp_path, ascend())
    assert importing.detect(path) == "kineto"
    trace = imported(path)
    check(trace)
    assert trace.ranks == 8


def test_the_same_events_in_an_object(tmp_path: Path) -> None:
    check(imported(written(tmp_path, b'{"traceEvents": ' + ascend() + b"}")))


def test_older_versions_do_not_tell_how_many_ranks(tmp_path: Path) -> None:
    path = written(tmp_path, ascend(rank_size=None))
    check(imported(path))
    assert imported(path).ranks is None and imported(path, ranks=4).ranks == 4


def test_without_counts_sizes_are_given_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path, ascend(count=None))
    with pytest.raises(TraceError, match="--bytes"):
        imported(path)
    check(imported(path, sizes=(Size.parse("8MB"), Size.parse("4MB"))))


def test_a_count_is_of_one_rank(tmp_path: Path) -> None:
    made = Ascend()
    for step in range(4):
        made.event(f"ProfilerStep#{step}", 1000 * step, 1000)
        for number, (name, kind) in enumerate(
            (("allGather", "BFP16"), ("reduceScatter", "FP32"), ("alltoall", "INT8"))
        ):
            args = {"rank_size": 4, "data_type": kind, "count": 1000}
            made.event(f"hcom_{name}__1_{number}_1", 1000 * step + 100 + 200 * number, 50, 5, 0, **args)
            made.event("aclnnMatmul", 1000 * step + 160 + 200 * number, 100, 4, 10)
    assert collectives(imported(written(tmp_path, made.content()))) == [
        ("all_gather", 8000), ("reduce_scatter", 16_000), ("all_to_all", 4000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (ascend()[:-50], "at byte"),
        (ascend().replace(b'"ProfilerStep#', b'"Step#'), "ProfilerStep"),
        (ascend().replace(b'"dur": 10000', b'"dur": "long"'), "'dur' is 'long'"),
        (ascend(count=1 << 60), "plausible"),
        (ascend(steps=1)[:-1] + b", 7]", "7"),
    ],
)
def test_a_list_that_makes_no_sense(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        imported(written(tmp_path, content))
