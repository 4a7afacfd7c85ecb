"""LTP between hosts of user-mode Linux: over a shaped link that delays and loses, the same bytes every time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.backends import uml
from testbed.campaign.verdict import jobs
from testbed.transports.datagram import native
from tests.support.processes import HANG_S
from tests.support.runs import one_plan, run_plan, some
from tests.uml import inside_transports

pytestmark = pytest.mark.uml

EXAMPLE = Path(__file__).parents[2] / "examples" / "transport_deadline.py"
ASKED: dict[str, Any] = {
    "topo": "star", "jobs": 1, "workers": 4, "collective": "parameter_server", "compute": "5ms", "bytes": "300kB",
    "rate": "300mbit", "delay": "2ms", "loss": "1%", "iterations": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    "system",
    some(
        ["ltp:c=5ms", "ltp:broadcast=tcp:cubic", "mlt:parameters=whole", "dlcp:parameters=whole"],
        "ltp:c=5ms", "mlt:parameters=whole",
    ),
)  # fmt: skip
def test_gradients_may_lose_and_every_run_is_the_same(system: str) -> None:
    asked = {**ASKED, "ecn": "on"}  # which MLT's bands go by
    first, again = (run_plan(uml.find(), system=[system], **asked) for _ in range(2))
    names = [name for name in first.files if name.endswith(".csv")]
    assert "messages.csv" in names
    assert [first.files[name] for name in names] == [again.files[name] for name in names]
    messages, flows = first.table("messages.csv"), first.table("flows.csv")
    assert jobs._misreported(one_plan(system=[system], **asked).jobs[0], messages) == 0
    gradients, parameters = (messages[messages["stage"] == stage] for stage in ("gradient", "parameter"))
    assert (parameters["delivered"] == parameters["bytes"]).all()
    assert (gradients["delivered"] + gradients["missing"] == gradients["bytes"]).all()
    assert flows["bytes_acked"].max() > 0


def test_a_transport_of_your_own(tmp_path: Path) -> None:
    """The example, from another folder: messages end at its deadline, and both ends report the same."""
    own = shutil.copy(EXAMPLE, tmp_path)
    asked: dict[str, Any] = {**ASKED, "loss": "5%", "system": [f"{own}:after=5ms"], "message_log": "per-message"}
    messages = run_plan(uml.find(), **asked).table("messages.csv")
    assert jobs._misreported(one_plan(**asked).jobs[0], messages) == 0
    gradients, parameters = (messages[messages["stage"] == stage] for stage in ("gradient", "parameter"))
    assert gradients["missing"].sum() > 0 and (parameters["missing"] == 0).all()


def test_optireduce_gives_up_what_is_late_and_both_ends_say_the_same() -> None:
    """The first round arrives whole; later ones may lose in both stages, and say exactly what."""
    asked: dict[str, Any] = {
        **ASKED,
        "collective": "transpose",
        "workers": 3,
        "system": ["optireduce:rounds=1"],
        "loss": "3%",
        "iterations": 4,
        "message_log": "per-message",
    }
    messages = run_plan(uml.find(), **asked).table("messages.csv")
    assert jobs._misreported(one_plan(**asked).jobs[0], messages) == 0
    assert (messages["delivered"] + messages["missing"] == messages["bytes"]).all()
    assert messages[messages["iteration"] == 0]["missing"].sum() == 0 < messages["missing"].sum()
    late = messages[messages["missing"] > 0]
    assert (late["closed_fraction"] + late["closed_deadline"] == 1).all()


def test_jobs_that_send_one_way_take_no_longer_and_both_ends_say_the_same() -> None:
    """What comes back is a byte an iteration: a sender that measured itself would soon hold it back for seconds."""
    asked: dict[str, Any] = {
        "system": ["ltp"],
        "jobs": 2,
        "rate": "100mbit",
        "compute": "20ms",
        "bytes": "200kB",
        "iterations": 8,
    }
    result, plan = run_plan(uml.find(), **asked), one_plan(**asked)
    assert sum(jobs._misreported(job, result.table("messages.csv")) for job in plan.jobs) == 0
    iterations = result.table("iterations.csv")
    took = iterations["end_s"] - iterations["start_s"]
    assert took.max() < 2 * (plan.jobs[0].ideal_s or 0)


def test_a_hosts_link_of_a_fabric_loses_in_the_direction_that_was_asked_for() -> None:
    """Of what one worker sends a fifth: it sends that again, and nobody else does, nor is anything sent again that goes to it."""
    asked: dict[str, Any] = {
        **ASKED, "topo": "leafspine,4,1,1", "system": ["ltp:fraction=1"], "delay": "0ms", "loss": "0%", "buffer": "1MB",
        "set": ("link.h2-l2.loss=20%", "link.h2-l2.oneway=true"), "message_log": "per-message",
    }  # fmt: skip
    sent = run_plan(uml.find(), **asked).table("messages.csv")
    again = sent[sent["side"] == "send"].groupby(["worker", "stage"])["resent"].sum()
    worker = one_plan(**asked).jobs[0].hosts.index("h2")
    assert again[worker, "gradient"] > 0
    assert again.drop((worker, "gradient")).sum() == 0


def test_every_message_has_a_row_and_tcp_may_be_closed_early() -> None:
    asked = {
        **ASKED,
        "collective": "sharded_parameter_server",
        "system": ["reno:close=0.5"],
        "message_log": "per-message",
    }
    messages = run_plan(uml.find(), **asked).table("messages.csv")
    assert jobs._misreported(one_plan(**asked).jobs[0], messages) == 0
    gradients = messages[messages["stage"] == "gradient"]
    assert (messages["messages"] == 1).all() and (messages["operation"] >= 0).all()
    assert (gradients["closed_fraction"] == 1).all()
    assert (gradients["delivered"] - gradients["bytes"] / 2).between(0, 4).all()


@pytest.mark.skipif(shutil.which("tc") is None, reason="there is no tc here (package iproute2)")
def test_foreign_datagrams_take_what_they_take_and_no_more() -> None:
    """64-byte datagrams of a stranger at 5 % of the link: the goodput is within 5 % of what remains."""
    native.build()
    told = json.loads(uml.find().call("tests.uml.inside_transports:foreign_datagrams", HANG_S))
    share = inside_transports.SHARE
    assert told["alone"] > 0.85 * inside_transports.RATE_BPS
    assert told["beside"] >= 0.95 * (1 - share) * told["alone"]


@pytest.mark.parametrize("system", ["ltp", "mlt"])
def test_no_burst_at_a_connections_start_on_a_path_without_length(system: str) -> None:
    """A handshake takes 20 ns there: ten packets in one such round trip would be a rate that holds a whole message back nowhere."""
    asked: dict[str, Any] = {**ASKED, "delay": "0ms", "loss": "0%", "rate": "100mbit", "bytes": "116kB", "ecn": "on"}
    told = run_plan(uml.find(), system=[system], **asked).manifest
    (options,) = told["transports"].values()
    assert options["rx_coalesce"] == "20 us"  # as in force, though nobody said it
    sent = told["measured"]["datagrams"]
    assert max(one["burst"] for one in sent) <= 5  # four, and one more where the rate rises at that instant


@pytest.mark.slow
def test_mlt_takes_every_path_alike() -> None:
    """Over four spines: the bytes of a job on each of them are the same within 2 %; not where routers hash over 64 addresses, still less by one."""
    asked: dict[str, Any] = {
        "topo": "leafspine,2,4,2", "jobs": 1, "workers": 2, "scheduler": "spread", "collective": "ring", "compute": "5ms", "bytes": "4MB",
        "rate": "300mbit", "iterations": 2, "ecn": "on",
    }  # fmt: skip
    shares = {}
    for system in ("mlt:bands=1", "mlt:bands=1,spray=hashed:64", "mlt:bands=1,spray=off"):
        links = run_plan(uml.find(), system=[system], **asked).table("links.csv")
        up = links[links["link"].str.startswith("l1-")].groupby("link")["bytes"].max()
        shares[system] = (up.max() - up.min()) / up.mean()
    assert shares["mlt:bands=1"] < 0.02 < 0.1 < shares["mlt:bands=1,spray=hashed:64"] < shares["mlt:bands=1,spray=off"]
    assert shares["mlt:bands=1,spray=off"] > 0.5


@pytest.mark.slow
def test_a_ring_may_bound_what_is_lost_from_end_to_end() -> None:
    """Of four workers: with 20 % for each hop messages miss more than the 7.2 % that each of three may miss where 20 % are for all together."""
    asked: dict[str, Any] = {
        **ASKED,
        "workers": 4,
        "collective": "ring",
        "loss": "12%",
        "iterations": 4,
        "bytes": "2MB",
    }
    most = {}
    for how in ("hop", "end"):
        messages = run_plan(
            uml.find(), system=[f"mlt:tolerance=20%,bands=1,ring={how}"], message_log="per-message", **asked
        ).table("messages.csv")
        most[how] = (messages["missing"] / messages["bytes"]).max()
    assert most["end"] <= 1 - 0.8 ** (1 / 3) < most["hop"] <= 0.2


@pytest.mark.parametrize(("epoch", "again"), [(3, True), (13, False), (1000, True)])
def test_lt_is_raised_again_when_a_links_rate_halves(epoch: int, again: bool) -> None:
    """In mid-run: a deadline closes every gradient, until an epoch has ended without a whole one, and another.

    The control's epoch ends with the run, so that its LT stays. One that never ends has the first LT, which is what the
    sender measures: it follows the link by itself.
    """
    asked: dict[str, Any] = {
        "topo": "star", "jobs": 1, "workers": 2, "collective": "parameter_server", "compute": "5ms", "bytes": "100kB",
        "rate": "100mbit", "delay": "1ms", "iterations": 26, "event": [{"at": "380ms", "link": "h1-s1", "rate": "50%"}],
    }  # fmt: skip
    result = run_plan(uml.find(), system=[f"ltp:epoch={epoch},c=1ms"], **asked)
    messages, iterations = result.table("messages.csv"), result.table("iterations.csv").query("worker == 0")
    gradients = messages.query("side == 'receive' and stage == 'gradient'").set_index("iteration")
    share = gradients["delivered"] / gradients["bytes"]
    halved = int((iterations["start_s"] < 0.38).sum())  # the first round that begins behind it
    assert halved > 13  # the control's first epoch is over
    assert share[: halved - 1].min() > 0.95
    assert share[halved : halved + 2].max() < 0.8
    assert share[-3:].min() > 0.95 if again else share[halved:].max() < 0.8
