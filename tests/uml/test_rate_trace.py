"""A link whose rate follows a trace carries what the trace says."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from testbed.backends import uml
from tests.support.runs import ROOT, run_plan


def test_a_busy_link_has_the_rates_of_its_trace() -> None:
    trace = str(ROOT / "examples/link_steps.trace")
    files = run_plan(
        uml.find(), jobs=1, iterations=1, compute="1ms", bytes="6MB", system=["reno"], ecn="off", buffer="100p",
        link={"s1-s2": {"rate_trace": trace, "delay": "2ms"}},
    ).files  # fmt: skip
    links = pd.read_csv(io.BytesIO(files["links.csv"]))
    rows = links[links["link"] == "s1-s2"]
    carried = []
    for begin_s, end_s in ((1.0, 1.5), (1.5, 2.0), (2.0, 2.5), (2.5, 3.0)):
        within = rows[(rows["t_s"] >= begin_s + 0.05) & (rows["t_s"] <= end_s - 0.05)]
        first, last = within.iloc[0], within.iloc[-1]
        carried.append((last["bytes"] - first["bytes"]) * 8 / (last["t_s"] - first["t_s"]))
    assert carried == pytest.approx([6e6, 24e6, 6e6, 24e6], rel=0.05)
