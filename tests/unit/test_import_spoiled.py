"""Real traces, damaged in all sorts of ways, are refused in one clear line, and nothing is written."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.profiles import (
    HOST,
    KINETO,
    Json,
    cli,
    profile,
    real,
)


@cache
def content(path: Path) -> Json:
    """A real trace without the events that no importer looks at; do not change it."""
    raw: Json = json.loads(gzip.decompress(path.read_bytes()))
    if "traceEvents" in raw:
        wanted = {"record_param_comms", "cudaLaunchKernel", "cudaLaunchKernelExC"}
        raw["traceEvents"] = [
            event
            for event in raw["traceEvents"]
            if event.get("cat") == "kernel" or event["name"] in wanted or "Step#" in event["name"]
        ]
    return raw


def spoiled(path: Path, key: str, name: str, change: Callable[[Json], None]) -> bytes:
    """The trace with ``change`` applied to (copies of) all its events or nodes named ``name…``."""
    raw = dict(content(path))
    entries = []
    for entry in raw[key]:
        if entry["name"].startswith(name):
            entry = json.loads(json.dumps(entry))
            change(entry)
        entries.append(entry)
    return json.dumps(raw | {key: entries}).encode()


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


def without(path: Path, key: str, *names: str) -> Callable[[], bytes]:
    def rest() -> bytes:
        raw = dict(content(path))
        return json.dumps(raw | {key: [one for one in raw[key] if not one["name"].startswith(names)]}).encode()

    return rest


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
        "cut at 0.01 %": (cut(path, 1e-4), "ends too early"),
        "cut at 50 %": (cut(path, 0.5), "ends too early"),
        "cut at 99.9 %": (cut(path, 0.999), "ends too early"),
        "text cut at 40 %": (cut_text(path, 0.4), "not complete, valid JSON"),
        "not gzip": (lambda: b"\x1f\x8b" + path.read_bytes()[9000:], "cannot be unpacked"),
    }


KINETO_SPOILED: dict[str, tuple[Callable[[], bytes], str]] = {
    **damaged(KINETO),
    "text cut at 100 bytes": (cut_text(KINETO, 1e-5), "not complete, valid JSON"),
    "damaged in the middle": (
        lambda: KINETO.read_bytes()[:300_000] + bytes(50) + KINETO.read_bytes()[300_050:], "not complete, valid JSON",
    ),
    "a list": (lambda: json.dumps(content(KINETO)["traceEvents"]).encode(), "no format"),
    "another schema": (lambda: json.dumps(content(KINETO)).replace("traceEvents", "events", 1).encode(), "'traceEvents'"),
    "no events": (lambda: EVENTS + b"]}", "'traceEvents'"),
    "events are numbers": (lambda: EVENTS + b"1, 2]}", "'traceEvents' has to hold objects"),
    "not UTF-8": (lambda: EVENTS + b'{"name": "\xff"}]}', "not complete, valid JSON"),
    "rubbish at the end": (lambda: json.dumps(content(KINETO)).encode() + b"}", "not complete, valid JSON"),
    "no sizes": (told(In_msg_nelems=None), "'In msg nelems'"),
    "no types": (told(dtype=None), "'dtype'"),
    "an unknown type": (told(dtype="Quaternion"), "dtype 'Quaternion'"),
    "sizes are text": (told(In_msg_nelems="many"), "'In msg nelems' is 'many'"),
    "negative sizes": (told(In_msg_nelems=-5), "'In msg nelems' is -5"),
    "absurd sizes": (told(In_msg_nelems=10**17), "beyond reason"),
    "names are numbers": (told(Collective_name=7), "'Collective name' is 7"),
    "args is a list": (event("record_param_comms", args=[1]), "'args' of the event 'record_param_comms'"),
    "name is a number": (event("ProfilerStep", name=3), "'name' is 3"),
    "negative durations": (event("ProfilerStep", dur=-1.0), "'dur' is -1.0"),
    "negative times": (event("nccl", ts=-1.0), "'ts' is -1.0"),
    "times are text": (event("ProfilerStep", ts="noon"), "'ts' is 'noon'"),
    "times are not numbers": (event("ProfilerStep", ts=math.nan), "not complete, valid JSON"),
    "absurd times": (event("ProfilerStep", dur=1e17), "no iteration"),
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
    **damaged(HOST),
    "a list": (lambda: json.dumps(content(HOST)["nodes"]).encode(), "no format"),
    "a schema of the future": (lambda: json.dumps(content(HOST) | {"schema": "2.0"}).encode(), "schema '2.0'"),
    "no schema": (lambda: json.dumps({"nodes": content(HOST)["nodes"]}).encode(), "no format"),
    "no nodes": (lambda: NODES + b"]}", "'nodes'"),
    "nodes are text": (lambda: NODES + b'"a"]}', "'nodes' has to hold objects"),
    "no sizes": (attribute("in_msg_nelems", None), "'in_msg_nelems'"),
    "no types": (attribute("dtype", None), "'dtype'"),
    "an unknown type": (attribute("dtype", "Quaternion"), "dtype 'Quaternion'"),
    "negative sizes": (attribute("in_msg_nelems", -5), "'in_msg_nelems' is -5"),
    "sizes are text": (attribute("in_msg_nelems", "many"), "'in_msg_nelems' is 'many'"),
    "absurd sizes": (attribute("in_msg_nelems", 10**17), "beyond reason"),
    "names are numbers": (attribute("collective_name", 7), "'collective_name' is 7"),
    "attrs is a number": (node(attrs=7), "'attrs' is 7"),
    "attrs holds numbers": (node(attrs=[7]), "'attrs' is [7]"),
    "id is text": (node(id="one"), "'id' is 'one'"),
    "name is a list": (node(name=[]), "'name' is []"),
    "negative durations": (node(ts=1.0, dur=-1.0), "'dur' is -1.0"),
    "no collectives": (without(HOST, "nodes", "record_param_comms"), "no collective"),
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


@real
@pytest.mark.parametrize("what", KINETO_SPOILED)
def test_kineto_spoiled(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, says = KINETO_SPOILED[what]
    path = tmp_path / "spoiled.json"
    path.write_bytes(data())
    refused(path, says, capsys)


@real
@pytest.mark.parametrize("what", HOST_SPOILED)
def test_host_trace_spoiled(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, says = HOST_SPOILED[what]
    path = tmp_path / "spoiled.json"
    path.write_bytes(data())
    refused(path, says, capsys, "--iteration", "222ms")


@real
def test_slimmed_they_are_still_themselves(tmp_path: Path) -> None:
    """The spoiled ones are refused for what was done to them, not for what `content` leaves out."""
    path = tmp_path / "whole.json"
    path.write_bytes(json.dumps(content(KINETO)).encode())
    assert profile(path).steps == pytest.approx(profile(KINETO).steps)
