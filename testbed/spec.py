"""What the user asks for: one experiment, from a TOML file, from flags, or both.

Every field here is a flag (``--rate``) and a key of the file (``rate = "500mbit"``);
flags win. Quantities are text with a unit in both. A file may stand on another one
(``base = "other.toml"``), and stand for several experiments (`testbed.points`). Its table
``[quick]`` holds what is different where time is short, and counts if asked for (``--quick``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

import topologies
from testbed import congestion, placement, scheduling
from testbed.errors import RequestError
from testbed.job import Job, JobError, complete, parse
from testbed.shaper import Marking
from workloads import trace as traces
from workloads.units import Duration, Quantity, Rate, Size, UnitError, parse_fraction

VARIANTS = ("quick",)  # tables of a file that override its fields where they are asked for


class LinkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one link of the topology has of its own; both directions."""

    rate: Rate | None = None  # of a bottleneck
    buffer: str | None = None
    ecn: str | None = None
    delay: Duration | None = None  # of one that is no bottleneck
    jitter: Duration | None = None
    loss: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """As a topology file would have it: text with units."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: getattr(value, "exact", value) for name, value in values.items() if value is not None}


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to a bottleneck at a time after the start; both directions."""

    at: Duration
    link: str  # "s1-s2"
    rate: Rate | None = None  # it is this fast from then on
    state: Literal["up", "down"] | None = None  # it fails, or works again


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One experiment. `read` makes a checked one."""

    name: str = ""  # of the results folder; made from the other fields if empty
    topo: str = "dumbbell"
    place: str = "spread"  # or packed, random, or a file: which host runs which worker
    jobs: int = 2
    workers: int = 2
    trace: str | None = None
    compute: Duration | None = None
    bytes: Size | None = None
    collective: str | None = None
    channels: int = 1
    job: tuple[Job, ...] = ()  # each on its own terms; instead of `jobs` alike
    cc: tuple[str, ...] = ("reno", "mltcp_reno")
    iterations: int = 30
    seed: int = 1
    seeds: int = 1
    alone: Literal["each", "first"] = "each"  # of the seeds: jobs alone run for each of them, or for the first one
    rate: Rate = msgspec.field(default_factory=lambda: Rate(500_000_000))
    buffer: str = "1ms"
    mtu: int = 1500
    link: dict[str, LinkSpec] = {}  # what single links have of their own: "s1-s2"
    event: tuple[Event, ...] = ()
    acks: Literal["mixed", "first"] = "mixed"
    ecn: str | None = None
    delay: Duration = msgspec.field(default_factory=lambda: Duration(0))
    jitter: Duration = msgspec.field(default_factory=lambda: Duration(0))
    loss: str = "0%"
    offsets: str = "overlapped"
    noise: str | None = None  # None: what its trace was measured with
    rto_min: Duration | None = None
    sample: Duration = msgspec.field(default_factory=lambda: Duration(10_000_000))
    on: Literal["auto", "host", "uml"] = "auto"
    wall_limit: Duration | None = None

    @property
    def buffer_bytes(self) -> int:
        """The bottleneck's buffer: given in bytes, or as a time at its rate."""
        return queue_bytes(self.buffer, int(self.rate))

    @property
    def all_jobs(self) -> tuple[Job, ...]:
        """Every job, complete; raises `JobError`."""
        compute, size = self.compute, self.bytes
        if self.trace is None and compute is None and size is None:
            compute, size = default_job(self.jobs, int(self.rate), self.mtu)
        defaults = Job(
            trace=self.trace, compute=compute, bytes=size, workers=self.workers, collective=self.collective,
            channels=self.channels, noise=self.noise, iterations=self.iterations,
        )  # fmt: skip
        return tuple(complete(one, defaults) for one in self.job or (Job(),) * self.jobs)


def queue_bytes(text: str, rate_bps: int) -> int:
    """A length of a queue in bytes, given as such or as a time at its rate; raises `UnitError`."""
    try:
        return int(Size.parse(text))
    except UnitError:
        return int(Duration.parse(text)) * rate_bps // (8 * 10**9)


def marking(text: str, rate_bps: int, buffer_bytes: int) -> Marking:
    """``MIN[,MAX[,PROBABILITY]]``, or ``on``: a step at a fifth of the buffer; raises `UnitError`."""
    if text == "on":
        return Marking(buffer_bytes // 5, buffer_bytes // 5, 1.0)
    lowest, highest, probability, *more = [*text.split(","), *[""] * 2]
    first = queue_bytes(lowest, rate_bps)
    last = queue_bytes(highest, rate_bps) if highest else first
    result = Marking(first, last, parse_fraction(probability) if probability else 1.0)
    if any(more) or not 0 < first <= last <= buffer_bytes or not 0 < result.probability <= 1:
        raise UnitError(
            f"{text!r} is no marking threshold of a buffer of {buffer_bytes} bytes; give `on`, one threshold (65kB, 200us), "
            "or MIN,MAX,PROBABILITY with MIN ≤ MAX ≤ buffer, as in 5kB,200kB,1%"
        )
    return result


def default_job(jobs: int, rate_bps: int, mtu: int) -> tuple[Duration, Size]:
    """The job replayed when none is named: one second alone, all of them together 96 % of the link."""
    duty = 0.96 / max(2, jobs)
    payload = duty * rate_bps / 8 * payload_share(mtu)
    return Duration(round((1 - duty) * 1e9)), Size(round(payload))


def payload_share(mtu: int) -> float:
    """Payload of a full frame: 14 bytes Ethernet, 20 IPv4, 32 TCP with timestamps."""
    return (mtu - 52) / (mtu + 14)


def read(file: str | None, flags: dict[str, Any], variants: Sequence[str] = ()) -> Spec:
    """The spec of TOML ``file`` (if any) overridden by its ``variants``, then by ``flags``; raises `RequestError`."""
    fields = read_file(Path(file), variants) if file is not None else {}
    return make(fields, flags, file or "the command line")


def make(fields: dict[str, Any], flags: dict[str, Any], where: str) -> Spec:
    """The spec of a file's ``fields`` overridden by ``flags``; ``where`` names their source in messages."""
    if "sweep" in fields:
        raise RequestError(
            f"{where}: stands for several experiments ([sweep]); run them by `python -m testbed sweep {where}`"
        )
    fields = {**fields, **{key: value for key, value in flags.items() if key != "set"}}
    for key in ("trace", "compute", "bytes"):
        if key in flags:  # a job on the command line replaces the file's
            for other in {"trace", "compute", "bytes"} - flags.keys():
                fields.pop(other, None)
    for text in flags.get("set", ()):
        path, equals, value = text.partition("=")
        if not equals:
            raise RequestError(f"--set {text}: write PATH=VALUE, as in job.0.trace=s2")
        put(fields, path, _toml_value(value), "--set")
    jobs = fields.get("job")
    if isinstance(jobs, list) and jobs:
        try:
            fields["job"] = jobs = [parse(one) if isinstance(one, str) else one for one in jobs]
        except JobError as error:
            raise RequestError(f"{where}: {error.field}: {error}") from error
        if fields.get("jobs", len(jobs)) != len(jobs):
            raise RequestError(f"{where}: jobs: {fields['jobs']} asked for, but {len(jobs)} given; leave out `jobs`")
        fields["jobs"] = len(jobs)
    try:
        spec = msgspec.convert(fields, Spec, dec_hook=traces.decode_quantity)
    except msgspec.ValidationError as error:
        raise RequestError(f"{where}: {_readable(error)}") from error
    _check(spec, where)
    return spec


def read_file(path: Path, variants: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a file, those of its ``variants`` on top in that order; the tables of the others are left out.

    Tables are merged, everything else is replaced.
    """
    fields = _with_base(path)
    tables = {name: fields.pop(name) for name in VARIANTS if name in fields}
    for name, table in tables.items():
        if not isinstance(table, dict) or {"name", "base"} & set(table):
            raise RequestError(
                f"{path}: {name}: is a table of fields, without name and base, that --{name} puts in force"
            )
    for name in variants:
        fields = _merged(fields, tables.get(name, {}))
    return fields


def _with_base(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The fields of a file on top of those of its ``base``."""
    fields = _read_toml(path)
    fields.setdefault("name", path.stem)
    base = fields.pop("base", None)
    if base is None:
        return fields
    if not isinstance(base, str):
        raise RequestError(f'{path}: base: name a file, as in base = "other.toml"')
    below = path.parent / base
    if below.resolve() in {one.resolve() for one in (path, *above)}:
        raise RequestError(f"{path}: base: {base} stands on this file itself")
    return _merged(_with_base(below, (*above, path)), fields)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def put(fields: dict[str, Any], path: str, value: Any, where: str) -> None:
    """Set what lies at ``path`` (``rate``, ``job.0.trace``, ``link.s1-s2.rate``) without changing what others hold."""
    key, *rest = path.split(".")
    holder: Any = fields
    while rest:
        inner = holder[_index(holder, key, path, where)] if key in holder or isinstance(holder, list) else {}
        if not isinstance(inner, dict | list):
            raise RequestError(f"{where}: {path}: {key} holds {inner!r}, and nothing lies below that")
        copy = dict(inner) if isinstance(inner, dict) else list(inner)
        holder[_index(holder, key, path, where)] = copy
        holder, key, *rest = copy, *rest
    holder[_index(holder, key, path, where)] = value


def _index(holder: Any, key: str, path: str, where: str) -> Any:
    if not isinstance(holder, list):
        return key
    if not key.isdecimal() or int(key) >= len(holder):
        raise RequestError(f"{where}: {path}: {key!r} is none of the {len(holder)} there are (0 to {len(holder) - 1})")
    return int(key)


def _toml_value(text: str) -> Any:
    """A value as TOML has it; text needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def schema() -> dict[str, Any]:
    """A JSON schema of the files, for editors."""

    def quantity(kind: type[Quantity]) -> dict[str, Any]:
        return {"type": "string", "description": f"a {kind.noun}, with its unit: {kind.examples}"}

    found = msgspec.json.schema(Spec, schema_hook=quantity)
    properties = found["$defs"]["Spec"]["properties"]
    properties["base"] = {"type": "string", "description": "a file that this one stands on"}
    properties["sweep"] = {
        "type": "object",
        "description": "a list of values for each path: every combination is an experiment; below `zip` lists are taken together",
        "additionalProperties": {"anyOf": [{"type": "array"}, {"type": "object"}]},
    }
    for name in VARIANTS:
        properties[name] = {"type": "object", "description": f"fields (and a sweep) that are in force with --{name}"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "MLTCP testbed experiment", **found}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}") from error
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} is not TOML: {error}") from error


def _readable(error: msgspec.ValidationError) -> str:
    """msgspec's words with the field in front: ``$.jobs`` → ``jobs``."""
    match = re.fullmatch(r"(.*?) - at `\$\.?(.*)`", str(error), re.DOTALL)
    return f"{match[2]}: {match[1]}" if match and match[2] else str(error)


def _check(spec: Spec, where: str) -> None:
    def wrong(field: str, message: str) -> RequestError:
        return RequestError(f"{where}: {field}: {message}")

    limits = {
        "jobs": (1, 64), "workers": (2, 64), "iterations": (1, 100_000), "seeds": (1, 1000),
        "seed": (0, 2**31), "mtu": (576, 65535),
    }  # fmt: skip
    for field, (low, high) in limits.items():
        if not low <= getattr(spec, field) <= high:
            raise wrong(field, f"{getattr(spec, field)} is not between {low} and {high}")
    if spec.rate < 1_000_000:
        raise wrong("rate", f"{spec.rate} is too slow to emulate; the slowest is 1mbit")
    if spec.sample < 1_000_000:
        raise wrong("sample", f"sampling every {spec.sample} would be the experiment; 1ms at the least")
    if spec.rto_min is not None and not 1_000_000 <= spec.rto_min <= 200_000_000:
        raise wrong("rto_min", f"{spec.rto_min} is not between 1ms and 200ms")
    if not spec.cc:
        raise wrong("cc", "name at least one congestion control")
    if spec.name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", spec.name):
        raise wrong("name", f"{spec.name!r} cannot name a folder: letters, digits, '.', '_' and '-' only")
    try:
        topologies.find(spec.topo.partition(",")[0])
    except topologies.TopologyError as error:
        raise wrong("topo", str(error)) from error
    if spec.place not in placement.NAMES:
        try:
            placement.read(Path(spec.place))
        except RequestError as error:
            raise wrong("place", str(error)) from error
    for one in spec.cc:
        try:
            scheduling.parse(one)
        except RequestError as error:
            raise wrong("cc", str(error)) from error
        if "+" in one and len(one.split("+")) > spec.jobs:
            raise wrong("cc", f"{one!r} names more congestion controls than there are jobs ({spec.jobs})")
    labels = [scheduling.parse(one).cc.label for one in spec.cc]
    if len(set(labels)) < len(labels):
        raise wrong("cc", f"{' '.join(spec.cc)} names one twice")
    if spec.trace is not None and (spec.compute is not None or spec.bytes is not None):
        raise wrong("trace", "give a trace, or --compute and --bytes, not both")
    try:
        buffer = spec.buffer_bytes
    except UnitError as error:
        raise wrong("buffer", str(error)) from error
    if buffer < 2 * (spec.mtu + 14):
        raise wrong("buffer", f"{buffer} bytes do not hold two frames of {spec.mtu + 14} bytes")
    if buffer >= 2**32:
        raise wrong("buffer", f"{buffer} bytes are more than the kernel's queue can be limited to (4 GB)")
    if spec.jitter > spec.delay:
        raise wrong("jitter", f"{spec.jitter} is more than the delay, {spec.delay}")
    if spec.delay > 10**9:
        raise wrong("delay", f"{spec.delay} is longer than a second")
    try:
        if not 0 <= parse_fraction(spec.loss) < 1:
            raise wrong("loss", f"{spec.loss} is not between 0% and 100%")
    except UnitError as error:
        raise wrong("loss", str(error)) from error
    if spec.ecn is not None:
        try:
            marking(spec.ecn, int(spec.rate), buffer)
        except UnitError as error:
            raise wrong("ecn", str(error)) from error
    try:
        jobs = spec.all_jobs
    except JobError as error:
        raise wrong(error.field, str(error)) from error
    for job in jobs:
        if job.cc is not None:
            try:
                congestion.parse(job.cc)
            except RequestError as error:
                raise wrong("job.cc", str(error)) from error
