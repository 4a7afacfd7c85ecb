"""Jobs with several process groups under virtual time: what each rank puts on the wire, in each direction."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.campaign.verdict import jobs
from testbed.core.runs import rundir
from testbed.planning import plan
from testbed.traces import model_jobs, trace
from tests.support import runs
from tests.support.group_traces import (
    ACTIVATION,
    EXPERTS,
    GRADIENT,
    MICRO_BATCHES,
    PARTS,
    experts,
    overlapping,
    pipeline,
    rails,
    unequal,
)

ITERATIONS = 8


def run(folder: Path, content: dict[str, Any], **fields: Any) -> runs.Result:
    path = folder / "trace.json"
    path.write_text(json.dumps(content))
    asked: dict[str, Any] = {
        "jobs": len(fields.get("job", [None])),
        "trace": str(path),
        "topo": "star",
        "system": ["reno"],
        "iterations": ITERATIONS,
        "rate": "500mbit",
    }
    one = plan.plans(plan.resolve(spec.read(None, asked | fields)))[0]
    return runs.Result(rundir.unpack(uml.find().run(one, lambda event: None, patience(one))))


def on_the_wire(result: runs.Result) -> dict[tuple[int, int], int]:
    """Bytes acknowledged on each flow, over all of its connections."""
    last = result.table("flows.csv").sort_values("t_s").groupby(["worker", "flow"]).last().reset_index()
    found: Counter[tuple[int, int]] = Counter()
    for flow, acked in zip(last["flow"], last["bytes_acked"], strict=True):
        source, target = flow.partition("#")[0].split("-")
        found[int(source), int(target)] += int(acked)
    return dict(found)


def check(result: runs.Result, expected: dict[tuple[int, int], int]) -> None:
    iterations = result.table("iterations.csv")
    for rank in range(max(max(flow) for flow in expected) + 1):
        sent = sum(size for (source, _), size in expected.items() if source == rank)
        assert set(iterations[iterations["worker"] == rank]["bytes"]) == {sent}, rank
    found = on_the_wire(result)
    assert set(found) == set(expected)
    case = runs.case(result)
    assert jobs.bytes_per_flow(case.plan.jobs[0]) == expected and not jobs.other_bytes(case)
    first, *_, last = sorted(expected, key=expected.__getitem__)
    if 2 * expected[first] < expected[last]:  # what one flow carried, under the name of another
        a, b = ("{}-{}".format(*pair) for pair in (first, last))
        names = case.flows["flow"].str.replace(
            rf"^({a}|{b})(?=#|$)", lambda found: b if found[1] == a else a, regex=True
        )
        assert jobs.other_bytes(replace(case, flows=case.flows.assign(flow=names)))


@pytest.mark.parametrize("channels", [1, 2])
def test_tensor_pipeline_and_data_parallel(tmp_path: Path, channels: int) -> None:
    """A ring of two sends the whole tensor; tensor parallelism stays inside servers."""
    expected = dict[tuple[int, int], int]()
    for pair in ((0, 2), (1, 3), (4, 6), (5, 7)):
        expected |= dict.fromkeys((pair, pair[::-1]), GRADIENT)
    for pair in ((0, 4), (1, 5), (2, 6), (3, 7)):
        expected |= dict.fromkeys((pair, pair[::-1]), MICRO_BATCHES * ACTIVATION)
    result = run(tmp_path, pipeline(), intra_rate="10gbit", channels=channels)
    check(result, expected)
    hosts = result.manifest["plan"]["jobs"][0]["hosts"]
    assert len(set(hosts)) == 4 and all(hosts[rank] == hosts[rank + 1] for rank in (0, 2, 4, 6))
    operations = result.table("operations.csv").query("operation == 'tp0'")
    assert (operations["end_s"] - operations["start_s"] >= 200_000 * 8 / 10e9 - 1e-9).all()  # 2 (n − 1) / n of it


def test_a_server_of_two_interfaces(tmp_path: Path) -> None:
    """Each rank's bytes leave by its own interface, and inside a server ranks still wait for each other."""
    gradient = 400_000
    result = run(tmp_path, rails(2, gradient), intra_rate="10gbit", nics=2)
    check(result, {flow: gradient for pair in ((0, 2), (1, 3)) for flow in (pair, pair[::-1])})
    assert result.manifest["plan"]["jobs"][0]["hosts"] == ["h1n1", "h1n2", "h2n1", "h2n2"]
    last = result.table("links.csv").sort_values("t_s").groupby("link").last()["bytes"]
    for interface in ("h1n1", "h1n2", "h2n1", "h2n2"):
        assert (ITERATIONS - 1) * gradient <= last[f"{interface}-s1"] <= 1.2 * (ITERATIONS + 1) * gradient
    operations = result.table("operations.csv").query("operation == 'activations'")
    assert (operations["end_s"] - operations["start_s"] >= 1_000_000 * 8 / 10e9 - 1e-9).all()


@pytest.mark.parametrize("system", ["priority", "pias"])
def test_priorities_count_what_all_groups_of_a_rank_send(tmp_path: Path, system: str) -> None:
    """Half of an iteration is for the lowest queue; some of it is still in a socket when the next half begins."""
    gradient = 400_000
    result = run(tmp_path, rails(2, gradient), system=[system])
    check(result, {flow: gradient for pair in ((0, 2), (1, 3)) for flow in (pair, pair[::-1])})
    table = result.table("priority_queues.csv").query("link.str.startswith('h')")
    packets = table.groupby("band")["packets"].sum()
    assert packets[0] + packets[1] >= 4 * (ITERATIONS - 1) * gradient / 2 / 1500 and (packets > 0).sum() > 5


def of_experts() -> dict[tuple[int, int], int]:
    expected = {(a, b): EXPERTS[a][b] for a in range(4) for b in range(4) if a != b and EXPERTS[a][b]}
    for rank in range(4):
        right = rank, (rank + 1) % 4
        ring = sum(PARTS) - PARTS[(rank + 1) % 4]  # gathering: all but what the neighbour has itself
        ring += sum(PARTS) - PARTS[rank]  # scattering: all but its own
        expected[right] = expected.get(right, 0) + ring + 2 * 3 * 100_000
    return expected


def test_a_mixture_of_experts(tmp_path: Path) -> None:
    check(run(tmp_path, experts()), of_experts())


def test_groups_of_unequal_size(tmp_path: Path) -> None:
    """Two ranks go on at their own pace until the three others have their iterations."""
    two, three = dict.fromkeys(((0, 1), (1, 0)), 1_000_000), dict.fromkeys(((2, 3), (3, 4), (4, 2)), 1_333_333)
    result = run(tmp_path, unequal())
    assert on_the_wire(result).keys() == two.keys() | three.keys()
    assert not jobs.other_bytes(runs.case(result))
    iterations = result.table("iterations.csv")
    for (rank, _), size in (two | three).items():
        assert iterations[iterations["worker"] == rank]["bytes"].to_numpy() == pytest.approx(size, abs=1)


def test_iterations_that_overlap(tmp_path: Path) -> None:
    """The next forward pass begins while the last layer's gradients are on their way."""
    result = run(tmp_path, overlapping())
    check(result, dict.fromkeys(((0, 1), (1, 0)), 400_000))
    table = result.table("iterations.csv").query("iteration > 0")
    assert (table["end_s"] - table["start_s"]).to_numpy() == pytest.approx(20e-3, rel=1e-3)
    last = result.table("operations.csv").query("operation == 'g0' and iteration > 0")
    ends = table.set_index(["worker", "iteration"])["end_s"].loc[
        list(zip(last["worker"], last["iteration"], strict=True))
    ]
    assert (last["end_s"].to_numpy() > ends.to_numpy()).all()


@pytest.mark.parametrize(
    ("system", "content"),
    [("ltp", experts()), ("mlt", pipeline()), ("reno:early_close=0.8", experts())],
    ids=["ltp", "mlt", "early_close"],
)
def test_groups_by_other_transports(tmp_path: Path, system: str, content: dict[str, Any]) -> None:
    """Each group has sockets of its own, of ranks that share a server, too; gradients may lose a little, messages do not."""
    result = run(tmp_path, content, system=[system])
    told = result.table("messages.csv")
    case = replace(runs.case(result), messages=told)
    assert not jobs.other_bytes(case)
    swapped = told.replace({"worker": {0: 1, 1: 0}, "peer": {0: 1, 1: 0}})
    assert jobs.other_bytes(replace(case, messages=swapped)), "both ends agree, and the bytes are those of another rank"
    expected = jobs.bytes_per_flow(case.plan.jobs[0])
    sent = {rank: sum(size for (source, _), size in expected.items() if source == rank) for rank in range(4)}
    iterations = result.table("iterations.csv")
    for rank, size in sent.items():
        assert set(iterations[iterations["worker"] == rank]["bytes"]) == {size}
    messages = told.query("side == 'receive'")
    assert messages["bytes"].sum() == sum(expected.values()) * ITERATIONS
    lost = messages.groupby("stage")["missing"].sum()
    assert lost["gradient"] >= 0
    assert lost["parameter"] == 0 or system == "mlt"
    acked = result.table("flows.csv").groupby(["worker", "flow"])["bytes_acked"].max()
    assert len(acked) == sum(len(group.flows) for group in case.plan.jobs[0].groups) and (acked > 0).all()


def gpus(result: runs.Result, number: int) -> list[str]:
    return list(result.manifest["plan"]["jobs"][number]["life"]["gpus"])


def test_ranks_on_gpus_of_two_servers(tmp_path: Path) -> None:
    """Half of each group shares a server: what these ranks send each other crosses no link."""
    job = f"{tmp_path}/trace.json,gpus=4"
    result = run(tmp_path, experts(), job=[job], trace=None, topo="star,2,2", scheduler="first_fit")
    check(result, of_experts())
    assert gpus(result, 0) == ["h1:0", "h1:1", "h2:0", "h2:1"]
    crossing = sum(size for (a, b), size in of_experts().items() if a < 2 <= b)
    sent = result.table("links.csv").groupby("link")["bytes"].max()["h1-s1"]
    assert (ITERATIONS - 1) * crossing <= sent <= 1.2 * (ITERATIONS + 1) * crossing


def test_jobs_with_groups_wait_for_gpus(tmp_path: Path) -> None:
    """The first job fills both servers; the second one, of the same four GPUs, begins when it ends."""
    job = f"{tmp_path}/trace.json,gpus=4"
    result = run(
        tmp_path,
        rails(2, 400_000),
        job=[job, job],
        trace=None,
        topo="star,2,2",
        scheduler="first_fit",
        intra_rate="10gbit",
    )
    table = result.table("jobs.csv").set_index("job")
    assert list(table["outcome"]) == ["done", "done"] and table["start_s"][1] == table["end_s"][0]
    assert set(result.table("iterations.csv")["bytes"]) == {400_000}
    operations = result.table("operations.csv").query("operation == 'activations'")
    assert (operations["end_s"] - operations["start_s"] >= 1_000_000 * 8 / 10e9 - 1e-9).all()


# Of a model with 4 layers of 128 numbers and 4 heads, 512 wide inside, 1000 words, 2 samples of 128 tokens: activations of a micro-batch.
ACTIVATIONS = 2 * 128 * 128 * 2
MODEL = """title = "tiny"
layers = 4
hidden = 128
ffn = 512
heads = 4
vocabulary = 1000
sequence = 128
micro_batch_size = 2
"""


def of_model(folder: Path, more: str = "", **layout: Any) -> dict[str, Any]:
    (folder / "tiny.toml").write_text(MODEL + more)
    made = model_jobs.build(str(folder / "tiny.toml"), micro_batches=2, peak="1tflops", memory="1tb/s", **layout)
    trace.save(made, folder / "made.json")
    content: dict[str, Any] = json.loads((folder / "made.json").read_text())
    return content


@pytest.mark.parametrize("inside", runs.some([True, False], True, mark=pytest.mark.slow))
def test_a_model_in_two_by_two_by_two_ranks(tmp_path: Path, inside: bool) -> None:
    """A ring of two sends the whole tensor. A stage has two layers of two micro-batches."""
    content = of_model(tmp_path, tp=2, pp=2, dp=2)
    layers = 2 * ((4 * 128 * 128 + 2 * 128 * 512) // 2 + 2 * 128)
    expected = dict[tuple[int, int], int]()
    for pair, parameters in (
        ((0, 2), layers + 500 * 128), ((1, 3), layers + 500 * 128), ((4, 6), layers + 501 * 128), ((5, 7), layers + 501 * 128),
    ):  # fmt: skip
        expected |= dict.fromkeys((pair, pair[::-1]), 2 * parameters)
    for pair in ((0, 4), (1, 5), (2, 6), (3, 7)):
        expected |= dict.fromkeys((pair, pair[::-1]), 2 * ACTIVATIONS)
    if not inside:
        del content["placement"]
        for pair in ((0, 1), (2, 3), (4, 5), (6, 7)):
            expected |= dict.fromkeys((pair, pair[::-1]), 2 * (2 * 4 + 1) * ACTIVATIONS)
    check(run(tmp_path, content), expected)


def test_a_model_in_interleaved_stages(tmp_path: Path) -> None:
    """Each of two stages has two of four layers, which do not follow each other: six messages a micro-batch, three each way."""
    content = of_model(tmp_path, pp=2, dp=1, virtual_stages=2)
    check(run(tmp_path, content), dict.fromkeys(((0, 1), (1, 0)), 2 * 3 * ACTIVATIONS))


def test_a_model_whose_gradients_are_split(tmp_path: Path) -> None:
    """ZeRO-2 on two ranks: each sends half of the gradients for each of two micro-batches, and half of the parameters."""
    parameters = 4 * (4 * 128 * 128 + 2 * 128 * 512 + 2 * 128) + 2 * 1000 * 128 + 128
    check(run(tmp_path, of_model(tmp_path, dp=2, zero=2)), dict.fromkeys(((0, 1), (1, 0)), (2 + 1) * parameters))


@pytest.mark.slow
def test_a_model_with_experts(tmp_path: Path) -> None:
    """Four all-to-alls of a layer and micro-batch, each of two experts for each token; all else by a ring of four."""
    content = of_model(tmp_path, "experts = 4\nexperts_per_token = 2\n", ep=4, dp=4)
    parameters = 4 * (4 * 128 * 128 + 4 * 128 + 2 * 128) + 2 * 1000 * 128 + 128
    expected = {(a, b): 4 * 4 * 2 * 2 * ACTIVATIONS // 4 for a in range(4) for b in range(4) if a != b}
    for rank in range(4):
        expected[rank, (rank + 1) % 4] += 2 * parameters * 2 * 3 // 4
    check(run(tmp_path, content), expected)
