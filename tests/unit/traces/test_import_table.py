"""Tables of times and bytes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from testbed.core.units import Duration, Size
from testbed.traces import import_table, trace
from testbed.traces.importing import Imported
from testbed.traces.median_iteration import MEASURED_RATE
from testbed.traces.trace import Operation, TraceError
from tests.support.group_traces import unequal
from tests.support.profiles import imported


def table(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text)
    return path


def test_a_table(tmp_path: Path) -> None:
    rows = ["step,time_ms,bytes,kind"]
    for number, extra in enumerate((0, 2, 4)):
        rows += [f"{number},{10 + extra},1000,", f"{number},20,500,all_gather", f"{number},{50 + extra},0,"]
    trace = imported(table(tmp_path, "\ufeff" + "\r\n".join(rows)))
    assert [(op.kind, op.duration or op.bytes) for op in trace.operations] == [
        ("compute", 12_000_000), ("all_reduce", 1000), ("compute", 8_000_000), ("all_gather", 500),
        ("compute", 32_000_000),
    ]  # fmt: skip
    assert trace.noise == "3.85%"


def test_a_rate_from_the_exchanges_is_measured_not_assumed(tmp_path: Path) -> None:
    found = imported(table(tmp_path, "time_us,bytes\n1e4,1000\n"), iteration=Duration.parse("30ms"))
    found = msgspec.structs.replace(found, assumptions=(f"{MEASURED_RATE}, 8 Gbit/s", "another"))
    rows = list(import_table.lines(Imported(found, (), 0, 0.0)))
    assert (
        import_table.row("measured", f"{MEASURED_RATE}, 8 Gbit/s") in rows
        and import_table.row("assumed", "another") in rows
    )


def test_a_csv_file_with_other_columns_is_told_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"columns are 'time,size'.* needs bytes and one of time_s"):
        imported(table(tmp_path, "time,size\n1,5\n"))


def test_a_table_without_an_end(tmp_path: Path) -> None:
    path = table(tmp_path, "time_us,bytes\n1e4,1000\n")
    with pytest.raises(TraceError, match="--iteration 222ms"):
        imported(path)
    assert imported(path, iteration=Duration.parse("30ms")).compute_s == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time_s,bytes\n", "no rows"),
        ("time_s,bytes\n1,2,3\n2,0\n", None),
        ("time_s,bytes\n1,many\n", "line 2: 'bytes' is 'many'"),
        ("time_s,bytes\n1\n", "'bytes' is None"),
        ("time_s,bytes\n-1,5\n2,0\n", "line 2: 'time_s' is '-1'"),
        ("time_s,bytes\nnan,5\n2,0\n", "'time_s' is 'nan'"),
        ("time_s,bytes\n1,0.5\n2,0\n", "not a whole number"),
        ("time_s,bytes\n1,1e17\n2,0\n", "implausible"),
        ("time_s,bytes\n1e9,5\n2e9,0\n", "implausible for an iteration"),
        ("time_s,bytes\n1,0\n2,0\n", "only the end may have none"),
        ("time_s,bytes\n1,5\n", "--iteration"),
        ("time_s,size\n1,5\n", "columns 'bytes' and one of"),
        ("time_s,time_ms,bytes\n1,1,5\n", "columns 'bytes' and one of"),
        ("time_s,bytes,bytes\n1,1,5\n", "a column twice"),
        ("time_s,bytes,kind\n1,5,dance\n", "kind 'dance' is none of all_reduce"),
        ('time_s,bytes\n"' + "1" * 200_000, "field larger than field limit"),
        ("time_s,bytes\n" + "1" * 20_000_000, "more than 8 MiB"),
    ],
)
def test_a_table_that_makes_no_sense(tmp_path: Path, text: str, says: str | None) -> None:
    path = table(tmp_path, text)
    if says is None:  # a column more than the header names is nobody's business
        imported(path)
        return
    with pytest.raises(TraceError) as error:
        imported(path)
    assert says in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize(("rank", "sent"), [(0, "1 MB out"), (3, "1.33333 MB out")])
def test_bytes_are_those_of_the_ranks_own_list(tmp_path: Path, rank: int, sent: str) -> None:
    path = tmp_path / "unequal.json"
    path.write_text(json.dumps(unequal()))
    rows = list(import_table.lines(Imported(trace.load(str(path)), (), rank, 0.0)))
    assert sent in next(row for row in rows if row.strip().startswith("bytes"))


def test_the_period_counts_what_crosses_the_network() -> None:
    """Groups inside a server take no time: 108 ms of computing, and 90 MB of group dp at 20 Gbit/s."""
    operations = (
        Operation(id="a", kind="compute", duration=Duration.parse("108ms")),
        Operation(id="b", kind="all_reduce", group="tp", bytes=Size.parse("256MB"), after=("a",)),
        Operation(id="c", kind="all_reduce", group="dp", bytes=Size.parse("60MB"), after=("b",)),
    )
    sizes: dict[str | None, int] = {"tp": 8, "dp": 4}
    assert import_table.timing(operations, sizes, 20e9, ("tp",)).period_s == pytest.approx(0.144)
    assert import_table.timing(operations, sizes, 20e9).period_s == pytest.approx(0.144 + 0.1792)
