"""``mltcp advise``: would MLTCP, a flow scheduler, another placement or a faster network help these jobs, and why."""

from __future__ import annotations

import argparse
import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from testbed.cli import flags
from testbed.core.errors import EXIT_INVALID, EXIT_OK, RequestError, within
from testbed.core.heartbeat import duration
from testbed.core.text import count, quoted
from testbed.core.units import Rate

if TYPE_CHECKING:
    from testbed.campaign.advice import Question
    from testbed.campaign.advice.measuring import Simulated

DESCRIPTION = """Compute in seconds, with the flow simulator, what would speed up jobs that share a network: MLTCP, CASSINI, priorities,
another placement, or a faster network. Every answer has an interval and a reason. --emulate confirms the best options with real traffic."""
MOST_RATES = 8
MODELS = "models"  # folder of traces made from --model lines
LONG_S = 15.0  # processor time above which it is announced
USUAL_RATE = Rate(100 * 10**9)
LARGE_FRAMES = Rate(10 * 10**9), 9000  # from this rate on, unless --mtu is given
FIELDS = (
    "mtu", "buffer", "ecn", "ack_priority", "nic", "workers", "collective", "channels", "noise", "start_offsets", "keep_duty",
    "device", "peak", "mfu", "memory", "intra_server_rate", "iterations", "seed", "seeds", "system",
)  # fmt: skip
OTHER_DEFAULTS = {
    "mtu": "largest packet, in bytes (default: 1500, or 9000 from 10gbit on)",
    "iterations": "iterations of every job (default: 40, or fewer of large jobs)",
    "seeds": "number of seeds (default: 3, or 1 of large jobs)",
    "system": "systems to compare, the first is the baseline (default: reno mltcp_reno cassini priority)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "words", nargs="*", metavar="TRACE",
        help="job: a trace of the library, a file, or COMPUTE/BYTES (500ms/28MB); options follow a comma: gpt2,workers=4",
    )  # fmt: skip
    parser.add_argument(
        "--model", action="append", default=[], metavar="LINE",
        help='job from a model\'s dimensions, in the words of `import --model`: "llama-7b --dp 4 --device h100"',
    )  # fmt: skip
    parser.add_argument(
        "--jobs",
        type=int,
        dest="copies",
        metavar="N",
        help="number of equal jobs, if one TRACE is given (default: 2)",
    )
    network = parser.add_argument_group("network")
    network.add_argument("--rate", metavar="RATE", help="rate of the bottleneck, each direction (default: 100gbit)")
    network.add_argument(
        "--rates",
        metavar="RATE,…",
        help="rates to answer for, separated by commas; each is compared with the larger ones (default: twice the rate)",
    )
    network.add_argument(
        "--cluster", "--topo", dest="topo", metavar="TOPO",
        help="servers and their network, as in `run --topo`: leafspine,4,2,8 or ./mine.py (default: dumbbell)",
    )  # fmt: skip
    as_in_run = parser.add_argument_group("jobs and network, as in `run`")
    for name in FIELDS:
        flags.add(as_in_run, name, **({"help": OTHER_DEFAULTS[name]} if name in OTHER_DEFAULTS else {}))
    how = parser.add_argument_group("emulation and output")
    how.add_argument(
        "--emulate",
        action="store_true",
        help="confirmation of the two best options with real traffic in virtual time; takes minutes",
    )
    how.add_argument(
        "--out", default="results", metavar="FOLDER", help="results folder of --emulate (default: %(default)s)"
    )
    how.add_argument("--html", type=Path, metavar="FILE", help="file for the answer as HTML (default: none)")
    how.add_argument("--force", action="store_true", help="permission to overwrite FILE")
    how.add_argument("--json", action="store_true", help="answer as JSON")
    how.add_argument("--quiet", action="store_true", help="no progress display")
    parser.set_defaults(quick=None, allow_external_code=None)


def run(parsed: argparse.Namespace) -> int:
    from testbed.campaign import advice
    from testbed.campaign.advice import wording
    from testbed.campaign.advice.document import joined
    from testbed.campaign.advice.measuring import Emulations
    from testbed.core import progress, temp_dirs, terminal

    if parsed.html is not None and parsed.html.exists() and not parsed.force:
        raise RequestError(f"--html: {parsed.html} exists already. Name another file, or add --force to overwrite it.")
    notes = terminal.errors()
    with temp_dirs.scratch() as folder, notes.status("reading jobs") as status, progress.silent(), _no_collection():
        if parsed.quiet or parsed.json:
            status.stop()
        found = []
        asked = list(questions(parsed, Path(parsed.out) / MODELS if parsed.emulate else folder / MODELS))
        simulated = advice.sized(asked, folder)
        if simulated.expected_s > LONG_S and not parsed.quiet:
            notes.print(_long(simulated, len(asked)))
        for question in asked:
            found.append(advice.answer(question, simulated, status.update))
            if len(asked) > 1 and not parsed.quiet:
                notes.print(f"{question.rate}: {wording.answer_word(found[-1])} ({len(found)} of {len(asked)})")
        if parsed.emulate:
            emulations = Emulations(_as_simulated(simulated.fields), Path(parsed.out))
            found = [
                advice.emulate(question, answer, emulations, status.update)
                for question, answer in zip(asked, found, strict=True)
            ]
    answers = joined(found)
    if parsed.html is not None:
        from testbed.report import advice_page

        advice_page.write(answers, parsed.html)
    if parsed.json:
        print(msgspec.json.format(msgspec.json.encode(answers), indent=1).decode())
    else:
        from testbed.cli import advice_text

        advice_text.show(terminal.console(), answers, parsed.html)
    invalid = any(one.emulated and one.emulated.verdict == "invalid" for answer in found for one in answer.options)
    return EXIT_INVALID if invalid else EXIT_OK


def _long(bench: Simulated, rates: int) -> str:
    """The time that a large answer takes, and how to shorten it."""
    from testbed.campaign.advice.measuring import FEWEST_ITERATIONS

    iterations, seeds = bench.fields["iterations"], bench.fields["seeds"]
    shorter = [f"--iterations {FEWEST_ITERATIONS} --seeds 1"] * (int(iterations) * int(seeds) > FEWEST_ITERATIONS)
    shorter += ["fewer --rates"] * (rates > 1) or ["fewer systems (--system)"]
    return (
        f"about {duration(bench.expected_s)} of processor time: {count(bench.ranks, 'rank')}, {count(bench.settings, 'option')}. "
        f"Faster: {' or '.join(shorter)}"
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No search for cyclic garbage: a large plan is millions of objects that stay, and the search is a quarter of the processor time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _as_simulated(fields: dict[str, Any]) -> dict[str, Any]:
    """The same jobs, iterations and seeds; sampled as a run is."""
    return {name: value for name, value in fields.items() if name != "sample_interval"}


def questions(parsed: argparse.Namespace, models: Path) -> Iterator[Question]:
    """One for each rate; traces of models go to the folder ``models``. Raises `RequestError`."""
    from testbed.campaign.advice import USUAL_SYSTEMS, Question, workload
    from testbed.spec.systems import parse as parse_system

    rates = _rates(parsed)
    fields: dict[str, Any] = {
        **flags.given(parsed),
        "job": workload.jobs([*parsed.words, *(f"--model {line}" for line in parsed.model)], parsed.copies, models),
    }
    systems = tuple(fields.pop("system", USUAL_SYSTEMS))
    if len(set(systems)) < len(systems):
        raise RequestError(f"--system: {', '.join(systems)} names a system twice. Name each one once.")
    with within("--system"):
        for system in systems:
            parse_system(system)
    fields.pop("rate", None)
    if max(rates) >= LARGE_FRAMES[0]:
        fields.setdefault("mtu", LARGE_FRAMES[1])
    for rate in rates:
        larger = tuple(sorted(other for other in rates if other > rate))
        yield Question(fields, systems, rate, larger or (Rate(2 * rate),))


def _rates(parsed: argparse.Namespace) -> list[Rate]:
    """Those that are answered for, `--rate` first."""
    with within("--rates"):
        several = [Rate.parse(word) for word in parsed.rates.split(",")] if parsed.rates is not None else []
    with within("--rate"):
        first = [Rate.parse(parsed.rate)] if parsed.rate is not None else [] if several else [USUAL_RATE]
    rates = list(dict.fromkeys([*first, *several]))
    if len(rates) > MOST_RATES:
        raise RequestError(f"--rates: {quoted(parsed.rates)} has {len(rates)} rates. Give {MOST_RATES} at most.")
    return rates
