"""Exports of Nsight Systems, against numbers by hand; such a file is not trusted."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from testbed.core.units import Size
from testbed.traces import importing, nsys_tables
from testbed.traces.trace import Trace, TraceError
from tests.support.profiles import collectives, imported
from tests.support.records import Nsys, nsys


def written(folder: Path, content: bytes) -> Path:
    path = folder / "report.sqlite"
    path.write_bytes(content)
    return path


def check(trace: Trace) -> None:
    assert sorted(collectives(trace)) == [("all_reduce", 4_000_000), ("all_reduce", 8_000_000)]
    assert trace.compute_s == pytest.approx(0.09, abs=1e-4)
    assert trace.ranks == 8 and trace.source.on == "H100"


@pytest.mark.parametrize("payload", ["binary", "json"])
@pytest.mark.parametrize("named", ["ProfilerStep#{}", "iteration {}", "train_step", ""])
def test_kernels_and_payloads(tmp_path: Path, payload: str, named: str) -> None:
    path = written(tmp_path, nsys(payload=payload, named=named))
    assert importing.detect(path) == "nsys"
    check(imported(path))


def test_when_each_all_reduce_is_ready(tmp_path: Path) -> None:
    trace = imported(written(tmp_path, nsys()))
    durations = {op.id: (op.duration or 0) / 1e6 for op in trace.operations if op.computes}
    first, second = (op for op in trace.operations if not op.computes)
    assert [durations[first.after[0]], durations[second.after[0]]] == pytest.approx([50, 30], abs=0.1)
    assert trace.operations[-1].duration == pytest.approx(10_000_000, abs=1e5)


def test_without_payloads_sizes_are_given_by_hand(tmp_path: Path) -> None:
    path = written(tmp_path, nsys(payload=""))
    with pytest.raises(TraceError, match="--bytes"):
        imported(path)
    trace = imported(path, sizes=(Size.parse("8MB"), Size.parse("4MB")), ranks=8)
    check(trace)


def test_an_all_to_all_is_a_batch_of_messages(tmp_path: Path) -> None:
    made = Nsys("json")
    made.range("ncclCommInitRank", 10, 50, 0, comm=7, ranks=4, rank=0)
    for step in range(6):
        now = 1000.0 + 50_000 * step
        made.kernel("experts", now + 10, now + 20, 19_980)
        for peer in range(4):
            for name in ("Send", "Recv"):
                made.range(f"nccl{name}", now + 20 + 2 * peer, 1)
                made.database.execute(
                    "UPDATE NVTX_EVENTS SET jsonText = ? WHERE rowid = last_insert_rowid()",
                    (
                        f'{{"NCCL communicator ID": "0x7", "Message size [bytes]": {1000 * (peer + 1)}, "Peer rank": {peer}}}',
                    ),
                )
        made.range("ncclGroupEnd", now + 40, 20)
        made.kernel("ncclDevKernel_SendRecv(x)", now + 50, now + 20_000, 5000)
    trace = imported(written(tmp_path, made.content()))
    assert [(op.kind, op.splits) for op in trace.operations if not op.computes] == [
        ("all_to_all", (1000, 2000, 3000, 4000))
    ]


def test_one_of_several_gpus(tmp_path: Path) -> None:
    made = sqlite3.connect(":memory:")
    made.deserialize(nsys())
    made.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT start, end, 1, 1, streamId, correlationId, globalPid, demangledName, shortName FROM CUPTI_ACTIVITY_KIND_KERNEL"
    )
    made.commit()
    check(imported(written(tmp_path, made.serialize())))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "no table CUPTI_ACTIVITY_KIND_KERNEL"),
        ("UPDATE StringIds SET value = 'x' WHERE value LIKE 'ncclDev%'", "no kernel of NCCL"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 5", "no span of time"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'", "no span of time"),
        ("DROP TABLE NVTX_EVENTS", "--bytes"),
    ],
)
def test_an_export_that_makes_no_sense(tmp_path: Path, change: str, says: str) -> None:
    made = sqlite3.connect(":memory:")
    made.deserialize(nsys())
    made.execute(change)
    made.commit()
    with pytest.raises(TraceError, match=says):
        imported(written(tmp_path, made.serialize()))


_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 'nccl' AS value FROM n"


@pytest.mark.parametrize("table", ["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"])
def test_a_view_that_never_ends_is_not_read(tmp_path: Path, table: str) -> None:
    made = sqlite3.connect(":memory:")
    made.deserialize(nsys())
    made.execute(f"DROP TABLE {table}")
    made.execute(f"CREATE VIEW {table} AS {_ENDLESS}")
    made.commit()
    with pytest.raises(TraceError):
        imported(written(tmp_path, made.serialize()))


def test_reading_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join without an index, of a few thousand rows each."""
    monkeypatch.setattr(nsys_tables, "LONGEST_S", 0.2)
    monkeypatch.setattr(nsys_tables, "_OPERATIONS", 1000)
    made = sqlite3.connect(":memory:")
    made.deserialize(nsys())
    made.execute(f"INSERT INTO TARGET_INFO_GPU SELECT 1, hex(zeroblob(20)) || id FROM ({_ENDLESS} LIMIT 200000)")
    made.commit()
    path = written(tmp_path, made.serialize())
    with nsys_tables.Tables(path) as tables:
        time.sleep(0.25)
        with pytest.raises(TraceError, match="longer"):
            list(tables.rows("TARGET_INFO_GPU", ("name",), "name LIKE '%a%b%c%'"))


def test_a_database_of_something_else(tmp_path: Path) -> None:
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE mine (a)")
    made.commit()
    with pytest.raises(TraceError, match="nsys profile"):
        imported(written(tmp_path, made.serialize()))


def test_names_that_are_no_text(tmp_path: Path) -> None:
    content = nsys()
    for name in (b"correlationId", b"CUPTI_ACTIVITY_KIND_KERNEL", b"globalTid"):
        with pytest.raises(TraceError):
            imported(written(tmp_path, content.replace(name, b"\xe4" + name[1:])))
