"""What Perfetto is given: its own trace processor reads it, and finds what the tables say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RequestError
from testbed.core.runs.load import Run, load_run
from testbed.exports import perfetto, timeline
from tests.support import trace_processor
from tests.support.trace_processor import TraceProcessor

needs_perfetto = pytest.mark.skipif(bool(trace_processor.missing()), reason=trace_processor.missing())


def events(text: str) -> list[dict[str, Any]]:
    return list(json.loads(text)["traceEvents"])


@pytest.fixture
def processor(tmp_path: Path) -> Iterator[TraceProcessor]:
    with trace_processor.started(tmp_path) as found:
        yield found


@needs_perfetto
@pytest.mark.xdist_group("browser")
def test_perfetto_counts_and_measures_what_the_tables_do(
    computed: Run, stored: Path, processor: TraceProcessor
) -> None:
    processor.load(perfetto.text(computed, computed.jobs).encode())
    assert processor.query("select count(*) from stats where value > 0 and severity in ('error', 'data_loss')") == [
        (0,)
    ]
    iterations = computed.iterations
    sums = "select p.pid - 1, t.tid - 1, count(*), sum(s.dur), min(s.ts) from slice s join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid)"
    found = processor.query(f"{sums} where s.name glob 'ProfilerStep#*' group by 1, 2 order by 1, 2")
    rows = iterations.groupby(["job", "worker"])
    assert len(found) == 6  # four ranks and two
    for job, rank, count, took_ns, first_ns in found:
        own = rows.get_group((job, rank))
        assert count == len(own) == 6
        assert took_ns == pytest.approx((own["end_s"] - own["start_s"]).sum() * 1e9, abs=count)
        assert first_ns == pytest.approx(own["start_s"].min() * 1e9, abs=1)
    by_name = dict(processor.query("select name, count(*) from slice where category = 'collective' group by name"))
    assert by_name == computed.operations.groupby("operation").size().to_dict()
    took = dict(processor.query("select name, sum(dur) from slice where category = 'collective' group by name"))
    for name, own in computed.operations.groupby("operation"):
        assert took[name] == pytest.approx((own["end_s"] - own["start_s"]).sum() * 1e9, abs=len(own))
    planned = sum(
        len([op for op in job.operations if op.computes and (op.ranks is None or rank in op.ranks)])
        for job in computed.jobs
        for rank in range(len(job.hosts))
    )
    assert processor.query(
        "select count(*) from slice s join args a using (arg_set_id) where a.key = 'args.reconstructed'"
    ) == [(6 * planned,)]
    # Every job has its share of the link, and no flow of a model has a window.
    names = {name for (name,) in processor.query("select distinct name from counter_track")}
    assert {name for name in names if name.startswith("share of")} and not any(
        name.startswith(("cwnd", "queue")) for name in names
    )


@needs_perfetto
@pytest.mark.xdist_group("browser")
def test_perfetto_shows_windows_and_queues_of_a_kernel(stored: Path, processor: TraceProcessor) -> None:
    run = load_run(stored)
    processor.load(perfetto.text(run, run.jobs).encode())
    most = dict(
        processor.query(
            "select t.name, max(value) from counter c join counter_track t on c.track_id = t.id group by t.name"
        )
    )
    for flow, rows in run.flows.groupby("flow"):
        assert most[f"cwnd {flow} segments"] == rows["cwnd_segments"].max()
    for link, rows in run.links.groupby("link"):
        assert most[f"queue {link} bytes"] == rows["backlog_bytes"].max()
    assert any(name.startswith("F ") for name in most)


@needs_perfetto
@pytest.mark.xdist_group("browser")
def test_perfetto_shows_a_run_beside_a_profile(computed: Run, tmp_path: Path, processor: TraceProcessor) -> None:
    """A profile as PyTorch writes it: in gzip, with a kernel in each step and times since an epoch of its own."""
    profiled = []
    for step in range(3):
        begin = 7_000_000.0 + 50_000 * step
        profiled += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{5 + step}", "pid": 321, "tid": 321, "ts": begin, "dur": 49_000.0},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": begin + 100, "dur": 30_000.0, "args": {"stream": 7}},
        ]  # fmt: skip
    profile = tmp_path / "profile.json.gz"
    profile.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": profiled}).encode()))
    processor.load(perfetto.text(computed, (computed.jobs[0],), 0, profile).encode())
    assert processor.query("select count(*) from stats where value > 0 and severity in ('error', 'data_loss')") == [
        (0,)
    ]
    (theirs,) = processor.query("select min(ts) from slice where name = 'ProfilerStep#5'")
    (ours,) = processor.query("select min(ts) from slice where name = 'ProfilerStep#0'")
    assert theirs == ours == (7_000_000_000,)
    assert processor.query("select count(*), sum(dur) from slice where name = 'gemm'") == [(3, 90_000_000)]
    own = computed.operations[(computed.operations["job"] == 0) & (computed.operations["worker"] == 0)]
    assert processor.query("select count(*) from slice where category = 'collective'") == [(len(own),)]


def test_slices_nest_in_their_row(computed: Run) -> None:
    """Perfetto takes slices of a thread that overlap without nesting for errors; a job that overlaps has rows for its exchanges."""
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    names: dict[tuple[int, int], set[str]] = {}
    for event in events(perfetto.text(computed, computed.jobs)):
        if event["ph"] == "X":
            key = event["pid"], event["tid"]
            rows.setdefault(key, []).append((event["ts"], event["ts"] + event["dur"]))
            names.setdefault(key, set()).add(event["cat"])
    for spans in rows.values():
        stack: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= start + 1e-3:
                stack.pop()
            assert not stack or end <= stack[-1] + 1e-3
            stack.append(end)
    assert names[1, 1] == {"iteration", "kernel"} and names[1, 5] == {"collective"}
    assert names[2, 1] == {"iteration", "kernel", "collective"}


def test_beside_a_profile_iteration_0_begins_with_its_first_step(computed: Run, tmp_path: Path) -> None:
    steps = [
        {
            "ph": "X",
            "name": f"ProfilerStep#{7 + k}",
            "cat": "user_annotation",
            "pid": 4711,
            "tid": 9,
            "ts": 5e12 + k * 1e5,
            "dur": 9e4,
        }
        for k in range(3)
    ]
    profile = tmp_path / "profile.json"
    profile.write_text(
        json.dumps({"traceEvents": [{"ph": "M", "name": "process_name", "pid": "Spans", "args": {}}, *steps]})
    )
    job = computed.jobs[1]
    both = events(perfetto.text(computed, (job,), 0, profile))
    assert both[1:4] == steps
    own = [event for event in both[4:] if event["name"] == "ProfilerStep#0"]
    assert [event["ts"] for event in own] == [5e12]
    assert all(event["pid"] > 4711 for event in both[4:])
    first = timeline.of_job(computed, job, 0)[0]
    alone = [event for event in events(perfetto.text(computed, (job,), 0)) if "ts" in event]
    shifted = [event for event in both[4:] if "ts" in event]
    assert [event["ts"] - 5e12 for event in shifted] == pytest.approx(
        [event["ts"] - first.start_s * 1e6 for event in alone], abs=0.01
    )
    profile.write_text(json.dumps({"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}]}))
    with pytest.raises(RequestError, match=r"has no ProfilerStep#N"):
        perfetto.text(computed, (job,), 0, profile)
