"""``mltcp figures`` of an experiment that no figure knows: the default set, legible for many systems, and true to the backend."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

import testbed
from testbed import spec
from testbed.cli import main
from testbed.core.runs.load import Experiment, load_experiment
from testbed.report import style
from testbed.report.views import interleaving, panels, queues
from tests.support import synthetic

SYSTEMS = ["reno", "mltcp_reno", "cubic", "mltcp_cubic", "dctcp", "mltcp_dctcp"]
EVERY = {"interleaving", "times", "windows", "queues", "link-shares", "per-job"}
OF_A_MODEL = EVERY - {"windows", "queues"}
PACKETS = ("buffer", "marks", "drop-tail", "delay", "loss", "MTU", "Linux")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented runs of a kernel, and computed ones; no figure knows either."""
    folder = tmp_path_factory.mktemp("views") / "results"
    fields = {
        "name": "mine",
        "jobs": 2,
        "system": SYSTEMS,
        "iterations": 12,
        "delay": "1ms",
        "loss": "0.1%",
        "seeds": 2,
    }
    synthetic.write([spec.make(fields, {}, "the test")], folder, synthetic.gains)
    testbed.run(
        job=[{"trace": "bert-base", "workers": 4}, {"trace": "mltcp-50g"}], topo="leafspine", on="flow", system=SYSTEMS[:2], keep_duty=True,
        iterations=6, isolated_runs="none", out=folder, name="computed",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def drawn(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("figures")
    assert main(["figures", str(results), "--out", str(out)]) == 0
    return out


def names(folder: Path, suffix: str) -> set[str]:
    return {path.stem for path in folder.glob(f"*.{suffix}")}


def test_each_kind_of_experiment_has_what_it_measured(drawn: Path) -> None:
    for suffix in ("png", "pdf", "csv"):
        assert names(drawn / "mine", suffix) == EVERY
        assert names(drawn / "computed", suffix) == OF_A_MODEL  # a model has no windows and no queues


def test_captions_say_what_the_network_did_and_of_a_model_what_it_has(drawn: Path) -> None:
    for name in EVERY:
        note = style.note(drawn / f"mine/{name}.png")
        assert all(
            words in note
            for words in ("buffer", "ECN marks from", "delay 1 ms", "random loss 0.1 %", "Verdict: valid.")
        ), name
    for name in OF_A_MODEL:
        note = (
            style.note(drawn / f"computed/{name}.png")
            .replace("a model without packets", "")
            .partition("Assumption:")[0]
        )
        assert "flow" in note and not any(words in note for words in PACKETS), (name, note)


def test_a_network_without_delay_and_loss_is_said_to_have_none(tmp_path: Path) -> None:
    fields = {"name": "still", "jobs": 2, "system": ["dctcp"], "iterations": 12}
    synthetic.write([spec.make(fields, {}, "the test")], tmp_path, lambda *_: 1.0)
    (run,) = load_experiment(tmp_path / "still").runs_of("dctcp")
    assert panels.still_wires(run) == "; wires add no delay and no random loss"
    queues.draw(load_experiment(tmp_path / "still"), tmp_path / "figures")
    assert "ECN marks from" in style.note(tmp_path / "figures/queues.png")


@pytest.mark.parametrize(
    ("count", "shape"), [(1, (1, 1)), (4, (1, 4)), (5, (2, 3)), (6, (2, 3)), (9, (3, 3)), (12, (3, 4))]
)
def test_panels_make_rows_of_about_equal_length(count: int, shape: tuple[int, int]) -> None:
    assert panels.grid(count) == shape


@pytest.mark.parametrize(("iterations", "rows"), [(4, 2), (5, 3)])
def test_no_iterations_are_drawn_twice(
    iterations: int, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four iterations, the first four are also the last four."""
    fields = {"name": "short", "jobs": 2, "system": ["dctcp"], "iterations": iterations}
    synthetic.write([spec.make(fields, {}, "the test")], tmp_path, lambda *_: 1.0)
    titles: list[str] = []
    save = style.save

    def noted(figure: Figure, path: Path) -> list[Path]:
        titles.extend(axis.get_title("left") for axis in figure.axes)
        return save(figure, path)

    monkeypatch.setattr(style, "save", noted)
    interleaving.draw(load_experiment(tmp_path / "short"), tmp_path)
    assert len(titles) == len(set(titles)) == rows
    assert any("last" in title for title in titles) is (rows == 3)


def test_six_systems_fit_a_page(drawn: Path) -> None:
    for name in EVERY:
        with Image.open(drawn / f"mine/{name}.png") as image:
            assert image.width <= 15 * 150, name  # at 150 dots an inch


def test_tables_hold_what_is_drawn(results: Path, drawn: Path) -> None:
    experiment = load_experiment(results / "mine")
    table = pd.read_csv(drawn / "mine/per-job.csv")
    assert set(table["system"]) == set(SYSTEMS) and len(table) == 12
    run = experiment.runs_of("reno")[0]
    mean = sum(float(one.times[0].mean()) for one in experiment.runs_of("reno")) / 2
    assert table[(table["system"] == "reno") & (table["job"] == 0)]["mean_s"].item() == pytest.approx(mean, rel=1e-4)
    times = pd.read_csv(drawn / "mine/times.csv")
    assert len(times) == sum(int(one.times.count().sum()) for one in experiment.runs)
    shares = pd.read_csv(drawn / "mine/link-shares.csv")
    assert shares.groupby(["system", "seed", "link"])["percent"].sum().max() <= 101
    assert set(pd.read_csv(drawn / "mine/windows.csv")["job"]) == {job.job for job in run.jobs}


def test_verdicts_are_named_by_system_where_they_differ(results: Path) -> None:
    experiment: Experiment = load_experiment(results / "mine")
    runs = [experiment.runs_of(system)[0] for system in SYSTEMS[:2]]
    suspect = msgspec.structs.replace(runs[1].verdict, verdict="suspect")
    runs[1] = type(runs[1])(runs[1].path, runs[1].manifest, suspect)
    assert panels.verdicts(runs) == "Verdicts: reno valid, mltcp_reno suspect"
