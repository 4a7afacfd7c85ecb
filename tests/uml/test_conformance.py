"""With F ≡ 1 an MLTCP is its base, byte for byte, whatever happens to packets: under every preset, on drawn networks.

The base is the kernel's own Reno, CUBIC and DCTCP (of the version that `kernel/cubic.h` and `kernel/dctcp.h` are copies of),
and DCQCN of `kernel/dcqcn.h`, which has no other form.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from testbed.backends import uml
from tests.support import runs
from tests.support.runs import Result, some

TABLES = ("iterations.csv", "operations.csv", "links.csv", "nics.csv", "flows.csv")
NAMES_THE_SYSTEM = [
    "system",
    "cc",
    "mltcp_r",
    "mltcp_iterations",
    "mltcp_f",
]  # the last three are told by an MLTCP alone
MBIT = {"100mbit": 100, "500mbit": 500, "2gbit": 2000}
WINDOWED = ("paper", "author,total_bytes=1MB", "recommended")
PRESETS = {"reno": WINDOWED, "cubic": WINDOWED, "dctcp": WINDOWED, "dcqcn": ("adapter", "paper", "recommended")}
# All that goes beyond the paper's rule, asked for: with F of one none of it is in force.
SOCKETS = ",learn=first,shared_by=so_mark,ratio=log,bytes_hint=notsent_lowat"
BEYOND = {"window": f",restart=sqrt,host_limit=on,f_floor_cwnd=10,f_applies_to=both{SOCKETS}", "rate": SOCKETS}
SHORT, LONG = 2, 12  # networks drawn for each of four bases
DOWN = [{"at": "400ms", "link": "s1-s2", "state": "down"}, {"at": "460ms", "link": "s1-s2", "state": "up"}]
SLOWER = [{"at": "300ms", "link": "s1-s2", "rate": "40%"}, {"at": "700ms", "link": "s1-s2", "rate": "100%"}]


@st.composite
def networks(draw: st.DrawFn, base: str) -> dict[str, Any]:
    """Fields of a run: several flows, losses, reordering, corruption, marks, timeouts, changes of rate and failures."""
    rate = draw(st.sampled_from(["500mbit", "100mbit", "2gbit"]))
    jobs = draw(st.sampled_from([2, 1, 3]))
    fields: dict[str, Any] = {
        "rate": rate, "iterations": 6, "compute": "60ms", "bytes": f"{MBIT[rate] * 8}kB",  # 64 ms of the link
        "buffer": draw(st.sampled_from(["1ms", "30kB", "8ms"])),
        "delay": draw(st.sampled_from(["1ms", "0ms", "4ms"])),
        "loss": draw(st.sampled_from(["0.5%", "0%", "0.05%"])),
        "corrupt": draw(st.sampled_from(["0.1%", "0%"])),
        "noise": draw(st.sampled_from(["2%", "0%"])),
        "nic": draw(st.sampled_from(["100%", "inf"])),
        "job": [{"channels": draw(st.sampled_from([2, 1, 4]))} for _ in range(jobs)],
        "event": draw(st.sampled_from([[*DOWN, *SLOWER], DOWN, SLOWER, []])),
    }  # fmt: skip
    if fields["delay"] != "0ms":
        fields["jitter"] = draw(st.sampled_from(["0.3ms", "0ms"]))
    if draw(st.booleans()):
        fields["rto_min"] = "5ms"
    if base in ("dctcp", "dcqcn") or draw(st.booleans()):
        fields["ecn"] = "on"
    fields["event"] = sorted(fields["event"], key=lambda one: int(one["at"].removesuffix("ms")))
    return fields


def same(name: str, theirs: Result, ours: Result) -> bool:
    """Every byte of a table, but for what names the system."""
    a, b = (one.table(name).drop(columns=NAMES_THE_SYSTEM, errors="ignore") for one in (theirs, ours))
    return a.to_csv(index=False) == b.to_csv(index=False)


def differences(base: str, preset: str, fields: dict[str, Any]) -> list[str]:
    beyond = BEYOND["rate" if base == "dcqcn" else "window"]
    plain = f"{base}:preset={preset}" if base == "dcqcn" and preset != "recommended" else base
    theirs = runs.run_plan(uml.find(), cc=[plain], **fields)
    ours = runs.run_plan(uml.find(), cc=[f"mltcp_{base}:preset={preset}{beyond},slope=0,intercept=1"], **fields)
    SEEN.append(seen(theirs))
    return [name for name in TABLES if name in theirs.files and not same(name, theirs, ours)]


SEEN: list[dict[str, bool]] = []


def seen(result: Result) -> dict[str, bool]:
    """What the base met, so that a test in which nothing happens does not count."""
    links, flows = result.table("links.csv"), result.table("flows.csv")
    last: pd.DataFrame = flows.groupby(["job", "worker", "flow"]).last()
    return {
        "drops": bool((links.groupby("link")["drops"].last() > 0).any()),
        "marks": bool((links.groupby("link")["ecn_marks"].last() > 0).any()),
        "retransmissions": bool((last["retrans_segments"] > 0).any()),
        "several flows": len(last) > 2,
    }


@pytest.mark.parametrize("drawn", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
@pytest.mark.parametrize("base", some(PRESETS, "reno"))  # of the others a network each, in test_congestion
def test_with_f_of_one_every_table_is_the_bases(base: str, drawn: int) -> None:
    SEEN.clear()

    @settings(
        max_examples=drawn, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(fields=networks(base), preset=st.sampled_from(PRESETS[base]))
    def compare(fields: dict[str, Any], preset: str) -> None:
        assert differences(base, preset, fields) == []

    compare()
    assert len(SEEN) >= drawn
    assert all(any(one[what] for one in SEEN) for what in ("retransmissions", "several flows", "drops"))
