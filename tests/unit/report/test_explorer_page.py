"""The explorer's page in headless Chromium, with real clicks and keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from testbed.cli import main
from tests.support import explored
from tests.support.browser import BROWSER
from tests.support.devtools import Page, browser

pytestmark = [
    pytest.mark.xdist_group("explorer"),
    pytest.mark.skipif(BROWSER is None, reason="no chromium here: make browser"),
]
READY = "document.body.dataset.state == 'ready'"
LAST = explored.ITERATIONS - 1
TITLES = "[...document.querySelectorAll('.side h2')].map(one => one.textContent)"
DRAWN = "document.querySelectorAll('.chart canvas').length"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    explored.results(folder / "results", "second")
    assert main(["explore", str(explored.results(folder / "results")), "-o", str(folder / "explorer.html")]) == 0
    return (folder / "explorer.html").as_uri()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def opened(tab: Page, address: str) -> Iterator[Page]:
    """The page as it opens on a desk; afterwards the console must be empty."""
    tab.resize(1280, 900)
    tab.open(address, READY)
    yield tab
    assert tab.console == []


def state(page: Page) -> dict[str, str]:
    return {
        key: value for key, (value,) in parse_qs(page.value("location.hash.slice(1)"), keep_blank_values=True).items()
    }


def at(page: Page, k: int) -> None:
    """Wait until iteration ``k`` (from 0) is shown."""
    page.until(f"{READY} && document.querySelector('#iteration').value == {k}")


def spans(page: Page, row: str = "shares") -> list[Any]:
    """The span of time of each chart of a row, as its axis has it."""
    return list(page.value(f"[...document.querySelectorAll('.{row} .chart')].map(one => one.dataset.span)"))


def test_it_opens_with_baseline_and_treatment_side_by_side(opened: Page) -> None:
    assert opened.value(TITLES) == ["reno", "mltcp_reno"]
    assert opened.value(DRAWN) == 2 * 6 - 1  # Reno has no F
    boxes = opened.value(
        "[...document.querySelectorAll('.shares')].map(one => [one.getBoundingClientRect().left, one.getBoundingClientRect().top])"
    )
    assert boxes[0][0] < boxes[1][0] and boxes[0][1] == boxes[1][1]
    assert state(opened) == {
        "e": explored.NAME,
        "a": "reno",
        "b": "mltcp_reno",
        "s": "1",
        "l": "s1-s2",
        "j": "0",
        "k": "0",
        "z": "4",
    }
    painted = "[...document.querySelectorAll('canvas')].every(one => one.getContext('2d').getImageData(0, 0, one.width, one.height).data.some(Boolean))"
    assert opened.value(painted)


def test_keys_scrub_through_iterations(opened: Page) -> None:
    before = spans(opened)
    opened.press("ArrowRight", "ArrowRight", "PageDown")
    at(opened, 12)
    assert spans(opened) != before and state(opened)["k"] == "12"
    assert "Iteration 12." in opened.value("document.querySelector('#status').textContent")
    opened.press("ArrowLeft")
    at(opened, 11)
    opened.press("End")
    at(opened, LAST)
    opened.press("ArrowRight")  # there is none
    assert state(opened)["k"] == str(LAST) and opened.value("document.querySelector('#next').disabled")
    opened.press("Home", "+", "+")
    at(opened, 0)
    assert state(opened)["z"] == "1"


def test_the_slider_takes_focus_keys_and_clicks(opened: Page) -> None:
    opened.click("#iteration")
    opened.until("document.activeElement.id == 'iteration'")
    k = int(state(opened)["k"])
    assert abs(k - LAST / 2) <= 2
    opened.press("ArrowRight")  # one step, not two
    at(opened, k + 1)
    opened.click("#next")
    at(opened, k + 2)


def test_a_click_on_the_whole_run_goes_there(opened: Page) -> None:
    opened.click(".times .u-over", across=0.9)
    opened.until("document.querySelector('#iteration').value > 15")


@pytest.mark.parametrize(("how", "side"), [("key", 0), ("click", 0), ("key", 1)])
def test_the_worst_iteration(opened: Page, how: str, side: int) -> None:
    said = opened.value(f"document.querySelectorAll('.worst')[{side}].textContent")
    opened.press("End")
    at(opened, LAST)
    if how == "key":
        opened.press("wW"[side])
    else:
        opened.click(".worst")
    k = int(said.split()[2])
    at(opened, k)
    assert state(opened)["j"] == said.split()[5].strip(",")
    times = "[...document.querySelectorAll('#numbers tbody tr')].map(row => Number(row.children[%d].textContent))"
    assert max(opened.value(times % (2 * side + 1))) == pytest.approx(float(said.split()[6]), abs=0.01)


def test_systems_are_picked_compared_and_exchanged(opened: Page) -> None:
    opened.press("c")
    opened.until(f"{READY} && {TITLES}.length == 1")
    assert state(opened)["b"] == "none"
    opened.value("document.querySelector('#system').focus()")
    opened.press("ArrowDown")
    opened.until(f"{READY} && {TITLES}[0] == 'mltcp_reno'")
    assert opened.value(DRAWN) == 6
    opened.value("document.activeElement.blur()")
    opened.press("c")
    opened.until(f"{READY} && {TITLES}.join() == 'mltcp_reno,reno'")
    opened.press("x")
    opened.until(f"{READY} && {TITLES}.join() == 'reno,mltcp_reno'")
    opened.value("document.querySelector('#seed').focus()")
    opened.press("ArrowDown")
    opened.until(f"{READY} && document.querySelector('.setting').textContent.startsWith('Seed 2;')")


def test_another_experiment_opens_as_the_first_did(opened: Page) -> None:
    opened.press("c", "PageDown")
    at(opened, 10)
    opened.value("document.querySelector('#experiment').focus()")
    opened.press("ArrowDown")
    opened.until(f"{READY} && {TITLES}.join() == 'reno,mltcp_reno' && location.hash.includes('e=second')")
    assert state(opened)["k"] == "0" and opened.value(DRAWN) == 2 * 6 - 1


def test_a_link_restores_the_view(opened: Page, address: str) -> None:
    opened.press("x", "PageDown", "-")
    at(opened, 10)
    link, seen = (
        opened.value("location.href"),
        [spans(opened), opened.value("document.querySelector('#main').innerText")],
    )
    opened.open(link, READY)
    assert [spans(opened), opened.value("document.querySelector('#main').innerText")] == seen
    assert opened.value("location.href") == link
    opened.open(f"{address}#e=nothing&a=none&s=x&j=99&k=999&z=7&l=y", READY)  # of another file: what there is
    assert state(opened)["a"] == "reno" and state(opened)["k"] == str(LAST) and state(opened)["j"] == "0"


def test_the_time_cursor_says_values_of_both_systems(opened: Page) -> None:
    values = "[...document.querySelectorAll('.f .values, .shares .values')].map(one => one.textContent)"
    opened.press(".")
    opened.until(f"{values}.filter(Boolean).length == 3")
    before = opened.value(values)
    opened.press(".", ".", ".", ".", ".", ".")
    opened.until(f"{values}.join() != {'|'.join(before)!r}.split('|').join()")


@pytest.mark.parametrize("hash", ["", "#b=none"])
def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Page, address: str, hash: str) -> None:
    opened.resize(390)
    opened.open(address + hash, READY)
    assert opened.value("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    assert opened.value(
        "[...document.querySelectorAll('canvas')].every(one => one.getBoundingClientRect().right <= 390)"
    )
    opened.click("#next")
    at(opened, 1)
    targets = "[...document.querySelectorAll('#transport button')].map(one => one.getBoundingClientRect().height)"
    assert min(opened.value(targets)) >= 44


def test_charts_follow_the_window(opened: Page) -> None:
    opened.resize(700, 900)
    opened.until(
        "[...document.querySelectorAll('.chart')].every(one => !one.firstChild.offsetWidth || one.firstChild.offsetWidth <= one.clientWidth)"
    )
    assert opened.value("document.documentElement.scrollWidth") == 700
