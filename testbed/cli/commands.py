"""Every command of ``mltcp``: its group, its module, a line of help, and examples of its use."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed.core import text
from testbed.core.arguments import Parser
from testbed.core.errors import RequestError

EPILOG = "exit codes: 0 done, 1 a run failed, 2 the request was wrong, 3 this machine cannot do it, 4 the result is invalid, 130 interrupted"
GROUPS = ("experiments", "traces", "figures", "shell")


@dataclass(frozen=True)
class Command:
    """A command. Its ``module`` in `testbed.cli` has ``add_arguments(parser)`` and ``run(parsed) -> exit code``."""

    group: str
    help: str
    examples: tuple[str, ...]  # arguments, as they follow the command's name
    module: str = ""  # by default named like the command


COMMANDS = {
    "demo": Command(
        "experiments", "four jobs on one link, Reno and MLTCP; then two jobs that train ResNet-50", ("", "--on flow --out /tmp/demo")
    ),
    "run": Command(
        "experiments", "run one experiment",
        ("--topo dumbbell --jobs 4", "experiments/interleaving.toml --seeds 5", "--jobs 2 --trace resnet50 --rate 300mbit --on flow --dry-run"),
    ),
    "sweep": Command(
        "experiments", "run the experiments of several files, in parallel",
        ("experiments/interleaving.toml -j 2", "experiments/interleaving.toml --quick --dry-run"),
    ),
    "schedule": Command(
        "experiments", "compare job schedulers: which job gets which GPUs, and when",
        ("--scheduler list", "jobs.csv --servers 20 --gpus 4,8", "jobs.csv --scheduler sjf_bco random --on flow"),
    ),
    "calibrate": Command(
        "experiments", "fit the contention model of job schedules to runs", ("--quick --dry-run", "--system reno mltcp_reno --seeds 3"),
        "schedule.calibrate",
    ),
    "verify": Command(
        "experiments", "repeat a run from its manifest, and compare it byte for byte",
        ("results/interleaving/mltcp_reno/1", "results/interleaving/mltcp_reno/1 --dry-run"),
    ),
    "judge": Command("experiments", "judge stored runs again, by the rules of this version", ("results", "results/interleaving")),
    "doctor": Command("experiments", "test what this machine can do", ("", "--json")),
    "cc": Command("experiments", "list, load and unload congestion controls", ("list", "load mltcp_reno:slope=2,intercept=0.5", "unload mltcp_reno")),
    "kernel": Command("experiments", "build the user-mode Linux kernel of `--on uml`", ("", "--if-missing", "--linux-source linux-6.12.tar.xz")),
    "schema": Command("experiments", "print the JSON schema of experiment files, for editors", ("", "> experiment.schema.json", "--markdown")),
    "import": Command(
        "traces", "make a trace from a profiler's file (PyTorch, Chakra) or a table",
        ("rank0.json.gz rank1.json.gz -o mine.json", "table.csv -o mine.json --native-rate 10gbit"), "import_",
    ),
    "record": Command(
        "traces", "record a PyTorch training as a trace",
        ("-- python train.py", "-o mine.json --native-rate 10gbit -- torchrun --nproc-per-node 2 train.py"),
    ),
    "show": Command("traces", "print a trace and draw it", ("resnet50", "./mine.json --rate 10gbit --workers 4 -o mine.pdf")),
    "list": Command("traces", "list the traces of the library", ("", "| less"), "list_traces"),
    "figures": Command(
        "figures", "draw the figures of stored results", ("results", "results --figure ./mine.py --out figures", "results/interleaving")
    ),
    "report": Command(
        "figures", "write every figure, and every claim with its verdict, as report.html and report.md",
        ("results", "results --out report.html --figures figures"),
    ),
    "compare": Command("figures", "compare two result sets, with the confidence of each difference", ("results results-mine", "results/a results/b --out figures")),
    "completion": Command("shell", "print the completion script of a shell", ("bash > ~/.local/share/bash-completion/completions/mltcp", "zsh > ~/.zfunc/_mltcp")),
}  # fmt: skip
ALIASES = {"workloads": "traces", "analysis": "figures"}  # `python -m NAME`: the commands of one group


def program() -> str:
    """How this process was started: ``mltcp``, or by one of the other ways."""
    path = Path(sys.argv[0])
    if path.name == "run.py":
        return "python testbed/run.py"
    package = path.parent.name if path.name == "__main__.py" else ""
    return f"python -m {package}" if package in ALIASES else "mltcp"


def parser(named: Iterable[str], prog: str = "") -> Parser:
    """The one parser. It has the arguments of the commands ``named``, and imports no other command's module."""
    prog = prog or program()
    named = set(named)
    made = Parser(prog=prog, usage="%(prog)s COMMAND …", description=_overview(prog), epilog=_wrapped(EPILOG))
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.examples = ("COMMAND --help",)
    known = made.add_subparsers(
        required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=prog, parser_class=Parser
    )
    for name, command in COMMANDS.items():
        own = known.add_parser(name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}.")
        own.epilog, own.examples = EPILOG, command.examples
        if prog.endswith("run.py"):
            own.prog = prog
        if name in named:
            module = importlib.import_module(f"testbed.cli.{command.module or name}")
            module.add_arguments(own)
            own.set_defaults(run=module.run)
    return made


def check(arguments: list[str]) -> None:
    """Refuse a first word that is no command."""
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        hint = text.did_you_mean(arguments[0], COMMANDS, f"Commands: {', '.join(COMMANDS)}.")
        raise RequestError(f"{text.quoted(arguments[0])}: no such command. {hint} `{program()} --help` describes them.")


def _overview(prog: str) -> str:
    only = ALIASES.get(prog.rpartition(" ")[2])
    lines = [_wrapped("Emulation testbed for congestion control in shared DNN-training clusters.")]
    for group in [only] if only else GROUPS:
        lines += ["", f"{group}:"]
        for name, command in COMMANDS.items():
            if command.group == group:
                lines.append(_wrapped(f"  {name:<10}  {command.help}", " " * 14))
    return "\n".join(lines)


def _wrapped(line: str, indent: str = "") -> str:
    return textwrap.fill(line, max(40, shutil.get_terminal_size().columns - 2), subsequent_indent=indent)
