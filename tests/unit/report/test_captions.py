"""What figures say of a run below them: of a model of flows only what such a model has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pandas as pd
import pytest

from testbed import spec
from testbed.core.runs.load import Experiment, Run, load_experiment
from testbed.report import drawing
from testbed.report.views import interleaving, shares
from tests.support import synthetic


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    fields = {"name": "x", "jobs": 2, "system": ["reno"], "iterations": 12, "delay": "1ms", "loss": "0.1%"}
    synthetic.write([spec.make(fields, {}, "the test")], tmp_path, lambda *_: 1.0)
    return load_experiment(tmp_path / "x")


def modelled(run: Run) -> Run:
    """The same, as if a model of flows had computed it."""
    manifest = msgspec.structs.replace(
        run.manifest, backend="flow", clock="model", kernel="none: flows that share links"
    )
    return Run(run.path, manifest, run.verdict)


def test_a_model_of_flows_has_no_queue_and_no_kernel(experiment: Experiment) -> None:
    (run,) = experiment.runs_of("reno")
    model = modelled(run)
    packets = [drawing.queue(run), drawing.wires(run).removeprefix(", ")]
    for caption in (drawing.setting, lambda one: interleaving._caption([one], "s1-s2")):
        assert all(words in caption(run) for words in packets)
        assert not any(words in caption(model) for words in packets)
        assert model.manifest.kernel not in caption(model)


def test_what_a_figure_shows_of_a_link_differs_between_a_model_and_a_network(experiment: Experiment) -> None:
    (run,) = experiment.runs_of("reno")
    told = {interleaving._what_is_shown(one, "s1-s2") for one in (run, modelled(run))}
    assert len(told) == 2


@pytest.mark.parametrize(("sample_ms", "said"), [(10, ""), (40, "Bins of 80 ms are too long for iterations of 200 ms")])
def test_bins_too_long_to_tell_jobs_apart_are_said(experiment: Experiment, sample_ms: int, said: str) -> None:
    """A quarter of the shortest iteration is the limit; a bin is two samples long."""
    (run,) = experiment.runs_of("reno")
    plan = msgspec.structs.replace(run.plan, sample_ns=sample_ms * 10**6)
    sampled = Run(run.path, msgspec.structs.replace(run.manifest, plan=plan), run.verdict)
    sampled.__dict__["times"] = pd.DataFrame({0: [0.2, 0.9], 1: [0.3, 0.8]})
    caption = interleaving._caption([sampled], "s1-s2")
    assert said in caption and ("Bins of" in caption) is bool(said)


def test_shares_name_the_loss_of_wires(experiment: Experiment) -> None:
    (run,) = experiment.runs_of("reno")
    caption = shares._caption(run, pd.DataFrame({"seed": [1]}))
    assert drawing.wires(run) in caption and drawing.wires(run) not in shares._caption(
        modelled(run), pd.DataFrame({"seed": [1]})
    )
