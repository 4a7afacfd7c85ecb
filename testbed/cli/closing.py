"""What a run leaves on the terminal: its table, what that says, and what to doubt."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from core.runs.load import load_run
from core.runs.manifest import Remote
from core.runs.metrics import STEADY_ITERATIONS
from core.runs.plan import Clock, Plan
from core.runs.summary import Summary
from core.text import plain
from core.units import Rate
from testbed.campaign import proposal
from testbed.campaign.answer import advice
from testbed.campaign.provenance import command_line
from testbed.cli.table import closing_table, gpus_tables, jobs_table, legend, reference_line


def show(summary: Summary, folder: Path, todo: Sequence[Plan], figures: Sequence[Path], remote: Remote | None) -> None:
    """Print the closing table of the runs ``todo`` in ``folder``; ``remote`` is the other machine that they were on."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(closing_table(summary))
    if (table := jobs_table(summary)) is not None:
        console.print(table)
    if (tables := gpus_tables(summary)) is not None:
        console.print(tables)
    say(console, summary)
    says = [
        reference_line(summary),
        network(todo[0]),
        *presets(todo),
        *(f"Assumption: {text}." for text in todo[0].assumptions),
        *([_virtual_against_wall(folder, todo, summary.clock)] if summary.clock != "real" else []),
        *([f"Machine: {remote.on} ({remote.hostname}, {remote.cpus} cores, {remote.kernel})"] if remote else []),
        *_disturbances(summary),
        *_doubts(folder, todo),
        *_unrepeated(summary),
        *(proposal.lines(folder, todo, command_line()) if summary.clock == "real" else []),
        *(f"Figure: {path}" for path in figures[:1]),
        f"Results: {folder}",
    ]
    console.print(legend(summary), style="dim", highlight=False, soft_wrap=True, markup=False)
    for line in says:
        console.print(plain(line), highlight=False, soft_wrap=True, markup=False)
    console.print(f"Verdict: {summary.verdict}", style="bold", highlight=False)


def say(console: Console, summary: Summary) -> None:
    """What the table says, a sentence for each system, and what to do about a result that is invalid."""
    for row in summary.results:
        if row.answer:
            console.print(plain(row.answer), style="bold", highlight=False, soft_wrap=True, markup=False)
    if (what := advice(summary)) is not None:
        console.print(plain(what), highlight=False, soft_wrap=True, markup=False)


def network(plan: Plan) -> str:
    """What hosts and links were, in one line."""
    sender, link = plan.sender, plan.link
    waits = "fq" if sender.queue == "fq" else f"{sender.queue_bytes / 1000:.0f} kB of queue"
    nic = f"NICs of {Rate(sender.nic_bps)} behind {waits}" if sender.nic_bps else "no NIC holds a sender up"
    marks = "which drops" if link.marking is None else f"which marks (ECN) from {link.marking.min_bytes / 1000:.3g} kB"
    return f"Hosts: {nic}. Links: {Rate(link.rate_bps)} behind {link.buffer_bytes / 1000:.0f} kB of queue, {marks}."


def presets(todo: Sequence[Plan]) -> list[str]:
    """One line for each preset that congestion controls of these runs took (docs/congestion-controls.md)."""
    taken = {(cc.preset, cc.name) for plan in todo for job in plan.jobs if (cc := job.cc).preset}
    return [
        f"Preset {preset}: {', '.join(sorted(name for one, name in taken if one == preset))}; least timeout {todo[0].rto_min_ms:g} ms."
        for preset in sorted({str(preset) for preset, _ in taken})
    ]


def _virtual_against_wall(folder: Path, todo: Sequence[Plan], clock: Clock) -> str:
    manifests = [load_run(folder / plan.folder).manifest for plan in todo]
    virtual_s = sum(manifest.measured.sampler.wall_s for manifest in manifests)
    wall_s = sum(manifest.wall_s for manifest in manifests)
    return f"{clock.capitalize()} time: {virtual_s:.1f} s in {wall_s:.1f} s of wall time ({len(todo)} runs)."


def _disturbances(summary: Summary) -> list[str]:
    """Of each congestion control how much of it the machine touched (I21), and its means without that."""

    def said(value: float | msgspec.UnsetType | None) -> str:
        return f"{value:.3f} s" if isinstance(value, float) else "unknown"

    return [
        f"Disturbed by this machine: {row.touched} iterations of {row.system}; without them mean "
        f"{said(row.undisturbed_mean_s)}, last {min(STEADY_ITERATIONS, row.iterations)} {said(row.undisturbed_steady_s)}."
        for row in summary.results
        if row.touched
    ]


def _unrepeated(summary: Summary) -> list[str]:
    """One line for each system whose seeds differ too much (I10)."""
    rows = [(result.system, result.repeatability) for result in summary.results]
    return [
        f"{row.status}: invariant I10, {row.name}: {system} {row.value:.1%}; more seeds tell it better"
        for system, row in rows
        if row is not None and row.status in ("suspect", "invalid")
    ]


def _doubts(folder: Path, todo: Sequence[Plan]) -> list[str]:
    """One line for each invariant (docs/fidelity.md) that is not all right, with the runs it concerns."""
    found: dict[tuple[str, str], list[str]] = {}
    for plan in todo:
        for row in load_run(folder / plan.folder).verdict.invariants:
            if row.status in ("suspect", "invalid"):
                text = f"{plan.system.label}{'' if plan.alone is None else f' job {plan.alone} alone'} {row.value:.4g}"
                found.setdefault((row.status, f"invariant {row.id}, {row.name}"), []).append(text)
    return [f"{status}: {name}: {', '.join(where)}" for (status, name), where in found.items()]
