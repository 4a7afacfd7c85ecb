"""What figures say of a run below them: of a model of flows only what such a model has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pandas as pd
import pytest

from testbed import spec
from testbed.cli import run_summary
from testbed.core.runs.load import Experiment, Run, load_experiment
from testbed.planning import plan
from testbed.registry import UnknownContentError
from testbed.report import drawing
from testbed.report.results import Results
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


def test_captions_have_the_rates_and_buffers_of_the_links(tmp_path: Path) -> None:
    fields = {"name": "x", "jobs": 2, "system": ["reno"], "iterations": 12, "topo": "parking_lot,3", "rate": "500mbit"}
    link = {"s1-s2": {"rate": "100mbit", "buffer": "99kB"}}
    synthetic.write([spec.make({**fields, "link": link}, {}, "the test")], tmp_path, lambda *_: 1.0)
    (run,) = load_experiment(tmp_path / "x").runs_of("reno")
    assert "100 Mbit/s to 500 Mbit/s (buffer 99 kB, " in drawing.setting(run)
    assert "100 Mbit/s, buffer 99 kB, " in interleaving._caption([run], "s1-s2")
    assert (drawing.link_rate(run, "s2-s3"), drawing.queue(run, "s2-s3")[:14]) == ("500 Mbit/s", "buffer 303 kB,")


def test_a_view_with_an_unknown_name_is_answered_by_those_there_are(tmp_path: Path) -> None:
    synthetic.write([spec.make({"name": "x", "system": ["reno"]}, {}, "the test")], tmp_path, lambda *_: 1.0)
    with pytest.raises(UnknownContentError, match=r"Views: interleaving, .*, times, .*'interleavin'"):
        Results(tmp_path / "x").plot("interleavin")


def test_the_closing_text_says_what_jobs_compute_and_send() -> None:
    asked = {
        "job": [
            "synthetic,compute=20ms,bytes=1MB",
            "synthetic,compute=20ms,bytes=1MB",
            "synthetic,compute=9ms,bytes=3MB",
        ]
    }
    (one, *_) = plan.plans(plan.resolve(spec.make({**asked, "system": ["reno"]}, {}, "the test")))
    ((label, told),) = run_summary._jobs(one)
    assert (label, told) == (
        "Jobs",
        "2 × synthetic, 2 workers each: 20 ms of computing and 1 MB from a worker per iteration; "
        "1 × synthetic, 2 workers: 9 ms of computing and 3 MB from a worker per iteration",
    )
