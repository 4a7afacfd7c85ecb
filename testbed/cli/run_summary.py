"""Print the end of a run: tables, the comparison, one labelled line per topic, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from testbed.campaign import proposal
from testbed.campaign.findings.answer import advice, overload
from testbed.campaign.provenance import command_line
from testbed.cli.table import closing_table, gpus_tables, jobs_table, legend
from testbed.core import terminal
from testbed.core.runs.findings import Active, Compared
from testbed.core.runs.load import load_run
from testbed.core.runs.manifest import Remote
from testbed.core.runs.metrics import STEADY_ITERATIONS
from testbed.core.runs.plan import Clock, Link, Plan, Wire
from testbed.core.runs.summary import Result, Summary
from testbed.core.text import count, decimal, plain
from testbed.core.units import Duration, rate_text, size_text

LABEL = 18  # columns of a label
YES_OR_NO = ": 1, else 0"  # ends the name of an invariant that holds or not
INDENT = "  "
MOST_JOBS = 3  # different ones that are described
Line = tuple[str, str]  # a label, and its text


def show(summary: Summary, folder: Path, todo: Sequence[Plan], figures: Sequence[Path], remote: Remote | None) -> None:
    """Print the closing text of the runs ``todo`` in ``folder``; ``remote`` is the other machine that they were on."""
    console = terminal.console()
    closing_table(summary).print(console)
    if (table := jobs_table(summary)) is not None:
        console.print()
        table.print(console)
    for sheet in gpus_tables(summary):
        console.print()
        sheet.print(console)
    console.print()
    if say(console, summary):
        console.print()
    for line in [
        *_jobs(todo[0]),
        *_ideal(summary),
        *active(summary),
        *network(summary, todo),
        *presets(todo),
        *background(summary),
        *(("Note", f"{text}.") for text in todo[0].notes),
        *(("Assumption", f"{text}.") for text in todo[0].assumptions),
        *([_model_against_wall(folder, todo, summary.clock)] if summary.clock != "real" else []),
        *([("Machine", f"{remote.on} ({remote.hostname}, {remote.cpus} cores, {remote.kernel})")] if remote else []),
        *_disturbances(summary),
        *_doubts(folder, todo),
        *_unrepeated(summary),
    ]:
        labelled(console, *line)
    for label, text in [
        *(map(_tried, proposal.lines(folder, todo, command_line())) if summary.clock == "real" else []),
        *(("Figure", str(path)) for path in figures[:1]),
        ("Results", str(folder)),
    ]:
        console.print(Text(f"{INDENT}{label:{LABEL}} {plain(text)}"))  # to be pasted: in one line
    if meanings := list(legend(summary)):
        console.print()
        for meaning in meanings:
            terminal.say(console, INDENT + meaning, style="dim", indent=2 * INDENT)
    console.print()
    console.print(Text(f"Verdict: {summary.verdict}", style="bold"))


def say(console: Console, summary: Summary) -> bool:
    """Print the answer: a paragraph for each system, overloaded links, and advice about an invalid result.

    Returns whether there was anything to print.
    """
    answers = [row.conclusion for row in summary.results if row.conclusion]
    for answer in answers:
        terminal.say(console, answer, style="bold")
    given = [
        one for row in summary.results for found in row.findings if isinstance(found, Compared) for one in found.reasons
    ]
    more = [f"{overload(found)}: more than the link has." for found in summary.overloads if found not in given]
    if (what := advice(summary)) is not None:
        more.append(what)
    for text in more:
        terminal.say(console, text)
    return bool(answers or more)


def labelled(console: Console, label: str, text: str) -> None:
    """Print a line with a label; on a narrow terminal the text goes below its label."""
    if console.width >= 2 * LABEL + terminal.PROSE:
        head, indent = f"{INDENT}{label:{LABEL}} ", " " * (len(INDENT) + LABEL + 1)
    else:
        head, indent = f"{INDENT}{label}: ", 2 * INDENT
    first, *rest = terminal.wrapped(plain(text), console.width - len(indent))
    if len(head) + len(first) > console.width:
        first, *rest = terminal.wrapped(plain(text), console.width - len(head))
    for line in [head + first, *(indent + line for line in rest)]:
        console.print(Text(line))


def _jobs(plan: Plan) -> Iterator[Line]:
    """Yield the line with what the jobs compute and send in an iteration; of many different jobs the first ones."""
    numbers: dict[tuple[str, int, str], int] = {}
    for job in plan.jobs:
        does = "a real program"
        if job.bytes_per_worker:
            sent = size_text(max(job.bytes_per_worker))
            does = f"{decimal(job.compute_ns / 1e6, 3)} ms of computing and {sent} from a worker per iteration"
        alike = job.trace, len(job.hosts), does
        numbers[alike] = numbers.get(alike, 0) + 1
    told = [
        f"{number} × {trace}, {count(workers, 'worker')}{' each' * (number > 1)}: {does}"
        for (trace, workers, does), number in numbers.items()
    ]
    others = [f"{count(len(told) - MOST_JOBS, 'other kind')}"] * (len(told) > MOST_JOBS)
    yield "Jobs", "; ".join([*told[:MOST_JOBS], *others])


def _ideal(summary: Summary) -> Iterator[Line]:
    """Yield the line with the ideal iteration: computed, and measured in isolation."""
    measured: dict[str, list[str]] = {}
    for row in summary.results:
        if row.isolated_s is not None:
            sources = [job.isolated_in for job in row.per_job if job.isolated_in is not None]
            measured.setdefault(f"{row.isolated_s:.3f} s", []).extend(sources or [row.system])
    isolated = ", ".join(
        f"{time} measured in isolation ({', '.join(dict.fromkeys(of))})" for time, of in measured.items()
    )
    ideals = dict.fromkeys(f"{row.ideal_s:.3f} s" for row in summary.results if row.ideal_s is not None)
    programs = [str(job.job) for job in summary.results[0].per_job if job.ideal_s is None]
    computed = (
        f"{' or '.join(ideals)} computed" if ideals else f"unknown: job {', '.join(programs)} runs a real program"
    )
    yield "Ideal iteration", f"{computed}; {isolated or 'not measured in isolation'}"


def active(summary: Summary) -> Iterator[Line]:
    """Yield the line with the iteration from which each MLTCP is active."""
    since: dict[float | None, list[str]] = {}
    for row in summary.results:
        for one in row.findings:
            if isinstance(one, Active):
                since.setdefault(one.at, []).append(row.system)
    texts = [
        f"never ({', '.join(systems)})" if at is None else f"from iteration {decimal(at, 6)} ({', '.join(systems)})"
        for at, systems in since.items()
    ]
    if texts:
        before = "; before that MLTCP behaves like its base" if any(since) else ""
        yield "MLTCP active", "; ".join(texts) + before


def network(summary: Summary, todo: Sequence[Plan]) -> Iterator[Line]:
    """Yield lines about links, paths, and hosts; of the flow simulator only what it models."""
    plan = todo[0]
    computed = summary.clock == "model"
    links = dict.fromkeys(link(each, computed=computed) for each in plan.bottlenecks.values() or [plan.link])
    yield "Links", "; ".join(links)
    if wires := dict.fromkeys(text for wire in plan.wires.values() if (text := _wire(wire))):
        yield "Paths", "; ".join(wires)
    if not computed:
        yield "Hosts", _hosts(plan)


def background(summary: Summary) -> Iterator[Line]:
    """Yield a line of results for each source of background traffic, system, and class of flow sizes."""
    for row in summary.results:
        for one in row.background:
            head = f"{one.label} under {row.system}: {count(one.flows, 'flow')}, {rate_text(round(one.goodput_bps))}"
            head += f", {one.unfinished} unfinished" * (one.unfinished > 0) + f", {one.failed} failed" * (
                one.failed > 0
            )
            yield "Background", head
            for each in one.completions:
                mean, median, p99 = (f"{decimal(1e3 * found, 3)} ms" for found in (each.mean_s, each.p50_s, each.p99_s))
                yield "", f"{each.sizes}: {count(each.flows, 'flow')}, mean {mean}, median {median}, p99 {p99}"


def link(found: Link, *, computed: bool) -> str:
    """Return the description of one bottleneck; only its rate if ``computed`` by the flow simulator."""
    if computed:
        return f"{rate_text(found.rate_bps)}, shared by flows without queues or packets"
    if found.ecn_threshold is not None:
        low, high = found.ecn_threshold.min_bytes, found.ecn_threshold.max_bytes
        when = f"ECN marking above {size_text(low)}" + (f", all above {size_text(high)}" if high != low else "")
    elif found.queue is not None:
        when = f"{found.queue.typed}, which {'marks' if found.marks else 'drops'}"
    elif found.selective:
        when = "drops what may be dropped above " + ", ".join(size_text(each.min_bytes) for each in found.selective)
    else:
        when = "drop-tail"
    bands = f", {count(found.bands, 'priority queue')}" if found.bands > 1 else ""
    follows = f" at most (trace {plain(found.trace.name)})" if found.trace else ""
    return f"{rate_text(found.rate_bps)}{follows}, {size_text(found.buffer_bytes)} buffer, {when}{bands}"


def _wire(found: Wire) -> str:
    parts = [
        f"{Duration(found.delay_ns)} delay" if found.delay_ns else "",
        f"{Duration(found.jitter_ns)} jitter" if found.jitter_ns else "",
        f"{decimal(found.loss * 100)} % loss" if found.loss else "",
        f"{decimal(found.corrupt * 100)} % corruption" if found.corrupt else "",
    ]
    return ", ".join(filter(None, parts))


def _hosts(plan: Plan) -> str:
    sender = plan.sender
    if sender.nic_bps and plan.nics:
        waits = "fq" if sender.queue == "fq" else f"{size_text(sender.queue_bytes)} egress queue"
        nic = f"{rate_text(sender.nic_bps)} NIC, {waits}"
    else:
        nic = "unshaped NIC"
    return f"{nic}, minimum RTO {plan.rto_min_ms:g} ms" if any(job.by_tcp for job in plan.jobs) else nic


def presets(todo: Sequence[Plan]) -> list[Line]:
    """Return a line for each preset of MLTCP parameters in these runs (docs/reference/congestion-controls.md)."""
    presets_used = {
        (str(cc.preset), cc.name) for plan in todo for job in plan.jobs if (cc := job.cc).preset and cc.is_mltcp
    }
    return [
        ("Preset", f"{preset} ({', '.join(sorted(name for one, name in presets_used if one == preset))})")
        for preset in sorted({preset for preset, _ in presets_used})
    ]


def _model_against_wall(folder: Path, todo: Sequence[Plan], clock: Clock) -> Line:
    manifests = [load_run(folder / plan.folder).manifest for plan in todo]
    simulated_s = sum(manifest.measured.sampler.wall_s for manifest in manifests)
    wall_s = sum(manifest.wall_s for manifest in manifests)
    label = "Simulated" if clock == "model" else "Virtual time"
    return label, f"{simulated_s:.1f} s in {wall_s:.1f} s wall time ({count(len(todo), 'run')})"


def _disturbances(summary: Summary) -> list[Line]:
    """Of each congestion control how much of it the machine disturbed (I21), and its means without that."""

    def format_s(value: float | msgspec.UnsetType | None) -> str:
        return f"{value:.3f} s" if isinstance(value, float) else "unknown"

    def one(row: Result) -> Line:
        last = min(STEADY_ITERATIONS, row.iterations)
        return "Disturbed", (
            f"{count(row.disturbed_iterations if isinstance(row.disturbed_iterations, int) else 0, 'iteration')} of {row.system} by this machine. Without them: "
            f"mean {format_s(row.undisturbed_mean_s)}, last {last} {format_s(row.undisturbed_last10_mean_s)}"
        )

    return [one(row) for row in summary.results if row.disturbed_iterations]


def _tried(line: str) -> Line:
    """A command of `proposal.lines` with a label."""
    head, _, command = line.partition(": ")
    return ("Try" if head == "try" else "Try (exact)"), command


def _unrepeated(summary: Summary) -> list[Line]:
    """One line for each system whose seeds differ too much (I10)."""
    rows = [(result.system, result.repeatability) for result in summary.results]
    return [
        (row.status, f"{row.name} (I10): {system} {row.value:.1%}. Add seeds (--seeds)")
        for system, row in rows
        if row is not None and row.status in ("suspect", "invalid")
    ]


def _doubts(folder: Path, todo: Sequence[Plan]) -> list[Line]:
    """One line for each invariant (docs/reference/invariants.md) that is not all right, with the runs it concerns."""
    found: dict[tuple[str, str], list[str]] = {}
    for plan in todo:
        for row in load_run(folder / plan.folder).verdict.invariants:
            if row.status in ("suspect", "invalid"):
                text = f"{plan.system.label}{'' if plan.alone is None else f' job {plan.alone} in isolation'}"
                if row.name.endswith(YES_OR_NO):
                    what = f"{row.label}, not met: {row.note or row.name.removesuffix(YES_OR_NO)}"
                else:
                    what = f"{row.label}, {row.name}" + "".join(
                        f", {word} {decimal(value, 6)}" for word, value in (row.limit or {}).items()
                    )
                    text += f" {'–' if row.value is None else decimal(row.value)}"
                found.setdefault((row.status, what), []).append(text)
    return [(status, f"{name}: {', '.join(where)}") for (status, name), where in found.items()]
