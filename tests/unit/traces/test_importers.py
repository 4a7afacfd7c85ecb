"""The command that imports, what it refuses, and that it reads or refuses whatever it is given."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.cli.commands import COMMANDS
from testbed.core.units import Duration, Size
from testbed.traces import importing
from testbed.traces.trace import TraceError, load
from tests.support.profiles import ONE_RANK, Chakra, cli, data_parallel, imported
from tests.support.properties import examples

CASES = Path(__file__).parents[2] / "data" / "cases"


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = data_parallel()
    for number in range(3):
        made.collective(100 * number + 20, 100 * number + 20, 1, elements=50, name="broadcast", kernel="Broadcast")
    out = tmp_path / "mine.json"
    arguments: list[str | Path] = [
        made.write(tmp_path),
        "--only",
        "all_reduce",
        "--model",
        "ResNet-50",
        "--on",
        "two GPUs",
        "-o",
        out,
    ]
    assert cli(*arguments) == 0
    said = capsys.readouterr().out
    assert "16 kB in 2 exchanges" in said
    assert "1 broadcast (200 B in all)" in said
    trace = load(str(out))
    assert trace.native_rate == 9_600_000  # 12 kB in 10 ms, while nothing computes
    assert (trace.name, trace.model, trace.source.on) == ("mine", "ResNet-50", "two GPUs")
    before = out.read_bytes()
    assert cli(*arguments) == 2
    assert "add --force" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert cli(*arguments, "--force", "--native-rate", "50gbit") == 0
    assert load(str(out)).native_rate == 50_000_000_000


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('{"version": 1, "name": "x", "operations": []}', "--trace"),
        ("job,gpus,iterations,trace\n0,2,10,gpt2\n", "mltcp schedule"),
    ],
    ids=["trace", "job list"],
)
def test_what_another_command_reads_is_named(
    text: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(text)
    assert cli(path, "-o", tmp_path / "x.json") == 2
    assert command in capsys.readouterr().err


def test_a_replay_takes_as_long_as_the_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """25 MB of two ranks take 10 ms at 20 Gbit/s."""
    made = data_parallel(**{"In msg nelems": 6_250_000, "Out msg nelems": 6_250_000})
    arguments: list[str | Path] = [
        made.write(tmp_path),
        "-o",
        tmp_path / "mine.json",
        "--check",
        "--force",
        "--native-rate",
    ]
    assert cli(*arguments, "20gbit") == 0
    assert "warning" not in capsys.readouterr().out
    assert cli(*arguments, "2gbit") == 0
    assert "warning" in capsys.readouterr().out


def test_a_rate_inside_a_server_makes_a_replay_longer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tensor-parallel group exchanges 256 MB inside a server."""
    arguments: list[str | Path] = [
        CASES / "tp-inside-dp-across.json.gz",
        "-o",
        tmp_path / "x.json",
        "--native-rate",
        "20gbit",
        "--force",
    ]

    def replayed_s(*more: str) -> float:
        assert cli(*arguments, "--check", *more) == 0
        found = re.search(r"check +([0-9.]+) ?ms in isolation", capsys.readouterr().out)
        assert found
        return float(found[1]) / 1e3

    fast, slow = replayed_s(), replayed_s("--intra-server-rate", "10gbit")
    assert slow > 1.2 * fast and replayed_s("--intra-rate", "10gbit") == slow
    for more, says in (
        (["--intra-rate", "10gbit"], "--check"),
        (["--check", "--intra-rate", "10"], "--intra-server-rate"),
    ):
        assert cli(*arguments, *more) == 2
        assert says in capsys.readouterr().err


def test_another_number_of_ranks_than_the_profile_names_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks_named: dict[str, Any] = {"Process Group Ranks": "[0, 1]"}
    path, out = data_parallel(3, 0.0, **ranks_named).write(tmp_path), tmp_path / "mine.json"
    ranks = imported(path).ranks
    assert ranks and cli(path, "-o", out, "--ranks", str(ranks + 1)) == 2
    assert f"--ranks {ranks + 1} does not fit" in capsys.readouterr().err and not out.exists()
    assert cli(path, "-o", out, "--ranks", str(ranks)) == 0


@pytest.mark.parametrize("option", ["-o", "--out", "--output"])
def test_where_the_trace_goes(option: str, tmp_path: Path) -> None:
    assert cli(ONE_RANK, option, tmp_path / "mine.json") == 0
    assert load(str(tmp_path / "mine.json")).name == "mine"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-o", "out.txt"], "must end in .json"),
        (["-o", "nowhere/out.json"], "no folder nowhere"),
        (["-o", "out.json", "--native-rate", "10"], "no unit"),
        (["-o", "out.json", "--bytes", "5"], "no unit"),
        (["-o", "out.json", "--iteration", "5ms"], "--iteration has no effect for this format"),
        (["-o", "out.json", "--ranks", "many"], "--ranks 'many' is not a number of ranks"),
        (["-o", "out.json", "--format", "dance"], "unknown format 'dance'"),
        (["-o", "out.json", "--only", "dance"], "there is no kind 'dance'"),
        (["-o", "out.json", "--only", "broadcast"], "--only broadcast leaves nothing: a step has 2 all_reduce"),
        ([], "--output"),
    ],
)
def test_wrong_requests(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = data_parallel().write(tmp_path)
    assert cli(path, *options) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = tmp_path / "gone.json"
    for path, says in (
        (gone, f"there is no file {gone}"),
        (tmp_path, f"{tmp_path} is a folder without a file of a rank"),
    ):
        assert cli(path, "-o", tmp_path / "out.json") == 2
        assert f"error: {says}" in capsys.readouterr().err


def test_importers_and_commands_are_found_by_their_files() -> None:
    assert {"chakra", "execution_trace", "goal", "kineto", "table"} <= set(importing.names())
    assert "import" in COMMANDS


# Anything at all

values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
words = st.sampled_from(
    """ph,X,cat,kernel,cuda_runtime,name,ts,dur,args,id,nodes,traceEvents,schema,attrs,value,record_param_comms,
    ProfilerStep#1,ProfilerStep#2,Optimizer.step#A,ncclKernel_AllReduce,External id,correlation,Collective name,
    allreduce,In msg nelems,Out msg nelems,dtype,Float,Group size,collective_name,in_msg_nelems,out_msg_nelems,
    nccl:all_to_all,gloo:_all_gather_base,ncclKernel_SendRecv,Input Dims,Input type,float,Tensor(float),inputs""".replace(
        "\n    ", ""
    ).split(",")
)
anything = st.recursive(
    values | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | words, inner, max_size=6),
    max_leaves=20,
)
times = st.integers(-1, 50) | st.floats()
told_by_inputs = st.fixed_dictionaries(
    {"Input Dims": st.lists(st.lists(st.integers(-1, 9), max_size=2) | anything, max_size=2),
     "Input type": st.lists(words | values, max_size=2)},
    optional={"External id": st.integers(0, 3), "correlation": st.integers(0, 3), "stream": values},
)  # fmt: skip
events = st.fixed_dictionaries(
    {"ph": st.just("X"), "ts": times, "dur": times, "name": words, "cat": words | values},
    optional={
        "args": st.dictionaries(words, values | words, max_size=6) | anything | told_by_inputs,
        "tid": values,
    },
)
nodes_of_a_host = st.fixed_dictionaries(
    {"id": times, "name": words}, optional={"ts": times, "dur": times, "attrs": anything, "op_schema": values}
)
documents = (
    anything
    | st.fixed_dictionaries({"traceEvents": st.lists(events, max_size=8)})
    | st.fixed_dictionaries({"schema": st.just("1.1.0-chakra"), "nodes": st.lists(nodes_of_a_host, max_size=8)})
)
some_nodes = st.lists(
    st.tuples(st.integers(0, 8), st.lists(st.integers(0, 9), max_size=3), st.integers(0, 1 << 61), values), max_size=8
)


def any_nodes(nodes: list[tuple[int, list[int], int, Any]]) -> bytes:
    made = Chakra()
    for kind, after, duration, value in nodes:
        attributes = {"comm_type": 0, "comm_size": value, "pg_name": value, "is_cpu_op": value}
        fit = {
            key: one
            for key, one in attributes.items()
            if one is not None and not (isinstance(one, int) and abs(one) >= 1 << 63)
            and not (isinstance(one, str) and not one.isprintable())
        }  # fmt: skip
        made.node("ProfilerStep#1" if kind == 1 else "node", kind, *after, duration=duration, **fit)
    return made.bytes()


rows = st.lists(st.lists(values | st.sampled_from(["0", "1", "5"]), max_size=4), max_size=5)


def any_table(lines: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([["time_s", "bytes", "step", "kind"], *lines])
    return text.getvalue().encode("utf-8", "surrogatepass")


data_of_any_kind = (
    st.binary(max_size=300)
    | st.binary(max_size=100).map(gzip.compress)
    | documents.map(lambda document: json.dumps(document).encode())
    | some_nodes.map(any_nodes)
    | rows.map(any_table)
)


@examples(400)
@given(data_of_any_kind, st.sampled_from([None, *importing.names()]), st.booleans())
def test_whatever_it_is_it_is_read_or_refused(data: bytes, format: str | None, helped: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "anything"
        path.write_bytes(data)
        uses = importing.find(format or "kineto").USES if helped else frozenset()
        by_hand = {"sizes": (Size(5),), "iteration": Duration(10**6), "group": "0"}
        try:
            imported(path, format=format, **{key: value for key, value in by_hand.items() if key in uses})
        except TraceError as error:
            assert "anything" in str(error)
