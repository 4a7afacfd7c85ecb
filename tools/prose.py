"""Sentence lengths of the documentation, page by page: ``python -m tools.prose [PAGE …] [--sentences]``; `make prose` checks all pages.

Words are counted by textstat, sentences are split by pySBD, and markdown-it finds the prose: paragraphs and list items.
Code blocks do not count, a piece of code within a sentence counts as one word. Cells of tables count as words, and for the longest sentence.
Exit code 1 where a page exceeds its budget, or the site does.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pysbd
import textstat
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

ROOT = Path(__file__).parents[1]
FOLDERS = ("tutorials", "how-to", "reference", "explanation", "results")

# Budgets.
LONG = 25  # words above which a sentence is long
LONGEST = 40  # maximum words of a sentence
MEAN = 17.0  # maximum mean words per sentence of the site
LONG_SHARE = 0.08  # maximum share of long sentences of the site
PAGE_MEAN, PAGE_LONG_SHARE = 20.0, 0.15  # the same of a single page
TOTAL = 30_000  # maximum words of the site without README.md

# Words that belong to no plain text; no page of a folder in STRICT, and not the README, may have one.
TELLTALE = re.compile(
    r"\b(?:who|whoever|nobody|somebody|told|tells|beside|whatever|foretells?|heard of|as it is|in place of|in force|least timeout"
    r"|interfaces of the links'|one's own|of its own accord|settled|touched|twin|stands on|carried out|surely|drawn|dispersed)\b",
    re.IGNORECASE,
)
STRICT = ("README.md", "docs/index.md", "docs/tutorials", "docs/how-to")
EXEMPT = ("docs/reference/glossary.md",)  # has to name such words
GENERATED = ("docs/report/report.md",)  # `make reproduce` writes it; its words and its longest sentence count


@dataclass(frozen=True)
class Page:
    """The counts of one page: all words, its sentences' lengths in words, and its flagged words."""

    name: str
    words: int
    lengths: tuple[int, ...]
    longest: str
    telltale: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Return the mean words per sentence."""
        return statistics.fmean(self.lengths) if self.lengths else 0.0

    @property
    def long_share(self) -> float:
        """The share of sentences above `LONG` words."""
        return sum(length > LONG for length in self.lengths) / max(1, len(self.lengths))

    @property
    def longest_words(self) -> int:
        return count(self.longest)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of the pages and the values above a budget. Returns an exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.prose", description="Sentence lengths of documentation pages."
    )
    parser.add_argument(
        "pages", nargs="*", type=Path, help="Markdown files (default: README.md and all pages of the site)"
    )
    parser.add_argument("--sentences", action="store_true", help="every sentence that is too long, in full")
    options = parser.parse_args(argv)
    paths = options.pages or site()
    pages = [read(path) for path in paths]
    print(f"{'words':>6} {'words a sentence':>16} {'above 25':>8} {'longest':>7}  page")
    for page in pages:
        print(f"{page.words:6} {page.mean:16.1f} {page.long_share:8.0%} {page.longest_words:7}  {page.name}")
    lengths = [length for page in pages if judged(page) for length in page.lengths]
    mean, share = statistics.fmean(lengths or [0]), sum(length > LONG for length in lengths) / max(1, len(lengths))
    print(f"{sum(page.words for page in pages):6} {mean:16.1f} {share:8.0%} {max(lengths, default=0):7}  in all")
    if options.sentences:
        for path in paths:
            for text in sentences(path):
                if count(text) > LONG:
                    print(f"{path}: {count(text)}: {text}")
    faults = [fault for page in pages for fault in beyond(page)]
    if not options.pages:
        faults += beyond_site(sum(page.words for page in pages if page.name != "README.md"), mean, share)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def site() -> list[Path]:
    """README.md, every page in the site's folders, and the report."""
    folders = [path for folder in FOLDERS for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
    generated = [ROOT / name for name in GENERATED]
    return [ROOT / "README.md", ROOT / "docs/index.md", *folders, *(path for path in generated if path.exists())]


def judged(page: Page) -> bool:
    """Return True if budgets of means and shares apply; they do not apply to generated pages."""
    return page.name not in GENERATED


def beyond(page: Page) -> Iterator[str]:
    """One sentence for each budget that the page exceeds."""
    if page.longest_words > LONGEST:
        yield f"{page.name}: a sentence of {page.longest_words} words, at most {LONGEST}: {page.longest}"
    if not judged(page):
        return
    if page.mean > PAGE_MEAN:
        yield f"{page.name}: {page.mean:.1f} words a sentence; at most {PAGE_MEAN:.0f}"
    if page.long_share > PAGE_LONG_SHARE and len(page.lengths) > 12:
        yield f"{page.name}: {page.long_share:.0%} of the sentences have more than {LONG} words; at most {PAGE_LONG_SHARE:.0%}"
    if page.telltale and page.name.startswith(STRICT):
        yield f"{page.name}: words that plain text does without: {', '.join(page.telltale)}"


def beyond_site(words: int, mean: float, share: float) -> Iterator[str]:
    """One sentence for each budget that the site exceeds."""
    if words > TOTAL:
        yield f"the site has {words} words; at most {TOTAL}"
    if mean > MEAN:
        yield f"the site has {mean:.1f} words a sentence; at most {MEAN:.0f}"
    if share > LONG_SHARE:
        yield f"{share:.1%} of the site's sentences have more than {LONG} words; at most {LONG_SHARE:.0%}"


def read(path: Path) -> Page:
    """Count one page."""
    name = str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else str(path)
    flowing, cells, headings = prose(path.read_text())
    found = [sentence for text in flowing for sentence in split(text)]
    everything = [*flowing, *cells, *headings]
    hits = () if name in EXEMPT else (hit.group().lower() for text in everything for hit in TELLTALE.finditer(text))
    longest = max([*found, *(sentence for cell in cells for sentence in split(cell))], key=count, default="")
    return Page(name, sum(map(count, everything)), tuple(map(count, found)), longest, tuple(dict.fromkeys(hits)))


def sentences(path: Path) -> list[str]:
    """The sentences of the page's paragraphs and list items."""
    return [sentence for text in prose(path.read_text())[0] for sentence in split(text)]


def prose(text: str) -> tuple[list[str], list[str], list[str]]:
    """The page's paragraphs and list items; its table cells; its headings."""
    flowing: list[str] = []
    cells: list[str] = []
    headings: list[str] = []
    opened = ""
    for token in MarkdownIt("commonmark").enable("table").use(front_matter_plugin).parse(text):
        if token.type == "inline":
            kind = cells if opened in ("td_open", "th_open") else headings if opened == "heading_open" else flowing
            kind.append(plain(token))
        else:
            opened = token.type
    return flowing, cells, headings


def plain(token: Token) -> str:
    """The words of an inline token; code becomes one word, images disappear."""
    parts = {"text": lambda one: one.content, "code_inline": lambda _: "code", "softbreak": lambda _: " "}
    return "".join(parts[one.type](one) for one in token.children or () if one.type in parts).strip()


@cache
def _segmenter() -> pysbd.Segmenter:
    return pysbd.Segmenter(language="en", clean=False)


def split(text: str) -> list[str]:
    """The sentences of a paragraph."""
    return [sentence.strip() for sentence in _segmenter().segment(text) if count(sentence)]


def count(text: str) -> int:
    """Words, as textstat counts them."""
    return int(textstat.lexicon_count(text, removepunct=True))


if __name__ == "__main__":
    sys.exit(main())
