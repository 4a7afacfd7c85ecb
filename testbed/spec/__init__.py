"""Read the experiment that a user requests, from a TOML file, from flags, or from both.

Every field (`testbed.spec.experiment`) is a flag (``--rate``) and a key of the file (``rate = "500mbit"``);
flags override the file. Quantities are text with a unit in both. A file may inherit from another one
(``base = "other.toml"``) and may describe several experiments (`testbed.spec.sweep`). The table
``[real-clock]`` overrides other fields on a real clock, and ``[quick]`` overrides them under ``--quick``.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from testbed import networks
from testbed.congestion import catalogue
from testbed.core.errors import RequestError, within
from testbed.core.text import command, did_you_mean, is_text, quoted, shown
from testbed.core.units import decoded
from testbed.models.frames import frame
from testbed.schedulers import job as job_schedulers
from testbed.spec import backend_names, background_tables, external, files, limits, system_tables, systems
from testbed.spec import fields as declared
from testbed.spec.aliases import canonical
from testbed.spec.experiment import OF_JOBS, Event, LinkSpec, Spec, default_job
from testbed.spec.job import SYNTHETIC, Job, parse
from testbed.traces.devices import Device

__all__ = ["Event", "LinkSpec", "Spec", "default_job", "differences", "make", "read", "read_file"]


def read(file: str | None, flags: dict[str, Any]) -> Spec:
    """The spec of TOML ``file`` (if any) overridden by ``flags``; raises `RequestError`."""
    return make(read_file(file) if file is not None else {}, flags, file or "the command line")


def read_file(file: str) -> dict[str, Any]:
    """Parse the tables of an experiment file; raises `RequestError`."""
    return files.read(Path(file), Spec.__struct_fields__)


def make(fields: dict[str, Any], flags: dict[str, Any], source: str) -> Spec:
    """The spec of a file's ``fields`` overridden by ``flags``; ``source`` names the file in messages."""
    fields, flags = canonical(fields, source), canonical(flags, "the command line")
    fields = files.in_force(fields, flags, source)
    if "sweep" in fields:
        raise RequestError(
            f"{source}: this file describes several experiments ([sweep]). Run them with `{command('sweep', source)}`."
        )
    given = {key: value for key, value in flags.items() if key not in ("set", "quick", external.ALLOWED)}
    _check_effective(fields, given, source)
    fields = {**(files.with_room(fields, given) if "job" not in fields else fields), **given}
    for text in flags.get("set", ()):
        path, equals, value = text.partition("=")
        if path in given:
            raise RequestError(f"--set {text}: a flag also sets {path}. Leave out one of them.")
        if not equals:
            raise RequestError(f"--set {text}: write PATH=VALUE, as in job.0.trace=s2")
        if path == "on":
            raise RequestError(f"--set {text}: the backend is not a field. Use --on {value}.")
        files.put(fields, path, files.toml_value(value), "--set")
    fields = canonical(fields, source)  # including fields from --set and a sweep's path
    with within(source):
        if "system" in fields:
            fields["system"] = system_tables.texts(fields["system"])
        if "background" in fields:
            fields["background"] = background_tables.texts(fields["background"])
    fields = _without_synthetic(fields)
    jobs = fields.get("job")
    if isinstance(jobs, list) and jobs:
        with within(source):
            fields["job"] = jobs = [parse(one) if isinstance(one, str) else _without_synthetic(one) for one in jobs]
        if fields.get("jobs", len(jobs)) != len(jobs):
            asked = "--jobs" if "jobs" in given else "jobs"
            raise RequestError(
                f"{source}: {asked}: {fields['jobs']} requested, but {len(jobs)} described. Leave out {asked}."
            )
        fields["jobs"] = len(jobs)
    if given.get("name") == "":
        raise RequestError("--name: it is empty. Leave it out for a name made from the fields.")
    if isinstance(scheduler := fields.get("scheduler"), str):
        fields["scheduler"] = [scheduler]
    for name, value in fields.items():
        _check_text(source, name, value)
    with within(source):
        external.check(fields, flags)
    own_links = {}
    if isinstance(fields.get("link"), dict):
        own_links = {name: _link(own, f"{source}: link.{name}") for name, own in fields.pop("link").items()}
    try:
        spec = msgspec.structs.replace(msgspec.convert(fields, Spec, dec_hook=decoded), link=own_links)
    except msgspec.ValidationError as error:
        raise RequestError(f"{source}: {_readable(error)}") from error
    with within(source):
        _check(spec)
    return spec


def _without_synthetic(fields: Any) -> Any:
    """Return the fields of an experiment or a job without ``trace = "synthetic"``, which names no trace."""
    if isinstance(fields, dict) and fields.get("trace") == SYNTHETIC:
        return {name: value for name, value in fields.items() if name != "trace"}
    return fields


def _link(own: Any, where: str) -> LinkSpec:
    try:
        return msgspec.convert(own, LinkSpec, dec_hook=decoded)
    except msgspec.ValidationError as error:
        raise RequestError(f"{where}: {_readable(error, LinkSpec)}") from error


def _check_text(source: str, field: str, value: Any) -> None:
    """Raises `RequestError` if any text in ``value`` could not be part of a path or an argument."""
    if isinstance(value, str) and not is_text(value):
        raise RequestError(f"{source}: {shown(field)}: {quoted(value)} is not text (UTF-8 without NUL)")
    inner = (
        value.items() if isinstance(value, dict) else [("", one) for one in value] if isinstance(value, list) else ()
    )
    for key, one in inner:
        _check_text(source, f"{field}.{key}".rstrip("."), one)


def _check_effective(fields: dict[str, Any], given: dict[str, Any], source: str) -> None:
    """Raises `RequestError` for a flag without effect, because every ``[[job]]`` of the file sets that value."""
    jobs = fields.get("job") if "job" not in given else None
    own = [one for one in jobs if isinstance(one, dict)] if isinstance(jobs, list) else []
    what = {"trace", "compute", "bytes", "ddp", "cmd"}
    for key in given:
        unaffected = [one for one in own if (key in OF_JOBS and key in one) or (key in what and what & one.keys())]
        if own and len(unaffected) == len(own):
            raise RequestError(
                f"--{key}: every [[job]] of {source} sets this itself. Change one with --set job.0.{key}=…, or leave out the flag"
            )


def differences(spec: Spec, other: Spec) -> list[str]:
    """The fields in which ``other`` differs from ``spec``, a line each."""
    before, after = (msgspec.to_builtins(one, enc_hook=str) for one in (spec, other))
    return [
        f"{name} = {after[name]!r}, not {before[name]!r}"
        for name in before
        if before[name] != after[name] and name != "on"
    ]


_FORMS = {
    "job": "write [[job]], once for each job",
    "event": "write [[event]], once for each event",
    "system": 'write system = ["reno", "mltcp_reno"]',
}


_TYPES = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip


def _readable(error: msgspec.ValidationError, kind: Any = None) -> str:
    """msgspec's words with the field in front, ``$.jobs`` → ``jobs``, and what there is instead of an unknown one."""
    match = re.fullmatch(r"(.*?) - at `\$\.?(.*)`", str(error), re.DOTALL)
    field, words = (match[2], match[1]) if match else ("", str(error))
    if stray := re.fullmatch(r"Object contains unknown field `(.*)`", words):
        kind = kind or {"job": Job, "event": Event}.get(field.partition("[")[0], Spec)
        known = kind.__struct_fields__
        hint = did_you_mean(stray[1], known, f"Known fields: {', '.join(known)}.")
        words = f"unknown field `{stray[1]}`. {hint}"
    if kinds := re.fullmatch(r"Expected `(.*)`, got `(.*)`", words):
        wanted, got = (
            " or ".join(_TYPES.get(name, name) for name in names.split(" | ") if name != "null" or names == name)
            for names in kinds.groups()
        )
        words = f"give {wanted}, not {got}"
        if wanted == _TYPES["array"] and field in _FORMS:
            words += f"; {_FORMS[field]}"
    field = re.sub(r"\[(.*?)\]", r".\1", field)  # job[0] → job.0, as in --set
    return f"{field}: {words}" if field else words


def _check(spec: Spec) -> None:
    def wrong(field: str, message: str) -> RequestError:
        return RequestError(message, where=field)

    with within("on"):
        backend_names.parse(spec.on)

    most = limits.limits_for(spec.on)
    reach = f", the most that can be {most.done}"
    for name, field in declared.of_struct(Spec).items():
        field.check(getattr(spec, name))
    for name, low, high in (("jobs", 1, most.jobs), ("workers", 2, most.workers)):
        value = getattr(spec, name)
        if value is not None and not low <= value <= high:
            raise wrong(name, f"{value} is not between {low} and {high}{reach}. Give a number in this range.")
    if spec.stop_when_periodic and any(job.train for job in spec.all_jobs):
        raise wrong("stop_when_periodic", "fills in what is alike, and of what a job learns nothing is; leave it out")
    if spec.stop_when_periodic == 1:
        raise wrong("stop_when_periodic", "one iteration is like itself; 2 at the least, or 0: never")
    most.check("runs", len(spec.scheduler) * len(spec.system) * spec.seeds, "system")
    if not spec.system:
        raise wrong("system", "it is empty. Name at least one congestion control.")
    if spec.name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", spec.name):
        raise wrong(
            "name", f"{quoted(spec.name)} cannot name a folder: letters, digits, '.', '_' and '-' only, 200 at most"
        )
    with within("topo"):
        networks.find(spec.topo.partition(",")[0])
    if not spec.scheduler:
        raise wrong("scheduler", "it is empty. Name at least one job scheduler.")
    for scheduler in spec.scheduler:
        with within("scheduler"):
            job_schedulers.check(scheduler)
    if len(set(spec.scheduler)) < len(spec.scheduler):
        raise wrong("scheduler", f"{' '.join(spec.scheduler)} names one twice")
    for system in spec.system:
        with within("system"):
            systems.parse(system)
        if len(systems.in_turn(system)) > max(1, spec.jobs):
            raise wrong("system", f"{quoted(system)} names more congestion controls than there are jobs ({spec.jobs})")
    found = [systems.parse(one) for one in spec.system]
    if len({one.folder for one in found}) < len(found) or len({one.label for one in found}) < len(found):
        raise wrong("system", f"{' '.join(spec.system)} names one twice")
    if spec.trace is not None and (spec.compute is not None or spec.bytes is not None):
        raise wrong("trace", "give a trace, or --compute and --bytes, not both")
    buffer = spec.buffer_bytes
    if buffer < 2 * frame(spec.mtu):
        raise wrong("buffer", f"{buffer} bytes do not hold two frames of {frame(spec.mtu)} bytes")
    if buffer >= 2**32:
        raise wrong("buffer", f"{buffer} bytes are more than the kernel's queue can be limited to (4 GB)")
    if spec.host_queue.bytes(int(spec.rate), spec.mtu) == 0:
        raise wrong("host_queue", f"{quoted(spec.host_queue)} holds nothing; none is a host that never drops")
    if spec.represents_rate is not None and spec.represents_rate < spec.rate:
        raise wrong(
            "represents_rate", f"{spec.represents_rate} is slower than the rate that stands for it, {spec.rate}"
        )
    if spec.jitter > spec.delay:
        raise wrong("jitter", f"{spec.jitter} is more than the delay, {spec.delay}")
    if spec.corrupt.value == 1:
        raise wrong("corrupt", f"{spec.corrupt} is not between 0% and 100%")
    with within("ecn"):
        spec.ecn.resolve(int(spec.rate), buffer, spec.mtu)
    if spec.priority_queues.drops and spec.ecn == "off":
        raise wrong(
            "priority_queues",
            f"{spec.priority_queues} drops from the thresholds at which a link marks, and --ecn off has none",
        )
    jobs = spec.all_jobs
    if without := [number for number, job in enumerate(jobs) if spec.lives and job.gpus is None]:
        raise wrong(
            f"job.{without[0]}.gpus", "is not said, and other jobs say theirs; all jobs ask for GPUs, or none does"
        )
    if spec.intra_server_rate is not None and not spec.lives and not any(job.inside_servers for job in jobs):
        raise wrong(
            "intra_server_rate",
            "is that of servers in which a job has several GPUs. No job asks for any (gpus), and no trace has groups inside a server (placement)",
        )
    if spec.nics > 1 and (spec.lives or not any(job.inside_servers for job in jobs)):
        raise wrong(
            "nics",
            f"{spec.nics} interfaces need a server with several ranks. Jobs that ask for GPUs (gpus) have one worker a server, and others one, too, "
            "unless their trace has groups inside a server (placement)",
        )
    computing = list[Device]()
    for number, job in enumerate(jobs):
        with within(f"job.{number}") if job.device not in (None, spec.device) else nullcontext():
            computing += filter(None, [spec.device_of(job)])
        if (job.workers or 0) > most.workers:
            of_ranks = job.trace is not None and not job.read_trace().alike
            fewer = ". Its trace has a worker for each rank. With fewer replicas (import --dp) the bytes of a rank hardly change"
            raise wrong(
                f"job.{number}.workers",
                f"{job.workers} is not between 2 and {most.workers}{reach}{fewer if of_ranks else ''}",
            )
        if job.cc is not None:
            with within(f"job.{number}.cc"):
                catalogue.parse(job.cc)
    if spec.mfu is not None and not computing:
        raise wrong(
            "mfu",
            f"{spec.mfu} is a share of a peak, and no job computes by work or names a device. Give --device or --peak",
        )
