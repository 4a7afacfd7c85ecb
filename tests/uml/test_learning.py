"""A training over the emulated network, closed loop: what is lost is missing of the sum, and the same every time."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.backends import uml
from testbed.transports.datagram import native
from tests.support.processes import HANG_S
from tests.support.runs import Result, run_plan, some

pytestmark = pytest.mark.uml

ASKED: dict[str, Any] = {
    "topo": "star", "jobs": 1, "workers": 4, "train": "cnn", "compute": "5ms", "rate": "100mbit", "loss": "1%",
    "iterations": 12, "rto_min": "5ms",
}  # fmt: skip


def looks(run: Result) -> list[float]:
    return [float(look) for look in run.table("training.csv")["accuracy"].dropna()]


@pytest.fixture(scope="module")
def whole() -> list[float]:
    return looks(run_plan(uml.find(), system=["reno"], **ASKED))


@pytest.mark.slow
@pytest.mark.timeout(HANG_S)
def test_it_learns_the_same_by_whatever_delivers_everything(whole: list[float]) -> None:
    native.build()
    assert len(whole) == 1 and 0 < whole[0] < 1
    assert looks(run_plan(uml.find(), system=["ltp:fraction=1"], **ASKED)) == whole


@pytest.mark.slow
@pytest.mark.timeout(HANG_S)
def test_a_ring_learns_and_what_is_lost_drives_replicas_apart() -> None:
    """Alike by whatever delivers everything; with holes they are apart, and together again after every fourth round; the same every time."""
    native.build()
    asked = {**ASKED, "collective": "ring", "train": "perceptron"}
    reno, ltp = (
        run_plan(uml.find(), system=[system], **asked).table("training.csv") for system in ("reno", "ltp:fraction=1")
    )
    assert (reno["replica_divergence"] == 0).all() and reno["accuracy"].equals(ltp["accuracy"])
    asked |= {"ecn": "on", "loss": "5%", "system": ["mlt:tolerance=0.4,resync=4"]}
    first, again = (run_plan(uml.find(), **asked) for _ in range(2))
    assert first.files["training.csv"] == again.files["training.csv"]
    apart = first.table("training.csv").set_index("iteration")["replica_divergence"]
    assert list(apart.index[apart == 0]) == [3, 7, 11]


@pytest.mark.slow
@pytest.mark.timeout(HANG_S)
@pytest.mark.parametrize(
    ("system", "train"), [("ltp", "torch_cnn"), ("mlt:parameters=whole,tolerance=0.3", "torch_cnn:fill=feedback")]
)
def test_pytorch_learns_there_too(system: str, train: str) -> None:
    """Of what it sends something is missing, with the packets' tags by its values or without; and all is the same again."""
    pytest.importorskip("torch")
    native.build()
    asked = {**ASKED, "train": train, "system": [system], "ecn": "on"}
    first, again = (run_plan(uml.find(), **asked) for _ in range(2))
    assert looks(first) == looks(again) and first.files["messages.csv"] == again.files["messages.csv"]
    messages = first.table("messages.csv")
    assert messages[messages["stage"] == "gradient"]["missing"].sum() > 0


@pytest.mark.timeout(HANG_S)
@pytest.mark.parametrize("train", some(["cnn", "cnn:fill=feedback", "gru"], "cnn:fill=feedback"))
def test_what_is_lost_is_missing_and_every_run_is_the_same(train: str) -> None:
    native.build()
    asked = {**ASKED, "train": train, "ecn": "on"}
    first, again = (run_plan(uml.find(), system=["mlt:parameters=whole,tolerance=0.3"], **asked) for _ in range(2))
    names = [name for name in first.files if name.endswith(".csv")]
    assert {"messages.csv", "training.csv"} <= set(names)
    assert [first.files[name] for name in names] == [again.files[name] for name in names]
    messages = first.table("messages.csv")
    gradients = messages[(messages["side"] == "receive") & (messages["stage"] == "gradient")]
    assert 0 < gradients["missing"].sum() <= 0.3 * gradients["bytes"].sum()


@pytest.mark.timeout(HANG_S)
@pytest.mark.parametrize(
    ("rule", "least", "most"),
    some(
        [("packet-median", 0.5, 0.53), ("element-median", 0.75, 0.999)],
        ("packet-median", 0.5, 0.53),
        mark=pytest.mark.slow,
    ),
)
def test_a_run_says_which_share_of_its_packets_its_tags_call_important(rule: str, least: float, most: float) -> None:
    """Of real gradients: half of each message's by our rule, nearly all by the published one."""
    native.build()
    run = run_plan(uml.find(), system=[f"mlt:tag={rule}"], **{**ASKED, "ecn": "on"})
    told = run.manifest["measured"]["datagrams"]
    tagged, important = (sum(each[what] for each in told) for what in ("tagged", "important"))
    assert tagged > 0 and least <= important / tagged <= most


@pytest.mark.slow
@pytest.mark.timeout(HANG_S)
def test_lost_parameters_leave_workers_apart_until_a_round_is_whole() -> None:
    """What the server says of its workers, and what they say of their messages."""
    native.build()
    asked = {**ASKED, "ecn": "on"}
    run = run_plan(uml.find(), system=["mlt:resync=5"], **asked)
    apart = run.table("training.csv").set_index("iteration")["replica_divergence"]
    assert apart.index.tolist() == list(range(12))
    messages = run.table("messages.csv")
    pulled = messages[(messages["side"] == "receive") & (messages["stage"] == "parameter")]
    missing = pulled.groupby("iteration")["missing"].sum()
    for rounds in (apart, missing):
        assert (rounds[[4, 9]] == 0).all() and (rounds.drop([4, 9]) > 0).any()
    whole = run_plan(uml.find(), system=["mlt:parameters=whole"], **asked).table("training.csv")["replica_divergence"]
    assert len(whole) == 12 and (whole == 0).all()
