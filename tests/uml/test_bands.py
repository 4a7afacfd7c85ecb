"""Bands of priority at a switch: what can be marked is marked, what cannot is dropped from the same threshold on."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.backends import uml
from tests.support.runs import Result, run_plan, some

pytestmark = pytest.mark.uml

# An incast: three workers send to one at once.
ASKED: dict[str, Any] = {
    "topo": "star", "jobs": 1, "workers": 4, "collective": "parameter_server", "compute": "5ms", "bytes": "2MB",
    "rate": "300mbit", "iterations": 3, "ecn": "30kB", "buffer": "200p",
}  # fmt: skip


def counted(result: Result, column: str, band: int | None = None, link: str = "s1-h1") -> int:
    """What ``priority_queues.csv`` says of one link, of one band or all."""
    table = result.table("priority_queues.csv")
    rows = table[(table["link"] == link) & ((table["band"] == band) | (band is None))]
    assert len(rows) == (3 if band is None else 1)
    return int(rows[column].sum())


def everywhere(result: Result, column: str) -> int:
    """What it says of all links and bands together."""
    return int(result.table("priority_queues.csv")[column].sum())


def test_a_switch_marks_what_can_be_marked() -> None:
    result = run_plan(uml.find(), priority_queues="2,drop-non-ect", system=["dctcp"], **ASKED)
    assert counted(result, "ecn_marks", 0) > 0 and counted(result, "packets", 0) > 1000
    assert counted(result, "dropped_non_ect") == 0
    assert counted(result, "ecn_marks", link="h1-s1") == 0  # hosts have PRIO, and no RED
    assert counted(result, "packets", 2, "h1-s1") > 100  # pure ACKs travel above all data


@pytest.mark.slow
def test_a_switch_drops_what_cannot_be_marked() -> None:
    """The datagrams of LTP are not ECN-capable."""
    dropping, keeping = (run_plan(uml.find(), bands=bands, system=["ltp"], **ASKED) for bands in ("2,drop", "2"))
    assert counted(dropping, "ecn_marks") == 0
    assert counted(dropping, "dropped_non_ect", 0) > 0 and counted(dropping, "dropped_overflow") == 0
    assert counted(keeping, "dropped_non_ect") == 0


def test_of_one_transport_a_switch_drops_what_matters_less_and_marks_the_rest() -> None:
    """MLT's packets say by themselves which of them may go; with `tag=none` none may, and all are marked.

    With room for what comes before marks are heard of, nothing else is lost; 200 packets would not be enough of it.
    """
    asked = ASKED | {"buffer": "3200p"}
    chosen, none = (
        run_plan(uml.find(), system=[f"mlt:rate=dctcp,bands=2+drop{tag}"], **asked) for tag in ("", ",tag=none")
    )
    for result in (chosen, none):
        assert counted(result, "ecn_marks") > 0 and everywhere(result, "dropped_overflow") == 0
    assert counted(chosen, "dropped_non_ect") > 0 == everywhere(none, "dropped_non_ect")


def test_below_its_thresholds_a_switch_leaves_all_as_it_is() -> None:
    """What three workers send at once is less than what marks or drops, so that half of it may go and none does."""
    asked = ASKED | {"ecn": "200kB", "buffer": "400kB", "bytes": "30kB"}
    result = run_plan(uml.find(), system=["mlt:rate=dctcp,bands=2+drop"], **asked)
    assert counted(result, "packets") > 3 * 3 * 30_000 / 1500
    assert [everywhere(result, column) for column in ("ecn_marks", "dropped_non_ect", "dropped_overflow")] == [0, 0, 0]
    assert result.table("messages.csv")["resent"].sum() == 0


@pytest.mark.slow
def test_each_band_counts_for_itself() -> None:
    """Layers of a model, the first ones high: what they need is neither marked nor dropped, what comes last is both; and nothing of control."""
    asked = ASKED | {
        "trace": "vgg16-layers", "keep_duty": True, "compute": None, "bytes": None, "collective": "sharded_parameter_server", "rate": "500mbit", "mtu": 1500,
        "ecn": "40kB", "buffer": "200kB", "credit_bytes": "320kB", "partition_bytes": "80kB", "iterations": 1,
    }  # fmt: skip
    table = run_plan(uml.find(), system=["mlt"], **asked).table("priority_queues.csv")
    bands = (
        table[table["link"].str.startswith("s1-")].groupby("band")[["packets", "ecn_marks", "dropped_non_ect"]].sum()
    )
    assert list(bands.index) == [0, 1, 2, 3, 4] and (bands["packets"] > 100).all()
    touched = bands[["ecn_marks", "dropped_non_ect"]].to_numpy()
    assert (touched[0] > 0).all() and not touched[2:].any()


@pytest.mark.parametrize(
    ("bands", "threshold"), some([(1, 120_000), (2, 60_000), (4, 30_000)], (2, 60_000), mark=pytest.mark.slow)
)
def test_the_higher_a_band_the_less_it_holds(bands: int, threshold: int) -> None:
    """One tensor is always in the highest band: what it drops from keeps the queue there, at first from above."""
    asked = ASKED | {"ecn": "120kB", "buffer": "400p"}
    links = run_plan(uml.find(), system=[f"mlt:rate=dctcp,bands={bands}+drop"], **asked).table("links.csv")
    backlog = links[(links["link"] == "s1-h1") & (links["backlog_bytes"] > 0)]["backlog_bytes"]
    assert backlog.quantile(0.25) == pytest.approx(threshold, rel=0.1)
