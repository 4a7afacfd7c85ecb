"""What a figure shows of a run under virtual time, where what crosses a link is exact."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from analysis import views
from core.runs.load import load_experiment
from testbed.linux.queues.rates import bucket_bytes
from testbed.substrates import uml
from tests import runs


def test_no_stack_of_a_ring_exceeds_the_link(tmp_path: Path) -> None:
    """Two jobs that send both ways at once: with every flow counted it would be twice the rate."""
    result = runs.run_plan(uml.find(), jobs=2, trace="resnet50", iterations=3, cc=["reno"])
    folder = tmp_path / "reno" / "1"
    folder.mkdir(parents=True)
    for name, content in result.files.items():
        (folder / name).write_bytes(content)
    manifest = {**result.manifest, "substrate": "uml"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "verdict.json").write_text('{"version": 1, "verdict": "valid", "invariants": []}')
    views.draw(load_experiment(tmp_path), tmp_path / "figures")
    stacks = pd.read_csv(tmp_path / "figures" / "interleaving.csv").groupby("t_s")["bps"].sum()
    link = manifest["plan"]["link"]
    window_s = 2 * manifest["plan"]["sample_ns"] / 1e9
    bucket = bucket_bytes(link["rate_bps"], link["mtu"], real_time=False)
    assert stacks.max() <= link["rate_bps"] + bucket * 8 / window_s
    assert stacks.max() > 0.9 * link["rate_bps"]
