"""Pages below docs/reference that the code generates: ``python -m tools.reference_pages``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from testbed.campaign import seed_variation
from testbed.campaign.verdict import INVARIANTS, links, machine
from testbed.campaign.verdict.datagrams import burst_limits
from testbed.campaign.verdict.invariant import Invariant, Limits
from testbed.cli.commands import COMMANDS, GROUPS
from testbed.core.runs.verdict import SLUGS
from testbed.spec import field_tables

FOLDER = Path(__file__).parents[1] / "docs/reference"
COMMANDS_HEAD = """\
# Commands

This page lists every command of `mltcp`, with examples and exit codes. `mltcp COMMAND --help` lists its flags.
`mltcp completion SHELL` prints shell completion. [Exit codes](exit-codes.md) are common; a command lists those that mean something else."""
INVARIANTS_HEAD = """\
# Invariants

This page lists the conditions that decide a run's verdict. `verdict.json` has one row for each.

- The verdict is that of the worst invariant: `valid`, `suspect` or `invalid`.
- An invariant that cannot be evaluated is listed with the reason. It never counts as passed.
- With `--on uml`, computing takes no virtual time. I2, I7 and I12 then hold by construction.
- [Statistics and verdicts](../explanation/statistics.md) explains disturbances, and when I3, I4 and I11 do not apply.

## Limits

| invariant | quantity | suspect | invalid |
|---|---|---|---|"""
REMEDIES_HEAD = """
## Remedies

| invariant | if it fails |
|---|---|"""
COMMON_CODES = frozenset(
    {
        "0 done",
        "1 a run failed",
        "2 the request was wrong",
        "3 this machine cannot do it",
        "4 the result is invalid",
        "130 interrupted",
    }
)  # docs/reference/exit-codes.md
# Of limits that depend on the run: suspect and invalid, as printed.
DEPENDENT: Mapping[Callable[..., Limits], tuple[str, str]] = {
    links.worst_limits: ("> 10 %", "> 30 % (virtual time)"),
    machine.core_limits: ("> 80 %", "> 95 % (disturbances unknown)"),
    machine.steal_limits: ("> 1 %", "> 5 % (disturbances unknown)"),
    burst_limits: ("> 11.8, plus the packets of one `rx_coalesce` (virtual time)", "–"),
}
REMEDIES: Mapping[str, str] = {
    "I1": "the run stops; report the setting that differs",
    "I2": "lower `--rate`, or `--on uml`",
    "I3": "`--on uml`; an excess under virtual time is a bug: report it",
    "I4": "`--on uml`, or a quieter machine",
    "I5": "lower `--rate`, or `--on uml`",
    "I6": "fewer workers per core, or `--on uml`",
    "I7": "fewer jobs, or a quieter machine",
    "I8": "a quieter machine",
    "I9": "a bug of the transport or collective: report it",
    "I10": "more seeds",
    "I11": "check the trace's ideal, `--nic` and `--buffer`",
    "I12": "stop clock synchronization during the run",
    "I13": "the kernel module instead of eBPF (`--on uml`)",
    "I14": "a kernel with seeded hashes (`--on uml`)",
    "I15": "a longer run, or earlier events",
    "I16": "pauses longer than `first_gap`, or `total_bytes`",
    "I17": "a larger `--sndbuf`",
    "I18": "recorded only; read it next to claims on TCP",
    "I19": "a quieter machine, or a lower `--rate`",
    "I20": "recorded only",
    "I21": "a quieter machine, or `--on uml`",
    "I22": "the job's `failure_reason`",
    "I23": "`--on uml`",
    "I24": "fewer workers per core",
    "I25": "repeat the run without typed commands",
}  # fmt: skip


def fields() -> str:
    """Return the page of experiment fields and options."""
    return field_tables.page()


def commands() -> str:
    """Return the page of commands."""
    return "\n".join([COMMANDS_HEAD, *_commands()])


def _commands() -> Iterator[str]:
    for group in GROUPS:
        yield f"\n## {group.capitalize()}"
        for name, command in COMMANDS.items():
            if command.group == group:
                examples = "\n".join(f"mltcp {name} {example}".rstrip() for example in command.examples)
                yield f"\n### {name}\n\n{command.sentence}\n\n```\n{examples}\n```"
                if special := [code for code in command.exit_codes.split(", ") if code not in COMMON_CODES]:
                    yield f"\nExit codes: {', '.join(special)}."
    yield ""


def invariants() -> str:
    """Return the page of invariants, with their limits."""
    remedies = (f"| {_label(name)} | {remedy} |" for name, remedy in REMEDIES.items())
    return "\n".join([INVARIANTS_HEAD, *_limits(), REMEDIES_HEAD, *remedies, ""])


def _limits() -> Iterator[str]:
    for name, rows in groupby(INVARIANTS, key=lambda invariant: invariant.id):
        first = f'<a id="{name.lower()}"></a>{_label(name)}'
        for row in rows:
            suspect, invalid = _printed(row)
            yield f"| {first} | {seed_variation.NAME if name == 'I10' else row.name} | {suspect} | {invalid} |"
            first = ""


def _label(name: str) -> str:
    return f"`{SLUGS[name]}` ({name})"


def _printed(row: Invariant) -> tuple[str, str]:
    """When a run is suspect, and when it is invalid."""
    limits = seed_variation.LIMITS if row.id == "I10" else row.limits
    if limits is None:
        return "–", "the run stops" if row.id == "I1" else "–"
    if not isinstance(limits, Limits):
        return DEPENDENT[limits]
    sign = {"above": ">", "below": "<"}[limits.side]
    suspect, invalid = (
        "–" if value is None else f"{sign} {_value(row, value)}" for value in (limits.suspect, limits.invalid)
    )
    return ("–" if suspect == invalid else suspect), invalid


def _value(row: Invariant, value: float) -> str:
    """A ratio of 1 or more, a count, and seconds as they are; a fraction in per cent."""
    if value == 0 or row.id in ("I2", "I11", "I12", "I13", "I14", "I23"):
        return f"{value:g}"
    return f"{100 * value:g} %"


PAGES: Mapping[str, Callable[[], str]] = {"fields": fields, "commands": commands, "invariants": invariants}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / f"{name}.md").write_text(page())
