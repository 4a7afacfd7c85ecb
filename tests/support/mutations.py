"""Command lines, TOML files, job lists and profiles, mutated at random: the same ones for the same seed."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import re
import sqlite3
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support import goal, records
from tests.support.paths import ROOT
from tests.support.simai_workloads import workload
from tests.support.stage_traces import stage

VALUES = (
    "", " ", "0", "-1", "1", "2.5", "1e9", "1e400", "nan", "inf", "--", "-", "None", "true", "[]", "{}", "é", "\x1b[31m", "a" * 300, "../x", "/",
    "9" * 40, "1_0", "0x10", "500mbit", "1ms", "64kB", "10%", "reno", "mltcp_reno:slope=", "ltp:acks=10.9", "ring", "dumbbell,2", "a=b", "=", ",", ":",
)  # fmt: skip
NUMBERS = (0, 1, -1, 7, 0.5, -0.5, 1e18, 1e308, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 70)
FLAGS = (
    "--jobs", "--workers", "--iterations", "--seed", "--seeds", "--rate", "--buffer", "--mtu", "--delay", "--loss", "--ecn", "--system", "--trace",
    "--topo", "--collective", "--compute", "--bytes", "--job", "--scheduler", "--start-offsets", "--noise", "--rto-min", "--nic", "--alone", "--set",
    "--preset", "--sample-interval", "--intra-server-rate", "--channels", "--credit-bytes", "--partition-bytes", "--train", "--link", "--event",
)  # fmt: skip
VALID = {
    "--jobs": ("1", "2", "3"), "--workers": ("2", "3", "4"), "--iterations": ("1", "5", "60"), "--seed": ("1", "7"), "--seeds": ("2",),
    "--rate": ("100mbit", "1gbit", "10gbit"), "--buffer": ("50kB", "1ms", "10"), "--mtu": ("1500", "9000"), "--delay": ("1ms",), "--loss": ("1%", "0.1"),
    "--ecn": ("off", "5kB,200kB,1%"), "--system": ("reno", "mltcp_reno", "ltp", "mlt:acks=10", "cassini", "priority", "reno:close=0.8", "mltcp_reno:slope=2"),
    "--trace": ("resnet50", "gpt2", "vgg16"), "--topo": ("dumbbell", "star", "leafspine", "ring", "fattree"), "--collective": ("ring", "ps"),
    "--compute": ("10ms", "1s"), "--bytes": ("1B", "1MB", "1GB"), "--job": ("resnet50,workers=2", "gpt2"), "--scheduler": ("spread", "packed", "random"),
    "--start-offsets": ("uniform", "overlapped", "0s"), "--noise": ("1%",), "--rto-min": ("5ms",), "--nic": ("1gbit",), "--alone": ("none", "each"),
    "--set": ("job.0.workers=2", "rate=1gbit"), "--preset": ("paper", "recommended"), "--sample-interval": ("10ms",), "--channels": ("1", "2"), "--credit-bytes": ("2",),
}  # fmt: skip
SCHEDULE = (
    "--servers",
    "--gpus",
    "--rate",
    "--intra-server-rate",
    "--reduce-rate",
    "--alpha",
    "--xi1",
    "--xi2",
    "--slot",
    "--load",
    "--seed",
    "--scheduler",
    "--until",
)
BASE = ("--on", "flow", "--dry-run")
TOMLS = (
    'jobs = 2\niterations = 3\nrate = "500mbit"\nsystem = ["reno", "mltcp_reno"]\n',
    'topo = "dumbbell"\nsystem = ["reno"]\n[[job]]\ntrace = "resnet50"\nworkers = 2\n[[job]]\ntrace = "gpt2"\n[quick]\niterations = 2\n',
    'iterations = 5\nset = ["job.0.workers=2"]\n[sweep]\nrate = ["100mbit", "1gbit"]\n',
)
TABLE = "job,gpus,iterations,gradient_bytes,compute_s,arrival_s\n0,4,100,10000000,0.1,0\n1,2,100,10000000,0.1,0\n2,1,50,0,0.2,1.5\n"
HELIOS = "job_id,gpu_num,submit_time,duration\n1,8,2020-04-02 10:00:00,1200\n2,0,2020-04-02 10:01:00,60\n3,2,2020-04-02 10:02:00,300\n"
PAI = "job_name,inst_num,start_time,end_time,plan_gpu\nx,2,1000,1600,100\nx,1,990,1610,\ny,3,1100,1200,50\n"
CELLS = (
    *VALUES,
    "8.0",
    "1e18",
    "2017-11-05 01:30:00",
    "2020-04-02 10:00:00",
    '"',
    "\r",
    "\0",
    "1" * 2000,
    "-0",
    "1e-300",
)


def command_line(draw: random.Random, folder: Path) -> list[str]:
    """A run that computes its plans and no more, with some flags, some of them mutated; a third with a TOML file that is."""
    words = []
    if draw.random() < 0.4:
        path = folder / "mutated.toml"
        path.write_bytes(mutated(draw, draw.choice(TOMLS)))
        words.append(str(path))
    for _ in range(draw.randint(0 if words else 1, 4)):
        flag = draw.choice(FLAGS)
        words.append(flag)
        if flag in VALID and draw.random() < 0.75:
            words.append(draw.choice(VALID[flag]))
        elif draw.random() < 0.95:
            words.append(draw.choice(VALUES))
    if draw.random() < 0.1 and words:
        words.insert(draw.randrange(len(words) + 1), draw.choice(VALUES))
    return ["run", *(word.replace("\0", "") for word in words), *BASE]


def job_list(draw: random.Random, folder: Path) -> list[str]:
    """A schedule of a mutated job list, at times with mutated flags."""
    kind = draw.choice(("csv", "helios", "pai", "philly", "toml"))
    if kind == "philly":
        path, content = folder / "log.json", _philly(draw)
    elif kind == "toml":
        rows = TABLE.splitlines()
        text = "".join(
            "[[job]]\n" + "".join(f"{a} = {b}\n" for a, b in zip(rows[0].split(","), row.split(","), strict=True))
            for row in rows[1:]
        )
        path, content = folder / "jobs.toml", mutated(draw, text)
    else:
        path, content = folder / "jobs.csv", _csv(draw, {"csv": TABLE, "helios": HELIOS, "pai": PAI}[kind])
    path.write_bytes(content)
    words = [
        "schedule",
        str(path),
        "--servers",
        "2",
        "--gpus",
        "4",
        "--scheduler",
        draw.choice(("fifo", "srsf", "first_fit", "las", "sjf_bco")),
    ]
    if draw.random() < 0.2:
        words += [draw.choice(SCHEDULE), draw.choice(VALUES)]
    return [*words, *(["--json"] if draw.random() < 0.5 else [])]


def _of_log(*names: str) -> Callable[[random.Random, Path], list[str]]:
    """Schedules of these logs, mutated."""

    def log(draw: random.Random, folder: Path) -> list[str]:
        source = ROOT / "tests" / "data" / "joblists" / draw.choice(names)
        path = folder / f"log{source.suffix}"
        if source.suffix == ".json":
            path.write_bytes(_json(draw, source.read_text()))
        else:
            path.write_bytes(_csv(draw, source.read_text(), "," if source.suffix == ".csv" else "|"))
        return ["schedule", str(path), "--servers", "8", "--gpus", "8", "--scheduler", "fifo", "--json"]

    return log


def schedule(draw: random.Random, folder: Path) -> list[str]:
    """An import of a mutated GOAL schedule: words replaced, lines lost, twice or cut, and at times bytes changed."""
    text = draw.choice((goal.training(), goal.training(4, 1), goal.training(2, 3))).text()
    lines = text.splitlines(keepends=True)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(lines))
        words = lines[place].split(" ")
        change = draw.randrange(5)
        if change <= 1:
            words[draw.randrange(len(words))] = draw.choice((*VALUES, *map(str, NUMBERS), *draw.choice(lines).split()))
            lines[place] = " ".join(words).rstrip("\n") + "\n"
        elif change == 2 and len(lines) > 1:
            del lines[place]
        elif change == 3:
            lines.insert(place, draw.choice(lines))
        else:
            lines[place] = lines[place][: draw.randrange(len(lines[place]) + 1)]
    content = "".join(lines).encode()
    path = folder / "mutated.goal"
    path.write_bytes(_bytes(draw, content) if draw.random() < 0.2 else content)
    words = ["import", str(path), "-o", str(folder / "out.json"), "--force"]
    for flag, values in (
        ("--group", ("group1", "dp")),
        ("--only", ("all_reduce", "send,recv")),
        ("--native-rate", ("20gbit",)),
        ("--check", ()),
    ):
        if draw.random() < 0.1:
            words += [flag, *([draw.choice(values)] if values else [])]
    return words


def _json(draw: random.Random, text: str) -> bytes:
    """A JSON text with values, keys or entries changed anywhere in it, and at times its text."""
    raw = json.loads(text)
    for _ in range(draw.randint(1, 4)):
        holder = raw
        while True:
            keys = sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw.choice(keys)
            if isinstance(holder[key], dict | list) and draw.random() < 0.9:
                holder = holder[key]
                continue
            change = draw.randrange(4)
            if change == 0:
                del holder[key]
            elif change == 1 and isinstance(holder, list):
                holder.insert(key, holder[key])
            else:
                holder[key] = draw.choice((*NUMBERS, *VALUES, None, [], {}, [1], {"a": 1}, True))
            break
    changed = json.dumps(raw, indent=draw.choice((None, 1)))
    return mutated(draw, changed) if draw.random() < 0.2 else changed.encode()


def mutated(draw: random.Random, text: str) -> bytes:
    """One to three changes of a text: a token replaced, a line lost, twice, or cut, a byte changed."""
    for _ in range(draw.randint(1, 3)):
        lines = text.splitlines(keepends=True) or [""]
        place = draw.randrange(len(lines))
        change = draw.randrange(6)
        if change <= 1:
            key, equals, _ = lines[place].partition("=")
            lines[place] = f"{key}{equals} {draw.choice((repr, json.dumps, str))(draw.choice(VALUES))}\n"
        elif change == 2:
            del lines[place]
        elif change == 3:
            lines.insert(place, lines[place])
        elif change == 4:
            lines[place] = lines[place][: draw.randrange(len(lines[place]) + 1)]
        else:
            cut = draw.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:cut] + draw.choice("[]{}=\"'\\\0\r\n,.#é") + lines[place][cut:]
        text = "".join(lines)
    content = text.encode()
    return content if draw.random() < 0.95 else content.replace(b"o", b"\xff", 1)


def _csv(draw: random.Random, text: str, delimiter: str = ",") -> bytes:
    rows = [line.split(delimiter) for line in text.splitlines()]
    for _ in range(draw.randint(1, 4)):
        row = draw.choice(rows[1:] if draw.random() < 0.9 else rows)
        change = draw.randrange(5)
        if change <= 2 and row:
            row[draw.randrange(len(row))] = draw.choice(CELLS)
        elif change == 3:
            row.append(draw.choice(CELLS))
        elif row:
            row.pop()
    return draw.choice(("\n", "\n", "\r\n", "\r")).join(delimiter.join(row) for row in rows).encode()


def _philly(draw: random.Random) -> bytes:
    def time() -> object:
        return draw.choice(
            (
                "2017-11-05 00:30:00",
                "2017-11-05 01:30:00",
                "2017-11-05 03:30:00",
                "2017-11-06 00:00:00",
                "None",
                None,
                *CELLS,
            )
        )

    jobs: list[object] = [
        {"jobid": "a", "submitted_time": time(), "attempts": [
            {"start_time": time(), "end_time": time(), "detail": draw.choice(([], [{"ip": "m", "gpus": ["g"] * draw.randint(0, 9)}], 3, None))}
            for _ in range(draw.randint(0, 2))
        ]}
        for _ in range(draw.randint(0, 4))
    ]  # fmt: skip
    good = {
        "submitted_time": "2017-11-05 00:30:00",
        "attempts": [
            {"start_time": "2017-11-05 00:30:00", "end_time": "2017-11-05 03:30:00", "detail": [{"gpus": ["g"]}]}
        ],
    }
    text = json.dumps([good, *jobs, *draw.choice(([], [3], [None], [[]]))])
    return text.encode() if draw.random() < 0.8 else mutated(draw, text)


def profile(draw: random.Random, folder: Path) -> list[str]:
    """An import of a mutated profile, at times with flags."""
    source = draw.choice(sorted((ROOT / "tests" / "data" / "cases").iterdir()))
    content = source.read_bytes()
    content = _bytes(draw, content) if source.suffix == ".et" else _events(draw, json.loads(gzip.decompress(content)))
    path = folder / f"mutated{'.et' if source.suffix == '.et' else '.json'}"
    path.write_bytes(content)
    words = ["import", str(path), "-o", str(folder / "out.json"), "--force"]
    for flag, values in (("--group", ("dp", "tp", "0", "")), ("--bytes", ("1MB", "1B,2B")), ("--ranks", ("8", "0")), ("--iteration", ("5ms", "0s")),
                         ("--only", ("all_reduce", "send,recv")), ("--native-rate", ("20gbit", "0gbit")), ("--format", ("kineto", "chakra", "table"))):  # fmt: skip
        if draw.random() < 0.08:
            words += [flag, draw.choice(values)]
    return words


def _events(draw: random.Random, raw: dict[str, Any]) -> bytes:
    """A profile with fields of some of its events changed, or whole events, and at times its text or bytes."""
    events = raw["traceEvents"]
    for _ in range(draw.randint(1, 12)):
        event = draw.choice(events)
        if not isinstance(event, dict):
            continue
        fields = event.get("args") if draw.random() < 0.5 else event
        change = draw.randrange(6)
        if isinstance(fields, dict) and fields and change <= 2:
            key = draw.choice(sorted(fields))
            value, other = fields[key], draw.choice(events)
            if draw.random() < 0.9:
                likely = (
                    other.get("args", {}).get(key, other.get(key))
                    if isinstance(other, dict) and isinstance(other.get("args", {}), dict)
                    else value
                )
                fields[key] = value * draw.choice((0, 0.5, 1.5, 3)) if isinstance(value, float) else likely
            else:
                fields[key] = draw.choice((*NUMBERS, *VALUES, None, [], {}, [1], {"a": 1}, True))
        elif isinstance(fields, dict) and fields and change == 3:
            del fields[draw.choice(sorted(fields))]
        elif change == 4:
            events.remove(event)
            if not events:
                break
        else:
            strange: list[Any] = [*VALUES, None, []]
            another = dict(event) if draw.random() < 0.95 else draw.choice(strange)
            events.insert(draw.randrange(len(events)), another)
    if draw.random() < 0.1:
        raw["distributedInfo"] = draw.choice(({}, [], None, {"rank": -1, "world_size": 10**9}))
    content = json.dumps(raw).encode()
    return _bytes(draw, content) if draw.random() < 0.2 else content


def _bytes(draw: random.Random, content: bytes) -> bytes:
    """``content`` cut off, with bytes changed, or packed and then damaged."""
    data = bytearray(gzip.compress(content, 1) if draw.random() < 0.3 else content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data))
        change = draw.randrange(4)
        if change == 0:
            data[at] = draw.randrange(256)
        elif change == 1:
            del data[at : at + draw.randint(1, 20)]
        elif change == 2:
            data[at:at] = draw.randbytes(draw.randint(1, 8))
        else:
            data = data[: max(1, at)] if draw.random() < 0.3 else data
        if not data:
            return b""
    return bytes(data)


def work(draw: random.Random, folder: Path) -> list[str]:
    """An import of the mutated files of all ranks, or of one, with work in place of times, at times with flags."""
    form = draw.choice(("et", "json", "jsonizer"))
    traces = stage(Path(tempfile.mkdtemp(dir=folder)), form)
    for path in sorted(traces.iterdir()):
        if draw.random() < 0.2:
            content = path.read_bytes()
            if path.suffix == ".json" and form == "jsonizer" and path.stem != "comm_group" and draw.random() < 0.8:
                objects = json.loads(f"[{content.decode().replace('}{', '},{')}]")
                path.write_bytes(
                    b"".join(_values(draw, one) if draw.random() < 0.3 else json.dumps(one).encode() for one in objects)
                )
            elif path.suffix == ".json" and form != "jsonizer" and draw.random() < 0.8:
                path.write_bytes(_values(draw, json.loads(content)))
            else:
                path.write_bytes(_bytes(draw, content))
        elif draw.random() < 0.02:
            path.unlink()
    one = draw.random() < 0.3
    words = ["import", str(traces / f"llm.{draw.randrange(8)}.{'et' if form == 'et' else 'json'}" if one else traces)]
    words += ["-o", str(folder / "out.json"), "--force"]
    for flag, values in (("--group", ("1", "dp", "")), ("--ranks", ("8", "2", "0")), ("--only", ("all_reduce", "send,recv")), ("--native-rate", ("20gbit",)),
                         ("--group-file", (str(traces / "comm_group.json"), str(traces / "gone.json"), str(traces))), ("--format", ("chakra", "kineto"))):  # fmt: skip
        if draw.random() < 0.08:
            words += [flag, draw.choice(values)]
    return words


def simai(draw: random.Random, folder: Path) -> list[str]:
    """An import of a workload of SimAI with words of some of its lines changed, and at times more."""
    header = draw.choice((None, None, "DATA", "MICRO", "HYBRID_TRANSFORMER model_parallel_NPU_group: 2"))
    lines = [line.split() for line in (workload(header) if header else workload()).splitlines()]
    likely = ("ALLREDUCE", "ALLTOALL_EP", "ALLGATHER_DP_EP", "NONE", "pp_comm", "ep:")
    for _ in range(draw.randint(1, 3)):
        line = draw.choice(lines[2:] if draw.random() < 0.7 else lines)
        place = draw.randrange(len(line)) if line else 0
        change = draw.random()
        if change < 0.8 and line:
            numbers = ("0", "1", "2", "4", "16", "8388608.0", "1000000000", "123456789012")
            same = numbers if line[place].isdigit() else likely
            line[place] = draw.choice(same if draw.random() < 0.85 else CELLS)
        elif change < 0.9 and line:
            line.pop(place)
        else:
            line.insert(place, draw.choice(likely))
    text = "\n".join(" ".join(line) for line in lines) + "\n"
    path = folder / "workload.txt"
    path.write_bytes(mutated(draw, text) if draw.random() < 0.2 else text.encode())
    words = [
        "import",
        str(path),
        "-o",
        str(folder / "out.json"),
        "--force",
        *(["--format", "simai"] if draw.random() < 0.5 else []),
    ]
    for flag, values in (
        ("--group", ("tp", "dp", "")),
        ("--ranks", ("8", "4", "0")),
        ("--only", ("all_reduce", "all_to_all")),
        ("--bytes", ("1MB",)),
    ):
        if draw.random() < 0.1:
            words += [flag, draw.choice(values)]
    return words


def _values(draw: random.Random, raw: Any) -> bytes:
    """JSON with some of its values changed, moved or lost, at any depth."""
    for _ in range(draw.randint(1, 4)):
        holder = raw
        while isinstance(holder, dict | list) and holder:
            key: Any = draw.choice(sorted(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
            inner = holder[key]
            if isinstance(inner, dict | list) and inner and draw.random() < 0.9:
                holder = inner
                continue
            change = draw.random()
            if change < 0.6:
                holder[key] = draw.choice((*NUMBERS, *VALUES, None, [], {}, [1], {"a": 1}, True, 3, 12, 13))
            elif change < 0.8:
                del holder[key]
            elif isinstance(holder, list):
                holder.append(draw.choice(holder))
            break
    return json.dumps(raw).encode()


RECORDS: dict[str, Callable[[], bytes]] = {
    "nccl_log": lambda: records.nccl_log().encode(),
    "nccl_inspector": lambda: records.inspector().encode(),
    "nccl_profiler": lambda: records.nccl_profiler().encode(),
    "nsys": records.nsys,
    "ascend": lambda: records.ascend().replace(b"}, {", b"},\n{"),
    "deepspeed": lambda: records.deepspeed_log().encode(),
    "deepspeed_table": lambda: records.deepspeed_table(
        [("broadcast", "98.25 MB", 1), ("all_gather_into_tensor", "2.0 KB", 20), ("all_reduce", "1.5 GB", 40)]
    ).encode(),
}  # what importers read besides PyTorch's profiles
_TOKENS = re.compile(rb"0x[0-9a-f]+|\d+(?:\.\d+)?|[A-Za-z_]\w+")


def record(kind: str, draw: random.Random, folder: Path) -> list[str]:
    """An import of a mutated log or record of this kind, at times with flags."""
    path = folder / "mutated.record"
    path.write_bytes(_record(draw, RECORDS[kind]()))
    words = ["import", str(path), "-o", str(folder / "out.json"), "--force"]
    if kind == "deepspeed_table" and draw.random() < 0.8:
        words += ["--steps", "20"]
    for flag, values in (("--iteration", ("5ms", "0s")), ("--steps", ("1", "2", "5", "999999")), ("--ranks", ("8", "1")), ("--group", ("0x7d3f", "")),
                         ("--only", ("all_reduce",)), ("--format", ({"deepspeed_table": "deepspeed", "ascend": "kineto"}.get(kind, kind),) * 3)):  # fmt: skip
        if draw.random() < 0.15:
            words += [flag, draw.choice(values)]
    return words


def _record(draw: random.Random, content: bytes) -> bytes:
    """``content`` with words and numbers exchanged or replaced, lines lost, twice or moved, and at times with bytes changed."""
    if content.startswith(b"SQLite"):
        return _database(draw, content) if draw.random() < 0.6 else _bytes(draw, content)
    lines = content.splitlines(keepends=True)
    for _ in range(draw.randint(1, 8)):
        place, change = draw.randrange(len(lines)), draw.randrange(8)
        tokens = list(_TOKENS.finditer(lines[place]))
        if change <= 4 and tokens:
            old = draw.choice(tokens)
            others = _TOKENS.findall(draw.choice(lines)) or [b""]
            new = draw.choice((draw.choice(others), str(draw.choice(NUMBERS)).encode(), draw.choice(VALUES).encode()))
            lines[place] = lines[place][: old.start()] + new + lines[place][old.end() :]
        elif change == 5 and len(lines) > 1:
            del lines[place]
        elif change == 6:
            lines.insert(draw.randrange(len(lines)), lines[place])
        else:
            first, last = sorted((place, draw.randrange(len(lines))))
            lines[first:last] = lines[first:last] * draw.randint(0, 3)
            lines = lines or [b""]
    data = b"".join(lines)
    return _bytes(draw, data) if data and draw.random() < 0.25 else data


def _database(draw: random.Random, content: bytes) -> bytes:
    """An SQLite database with values of some rows changed, rows lost or twice, and at times without a table or a column."""
    database = sqlite3.connect(":memory:")
    database.deserialize(content)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for _ in range(draw.randint(1, 6)):
        table, change = draw.choice(tables), draw.randrange(20)
        columns = [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        every = draw.choice((1, 3, 20))
        column, some = draw.choice(columns), f"rowid * 7919 % {every} = {draw.randrange(every)}"
        if change < 14:
            strange: list[object] = [None, b"", b"\xff" * 40, draw.randbytes(60), *VALUES]
            value = draw.choice((draw.choice(NUMBERS[:-3]), draw.choice(strange)))
            with contextlib.suppress(sqlite3.Error):
                database.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {some}', (value,))
        elif change < 17:
            database.execute(f'DELETE FROM "{table}" WHERE {some}')
        elif change < 19:
            database.execute(f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" WHERE {some}')
        elif len(tables) > 1:
            database.execute(f'DROP TABLE "{table}"')
            tables.remove(table)
    database.commit()
    return bytes(database.serialize())


KINDS: dict[str, Callable[[random.Random, Path], list[str]]] = {
    **{kind: partial(record, kind) for kind in RECORDS},
    "command_line": command_line,
    "job_list": job_list,
    "profile": profile,
    "acme": _of_log("acme_seren.csv", "acme_kalos.csv"),
    "slurm": _of_log("sacct.txt", "sacct.json"),
    "traced": _of_log("traces.csv"),
    "work": work,
    "simai": simai,
    "goal": schedule,
}
