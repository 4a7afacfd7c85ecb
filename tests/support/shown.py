"""Commands that README.md and the documentation site show, and the files that these commands read."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
FOLDERS = ("tutorials", "how-to", "reference", "explanation", "results")
PAGES = [
    ROOT / "README.md",
    ROOT / "examples/README.md",
    ROOT / "docs/index.md",
    *(path for folder in FOLDERS for path in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
PROMPT = re.compile(r"^(?:\$ )?(?P<root>sudo )?(?P<program>(?:\.venv/bin/)?mltcp|python testbed/run\.py) (?P<rest>.+)$")
PLACEHOLDER = re.compile(r"…|\b(?:NAME|COMMAND|KIND|SHELL|RUN|TRACE)\b|<|--help|--pause-at")
SAVED = re.compile(r"Save (?:this )?as `([\w.-]+)`:")
SHELL = ("", "sh", "bash", "console")  # of a code block that holds commands


@dataclass(frozen=True)
class Shown:
    """A command of `mltcp`: the page, its words without the program, and whether root runs it."""

    page: str
    words: tuple[str, ...]
    root: bool

    def __str__(self) -> str:
        return " ".join(self.words)


def tokens(page: Path) -> list[Token]:
    """The page as markdown-it reads it."""
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


def commands(page: Path) -> list[Shown]:
    """All commands of the page: lines of code blocks, and code in tables that is a whole command."""
    lines: list[str] = []
    opened = ""
    for token in tokens(page):
        if token.type == "fence" and token.info.strip() in SHELL:
            lines += token.content.replace("\\\n", " ").splitlines()
        elif token.type == "inline" and opened == "td_open":
            lines += [one.content for one in token.children or () if one.type == "code_inline" and " -" in one.content]
        opened = token.type
    found = []
    for line in lines:
        hit = PROMPT.match(line)
        if hit is None or PLACEHOLDER.search(line):
            continue
        words = shlex.split(re.split(r" >>? | \| ", hit["rest"])[0], comments=True)
        program = () if "mltcp" in hit["program"] else ("run",)
        found.append(Shown(str(page.relative_to(ROOT)), (*program, *words), bool(hit["root"])))
    return found


def files(page: Path) -> dict[str, str]:
    """Code blocks that the page says to save, by file name."""
    found: dict[str, str] = {}
    name = None
    for token in tokens(page):
        if token.type == "inline":
            hit = SAVED.search(token.content)
            name = hit[1] if hit else None
        elif token.type == "fence" and name:
            found[name], name = token.content, None
    return found


def before(command: Shown) -> list[Shown]:
    """The imports of models on the same page that write a trace which this command reads."""
    imports = [one for one in commands(ROOT / command.page) if one.words[:2] == ("import", "--model")]
    return [one for one in imports if f"./{one.words[one.words.index('-o') + 1]}" in command.words]


def every() -> list[Shown]:
    """The commands of all pages, each once."""
    return list({shown.words: shown for page in PAGES for shown in commands(page)}.values())


def checkout(folder: Path, page: str) -> None:
    """Make a folder in which commands work: the checkout's content by links, examples by their names, and files that pages say to save."""
    for path in ROOT.iterdir():
        if path.name not in ("results", "figures", "build", ".git"):
            (folder / path.name).symlink_to(path)
    saved: dict[str, str] = {}
    for path in sorted(PAGES, key=lambda path: path == ROOT / page):  # the page's own last, so that they count
        saved |= files(path)
    for name, text in saved.items():
        (folder / name).write_text(text)
    shutil.copy(ROOT / "tests/data/joblists/sacct.txt", folder / "sacct.txt")
    for path in (ROOT / "examples").iterdir():
        if path.name != "README.md" and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
