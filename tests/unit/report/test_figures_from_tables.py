"""Figures that are drawn again from their tables; and what holds of every figure that the report keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from testbed.cli import main
from testbed.core.errors import RequestError
from testbed.report import alternative, chapters, figures, redrawing, style
from tests.support import synthetic

KEPT = Path(__file__).parents[3] / "docs" / "report" / "figures"
MOST_PANELS, HIGHEST, MOST_WORDS = 12, 2000, 60
UNCHECKED = ("cdf-", "interleaving")  # drawn from runs, whose tables do not hold all that is shown
IMAGES = sorted(path for path in KEPT.glob("*.png") if not path.stem.startswith(UNCHECKED))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A figure from invented runs."""
    folder = tmp_path_factory.mktemp("drawn")
    lasts = {"reno": 3.0, "bbr": 1.3, "ltp": 1.0, "ltp:fraction=1": 1.1}
    synthetic.experiment(
        "ltp-loss", folder / "results", lambda one, _: lasts[one.system.label], {"quick": True, "system": tuple(lasts)}
    )
    words = [
        "--out",
        str(folder / "r.html"),
        "--figures",
        str(folder / "figures"),
        "--experiments",
        "experiments/ltp-loss.toml",
    ]
    assert main(["report", str(folder / "results"), *words]) == 0
    return folder / "figures"


def test_a_figure_drawn_again_is_the_same(drawn: Path) -> None:
    before = {path.name: path.read_bytes() for path in drawn.iterdir()}
    assert main(["figures", "--from-tables", str(drawn)]) == 0
    assert {path.name: path.read_bytes() for path in drawn.iterdir()} == before


def test_a_changed_table_changes_the_figure_and_its_small_print_stays(drawn: Path) -> None:
    image, table = drawn / "ltp-loss.png", drawn / "ltp-loss.csv"
    before, small = image.read_bytes(), style.note(image)
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:1], *(line for line in lines[1:] if not line.startswith("bbr,"))]) + "\n")
    redrawing.redraw(figures.find("ltp-loss"), drawn)
    assert image.read_bytes() != before and style.note(image) == small and "uml" in small


def test_what_a_report_keeps_is_renewed(drawn: Path) -> None:
    kept = drawn / "ltp-loss.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"title": "another"}))
    redrawing.redraw(figures.find("ltp-loss"), drawn)
    found = chapters.kept("ltp-loss", drawn)
    assert found and found.title == figures.find("ltp-loss").TITLE and found.images == ["figures/ltp-loss.png"]


def test_a_figure_without_its_table_is_not_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RequestError, match=r"ltp-loss\.csv"):
        redrawing.redraw(figures.find("ltp-loss"), tmp_path)
    assert main(["figures", "--from-tables", str(tmp_path), "--figure", "ltp-loss"]) == 1
    assert "ltp-loss.csv" in capsys.readouterr().err
    assert main(["figures", "--from-tables", str(tmp_path)]) == 1


def test_a_figure_that_needs_its_runs_is_not_drawn_again(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="needs its runs"):
        redrawing.redraw(figures.find("interleaving"), tmp_path)


def test_a_description_has_panels_axes_and_series_once() -> None:
    figure, axes = style.new_figure(1, 2, sharey=True)
    for axis in axes[0]:
        axis.plot([1], [2], label="reno")
        axis.set(xlabel="load", title="mean\nof all")
        axis.legend()
    axes[0, 0].set_ylabel("gain")
    assert alternative.describe(figure) == "2 panels: mean of all. Horizontal: load. Vertical: gain. Series: reno."


@pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.stem)
def test_a_kept_image_fits_a_page(image: Path) -> None:
    with Image.open(image) as found:
        assert found.height <= HIGHEST and int(found.info.get("Panels", 1)) <= MOST_PANELS
    assert len(style.note(image).split()) <= MOST_WORDS and style.description(image)


@pytest.mark.parametrize(
    "figure", [one for one in figures.every() if not one.ID.startswith(UNCHECKED)], ids=lambda one: one.ID
)
def test_a_caption_is_short(figure: figures.Figure) -> None:
    assert len(figure.TEXT.split()) <= MOST_WORDS
    kept = chapters.kept(figure.ID, KEPT)
    assert kept is None or (kept.title, kept.text) == (figure.TITLE, figure.TEXT)
