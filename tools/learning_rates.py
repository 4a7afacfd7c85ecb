"""Tune learning rates of small models (`testbed.replay.training.models`): accuracy after 300 rounds without losses, by
rate.

This table gives a model's default rate. It is tuned for the reference training: eight workers whose gradients arrive
complete. Computed, without a network; takes some minutes. `python tools/learning_rates.py [MODEL ...]`
"""

from __future__ import annotations

import sys
from dataclasses import replace
from statistics import mean

from testbed.models import learning
from testbed.replay.training import find

ROUNDS, WORKERS, SEEDS = 300, 8, 3
TIMES = (0.25, 0.5, 1.0, 2.0, 4.0)  # of its default rate
LAST = 3  # accuracy measurements that are averaged


def main(models: list[str]) -> None:
    nothing = [[()] * WORKERS] * ROUNDS
    for model in models:
        task = find(model).task()
        print(f"{model}: accuracy after {ROUNDS} rounds, 0 to 1, mean of {SEEDS} seeds (all of them)")
        for times in TIMES:
            tried = replace(task, rate=times * task.rate)
            last = [mean(learning.train(tried, nothing, seed=seed)[-LAST:]) for seed in range(SEEDS)]
            seeds = ", ".join(f"{one:.3f}" for one in last)
            print(
                f"  rate {tried.rate:<6g} {mean(last):.3f} ({seeds})" + ("  its own" if times == 1 else ""), flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:] or ["cnn", "gru"])
