"""The command line: every command of ``python -m testbed``, of which `testbed/run.py` is ``run`` (`_parser` has them all)."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from core import text
from core.errors import EXIT_FAILED, EXIT_INVALID, EXIT_OK, RequestError, TestbedError, said_of

if TYPE_CHECKING:
    from testbed.spec import Spec
    from testbed.substrates.choice import Choice

EPILOG = """\
Quantities need a unit: 500mbit, 64kB, 1.5ms. Algorithms take parameters:
--cc reno mltcp_reno:slope=1.75,intercept=0.25

exit codes: 0 done (the last line says whether valid or suspect; --strict turns suspect into 4),
1 the run failed, 2 the request was wrong, 3 this machine cannot do it, 4 it ran but the result is invalid
"""


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors as one paragraph and code 2."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message}. `{self.prog} --help` lists what there is.")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is unknown here: argparse leaves it to the parser above, which names its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # a closed terminal; nohup ignores it
        signal.signal(signal.SIGHUP, _terminate)
    try:
        if stray := text.first_stray(arguments):
            raise RequestError(stray)
        parsed = _parser().parse_args(arguments)
        code: int = parsed.command(parsed)
        return code
    except TestbedError as error:
        print(text.paragraph(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        what = str(interrupt) or "interrupted"
        print(f"\n{what}: the run in progress was ended and left nothing; finished runs are kept", file=sys.stderr)
        return EXIT_FAILED
    except BrokenPipeError:
        return EXIT_FAILED


def _terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt("terminated")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m testbed", description="MLTCP testbed")
    commands = parser.add_subparsers(title="commands", required=True, parser_class=_Parser)
    _add_run(commands)
    _add_doctor(commands)
    _add_kernel(commands)
    _add_cc(commands)
    _add_sweep(commands)
    _add_judge(commands)
    commands.add_parser("schema", help="a JSON schema of experiment files, for editors").set_defaults(command=_schema)
    return parser


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run", prog="python testbed/run.py", help="run one experiment", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run training jobs against each other over a shared bottleneck, on the real TCP stack.",
    )  # fmt: skip
    run.set_defaults(command=_run)
    run.add_argument("file", nargs="?", help="experiment as TOML; flags override its fields")
    network = run.add_argument_group("network")
    network.add_argument("--topo", help="topology, or ./mine.py; with arguments as in Mininet: dumbbell,4 (dumbbell)")
    network.add_argument(
        "--place", help="which host runs which worker: spread over the edges, packed, random, or ./mine.toml (spread)"
    )
    network.add_argument("--rate", help="of the bottleneck, both directions (500mbit)")
    network.add_argument("--buffer", help="of the bottleneck, as time or size (1ms)")
    network.add_argument("--mtu", type=int, help="in bytes (1500)")
    network.add_argument(
        "--acks", choices=["mixed", "first"], help="pure ACKs in a band of their own at the bottleneck"
    )
    network.add_argument(
        "--ecn", nargs="?", const="on",
        help="mark instead of dropping, by RED from a threshold on: 65kB, 200us, or MIN,MAX,PROBABILITY (a fifth of the buffer)",
    )  # fmt: skip
    network.add_argument("--delay", help="one-way, added on the last hop of every path (0ms)")
    network.add_argument("--jitter", help="delay varies by as much, evenly; packets may overtake (0ms)")
    network.add_argument("--loss", help="share of packets lost at random on the last hop (0%%)")
    network.add_argument("--corrupt", help="share of packets with a bit flipped at random on the last hop (0%%)")
    network.add_argument("--rto-min", help="minimum retransmission timeout, 1ms to 200ms (the kernel's 200ms)")
    jobs = run.add_argument_group("jobs")
    jobs.add_argument("--jobs", type=int, help="how many (2)")
    jobs.add_argument("--workers", type=int, help="of each job (2)")
    jobs.add_argument("--trace", help="what they replay: a name of the library, or ./mine.json")
    jobs.add_argument("--compute", help="a synthetic job's compute time, with --bytes")
    jobs.add_argument("--bytes", help="a synthetic job's bytes, sent one way over the bottleneck")
    jobs.add_argument("--iterations", type=int, help="of every job (30)")
    jobs.add_argument("--offsets", help="starts: overlapped (0-5 %% of an iteration), uniform, or 0ms,50ms,…")
    jobs.add_argument(
        "--noise", help="of the compute time: 5%%, lognormal:5%%, stragglers:1%% (what the trace was measured with)"
    )
    jobs.add_argument("--collective", help="how all-reduces are carried out: ring, tree, parameter_server, … (ring)")
    jobs.add_argument("--channels", type=int, help="connections per flow (1)")
    jobs.add_argument(
        "--job", action="append", metavar="JOB",
        help="a job of its own, once for each: resnet50,workers=4,offset=2s; synthetic,compute=1s,bytes=5MB; "
        "ddp:resnet18 (real PyTorch, on `host`); cmd:\"python train.py\"",
    )  # fmt: skip
    cc = run.add_argument_group("congestion control")
    cc.add_argument(
        "--cc",
        nargs="+",
        action="extend",
        help="one or more; the first is the baseline (reno mltcp_reno); or schedulers: cassini, priority, unfair (docs/baselines.md)",
    )
    how = run.add_argument_group("how")
    how.add_argument(
        "--set",
        action="append",
        metavar="PATH=VALUE",
        help="any field by its path: job.0.trace=s2, link.s1-s2.buffer=2ms",
    )
    how.add_argument("--seed", type=int, help="the first (1)")
    how.add_argument("--seeds", type=int, help="how many (1; intervals from 3)")
    how.add_argument("--alone", choices=["each", "first"], help="seeds for which each job also runs alone (each)")
    how.add_argument("--sample", help="interval of link and flow samples (10ms)")
    how.add_argument(
        "--on", metavar="PLACE",
        help="where to run: uml (user-mode Linux, under virtual time), host (this machine's kernel; root), vagrant, "
        "ssh:[USER@]HOST[:PORT] (auto: uml where it can run it, else host, saying why)",
    )  # fmt: skip
    how.add_argument(
        "--linux-source",
        type=Path,
        metavar="PATH",
        help="a user-mode Linux of one's own: tarball or tree, 6.1 or newer",
    )
    how.add_argument(
        "--wall-limit", help="end a run after so much wall time, whatever happens (else: when nothing moves any more)"
    )
    how.add_argument(
        "--retries", type=int, metavar="N", help="how often a run that is invalid is repeated (1; 0 under virtual time)"
    )
    how.add_argument(
        "--verify", type=Path, metavar="RUNDIR", help="repeat a run from its manifest and compare byte for byte"
    )
    how.add_argument(
        "--trust",
        action="store_true",
        help="with --verify: execute the files that RUNDIR names (topology, congestion control)",
    )
    how.add_argument("--name", help="of the results folder")
    how.add_argument("--out", default="results", help="where results go (%(default)s)")
    how.add_argument("--quick", action="store_true", help="as the file's [quick] table has it: less of everything")
    how.add_argument("--json", action="store_true", help="print the summary as JSON")
    how.add_argument("--quiet", action="store_true", help="no progress")
    how.add_argument("--dry-run", action="store_true", help="print what would be done, in order")
    how.add_argument("--strict", action="store_true", help="a suspect result ends with code 4")


_NOT_FIELDS = {
    "command",
    "file",
    "out",
    "json",
    "quiet",
    "dry_run",
    "strict",
    "quick",
    "linux_source",
    "verify",
    "trust",
    "retries",
}


def _run(parsed: argparse.Namespace) -> int:
    # Imported here: a wrong flag should not wait for pandas.
    from rich.console import Console  # noqa: PLC0415

    from core.runs import rundir  # noqa: PLC0415
    from testbed import spec  # noqa: PLC0415
    from testbed.cli import dry_run  # noqa: PLC0415
    from testbed.linux import privileges  # noqa: PLC0415
    from testbed.substrates import choice  # noqa: PLC0415

    _check_retries(parsed.retries)
    if parsed.verify is not None:
        return _verify(parsed)
    if parsed.trust:
        raise RequestError("--trust is for --verify RUNDIR: what you name yourself is trusted.")
    flags = {key: value for key, value in vars(parsed).items() if key not in _NOT_FIELDS and value is not None}
    if parsed.quick:
        flags["quick"] = True

    def read(flags: dict[str, Any]) -> list[Spec]:
        asked = spec.read(parsed.file, flags)
        if "," in asked.on:
            raise RequestError(
                f"--on {asked.on}: several machines share the runs of a sweep (`python -m testbed sweep`)."
            )
        if parsed.linux_source is not None and asked.on not in ("auto", "uml"):
            raise RequestError(f"--linux-source is for --on uml; on `{asked.on}` the kernel is the machine's own.")
        return [asked]

    root = privileges.caller() is not None
    if parsed.dry_run:
        privileges.give_up()
    with said_of(parsed.file):
        chosen = choice.choose(read, flags, parsed.linux_source)
    if not (root and parsed.dry_run and chosen.place != "uml"):  # that run would write as root
        rundir.check_writable(Path(parsed.out))
    if parsed.dry_run:
        print(
            "\n".join([*_place(chosen, read, flags), *(line for one in chosen.plans for line in dry_run.describe(one))])
        )
        return EXIT_OK

    from core import folders  # noqa: PLC0415
    from core.runs.load import load_experiment  # noqa: PLC0415
    from testbed.campaign import experiment  # noqa: PLC0415
    from testbed.cli import closing  # noqa: PLC0415
    from testbed.cli.console import Progress  # noqa: PLC0415
    from testbed.spec import place as where  # noqa: PLC0415

    notes = Console(stderr=True)
    quiet = parsed.quiet or parsed.json
    with (
        said_of(parsed.file),
        notes.status(f"{chosen.place}: connecting")
        if where.is_remote(chosen.place) and not quiet
        else contextlib.nullcontext(),
    ):
        chosen, substrate = choice.settle(chosen, read, flags, parsed.linux_source)
    if chosen.reason is not None:
        print(text.paragraph(str(chosen)), file=sys.stderr)
    (asked,) = chosen.specs
    todo = chosen.plans
    folders.check(Path(parsed.out) / todo[0].experiment / "figures", Path(parsed.out))
    with Progress(todo, notes, quiet=quiet) as progress:
        summary = experiment.run(
            asked, substrate, Path(parsed.out), progress, experiment.command_line(), parsed.retries
        )
    from analysis import views  # noqa: PLC0415

    folder = Path(parsed.out) / summary["experiment"]
    wanted = [(one.cc.label, one.seed) for one in todo if one.alone is None]
    results = load_experiment(folder, wanted)
    with rundir.filled(folder / "figures", Path(parsed.out)) as aside:
        figures = [folder / "figures" / path.name for path in views.draw(results, aside)]
    if parsed.json:
        print(json.dumps(summary, indent=1))
    else:
        remote = substrate.identity() if where.is_remote(chosen.place) else None
        closing.show(summary, folder, todo, figures, remote)
    if summary["verdict"] == "invalid" or (parsed.strict and summary["verdict"] != "valid"):
        return EXIT_INVALID
    return EXIT_OK


def _place(chosen: Choice, read: Callable[[dict[str, Any]], list[Spec]], flags: dict[str, Any]) -> Iterator[str]:
    """Where it would run, and what the file's ``[realtime]`` changes there."""
    from testbed import spec  # noqa: PLC0415
    from testbed.spec import place as where  # noqa: PLC0415

    yield str(chosen)
    if where.in_real_time(chosen.place):
        (virtual,), (real,) = read({**flags, "on": "uml"}), read({**flags, "on": "host"})
        if changed := spec.differences(virtual, real):
            yield "[realtime] is in force:"
            yield from (f"  {line}" for line in changed)


def _check_retries(retries: int | None) -> None:
    if retries is not None and not 0 <= retries <= 100:
        raise RequestError(f"--retries {retries}: give how often an invalid run is repeated, 0 to 100")


def _verify(parsed: argparse.Namespace) -> int:
    from testbed import spec  # noqa: PLC0415
    from testbed.campaign import verify  # noqa: PLC0415
    from testbed.cli import dry_run  # noqa: PLC0415
    from testbed.linux import privileges  # noqa: PLC0415

    allowed = {"command", "verify", "trust", "linux_source", "wall_limit", "quiet", "on", "dry_run"}
    given = [key for key, value in vars(parsed).items() if value not in (None, False) and key not in {*allowed, "out"}]
    if given:
        raise RequestError(
            f"--verify repeats a run from its manifest; it takes no --{given[0].replace('_', '-')} beside it."
        )
    privileges.give_up()  # it repeats what ran under virtual time
    if parsed.dry_run:
        print("\n".join(dry_run.describe(verify.read(parsed.verify, trusted=parsed.trust)[1])))
        return EXIT_OK
    limit = None if parsed.wall_limit is None else spec.read(None, {"wall_limit": parsed.wall_limit}).wall_limit
    lines = verify.repeat(parsed.verify, parsed.linux_source, limit, trusted=parsed.trust)
    print("\n".join(map(text.paragraph, lines or [f"{parsed.verify}: repeated, identical to the byte"])))
    return EXIT_FAILED if lines else EXIT_OK


def _schema(parsed: argparse.Namespace) -> int:
    from testbed import spec  # noqa: PLC0415

    commands = argparse.ArgumentParser().add_subparsers()
    _add_run(commands)
    helps = {action.dest: action.help for action in commands.choices["run"]._actions if action.help}
    print(json.dumps(spec.schema({name: help.replace("%%", "%") for name, help in helps.items()}), indent=1))
    return EXIT_OK


def _add_sweep(commands: Any) -> None:
    sweep = commands.add_parser(
        "sweep", help="run the experiments of several files, in parallel",
        description="Runs what is not there yet, in a shuffled order; a run that fails does not stop the others.",
    )  # fmt: skip
    sweep.add_argument("files", nargs="+", help="experiments as TOML, each with or without a [sweep]")
    sweep.add_argument("-j", "--parallel", type=int, default=1, help="runs at a time (1; more on uml alone)")
    sweep.add_argument(
        "--on", action="append", metavar="PLACE",
        help="where to run, whatever the files say; several other machines (ssh:a,ssh:b, or --on repeated) share the runs",
    )  # fmt: skip
    sweep.add_argument("--out", default="results", help="where results go (%(default)s)")
    sweep.add_argument("--set", action="append", metavar="PATH=VALUE", help="any field by its path, in all of them")
    sweep.add_argument("--seeds", type=int, help="how many, in all of them")
    sweep.add_argument("--iterations", type=int, help="of every job, in all of them")
    sweep.add_argument(
        "--retries", type=int, metavar="N", help="how often a run that is invalid is repeated (1; 0 under virtual time)"
    )
    sweep.add_argument("--quick", action="store_true", help="as the files' [quick] tables have it: less of everything")
    sweep.add_argument("--quiet", action="store_true", help="no progress")
    sweep.add_argument("--dry-run", action="store_true", help="print what would be run")
    sweep.set_defaults(command=_sweep)


def _sweep(parsed: argparse.Namespace) -> int:
    from testbed.campaign import sweep  # noqa: PLC0415
    from testbed.linux import privileges  # noqa: PLC0415

    _check_retries(parsed.retries)
    flags = {key: value for key in ("set", "seeds", "iterations") if (value := getattr(parsed, key)) is not None}
    if parsed.on is not None:
        flags["on"] = ",".join(parsed.on)
    if parsed.quick:
        flags["quick"] = True
    if parsed.dry_run:
        privileges.give_up()
        for file, chosen in sweep.possible(parsed.files, flags):
            with said_of(file):
                print("\n".join(sweep.describe(chosen)))
        return EXIT_OK
    return sweep.run(
        parsed.files,
        flags,
        Path(parsed.out),
        parsed.parallel,
        quiet=parsed.quiet,
        retries=parsed.retries,
    )


def _add_judge(commands: Any) -> None:
    judge = commands.add_parser("judge", help="judge stored runs again, by the rules of this testbed")
    judge.add_argument("results", help="a run directory, or a folder with some")
    judge.set_defaults(command=_judge)


def _judge(parsed: argparse.Namespace) -> int:
    from core.runs.load import LoadError  # noqa: PLC0415
    from testbed.campaign.judged_again import judge_again  # noqa: PLC0415

    if not parsed.results:
        raise RequestError("judge: name a run directory, or a folder with some, such as results.")
    count, invalid = 0, False
    try:
        for path, before, now in judge_again(Path(parsed.results)):
            count += 1
            invalid |= now == "invalid"
            if now != before:
                print(text.plain(f"{path}: {before}, now {now}"))
    except LoadError as error:
        raise RequestError(str(error)) from error
    print(f"{count} runs judged")
    return EXIT_INVALID if invalid else EXIT_OK


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser("doctor", help="what this machine can do, found by trying")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(command=_doctor)


def _doctor(parsed: argparse.Namespace) -> int:
    from testbed.cli import doctor  # noqa: PLC0415

    return doctor.report(as_json=parsed.json)


def _add_kernel(commands: Any) -> None:
    kernel = commands.add_parser("kernel", help="build the user-mode Linux kernel that `--on uml` runs")
    kernel.add_argument(
        "--linux-source",
        type=Path,
        metavar="PATH",
        help="a tarball or tree of Linux 6.1 or newer (the distribution's newest package)",
    )
    kernel.add_argument("--if-missing", action="store_true", help="be content with any usable one")
    kernel.set_defaults(command=_kernel)


def _kernel(parsed: argparse.Namespace) -> int:
    from testbed.linux import privileges  # noqa: PLC0415
    from testbed.substrates.usermode import kernel  # noqa: PLC0415

    privileges.give_up()

    def say(line: str) -> None:
        print(line, flush=True)

    if parsed.if_missing and kernel.is_there():
        return EXIT_OK
    built = kernel.ensure(parsed.linux_source, say)
    if not parsed.if_missing:
        say(f"Linux {built.identity['version']} ({built.identity['source']}) in {built.folder}")
    return EXIT_OK


def _add_cc(commands: Any) -> None:
    cc = commands.add_parser("cc", help="congestion controls outside an experiment")
    actions = cc.add_subparsers(title="actions", required=True, parser_class=_Parser)
    actions.add_parser("list", help="those of the testbed and of this kernel").set_defaults(command=_cc, action="list")
    load = actions.add_parser("load", help="register one under its plain name, until unloaded")
    load.add_argument("cc", help="for instance mltcp_reno, or mltcp_reno:slope=2,intercept=0.5")
    load.add_argument("--cgroup", type=Path, help="let the sockets of this cgroup (version 2) use it")
    load.set_defaults(command=_cc, action="load")
    unload = actions.add_parser("unload", help="take one off again")
    unload.add_argument("cc")
    unload.set_defaults(command=_cc, action="unload")
    actions.add_parser("status", help="what is loaded, and by whom").set_defaults(command=_cc, action="status")


def _cc(parsed: argparse.Namespace) -> int:
    from testbed.cli import cc  # noqa: PLC0415

    return cc.command(parsed.action, getattr(parsed, "cc", None), getattr(parsed, "cgroup", None))
