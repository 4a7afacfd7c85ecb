"""Profiles, damaged in all sorts of ways, are refused in one clear line, and nothing is written."""

from __future__ import annotations

import copy
import gzip
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.core.units import Duration
from testbed.traces import importing
from testbed.traces.trace import TraceError
from tests.support.profiles import HOST_TWO_RANKS, TWO_RANKS, Json, cli, nccl_host_trace, nccl_profile, profile

KINETO, HOST = nccl_profile(), nccl_host_trace()


def spoiled(raw: Json, key: str, name: str, change: Callable[[Json], None]) -> bytes:
    """The trace with ``change`` applied to all its events or nodes named ``name…``."""
    raw = copy.deepcopy(raw)
    touched = [entry for entry in raw[key] if entry["name"].startswith(name)]
    assert touched
    for entry in touched:
        change(entry)
    return json.dumps(raw).encode()


def event(name: str, /, **fields: Any) -> Callable[[], bytes]:
    return lambda: spoiled(KINETO, "traceEvents", name, lambda entry: entry.update(fields))


def told(**args: Any) -> Callable[[], bytes]:
    def change(entry: Json) -> None:
        for key, value in args.items():
            entry["args"].pop(key.replace("_", " "), None)
            if value is not None:
                entry["args"][key.replace("_", " ")] = value

    return lambda: spoiled(KINETO, "traceEvents", "record_param_comms", change)


def node(name: str = "record_param_comms", /, **fields: Any) -> Callable[[], bytes]:
    return lambda: spoiled(HOST, "nodes", name, lambda entry: entry.update(fields))


def attribute(key: str, value: Any) -> Callable[[], bytes]:
    def change(entry: Json) -> None:
        entry["attrs"] = [one for one in entry["attrs"] if one["name"] != key or value is not None]
        for one in entry["attrs"]:
            if one["name"] == key:
                one["value"] = value

    return lambda: spoiled(HOST, "nodes", "record_param_comms", change)


def without(raw: Json, key: str, *names: str) -> Callable[[], bytes]:
    left = [one for one in raw[key] if not one["name"].startswith(names)]
    return lambda: json.dumps(raw | {key: left}).encode()


def cut(path: Path, part: float) -> Callable[[], bytes]:
    return lambda: path.read_bytes()[: int(path.stat().st_size * part)]


def cut_text(path: Path, part: float) -> Callable[[], bytes]:
    def start() -> bytes:
        text = gzip.decompress(path.read_bytes())
        return text[: int(len(text) * part)]

    return start


def bomb(start: bytes, token: bytes) -> Callable[[], bytes]:
    return lambda: gzip.compress(start + token * (64_000_000 // len(token)), 1)


EVENTS, NODES = b'{"schemaVersion": 1, "traceEvents": [', b'{"schema": "1.1.0-chakra.0.0.4", "nodes": ['


def damaged(path: Path) -> dict[str, tuple[Callable[[], bytes], str]]:
    """What befalls any packed file, whatever is in it."""
    return {
        "empty": (lambda: b"", "is empty"),
        "cut at 0.1 %": (cut(path, 1e-3), "ends too early"),
        "cut at 50 %": (cut(path, 0.5), "ends too early"),
        "cut at 99.9 %": (cut(path, 0.999), "ends too early"),
        "text cut at 40 %": (cut_text(path, 0.4), "not complete, valid JSON"),
        "not gzip": (lambda: b"\x1f\x8b" + path.read_bytes()[9000:], "cannot be unpacked"),
    }


KINETO_SPOILED: dict[str, tuple[Callable[[], bytes], str]] = {
    **damaged(TWO_RANKS[0]),
    "text cut at 100 bytes": (cut_text(TWO_RANKS[0], 7e-4), "not complete, valid JSON"),
    "damaged in the middle": (
        lambda: (whole := TWO_RANKS[0].read_bytes())[:7000] + bytes(50) + whole[7050:], "not complete, valid JSON",
    ),
    "a list": (lambda: json.dumps(KINETO["traceEvents"]).encode(), "unknown format"),
    "another schema": (lambda: json.dumps(KINETO).replace("traceEvents", "events", 1).encode(), "'traceEvents'"),
    "no events": (lambda: EVENTS + b"]}", "'traceEvents'"),
    "events are numbers": (lambda: EVENTS + b"1, 2]}", "'traceEvents' has to hold objects"),
    "not UTF-8": (lambda: EVENTS + b'{"name": "\xff"}]}', "not complete, valid JSON"),
    "rubbish at the end": (lambda: json.dumps(KINETO).encode() + b"}", "not complete, valid JSON"),
    "no sizes": (told(In_msg_nelems=None), "'In msg nelems'"),
    "no types": (told(dtype=None), "'dtype'"),
    "an unknown type": (told(dtype="Quaternion"), "dtype 'Quaternion'"),
    "sizes are text": (told(In_msg_nelems="many"), "'In msg nelems' is 'many'"),
    "negative sizes": (told(In_msg_nelems=-5), "'In msg nelems' is -5"),
    "absurd sizes": (told(In_msg_nelems=10**17), "implausible"),
    "names are numbers": (told(Collective_name=7), "'Collective name' is 7"),
    "args is a list": (event("record_param_comms", args=[1]), "'args' of the event 'record_param_comms'"),
    "name is a number": (event("ProfilerStep", name=3), "'name' is 3"),
    "negative durations": (event("ProfilerStep", dur=-1.0), "'dur' is -1.0"),
    "negative times": (event("nccl", ts=-1.0), "'ts' is -1.0"),
    "times are text": (event("ProfilerStep", ts="noon"), "'ts' is 'noon'"),
    "times are not numbers": (event("ProfilerStep", ts=math.nan), "not complete, valid JSON"),
    "absurd times": (event("ProfilerStep", dur=1e17), "implausible for an iteration"),
    "infinite times": (lambda: EVENTS + b'{"ph":"X","name":"ProfilerStep#1","ts":1e999,"dur":1}]}', "valid JSON"),
    "no durations": (lambda: EVENTS + b'{"ph":"X","name":"ProfilerStep#1","ts":1}]}', "has no 'dur'"),
    "no steps": (without(KINETO, "traceEvents", "ProfilerStep", "Optimizer"), "'ProfilerStep#N'"),
    "two ranks in one": (event("ProfilerStep", name="ProfilerStep#4"), "ProfilerStep#4 more than once"),
    "no collectives": (without(KINETO, "traceEvents", "record_param_comms", "nccl"), "no collective"),
    "deep": (lambda: EVENTS + b'{"args":' * 100_000, "nests deeper"),
    "deep lists": (lambda: b'{"traceEvents":' + b'[1,"\\"[",' * 50_000, "nests deeper"),
    "an endless string": (bomb(EVENTS + b'{"name": "', b"a"), "more than 8 MiB"),
    "an endless event": (bomb(EVENTS + b'{"args": [', b"1,"), "more than 8 MiB"),
    "an endless number": (bomb(EVENTS, b"1"), "more than 8 MiB"),
    "endless blanks": (bomb(EVENTS, b" "), "more than 8 MiB"),
}  # fmt: skip

HOST_SPOILED: dict[str, tuple[Callable[[], bytes], str]] = {
    **damaged(HOST_TWO_RANKS),
    "a list": (lambda: json.dumps(HOST["nodes"]).encode(), "unknown format"),
    "a schema of the future": (lambda: json.dumps(HOST | {"schema": "2.0"}).encode(), "schema '2.0'"),
    "no schema": (lambda: json.dumps({"nodes": HOST["nodes"]}).encode(), "unknown format"),
    "no nodes": (lambda: NODES + b"]}", "'nodes'"),
    "nodes are text": (lambda: NODES + b'"a"]}', "'nodes' has to hold objects"),
    "no sizes": (attribute("in_msg_nelems", None), "'in_msg_nelems'"),
    "no types": (attribute("dtype", None), "'dtype'"),
    "an unknown type": (attribute("dtype", "Quaternion"), "dtype 'Quaternion'"),
    "negative sizes": (attribute("in_msg_nelems", -5), "'in_msg_nelems' is -5"),
    "sizes are text": (attribute("in_msg_nelems", "many"), "'in_msg_nelems' is 'many'"),
    "absurd sizes": (attribute("in_msg_nelems", 10**17), "implausible"),
    "names are numbers": (attribute("collective_name", 7), "'collective_name' is 7"),
    "attrs is a number": (node(attrs=7), "'attrs' is 7"),
    "attrs holds numbers": (node(attrs=[7]), "'attrs' is [7]"),
    "id is text": (node(id="one"), "'id' is 'one'"),
    "name is a list": (node(name=[]), "'name' is []"),
    "negative durations": (node(ts=1.0, dur=-1.0), "'dur' is -1.0"),
    "no collectives": (without(HOST, "nodes", "record_param_comms", "nccl"), "no collective"),
    "deep": (lambda: NODES + b'{"inputs":' * 100_000, "nests deeper"),
    "an endless string": (bomb(NODES + b'{"name": "', b"a"), "more than 8 MiB"),
}


def refused(path: Path, says: str, capsys: pytest.CaptureFixture[str], *options: str) -> None:
    out = path.with_name("out.json")
    before = sorted(path.parent.iterdir())
    assert cli(path, "-o", out, *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and len(error.splitlines()) == 1 and len(error) < 1000
    assert str(path) in error and says in error
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.parametrize("what", KINETO_SPOILED)
def test_kineto_spoiled(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, says = KINETO_SPOILED[what]
    path = tmp_path / "spoiled.json"
    path.write_bytes(data())
    refused(path, says, capsys)


@pytest.mark.parametrize("what", HOST_SPOILED)
def test_host_trace_spoiled(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, says = HOST_SPOILED[what]
    path = tmp_path / "spoiled.json"
    path.write_bytes(data())
    refused(path, says, capsys, "--iteration", "222ms")


def test_unspoiled_they_are_read(tmp_path: Path) -> None:
    """The spoiled ones are refused for what was done to them."""
    for raw, fields in ((KINETO, {}), (HOST, {"iteration": Duration.parse("222ms")})):
        path = tmp_path / "whole.json"
        path.write_bytes(json.dumps(raw).encode())
        assert [len(step.exchanges) for step in profile(path, **fields).steps] == [2, 2, 2]


def test_what_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A FIFO would be waited for, and /dev/zero never ends."""
    os.mkfifo(tmp_path / "fifo.json")
    for path in (tmp_path / "fifo.json", Path("/dev/zero")):
        assert cli(path, "-o", tmp_path / "out.json") == 2
        assert f"error: {path} " in capsys.readouterr().err
    with pytest.raises(TraceError, match=r"a\\x00b.json cannot be the name of a file"):
        importing.detect(Path("a\0b.json"))


def test_more_collectives_than_any_profile_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.traces.kineto_events._MOST", 20)
    path = tmp_path / "many.json"
    path.write_text(json.dumps(KINETO))
    refused(path, "more than 20 collectives and steps: profile fewer steps", capsys)


def test_more_operations_than_a_trace_may_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `load` would refuse is not written."""
    monkeypatch.setattr("testbed.traces.trace.MOST_OPERATIONS", 3)
    path = tmp_path / "many.json"
    path.write_text(json.dumps(KINETO))
    refused(path, "operations, and 3 is the most of one iteration", capsys)


def test_a_file_of_too_many_small_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.traces.json_stream.MOST", 20_000_000)
    path = tmp_path / "many.json.gz"
    path.write_bytes(gzip.compress(EVENTS + b'{"ph":"M","name":"x"},' * 1_000_000, 1))
    refused(path, "GiB, unpacked: profile fewer steps", capsys)
