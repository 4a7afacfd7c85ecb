"""The cells of tables are numbers as people write them."""

from __future__ import annotations

import re
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from testbed.cli.schedule import output
from testbed.cli.schedule.emulate import Emulated
from testbed.cli.table import metrics_tables
from testbed.core.placing import Idle, Metrics
from testbed.core.terminal import Sheet
from testbed.core.units import Rate, Size
from testbed.planning.schedules import Carried

EXPONENT = re.compile(r"e[+-]\d")
TIMES = st.floats(0, 1e9, allow_subnormal=False)
METRICS = st.builds(
    Metrics, **{field.name: TIMES for field in fields(Metrics) if field.name not in ("utilisation", "max_contention", "idle_gpu_h")},
    utilisation=st.floats(0, 1), max_contention=st.integers(0, 100), idle_gpu_h=st.builds(Idle, TIMES, TIMES, TIMES, TIMES),
)  # fmt: skip


def cells(sheet: Sheet) -> list[str]:
    return [str(cell) for row in sheet.rows for cell in row]


@given(METRICS)
def test_schedules_are_printed_without_exponents(metrics: Metrics) -> None:
    for sheet in metrics_tables({"fifo": metrics}):
        assert not any(map(EXPONENT.search, cells(sheet))), cells(sheet)


@given(METRICS, TIMES, TIMES)
def test_emulated_schedules_are_printed_without_exponents(metrics: Metrics, makespan_s: float, mean_s: float) -> None:
    came = Emulated("reno", makespan_s, mean_s, 0.1, 0.1, 0.1, "valid", "", ())
    sheet = output.beside([output.Result("fifo", Carried(metrics, 1, ()), 0.1, (came,))])
    assert not any(map(EXPONENT.search, cells(sheet))), cells(sheet)


@given(st.integers(0, 10**18))
def test_quantities_are_printed_without_exponents(value: int) -> None:
    assert not any(map(EXPONENT.search, (str(Rate(value)), str(Size(value)))))
