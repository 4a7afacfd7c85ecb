"""What is exported and imported again is the job that ran: its bytes exactly, its times within the rounding of the format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.core.runs.load import Run
from testbed.core.runs.plan import JobPlan
from testbed.exports import chakra, nccl_inspector, perfetto, timeline
from testbed.exports.timeline import Slice
from testbed.traces import importing
from testbed.traces.importing import Imported
from testbed.traces.operations import Operation
from testbed.traces.process_groups import Group
from testbed.traces.trace import Trace

ROUNDED_S = 2e-6  # two ends, in whole microseconds
NAMES = {"chakra": "trace.{}.et", "nccl_inspector": "nccl.{}.jsonl", "perfetto": "trace.{}.json"}


def export(run: Run, job: JobPlan, format: str, folder: Path, ranks: range) -> list[Path]:
    paths = []
    for rank in ranks:
        path = folder / NAMES[format].format(rank)
        slices = timeline.of_job(run, job, rank)
        if format == "chakra":
            path.write_bytes(chakra.content(slices, timeline.started_us(run)))
        elif format == "nccl_inspector":
            path.write_text(nccl_inspector.text(slices, job.hosts, timeline.started_us(run)))
        else:
            path.write_text(perfetto.text(run, (job,), rank))
        paths.append(path)
    return paths


def again(paths: list[Path]) -> Imported:
    return importing.import_files(paths, importing.Request(), name="again", model="again")


def operations(trace: Trace) -> tuple[Operation, ...]:
    return trace.roles[0].operations if trace.roles else trace.operations


def exchanged(trace: Trace) -> list[tuple[str, int]]:
    return [(op.kind, op.size) for op in operations(trace) if not op.computes]


@pytest.mark.parametrize("format", list(NAMES))
def test_collectives_come_back_with_their_bytes_and_their_times(computed: Run, format: str, tmp_path: Path) -> None:
    job = computed.jobs[0]
    imported = again(export(computed, job, format, tmp_path, range(4)))
    assert exchanged(imported.trace) == [(op.kind, op.bytes) for op in job.collectives]
    assert imported.trace.ranks in (4, None)  # Chakra's schema has no number of ranks
    # The imported step is the median of the iterations. NCCL's record has no computing, so its steps are from exchange to exchange.
    assert imported.step_s == pytest.approx(
        computed.times[0].median(), rel=0.005 if format == "nccl_inspector" else ROUNDED_S
    )


def test_chakra_brings_back_the_graph(computed: Run, tmp_path: Path) -> None:
    """Computes, their durations and what waits for what: all but the names."""
    job = computed.jobs[0]
    found_again = operations(again(export(computed, job, "chakra", tmp_path, range(1))).trace)
    assert len(found_again) == len(job.operations)
    for found, planned in zip(found_again, job.operations, strict=True):
        assert found.kind == planned.kind and found.after == planned.after
        if found.duration is not None:
            assert found.duration / 1e9 == pytest.approx((planned.duration_ns or 0) / 1e9, abs=2 * ROUNDED_S)


@pytest.mark.parametrize("format", list(NAMES))
def test_a_message_has_two_ends(computed: Run, format: str, tmp_path: Path) -> None:
    job = computed.jobs[1]
    imported = again(export(computed, job, format, tmp_path, range(2)))
    size = job.operations[-1].bytes
    ends = [[(op.kind, op.size) for op in role.operations if not op.computes] for role in imported.trace.roles]
    assert ends == [[("send", size)], [("recv", size)]]


def test_of_an_all_gather_every_format_means_the_whole_tensor(tmp_path: Path) -> None:
    group = Group("tp", 4, ranks=(0, 2, 4, 6))
    slices = []
    for step in range(3):
        begin = 1.0 + step
        slices.append(Slice(0, 2, step, f"iteration {step}", timeline.ITERATION, begin, begin + 1))
        for at, kind in enumerate(("all_gather", "reduce_scatter", "all_to_all", "broadcast")):
            slices.append(
                Slice(0, 2, step, kind, kind, begin + 0.1 + at / 5, begin + 0.2 + at / 5, 4_000_000 + 4 * at, group)
            )
    wanted = [
        (kind, 4_000_000 + 4 * at)
        for at, kind in enumerate(("all_gather", "reduce_scatter", "all_to_all", "broadcast"))
    ]
    (tmp_path / "a.et").write_bytes(chakra.content(slices, 10**15))
    (tmp_path / "a.jsonl").write_text(nccl_inspector.text(slices, ["a"] * 7, 10**15))
    events = [perfetto._slice(one, 1, 3) for one in slices]
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": events}))
    for name in ("a.et", "a.jsonl", "a.json"):
        assert exchanged(again([tmp_path / name]).trace) == wanted, name


def test_inspector_objects_have_the_fields_of_nccls_own(computed: Run) -> None:
    """As ``inspectorCompletedCollVerbose`` and its neighbours write them (NVIDIA/nccl, ext-profiler/inspector/inspector.cc)."""
    job = computed.jobs[0]
    lines = nccl_inspector.text(
        timeline.of_job(computed, job, 1), job.hosts, timeline.started_us(computed)
    ).splitlines()
    assert len(lines) == 6 * 14
    first = json.loads(lines[0])
    assert {"id", "rank", "n_ranks", "nnodes"} <= set(first["header"]) and first["header"]["n_ranks"] == 4
    assert set(first["metadata"]) == {
        "inspector_output_format_version",
        "git_rev",
        "rec_mechanism",
        "dump_timestamp_us",
        "hostname",
        "pid",
    }
    perf = first["coll_perf"]
    assert set(perf) == {
        "coll", "coll_sn", "coll_msg_size_bytes", "coll_exec_time_us", "coll_timing_source", "coll_algobw_gbs", "coll_busbw_gbs", "event_trace_ts"
    }  # fmt: skip
    assert set(perf["event_trace_ts"]) == {"coll_start_ts", "coll_stop_ts", "kernel_events"}
    assert set(perf["event_trace_ts"]["kernel_events"][0]) == {
        "channel_id",
        "kernel_start_ts",
        "kernel_stop_ts",
        "kernel_record_ts",
    }
    assert [json.loads(line)["coll_perf"]["coll_sn"] for line in lines] == list(range(6 * 14))
    assert perf["coll_busbw_gbs"] == pytest.approx(1.5 * perf["coll_algobw_gbs"], rel=1e-4)
