"""Run experiments from Python: `run`, `sweep` and `load`.

They do not print and set no signal handler, so a notebook and a thread can call them.
"""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.backends import Backend
from testbed.campaign import driver, provenance, schedule_tables, sweep_request
from testbed.campaign.driver import Wanted
from testbed.campaign.executors import Here, Observer, choice
from testbed.campaign.request import Request
from testbed.campaign.stored import folders as stored
from testbed.campaign.stored.folders import Again, Work
from testbed.core import locks, progress
from testbed.core.errors import RequestError, error_for_exit
from testbed.core.runs.events import Said
from testbed.core.runs.plan import Plan
from testbed.core.runs.summary import Summary
from testbed.core.text import did_you_mean, quoted
from testbed.planning.plan import Planned
from testbed.report import style, views
from testbed.report.results import Results, load
from testbed.spec import Spec, backend_names, external, schedules, system_tables
from testbed.spec import fields as declared
from testbed.spec.aliases import ALIASES

__all__ = ["Results", "load", "run", "sweep"]


def run(
    file: str | Path | None = None, /, *, out: str | Path = "results", again: bool = False, renew: bool = False, quick: bool = False,
    retries: int | None = None, allow_external_code: bool = False, linux_source: str | Path | None = None, **fields: Any,
) -> Results:  # fmt: skip
    """Run one experiment, and return its results.

    ``file``: an experiment as TOML. ``fields``: fields by their names in such a file; they override the file. Quantities are
    texts with a unit, such as ``rate="1gbit"`` (docs/reference/fields.md). ``seeds``: the number of seeds, or a list of seeds.
    ``out``: the folder of results. ``quick``: use the file's ``[quick]`` table. Stored runs are kept, unless ``again`` repeats
    them, or ``renew`` repeats those that another program, kernel or file made. ``retries``: repetitions of an invalid run, 0 to
    100 (None: 1, or 0 under virtual time). ``allow_external_code``: let root execute code that the file names.
    ``linux_source``: tarball or tree of a custom user-mode Linux.

    Raises `RequestError` for a wrong request, `MachineError` if this machine cannot run it, and `TestbedError` for a run that
    fails. An invalid result is returned (`Results.verdict`).
    """
    file = None if file is None else str(file)
    asked = _fields(fields, quick=quick, allow_external_code=allow_external_code)
    source = None if linux_source is None else Path(linux_source)
    folder = Path()
    with progress.silent():
        for each in _by_seeds(asked):
            request = Request(file, each, Path(out), source)
            with provenance.called(*_command(file, each)):
                folder = _carried_out(request, _again(again=again, renew=renew), _retries(retries))
    return load(folder)


def sweep(
    files: str | Path | Sequence[str | Path], /, *, executor: str = "local", parallel: int = 1, out: str | Path = "results", again: bool = False,
    renew: bool = False, quick: bool = False, retries: int | None = None, allow_external_code: bool = False, **fields: Any,
) -> list[Results]:  # fmt: skip
    """Run the experiments of ``files`` (names, or patterns such as ``experiments/*.toml``), and return the results of
    each, in order.

    ``fields`` override those of every file. The other arguments are those of `run`. ``executor`` is ``local``,
    ``dask``, ``dask:tcp://HOST:PORT`` or ``slurm[:PARTITION]``; ``parallel`` is the number of concurrent runs. With
    more than one, a script must call this below ``if __name__ == "__main__":``. A failed run does not stop the others;
    the sweep raises `testbed.errors.TestbedError` at its end. Also raises what `run` raises.
    """
    given = _fields(fields, quick=quick, allow_external_code=allow_external_code)
    if isinstance(given.get("seeds"), list):
        raise RequestError("a sweep takes the number of seeds. Give the first one as `seed`.", where="seeds")
    folder, repeat = Path(out), _again(again=again, renew=renew)
    sweep_request.check_parallel(parallel, {})
    computed, others = schedules.apart(_files(files))
    asked = [schedules.read(file, quick=quick, seeds=given.get("seeds")) for file in computed]
    with (
        progress.silent(),
        provenance.called(*_command(None, given, "sweep", *computed, *others)),
        locks.held(folder) as held,
    ):
        sweep_request.check_privileges(others, given)
        choices, machines = sweep_request.resolve_backends(others, given, folder, _ignore_note) if others else ([], {})
        planned = [
            each
            for file, chosen in choices
            for each in stored.named(chosen.planned, folder, file, elsewhere=chosen.elsewhere, locks=held)
        ]
        found = [schedule_tables.compute(each, folder, parallel, repeat, held, quiet=True) for each in asked]
        if planned:
            found += _swept(planned, machines, folder, executor, parallel, repeat, _retries(retries))
    return [load(each) for each in found]


def _swept(
    planned: list[Planned], machines: Mapping[str, Backend], out: Path, executor: str, parallel: int, again: Again, retries: int | None
) -> list[Path]:  # fmt: skip
    """Run what is missing and summarise; return the experiments' folders."""
    choice.check(executor, machines)
    sweep_request.check_parallel(parallel, machines)
    work = stored.work(planned, out, lambda run: [machines[name] for name in backend_names.parse(run.spec.on)], again)
    order, _ = sweep_request.in_order(work)
    alone = executor == "local" and parallel == 1 and len(machines) == 1  # it needs no separate process
    here = [Here(backend, _ignore_event) for backend in machines.values()]
    with (
        contextlib.nullcontext(here)
        if alone
        else choice.chosen(executor, machines, parallel, out, _ignore_note) as lanes
    ):
        failures = driver.drive(order, lanes, _ignore_event, retries=retries, is_there=work.is_there, keep_going=True)
    failed = {failure.run.experiment for failure in failures}
    found: dict[Path, None] = {}
    for scenario, _ in planned:
        runs = work.summed_up(scenario)
        if runs[0].experiment not in failed:
            _draw(driver.sum_up(runs), runs)
            found[runs[0].experiment] = None
    if failures:
        reasons = "; ".join(f"{failure.run.folder}: {failure.error}" for failure in failures)
        raise error_for_exit(
            failures[0].error.exit_code,
            f"{len(failures)} of {len(work.asked)} runs failed. All others are kept. {reasons}",
        )
    return list(found)


def _files(given: str | Path | Sequence[str | Path]) -> list[str]:
    """Return file names with patterns expanded. Raises `RequestError` if a pattern matches nothing."""
    found: list[str] = []
    for name in [given] if isinstance(given, (str, Path)) else given:
        matching = [str(name)] if not glob.has_magic(str(name)) else sorted(glob.glob(str(name)))
        if not matching:
            raise RequestError(f"no file matches {quoted(str(name))}. Name an experiment's file: experiments/map.toml.")
        found += matching
    return list(dict.fromkeys(found))


def _ignore_event(_plan: Plan, _event: Said) -> None:
    pass


def _ignore_note(_words: str) -> None:
    pass


def _carried_out(request: Request, again: Again, retries: int | None) -> Path:
    chosen, backend = request.resolve_backend(request.choice())
    _, runs = request.carry_out(chosen, backend, _no_progress, _draw, again=again, retries=retries)
    return runs[0].experiment


def _draw(_summary: Summary, runs: Sequence[Wanted]) -> None:
    with style.collected():
        views.write(driver.experiments(runs), runs[0].out)


@contextlib.contextmanager
def _no_progress(_work: Work) -> Iterator[Observer]:
    yield _ignore_event


def _fields(given: Mapping[str, Any], *, quick: bool, allow_external_code: bool) -> dict[str, Any]:
    """Return keyword arguments in the form of `testbed.spec`. Raises `RequestError` for an unknown name."""
    known = [*Spec.__struct_fields__, *ALIASES, "set"]
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, f"Fields: {', '.join(Spec.__struct_fields__)}.")
            raise RequestError(f"unknown field {quoted(name)}. {hint}")
    found = {name: _plain(value) for name, value in given.items() if value is not None}
    for name, value in found.items():
        if name in ("system", "cc"):
            found[name] = value = system_tables.texts(value)
        if isinstance(value, str) and (name == "set" or declared.of_struct(Spec)[ALIASES.get(name, name)].is_list):
            found[name] = [value]
    asked = {"quick": quick, external.ALLOWED: allow_external_code}
    return found | {name: True for name, wanted in asked.items() if wanted}


def _plain(value: Any) -> Any:
    """As TOML would have it: lists, tables, text and numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, (Sequence, range)):
        return [_plain(one) for one in value]
    return value


def _by_seeds(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields once for each range of seeds: a list of seeds may have gaps."""
    seeds = fields.get("seeds")
    if not isinstance(seeds, list):
        yield fields
        return
    if "seed" in fields or not seeds or not all(type(seed) is int for seed in seeds):
        raise RequestError(
            f"seeds: {seeds!r} is not a list of seeds. Give whole numbers, and leave out `seed`.", where="seeds"
        )
    numbers = sorted(set(seeds))
    starts = [seed for seed in numbers if seed - 1 not in numbers]
    for start, following in zip(starts, [*starts[1:], numbers[-1] + 2], strict=True):
        yield {**fields, "seed": start, "seeds": sum(start <= seed < following for seed in numbers)}


def _again(*, again: bool, renew: bool) -> Again:
    if again and renew:
        raise RequestError("again, renew: both are given. `again` runs everything again. Leave out one of them.")
    return "always" if again else "changed" if renew else "never"


def _retries(retries: int | None) -> int | None:
    if retries is not None and not 0 <= retries <= 100:
        raise RequestError(f"retries: {retries} is not between 0 and 100. Give how often an invalid run is repeated.")
    return retries


def _command(file: str | None, given: Mapping[str, Any], command: str = "run", *files: str) -> list[str]:
    """Return the equivalent command line."""
    return ["mltcp", command, *files, *([] if file is None else [file]), *declared.words(Spec, given)]
