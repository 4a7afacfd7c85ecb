"""LTP between hosts of user-mode Linux: over a shaped link that delays and loses, the same bytes every time."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.campaign.verdict import jobs
from testbed.substrates import uml
from tests.runs import one_plan, run_plan

pytestmark = pytest.mark.uml

ASKED: dict[str, Any] = {
    "topo": "star", "jobs": 1, "workers": 4, "collective": "parameter_server", "compute": "5ms", "bytes": "300kB",
    "rate": "300mbit", "delay": "2ms", "loss": "1%", "iterations": 3,
}  # fmt: skip


@pytest.mark.parametrize("system", ["ltp:c=5ms", "ltp:broadcast=tcp:cubic"])
def test_gradients_may_lose_and_every_run_is_the_same(system: str) -> None:
    first, again = (run_plan(uml.find(), system=[system], **ASKED) for _ in range(2))
    names = [name for name in first.files if name.endswith(".csv")]
    assert "messages.csv" in names
    assert [first.files[name] for name in names] == [again.files[name] for name in names]
    messages, flows = first.table("messages.csv"), first.table("flows.csv")
    assert jobs._misreported(one_plan(system=[system], **ASKED).jobs[0], messages) == 0
    gradients, parameters = (messages[messages["stage"] == stage] for stage in ("gradient", "parameter"))
    assert (parameters["delivered"] == parameters["bytes"]).all()
    assert (gradients["delivered"] + gradients["missing"] == gradients["bytes"]).all()
    assert flows["bytes_acked"].max() > 0
