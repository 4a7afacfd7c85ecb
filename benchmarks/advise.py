"""Accuracy of `mltcp advise`: twelve mixes of jobs, their gains computed by the flow simulator and emulated in virtual
time.

python -m benchmarks.advise --out results/advise [--mix NAME …] [--system SYSTEM …]
    python -m benchmarks.advise --time

prints the table of docs/results/beyond.md. The mixes were chosen before the first of them ran. Emulated gains are kept
in gains.json below the results folder, and used again: virtual time reproduces them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.campaign.advice.measuring import Emulations, Setting
from testbed.campaign.summary import summarise
from testbed.cli import advise, commands
from testbed.core import progress

MOE = str(Path(__file__).parents[1] / "tests" / "data" / "moe.json")
SLOW = ["--rate", "500mbit", "--iterations", "30", "--seeds", "1"]
FAST = ["--iterations", "20", "--seeds", "1"]
MIXES: dict[str, list[str]] = {
    "2 equal jobs": ["500ms/28MB", "--jobs", "2", *SLOW],
    "4 equal jobs": ["750ms/14MB", "--jobs", "4", *SLOW],
    "8 equal jobs": ["880ms/7MB", "--jobs", "8", *SLOW],
    "periods 2:1": ["700ms/17MB", "300ms/11MB", *SLOW],
    "2 jobs, 4 flows each": ["500ms/28MB,channels=4", "--jobs", "2", *SLOW],
    "GPT-2, 50 Gbit/s": ["gpt2", "--rate", "50gbit", *FAST],
    "GPT-2, 100 Gbit/s": ["gpt2", "--rate", "100gbit", *FAST],
    "ResNet-50 and VGG-16, 25 Gbit/s": ["resnet50", "vgg16", "--rate", "25gbit", *FAST],
    "periods without a common multiple": ["500ms/28MB", "310ms/18MB", *SLOW],
    "little communication": ["500ms/1MB", "--jobs", "2", *SLOW],
    "MoE, 1.2 frames per flow": [f"{MOE},workers=8", "--jobs", "2", "--rate", "100gbit", *FAST],
    "8 jobs, 8 flows each": ["880ms/7MB,channels=8", "--jobs", "8", *SLOW],
}
LARGE = {  # jobs whose processor time is shown, and whose gains were not emulated
    "Llama 7B, 3D-parallel": ["--model", "llama-7b --tp 2 --pp 2 --dp 4 --device h100"],
    "Mixtral and ViT": ["--model", "mixtral-8x7b --ep 8 --dp 8 --device h100", "--model", "vit --dp 8 --device h100"],
}
SAME = 0.02  # a gain that differs from 1 by less is none


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=Path("results/advise"), help="results folder (default: %(default)s)"
    )
    parser.add_argument(
        "--mix", nargs="+", choices=list(MIXES), metavar="NAME", default=list(MIXES), help="some mixes only"
    )
    parser.add_argument("--system", nargs="+", default=["mltcp_reno", "cassini", "priority"], help="options to emulate")
    parser.add_argument("--time", action="store_true", help="only the processor time of large jobs' answers")
    asked = parser.parse_args()
    if asked.time:
        for name, words in LARGE.items():
            print(f"{name}: {_answer(words)[1]:.1f} s", flush=True)
        return 0
    print(
        "| mix | processor time (s) | option | computed | emulated | off | sign | reason |\n|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    wrong = 0
    for name in asked.mix:
        for row, right in rows(name, asked.system, asked.out):
            print(row, flush=True)
            wrong += not right
    print(f"\n{wrong} wrong: another sign, or more than 10 % off.")
    return int(wrong > 0)


def rows(name: str, systems: list[str], out: Path) -> Iterator[tuple[str, bool]]:
    """A row for each option of a mix, and whether sign and size are right; one that claims no sign has the emulated gain in its interval."""
    found, took_s = _answer(MIXES[name])
    emulated = _emulated(name, [one["system"] for one in found["options"] if one["system"] in systems], out)
    for option in found["options"]:
        if (gain := emulated.get(option["system"])) is not None:
            off, claims = option["gain_mean"] / gain - 1, option["outcome"] != "inconclusive"
            right = _sign(option["gain_mean"]) == _sign(gain) if claims else option["low"] <= gain <= option["high"]
            reason = option["reason"] if option["outcome"] != "faster" else ""
            yield (
                (
                    f"| {name} | {took_s:.1f} | {option['system']} | {option['gain_mean']:.3f} | {gain:.3f} | {off:+.1%} | "
                    f"{('right' if claims else 'not claimed') if right else 'wrong'} | {reason} |"
                ),
                right and abs(off) <= 0.1,
            )


def _answer(words: list[str]) -> tuple[dict[str, Any], float]:
    """Return the answer of `advise`, and the processor time of the complete command in seconds."""
    begun = _processor_s()
    command = [sys.executable, "-m", "testbed", "advise", *words, "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found, _processor_s() - begun


def _processor_s() -> float:
    """Of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _emulated(name: str, systems: list[str], out: Path) -> dict[str, float]:
    """Gains of a mix in virtual time, by system."""
    kept, path = dict[str, dict[str, float]](), out / "gains.json"
    if path.exists():
        kept = json.loads(path.read_text())
    own = kept.setdefault(name, {})
    missing = [system for system in systems if system not in own]
    if missing:
        (question,) = advise.questions(commands.parser(["advise"]).parse_args(["advise", *MIXES[name]]), out / "models")
        bench = Emulations(question.fields, out)
        with progress.silent():
            base = bench.carry_out(Setting(question.systems[0], "spread", question.rate))
            for system in missing:
                run = bench.carry_out(Setting(system, "spread", question.rate))
                own[system] = summarise(base, run).results[-1].speedup_mean
                path.write_text(json.dumps(kept, indent=1) + "\n")
    return {system: own[system] for system in systems}


def _sign(gain: float) -> int:
    return 0 if abs(gain - 1) <= SAME else 1 if gain > 1 else -1


if __name__ == "__main__":
    sys.exit(main())
