"""Drives mutated requests in this process, with 2 GB of memory: ``python -m tests.support.mutation_runs KIND FIRST COUNT FOLDER``.

Prints a line of JSON for each that fails (a traceback, an exit code outside the list, more than 60 s), then one with the summary.
"""

from __future__ import annotations

import collections
import json
import os
import random
import resource
import signal
import sys
from pathlib import Path
from types import FrameType

from testbed.core import ending
from tests.support import hostile, mutations

MEMORY_BYTES, LONGEST_S = 2 << 30, 60
CODES = (0, 1, 2, 3, 4, 130)


def main() -> None:
    kind, first, count, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    out = os.fdopen(os.dup(1), "w")  # a command gives up its own standard output where it fails
    signal.signal(signal.SIGALRM, _too_long)
    codes, longest_s, failed = collections.Counter[str](), 0.0, 0
    for seed in range(first, first + count):
        words = mutations.KINDS[kind](random.Random(f"{kind} {seed}"), folder)
        signal.alarm(10 * LONGEST_S)
        answer = hostile.answer(lambda given: ending.run("testbed.cli", given), words)
        signal.alarm(0)
        cpu_s = float(str(answer["cpu_s"]))
        longest_s = max(longest_s, cpu_s)
        codes[str(answer["code"])[:20]] += 1
        silent = answer["code"] not in (0, 4) and not str(answer["said"]).strip()
        if answer["code"] not in CODES or "Traceback" in str(answer["said"]) or cpu_s > LONGEST_S or silent:
            failed += 1
            print(
                json.dumps(
                    {"seed": seed, "words": words, **{key: str(value)[-3000:] for key, value in answer.items()}}
                ),
                file=out,
                flush=True,
            )
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "kind": kind,
                "requests": count,
                "failed": failed,
                "codes": codes,
                "longest_cpu_s": longest_s,
                "memory_mb": memory_mb,
            }
        ),
        file=out,
        flush=True,
    )


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {10 * LONGEST_S} s")


if __name__ == "__main__":
    main()
