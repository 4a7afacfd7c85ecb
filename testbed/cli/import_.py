"""Make a trace from a profile (the median of the profiled steps) or from a model's dimensions."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from testbed.core import options, terminal
from testbed.core.errors import within
from testbed.core.options import Boolean, Integer, OneOf
from testbed.core.text import count, decimal, plain, quoted
from testbed.core.units import Duration, Rate, Size
from testbed.traces import import_table, model_files, model_jobs, rank_files
from testbed.traces.layout import Layout
from testbed.traces.trace import Kind, Trace, TraceError, save

if TYPE_CHECKING:
    from testbed.traces.importing import Imported

_MOST_OFF = 0.05  # part by which a replay may differ from the profile without a warning
_ITERATIONS = 6
_MOST_NICS = 16
_MOST_NAMED = 4  # files of a folder
_OF_FILES = (
    "check",
    "intra_server_rate",
    "format",
    "native_rate",
    "on",
    "bytes",
    "ranks",
    "iteration",
    "group",
    "only",
)
_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind) if kind != "compute"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="profile of one rank, one file for each rank (matched by process group, or pooled), or their folder",
    )
    parser.add_argument(
        "-o",
        "--out",
        "--output",
        dest="output",
        required=True,
        type=Path,
        metavar="OUT.json",
        help="trace to write",
    )
    parser.add_argument("--force", action="store_true", help="permission to overwrite OUT.json")
    parser.add_argument(
        "--check", action="store_true", help="comparison of the profile with a replay of the trace in isolation"
    )
    parser.add_argument(
        "--intra-server-rate",
        "--intra-rate",
        metavar="RATE",
        help="rate between the GPUs of a server, for --check (default: exchanges inside a server take no time)",
    )
    parser.add_argument("--format", help="format of the files, or ./mine.py (default: found from their contents)")
    parser.add_argument(
        "--model",
        help=f"without FILE: model whose dimensions make the trace ({', '.join(model_files.names())}), or ./mine.toml; "
        "with FILE: model that was trained, in words (default: the name)",
    )
    missing = parser.add_argument_group("what the files lack")
    missing.add_argument("--name", help="name of the trace (default: OUT)")
    missing.add_argument(
        "--native-rate", metavar="RATE", help="link rate at which the times were recorded (default: as measured)"
    )
    missing.add_argument(
        "--on", default="", metavar="TEXT", help="hardware on which it was recorded (default: not recorded)"
    )
    missing.add_argument(
        "--bytes",
        metavar="SIZE,…",
        help="bytes of each collective of a step, or their total (default: those of the file)",
    )
    missing.add_argument(
        "--ranks", metavar="N", help="number of ranks of the process group, which the size of an all-gather needs"
    )
    missing.add_argument("--iteration", metavar="TIME", help="duration of a step (default: that of the file)")
    missing.add_argument(
        "--element-size",
        metavar="SIZE",
        help="bytes of an element, where the file counts elements (STAGE): 2B for 16 bits",
    )
    missing.add_argument(
        "--group-file",
        type=Path,
        metavar="FILE",
        help="JSON file with the ranks of each process group (default: the one next to the trace)",
    )
    missing.add_argument(
        "--steps",
        metavar="N",
        help="number of training steps in a log that does not mark them (default: found by repetition)",
    )
    chosen = parser.add_argument_group("what is imported")
    chosen.add_argument(
        "--group",
        metavar="NAME",
        help="process group to import, by name or description (default: all that have several ranks)",
    )
    chosen.add_argument(
        "--only", metavar="KIND,…", help=f"kinds of collectives to import: {', '.join(_KINDS)} (default: all)"
    )
    layout = parser.add_argument_group("how a model is trained (without FILE)")
    for one in options.declared(Layout):
        layout.add_argument(
            model_jobs.flag(one.name),
            dest=f"layout_{one.name}",
            metavar=_metavar(one.name),
            help=one.meaning.replace("%", "%%"),
        )


def run(parsed: argparse.Namespace) -> int:
    from testbed.traces import importing

    _check_output(parsed.output, parsed.force)
    layout = {
        name.removeprefix("layout_"): text
        for name, text in vars(parsed).items()
        if name.startswith("layout_") and text is not None
    }
    if not parsed.files:
        return _from_model(parsed, layout)
    intra = _intra_rate(parsed)
    if layout:
        raise TraceError(f"{model_jobs.flag(next(iter(layout)))} is for a job made from a model. Leave it out, or FILE")
    request = importing.Request(
        group=parsed.group,
        sizes=tuple(Size.parse(text) for text in parsed.bytes.split(",")) if parsed.bytes else (),
        ranks=_number(parsed.ranks, "--ranks", "ranks"),
        iteration=Duration.parse(parsed.iteration) if parsed.iteration else None,
        element_size=Size.parse(parsed.element_size) if parsed.element_size else None,
        group_file=parsed.group_file,
        steps=_number(parsed.steps, "--steps", "steps"),
    )
    name = parsed.name or parsed.output.stem
    imported = importing.import_files(
        parsed.files,
        request,
        name=name,
        model=parsed.model or name,
        native_rate=Rate.parse(parsed.native_rate) if parsed.native_rate else None,
        on=parsed.on,
        format=parsed.format,
        only=_only(parsed.only),
    )
    _check_ranks(request.ranks, imported.trace, parsed.files)
    try:
        save(imported.trace, parsed.output)
    except ValueError as error:
        raise TraceError(f"{', '.join(map(str, parsed.files))}: {error} (--only keeps some kinds alone)") from error
    _print(
        [
            f"{parsed.output}: {imported.trace.name}",
            *_folders(parsed.files, parsed.output),
            *import_table.lines(imported),
        ]
    )
    if parsed.check:
        _print(_check(imported, intra))
    return 0


def _folders(paths: Sequence[Path], output: Path) -> Iterator[str]:
    """Which files of each folder were read, where others are there."""
    for folder in filter(Path.is_dir, paths):
        if others := [file for file in rank_files.ignored(folder) if file != output]:
            read = _named(rank_files.expanded([folder]))
            yield import_table.row("files", f"read {read} of {folder}; ignored {_named(others)}")


def _named(files: Sequence[Path]) -> str:
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    return f"{count(len(files), 'file')} ({', '.join(file.name for file in files[:_MOST_NAMED])}{more})"


def _from_model(parsed: argparse.Namespace, layout: dict[str, str]) -> int:
    from testbed.traces import model_table

    if parsed.model is None:
        raise TraceError("nothing to import. Name a profile (FILE), or a model: --model llama-7b")
    for name in _OF_FILES:
        if getattr(parsed, name):
            raise TraceError(f"{model_jobs.flag(name)} is for a profile, and none is named. Leave it out, or name FILE")
    trace = model_jobs.build(parsed.model, **layout)
    trace = msgspec.structs.replace(trace, name=parsed.name or parsed.output.stem)
    output = [f"{parsed.output}: {trace.name}", *model_table.lines(trace)]  # raises where a device is too slow
    save(trace, parsed.output)
    _print(output)
    return 0


def _print(rows: Iterable[str]) -> None:
    """The rows of a table, wrapped in a terminal alone, below their text."""
    columns = terminal.width(usual=sys.maxsize)
    for row in rows:
        print("\n".join(terminal.wrapped(plain(row), columns, import_table.INDENT)))


def _metavar(option: str) -> str:
    kinds = {Integer: "N", OneOf: "WORD", Boolean: "on|off"}
    (read,) = (one.read for one in options.declared(Layout) if one.name == option)
    return kinds.get(type(read), option.upper())


def _check_output(path: Path, force: bool) -> None:
    """Before minutes of reading rather than after."""
    if path.suffix != ".json":
        raise TraceError(f"--out: {path} must end in .json.")
    if not path.parent.is_dir():
        raise TraceError(f"--out: there is no folder {path.parent}. Make it first.")
    if path.exists() and not force:
        raise TraceError(f"--out: {path} exists already. Name another file, or add --force to overwrite it.")


def _number(text: str | None, option: str, of: str) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= len(text) <= 6 or int(text) < 1:
        raise TraceError(f"{option} {text[:20]!r} is not a number of {of} from 1 to 999999.")
    return int(text)


def _check_ranks(asked: int | None, trace: Trace, files: list[Path]) -> None:
    """Raises `TraceError` where the files name another number of ranks than ``--ranks``."""
    named = {trace.ranks} | {len(ranks) for group in trace.groups.values() for ranks in group}
    if asked is not None and trace.ranks is not None and asked not in named:
        raise TraceError(
            f"--ranks {asked} does not fit {', '.join(map(str, files))}, of {trace.ranks} ranks. Leave --ranks out"
        )


def _only(text: str | None) -> frozenset[Kind] | None:
    if text is None:
        return None
    unknown = [kind for kind in text.split(",") if kind not in _KINDS]
    if unknown:
        raise TraceError(f"--only: there is no kind {quoted(unknown[0])}. Give some of {', '.join(_KINDS)}.")
    return frozenset(_KINDS[kind] for kind in text.split(","))


def _intra_rate(parsed: argparse.Namespace) -> Rate | None:
    """Raises `RequestError` if it would be ignored."""
    if parsed.intra_server_rate is None:
        return None
    if not parsed.check:
        raise TraceError("--intra-server-rate is for --check. Add --check, or leave it out.")
    with within("--intra-server-rate"):
        return Rate.parse(parsed.intra_server_rate)


def _check(imported: Imported, intra: Rate | None) -> Iterator[str]:
    """How the trace in isolation compares with the profile, by the flow simulator; ``intra``: rate inside a server."""
    trace = imported.trace
    if not imported.step_s:
        yield import_table.row("check", "the files have no times to compare with")
        return
    inside = ", ".join(map(quoted, trace.placement.inside)) if trace.placement else ""
    if intra is not None and not inside:
        raise TraceError("--intra-server-rate: no group of this trace is inside a server. Leave it out.")
    rate = trace.native_rate or Rate(10**10)
    period_s = _replayed_s(trace, rate, intra)
    part = period_s / imported.step_s - 1
    yield import_table.row(
        "check",
        f"{Duration(round(period_s * 1e9))} in isolation at {rate}{f', {intra} inside a server' if intra else ''} (by the flow simulator), {Duration(round(imported.step_s * 1e9))} in the profile: "
        f"{'+' * (part >= 0)}{decimal(100 * part, 3)} %",
    )
    if abs(part) <= _MOST_OFF:
        return
    unlike = "" if intra is None else " Is --intra-server-rate the one inside its servers?"
    if inside and intra is None:
        unlike = (
            f" Exchanges of {inside} inside a server are replayed in no time: give their rate with --intra-server-rate."
        )
    yield import_table.row(
        "warning",
        f"the trace differs from the profile by more than {_MOST_OFF * 100:.0f} %. Is --native-rate the rate at which the profile was recorded?{unlike}",
    )


def _replayed_s(trace: Trace, rate: Rate, intra: Rate | None) -> float:
    """The mean iteration of the trace in isolation, with an interface for each rank of a server."""
    import testbed
    from testbed.planning import groups

    more: dict[str, Any] = {} if intra is None else {"intra_server_rate": intra.exact}
    nics = min(_MOST_NICS, max(Counter(groups.servers(trace)).values(), default=1))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        save(trace, path)
        results = testbed.run(
            on="flow", topo="star", trace=str(path), jobs=1, workers=trace.ranks or 2, rate=str(rate.exact), mtu=9000, noise="0%",
            iterations=_ITERATIONS, system="reno", isolated_runs="none", out=folder, nics=nics,
            **more,
        )  # fmt: skip
        return float(results.summary["mean_s"].iloc[0])
