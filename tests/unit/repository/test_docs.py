"""What the documentation shows must work."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import registry
from testbed.cli import commands, main
from testbed.congestion import catalogue
from testbed.congestion.curves import CURVES
from testbed.core.errors import EXIT_OK
from testbed.report import added_lines
from testbed.traces import trace
from tests.support import shown
from tools import draw_architecture, reference_pages, tables

ROOT = Path(__file__).parents[3]
TEXTS = shown.PAGES
NAMING = {".py", ".toml", ".c", ".h", ".conf", ".md"}
COMMANDS = shown.every()
# Commands that take seconds, and neither a kernel nor results.
SHORT = [
    command
    for command in COMMANDS
    if not command.page.startswith("examples/")  # their own tests run them
    and (
        command.words[0] in ("list", "show", "schema", "completion")
        or (command.words[0] == "schedule" and "--emulate" not in command.words)
        or (command.words[0] == "import" and "--model" in command.words)
        or (command.words[0] == "run" and "flow" in command.words and not shown.before(command))
    )
]


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_every_command_shown_is_understood(
    command: shown.Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.checkout(tmp_path, command.page)
    monkeypatch.chdir(tmp_path)
    for earlier in shown.before(command):
        assert main(list(earlier.words)) == EXIT_OK
    words = list(command.words)
    if words[0] in ("run", "sweep", "calibrate"):
        # Of a pattern the first: each experiment by itself is another test's.
        words = [next(iter(sorted(map(str, Path().glob(word)))), word) if "*" in word else word for word in words]
        assert main([*words, *([] if "--dry-run" in words else ["--dry-run"])]) == EXIT_OK
    else:
        commands.parser([words[0]]).parse_args(words)


@pytest.mark.parametrize("command", SHORT, ids=str)
def test_a_short_command_shown_works(command: shown.Shown, tmp_path: Path) -> None:
    shown.checkout(tmp_path, command.page)
    done = subprocess.run(
        [sys.executable, "-m", "testbed", *command.words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == EXIT_OK, done.stderr


def test_every_target_shown_is_one_of_make() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    blocks = "".join(token.content for page in TEXTS for token in shown.tokens(page) if token.type == "fence")
    asked = set(re.findall(r"^make ([\w-]+)", blocks, re.MULTILINE))
    assert asked and asked <= targets


def test_every_module_shown_can_be_run() -> None:
    blocks = "".join(token.content for page in TEXTS for token in shown.tokens(page) if token.type == "fence")
    for name in set(re.findall(r"^(?:\S*/)?python -m ([\w.]+)", blocks, re.MULTILINE)) - {"venv"}:
        assert importlib.util.find_spec(name) is not None, name


def test_the_trace_shown_is_valid(tmp_path: Path) -> None:
    shown = re.search(r"```json\n(.*?)```", (ROOT / "docs/reference/trace-format.md").read_text(), re.DOTALL)
    assert shown is not None
    json.loads(shown[1])
    path = tmp_path / "mine.json"
    path.write_text(shown[1])
    assert trace.load(str(path)).name == "mine"


def test_the_lines_of_code_are_counted_anew() -> None:
    """The table of lines that MLTCP adds; the paper says 30 to 60."""
    assert tables.lines() in (ROOT / "docs/reference/congestion-controls.md").read_text()
    assert all(added_lines.added(name) <= 60 for name in added_lines.BASES)


def test_the_library_is_documented() -> None:
    assert tables.library() in (ROOT / "docs/reference/trace-format.md").read_text()


def test_every_parameter_and_curve_is_documented() -> None:
    text = (ROOT / "docs/reference/congestion-controls.md").read_text()
    of_linux = {one.name for name in catalogue.built_in() for one in catalogue.families()[name].parameters}
    assert all(f"`{name}`" in text for name in (*catalogue.parameters(), *of_linux, *CURVES, *catalogue.names()))


def test_links_lead_somewhere() -> None:
    for text in TEXTS:
        for target in re.findall(r"\]\(([^)#]+)\)", text.read_text()):
            if "://" not in target:
                assert (text.parent / target).exists(), (text.name, target)


def test_paths_lead_somewhere() -> None:
    """What looks like a path of the checkout is one; `<NAME>` and `NAME.py` stand for what somebody adds."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"results", "figures", "build"}
    for text in TEXTS:
        for path in re.findall(r"`([\w.*-]+/[\w./*-]*)`", text.read_text()):
            if path.split("/")[0] in folders and "NAME" not in path:
                assert list(ROOT.glob(path.rstrip("/"))), (text.name, path)


def test_pages_that_the_code_names_exist() -> None:
    """Messages, docstrings and experiment files name pages by their path."""
    folders = (
        "testbed",
        "topologies",
        "workloads",
        "analysis",
        "kernel",
        "experiments",
        "examples",
        "benchmarks",
        "tools",
        "tests",
    )
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in NAMING):
        for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text()):
            assert (ROOT / page).exists(), (path, page)


def test_the_glossary_is_short() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs/reference/glossary.md").read_text(), re.MULTILINE)
    assert len(terms) == len(set(terms)) <= 50


def test_every_package_is_drawn_and_described() -> None:
    """`python tools/draw_architecture.py` draws the engine's packages anew."""
    drawn = re.findall(r"<text[^>]*>([^<]+)</text>", (ROOT / "docs/explanation/architecture.svg").read_text())
    described = re.findall(r"^\| `testbed/(\w+)", (ROOT / "docs/explanation/architecture.md").read_text(), re.MULTILINE)
    assert set(drawn) == set(draw_architecture.packages()) == set(described)


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_a_generated_page_follows_from_the_code(name: str) -> None:
    """`python -m tools.reference_pages` writes all of them."""
    assert (reference_pages.FOLDER / f"{name}.md").read_text() == reference_pages.PAGES[name]()


@pytest.mark.parametrize("kind", registry.KINDS, ids=lambda kind: kind.name)
def test_what_content_needs_is_described(kind: registry.Kind) -> None:
    """A row of "Adding something" names everything that content of this kind has."""
    rows = [
        row.split(" | ")
        for row in (ROOT / "docs/explanation/architecture.md").read_text().splitlines()
        if row.startswith("| a")
    ]
    assert any(set(kind.has) <= set(re.findall(r"`(\w+)`", row[-1])) for row in rows)
