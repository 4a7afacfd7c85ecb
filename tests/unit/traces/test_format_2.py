"""Version 2 of the trace format: groups, roles, messages, uneven collectives."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.core.units import Duration, Size
from testbed.traces import trace as traces
from testbed.traces.trace import Operation, Placement, Role, Source, Trace, TraceError, load, save
from tests.support.group_traces import pipeline


def read(folder: Path, content: Any) -> Trace:
    path = folder / "mine.json"
    path.write_text(json.dumps(content))
    return load(str(path))


def role(content: dict[str, Any], number: int = 0) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = content["roles"][number]["operations"]
    return operations


def test_operations_of_different_ranks_are_one_exchange(tmp_path: Path) -> None:
    trace = read(tmp_path, pipeline())
    assert trace.ranks == 8 and not trace.alike
    found = [(one.group, one.members) for one in trace.matched.exchanges]
    assert len(found) == 4 * 2 + 4 + 4 * 2 * 2  # tensor parallel, data parallel, messages forth and back
    assert found.count(("dp", (1, 3))) == 1 and found.count(("tp", (6, 7))) == 2
    assert found.count(("pp", (3, 7))) == found.count(("pp", (7, 3))) == 2
    for place, step in enumerate(trace.matched.steps):
        assert all(other < place for own in step.after for other in own)


def test_integers_are_bytes_and_a_list_alone_is_one_role(tmp_path: Path) -> None:
    moe = {
        "version": 2, "name": "moe", "groups": {"ep": [[0, 1, 2]]},
        "operations": [{"id": "a", "kind": "all_to_all", "splits": [10, "2kB", 0]}, {"id": "b", "kind": "all_reduce", "bytes": 7}],
    }  # fmt: skip
    trace = read(tmp_path, moe)
    assert trace.operations[0].splits == (10, 2000, 0) and trace.operations[0].size == 2010
    assert trace.operations[1].bytes == 7 and trace.ranks == 3
    assert trace.all_roles[0].ranks == (0, 1, 2)


def test_ranks_that_are_alike_are_as_in_version_1(tmp_path: Path) -> None:
    content = {
        "version": 2, "name": "dp", "groups": {"dp": [[0, 1, 2, 3]]},
        "operations": [
            {"id": "optimizer", "kind": "compute", "duration": "1ms", "after": ["bucket"]},
            {"id": "bucket", "kind": "all_reduce", "bytes": "1MB"},
        ],
    }  # fmt: skip
    trace = read(tmp_path, content)
    assert trace.alike and trace.ranks == 4
    assert [op.id for op in trace.one_list.operations] == ["bucket", "optimizer"]


def wrongs() -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = {}

    def case(name: str) -> dict[str, Any]:
        cases[name] = pipeline()
        return cases[name]

    role(case("unknown group"))[1]["group"] = "cp"
    role(case("no group"))[1].pop("group")
    case("rank in no role")["roles"][1]["ranks"] = [4, 5, 6]
    case("rank in two roles")["roles"][1]["ranks"] = [3, 4, 5, 6, 7]
    case("holes")["groups"]["dp"] = [[0, 2], [1, 3], [4, 6], [5, 9]]
    case("rank twice")["groups"]["dp"] = [[0, 2], [1, 3], [4, 6], [5, 6]]
    case("rank without group")["groups"]["tp"] = [[0, 1], [2, 3], [4, 5]]
    role(case("lost send")).pop(2)
    role(case("lost receive"), 1).pop(0)
    role(case("other tag"))[2]["tag"] = 9
    role(case("unlike sizes"))[2]["bytes"] = 99
    for name in ("unlike collectives", "one collective less"):  # by rank 0 alone
        other = json.loads(json.dumps(case(name)["roles"][0])) | {"name": "other", "ranks": [1, 2, 3]}
        cases[name]["roles"][0]["ranks"] = [0]
        cases[name]["roles"].append(other)
    role(cases["unlike collectives"])[1]["bytes"] = "1MB"
    role(cases["one collective less"]).pop(-1)
    role(case("cycle"))[0]["after"] = ["tp0"]
    role(case("deadlock"))[0]["after"] = ["gradient0"]
    role(case("unknown name"))[0]["after"] = ["nothing"]
    role(case("no peer"))[2]["peer"] = "+2"
    role(case("peer is no step"))[2]["peer"] = "next"
    role(case("itself"))[2]["peer"] = 0
    role(case("splits of a message"))[2]["splits"] = [1, 2]
    role(case("two computes"))[0]["flops"] = 1e9
    role(case("half a byte"))[2]["bytes"] = 1.5
    role(case("negative"))[2]["bytes"] = -3
    case("placement")["placement"]["inside"] = ["cp"]
    case("both")["operations"] = role(pipeline())
    case("version 1")["version"] = 1
    splits = {"version": 2, "name": "x", "groups": {"ep": [[0, 1, 2]]}}
    cases["splits too short"] = splits | {"operations": [{"id": "a", "kind": "all_to_all", "splits": [1, 2]}]}
    cases["splits and bytes"] = splits | {
        "operations": [{"id": "a", "kind": "all_to_all", "splits": [1, 2, 3], "bytes": 7}]
    }
    cases["nowhere"] = {
        "version": 2,
        "name": "x",
        "operations": [{"id": "a", "kind": "send", "peer": 1, "bytes": 7}],
    }
    return cases


@pytest.mark.parametrize("name", wrongs())
def test_refuses_what_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError) as error:
        read(tmp_path, wrongs()[name])
    assert error.value.exit_code == 2 and "\n" not in str(error.value)


NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=6)


@st.composite
def drawn(draw: st.DrawFn) -> Trace:
    """A trace of several data-parallel pipelines, whatever its sizes."""
    stages, replicas = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    groups = {
        "dp": tuple(tuple(range(stage * replicas, (stage + 1) * replicas)) for stage in range(stages)),
        "pp": tuple(tuple(range(replica, stages * replicas, replicas)) for replica in range(replicas)),
    }
    sizes = [Size(draw(st.integers(1, 10**12))) for _ in range(stages)]
    roles = []
    for stage in range(stages):
        operations = [
            Operation(id="forward", kind="compute", duration=Duration(draw(st.integers(0, 10**12))))
            if draw(st.booleans())
            else Operation(
                id="forward", kind="compute", flops=draw(st.floats(0, 1e20)), memory_bytes=Size(draw(st.integers(1, 10**9)))
            )
        ]  # fmt: skip
        if stage:
            operations.insert(
                0, Operation(id="in", kind="recv", peer="-1", group="pp", bytes=sizes[stage - 1], tag=stage)
            )
            operations[1] = msgspec.structs.replace(operations[1], after=("in",))
        if stage < stages - 1:
            operations.append(
                Operation(
                    id="out", kind="send", peer="+1", group="pp", bytes=sizes[stage], tag=stage + 1, after=("forward",)
                )
            )
        parts = tuple(Size(one) for one in draw(st.lists(st.integers(0, 10**9), min_size=replicas, max_size=replicas)))
        operations.append(Operation(id="experts", kind="all_to_all", group="dp", splits=parts))
        operations.append(
            Operation(id="gradients", kind="all_reduce", group="dp", bytes=sizes[stage], after=("forward",))
        )
        roles.append(Role(draw(NAMES), groups["dp"][stage], tuple(operations)))
    return Trace(
        version=2, name=draw(NAMES), model=draw(NAMES), source=Source(kind="synthetic"), groups=groups, roles=tuple(roles),
        placement=draw(st.sampled_from([None, Placement(), Placement(("dp",))])),
    )  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trace=drawn())
def test_what_is_saved_is_read_back(trace: Trace, tmp_path: Path) -> None:
    save(trace, tmp_path / "mine.json")
    assert load(str(tmp_path / "mine.json")) == trace


def test_a_spoiled_file_is_refused_or_read(tmp_path: Path) -> None:
    """Bytes changed, cut out and doubled, and values put into wrong places."""
    draw, path, whole = random.Random(1), tmp_path / "mine.json", json.dumps(pipeline()).encode()
    values: list[Any] = [None, -1, 2**70, 1.5, "", "x", [], {}, [[]], {"a": []}, True, "1e400B", "nan"]
    for _ in range(2000):
        data = bytearray(whole)
        if draw.random() < 0.5:
            for _ in range(draw.randint(1, 4)):
                at = draw.randrange(len(data))
                data[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        else:
            content: Any = pipeline()
            holder = content
            while isinstance(holder, dict | list) and holder and draw.random() < 0.8:
                key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
                inner = holder[key]
                if not isinstance(inner, dict | list) or draw.random() < 0.3:
                    holder[key] = draw.choice(values)
                    break
                holder = inner
            data = bytearray(json.dumps(content).encode())
        path.write_bytes(data)
        try:
            assert load(str(path)).version in (traces.VERSION, traces.VERSION_2)
        except TraceError as error:
            assert "\n" not in str(error)
