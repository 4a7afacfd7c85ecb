"""An answer of ``mltcp advise`` on the terminal: a table of the jobs, one of the options, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from testbed.campaign.advice import wording
from testbed.campaign.advice.document import Advice, Answers, Option
from testbed.core import terminal
from testbed.core.terminal import Column, Sheet
from testbed.core.text import count, plain
from testbed.core.units import Rate

UNKNOWN = "–"
BEST = "best without a\nfaster network"


def show(console: Console, answers: Answers, page: Path | None) -> None:
    """Print an answer; of several rates each, and what they have in common at the end."""
    for number, advice in enumerate(answers.rates or (answers,)):
        if number:
            console.print()
        _show_one(console, advice)
    if answers.rates:
        console.print()
        rates_table(answers).print(console)
    for label, texts in (("Note", answers.notes), ("Assumption", answers.assumptions)):
        for text in dict.fromkeys(texts):
            terminal.say(console, f"{label}: {text}.", indent="  ", style="dim")
    if page is not None:
        console.print(f"Page: {plain(page)}")


def _show_one(console: Console, advice: Advice) -> None:
    jobs_table(advice).print(console)
    console.print()
    options_table(advice).print(console)
    console.print()
    best = advice.option(advice.best)
    terminal.say(console, wording.headline(advice.options, best, advice.undecided), style="bold")
    terminal.say(console, f"Confidence: {advice.confidence}.")
    for name, told in wording.others(advice.options, best):
        terminal.say(console, f"{name}: {told}", indent="  ")
    for one in advice.left_out:
        terminal.say(console, f"Left out: {one.system}: {one.why}", indent="  ")


def jobs_table(advice: Advice) -> Sheet:
    """A row for each job, in seconds."""
    others = advice.options[1:]
    columns = [Column("job"), Column("alone\n(s)", right=True), Column("shared\n(s)", right=True)]
    columns += [Column("\n".join(wording.title(one).split(" ", 1)), right=True) for one in others]
    rows = [
        [
            plain(f"{job.job}: {job.trace} × {job.workers}"),
            *(f"{value:.3f}" for value in (job.alone_s, job.shared_s)),
            *(f"{job.with_s[one.system]:.3f}" for one in others),
        ]
        for job in advice.jobs
    ]
    length = f"{count(advice.iterations, 'iteration')}, {count(advice.seeds, 'seed')}"
    title = f"{count(len(advice.jobs), 'job')} at {Rate.parse(advice.rate)} ({plain(advice.topo)}), mean of {length}"
    return Sheet(columns, rows, title)


def options_table(advice: Advice) -> Sheet:
    """A row for each option, and what emulation came to."""
    emulated = any(one.emulated for one in advice.options)
    columns = [
        Column("option"),
        Column("gain", right=True),
        Column("interval", right=True),
        Column("last 10", right=True),
    ]
    columns += [Column("emulated", right=True), Column("off", right=True)] * emulated
    columns += [Column("outcome"), Column("simulator")]
    rows = []
    for one in advice.options[1:]:
        rows.append([
            plain(wording.title(one)), f"{one.gain_mean:.2f}×", f"{one.low:.2f}–{one.high:.2f}", f"{one.gain_last10:.2f}×", *(_emulated(one) if emulated else ()),
            one.outcome, "validated" if one.validated else "outside range",
        ])  # fmt: skip
    return Sheet(columns, rows, "Gain: shared time ÷ time with the option")


def _emulated(option: Option) -> Iterator[str]:
    if option.emulated is None:
        yield from (UNKNOWN, UNKNOWN)
        return
    yield f"{option.emulated.gain_mean:.2f}×"
    yield f"{option.emulated.difference:+.1%}"


def rates_table(answers: Answers) -> Sheet:
    """A row for each rate."""
    headings = ("alone\n(s)", "shared\n(s)", BEST, "gain", "interval")
    rows = []
    for advice in answers.rates:
        answer, jobs = wording.answer_option(advice), advice.jobs
        rows.append([
            str(Rate.parse(advice.rate)), *(f"{sum(values) / len(jobs):.3f}" for values in ([one.alone_s for one in jobs], [one.shared_s for one in jobs])),
            plain(wording.answer_word(advice)), f"{wording.gain(answer):.2f}×", wording.interval_text(answer),
        ])  # fmt: skip
    return Sheet([Column("rate"), *(Column(heading, right=heading != BEST) for heading in headings)], rows, "By rate")
