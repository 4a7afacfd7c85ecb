"""Transports over datagrams between hosts of this machine: what they lose stands at both ends alike."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.campaign.verdict import jobs
from tests.support import runs
from tests.support.runs import DEFAULT

pytestmark = pytest.mark.alone

FIELDS: dict[str, Any] = {
    **DEFAULT, "topo": "star", "jobs": 1, "workers": 4, "collective": "parameter_server", "compute": "300ms", "bytes": "100kB",
    "rate": "100mbit", "iterations": 4, "message_log": "per-message",
}  # fmt: skip


@pytest.mark.parametrize("system", ["ltp:c=1ms", "mlt:bands=1,spray=off"])
def test_what_arrived_and_the_holes_are_the_message(system: str) -> None:
    """Three gather at one link, which takes longer than LT and `c`; what MLT may lose it does, too."""
    asked = {**FIELDS, "system": [system]}

    def check(result: runs.Result) -> None:
        messages = result.table("messages.csv")
        assert jobs._misreported(runs.one_plan(**asked).jobs[0], messages) == 0
        assert len(messages) == 2 * 2 * 3 * 4  # ends, stages, workers, iterations
        received = messages[messages["side"] == "receive"]
        assert received["missing"].sum() > 0
        holes = (
            received["missing_ranges"].fillna("").map(lambda text: sum(int(one.split("+")[1]) for one in text.split()))
        )
        assert (received["delivered"] + holes == received["bytes"]).all()
        told = result.manifest["measured"]["datagrams"]
        assert [one["worker"] for one in told] == [0, 1, 2, 3] and all(one["sent"] > 0 for one in told)

    runs.shown_in_real_time(check, **asked)
