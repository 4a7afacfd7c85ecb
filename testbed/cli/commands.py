"""The commands of ``mltcp``: group, module, one line of help, and examples of each."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import testbed
from testbed.core import text
from testbed.core.arguments import Formatter, Parser, fitted
from testbed.core.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_MACHINE,
    EXIT_OK,
    EXIT_REQUEST,
    RequestError,
)

CODES = {EXIT_OK: "done", EXIT_REQUEST: "the request was wrong", EXIT_INTERRUPTED: "interrupted"}  # of every command
MACHINE = {EXIT_MACHINE: "this machine cannot do it"}
RUN = {EXIT_FAILED: "a run failed", **MACHINE, EXIT_INVALID: "the result is invalid"}
FIGURE = {EXIT_FAILED: "nothing to draw, or a figure that cannot be drawn"}
GROUPS = ("experiments", "traces", "figures", "shell")


@dataclass(frozen=True)
class Command:
    """A command. Its ``module`` in `testbed.cli` has ``add_arguments(parser)`` and ``run(parsed) -> exit code``."""

    group: str
    help: str
    examples: tuple[str, ...]  # arguments, as they follow the command's name
    module: str = ""  # by default named like the command
    codes: Mapping[int, str] = field(default_factory=dict)  # exit codes in addition to `CODES`, and their meanings

    @property
    def sentence(self) -> str:
        """The line of help as a sentence."""
        return f"{self.help[0].upper()}{self.help[1:]}."

    @property
    def exit_codes(self) -> str:
        """Return one line with every exit code and its meaning."""
        return ", ".join(f"{code} {meaning}" for code, meaning in sorted({**CODES, **self.codes}.items()))


COMMANDS = {
    "demo": Command(
        "experiments", "run four jobs on one link with Reno and MLTCP, then two jobs that train ResNet-50", ("", "--on flow --out /tmp/demo"),
        codes=RUN,
    ),
    "run": Command(
        "experiments", "run one experiment",
        ("--topo dumbbell --jobs 4", "experiments/interleaving.toml --seeds 5", "--jobs 2 --trace resnet50 --keep-duty --rate 300mbit --on flow"),
        codes=RUN,
    ),
    "shell": Command(
        "experiments", "open Mininet's command line in the network of an experiment",
        ("--jobs 2", "--jobs 2 --system mltcp_reno < commands.txt", "--script ./script.py"), codes=RUN,
    ),
    "ping": Command(
        "experiments", "measure the idle round trips of an experiment's network, next to the expected ones",
        ("--jobs 2 --delay 1ms", "--topo star --jobs 1 --workers 4"), codes=RUN,
    ),
    "sweep": Command(
        "experiments", "run the experiments of several files, in parallel",
        ("experiments/interleaving.toml -j 2", "experiments/interleaving.toml --quick --dry-run"),
        codes=RUN,
    ),
    "schedule": Command(
        "experiments", "compare job schedulers: which job gets which GPUs, and when",
        ("--scheduler list", "jobs.csv --servers 20 --gpus 4,8", "jobs.csv --scheduler sjf_bco random --on flow"),
        codes={EXIT_FAILED: "a run of --emulate failed", **MACHINE},
    ),
    "advise": Command(
        "experiments", "compute what would help jobs that share a network, and why",
        ("gpt2 bert-base --rate 100gbit", "500ms/28MB 300ms/28MB --rate 500mbit --json", "gpt2 --rates 50gbit,100gbit,400gbit --html advice.html"),
        codes=RUN,
    ),
    "calibrate": Command(
        "experiments", "fit the contention model of job schedules to runs", ("--quick --dry-run", "--system reno mltcp_reno --seeds 3"),
        "schedule.calibrate", {EXIT_FAILED: "a run failed", **MACHINE},
    ),
    "verify": Command(
        "experiments", "repeat a run from its manifest, and compare it byte for byte",
        ("results/interleaving/mltcp_reno/1", "results/interleaving/mltcp_reno/1 --dry-run"),
        codes={EXIT_FAILED: "the repeated run differs, or failed", **MACHINE},
    ),
    "judge": Command("experiments", "judge stored runs again, by the rules of this version", ("results", "results/interleaving"), codes={EXIT_INVALID: "a run is invalid"}),
    "doctor": Command("experiments", "test what this machine can do", ("", "--json", "--curves"), codes={EXIT_MACHINE: "neither `uml` nor `host` works here", EXIT_INVALID: "a curve is outside its tolerance"}),
    "cc": Command("experiments", "list, load and unload congestion controls", ("list", "load mltcp_reno:slope=2,intercept=0.5", "unload mltcp_reno"), codes={EXIT_FAILED: "the program cannot be loaded", **MACHINE}),
    "kernel": Command("experiments", "build the user-mode Linux kernel of `--on uml`, or name the one in use", ("", "--wheel dist/mltcp_testbed-*.whl", "--linux-source linux-6.12.tar.xz"), codes=MACHINE),
    "schema": Command("experiments", "print the JSON schema of experiment files, for editors", ("", "> experiment.schema.json", "--markdown")),
    "import": Command(
        "traces", "make a trace from a profile (PyTorch, Chakra, Nsight Systems), a log, a table, or a model's dimensions",
        (
            "rank0.json.gz rank1.json.gz -o mine.json", "table.csv -o mine.json --native-rate 10gbit",
            "--model llama-7b --tp 8 --dp 4 --device h100 -o llama.json",
        ),
        "import_",
    ),
    "record": Command(
        "traces", "record a PyTorch training as a trace",
        ("-- python train.py", "-o mine.json --native-rate 10gbit -- torchrun --nproc-per-node 2 train.py"),
        codes={EXIT_FAILED: "no step was recorded; where the training fails, its own exit code"},
    ),
    "show": Command("traces", "print a trace and draw it", ("resnet50", "./mine.json --rate 10gbit --workers 4 -o mine.pdf")),
    "list": Command("traces", "list the traces of the library, or all content of a kind", ("", "collectives"), "list_content"),
    "figures": Command(
        "figures", "draw the figures of stored results", ("results", "results --figure ./mine.py --out figures", "results/interleaving"), codes=FIGURE,
    ),
    "report": Command(
        "figures", "write every figure, and every claim with its verdict, as report.html and report.md",
        ("results", "results --out report.html --figures figures"),
        codes=FIGURE,
    ),
    "explore": Command(
        "figures", "write runs as one HTML file in which a person scrubs through iterations", ("results -o explorer.html", "results/interleaving results/descent --max-size 10MB"),
        codes={EXIT_FAILED: "a run cannot be read"},
    ),
    "compare": Command("figures", "compare two result sets, with the confidence of each difference", ("results results-mine", "results/a results/b --out figures"), codes={EXIT_FAILED: "a result set cannot be read"}),
    "export": Command(
        "figures", "write a run for other tools (Perfetto, Chakra, NCCL Inspector, Parquet, CSV)",
        ("results/NAME/SYSTEM/1 --perfetto trace.json", "results/NAME/SYSTEM/1 --chakra trace.{rank}.et --nccl-inspector nccl.{rank}.jsonl", "results/NAME/SYSTEM/1 --perfetto trace.json --beside profile.json.gz"),
        codes={EXIT_FAILED: "the run cannot be read", **MACHINE},
    ),
    "completion": Command("shell", "print the completion script of a shell", ("bash >> ~/.bash_completion", "zsh > ~/.zfunc/_mltcp")),
}  # fmt: skip
EXAMPLES = ("demo", "run --topo dumbbell --jobs 4", "COMMAND --help")
EPILOG = f"exit codes: {Command('', '', (), codes=RUN).exit_codes}"
ALIASES = {"workloads": "traces", "analysis": "figures"}  # `python -m NAME`: the commands of one group


class _Overview(Formatter):
    """The description is in lines already, the rest is not."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def program() -> str:
    """Return the command that started this process:

    ``mltcp``, ``python -m PACKAGE``, or ``python testbed/run.py``.
    """
    path = Path(sys.argv[0])
    if path.name == "run.py":
        return "python testbed/run.py"
    package = path.parent.name if path.name == "__main__.py" else ""
    return f"python -m {package}" if package in ALIASES else "mltcp"


def parser(named: Iterable[str], prog: str = "") -> Parser:
    """The one parser. It has the arguments of the commands ``named``, and imports no other command's module."""
    prog = prog or program()
    named = set(named)
    made = Parser(
        prog=prog, usage="%(prog)s COMMAND ...", description=_overview(prog), epilog=EPILOG, formatter_class=_Overview
    )
    made.add_argument(
        "--version", action="version", version=f"mltcp-testbed {testbed.__version__}", help="version of the testbed"
    )
    made.examples = ("COMMAND --help",) if prog.rpartition(" ")[2] in ALIASES else EXAMPLES
    known = made.add_subparsers(
        required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=prog, parser_class=Parser
    )
    for name, command in COMMANDS.items():
        own = known.add_parser(name, help=command.help, description=command.sentence)
        own.epilog, own.examples = f"exit codes: {command.exit_codes}", command.examples
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
    columns = shutil.get_terminal_size().columns
    lines = fitted("Emulation testbed for congestion control in shared DNN-training clusters.", columns)
    for group in [only] if only else GROUPS:
        lines += ["", f"{group}:"]
        for name, command in COMMANDS.items():
            if command.group == group:
                lines += fitted(command.help, columns, f"  {name:<10}  ", " " * 14)
    return "\n".join(lines)
