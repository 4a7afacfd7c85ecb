"""`make prose`: what it counts, and what it refuses. Its packages are installed by `make docs`."""

from __future__ import annotations

from pathlib import Path

import pytest

for package in ("textstat", "pysbd", "mdit_py_plugins"):
    pytest.importorskip(package)

from tools import prose  # noqa: E402

PAGE = """\
# A heading of five words

Two jobs share a link. Each one runs `mltcp run --jobs 2. And more` at 1.5 Gbit/s.

| a | table |
|---|---|
| cells count | as words |

```
code does not count. At all.
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_sentences_are_those_of_paragraphs(page: Path) -> None:
    assert prose.sentences(page) == ["Two jobs share a link.", "Each one runs code at 1.5 Gbit/s."]


def test_code_counts_as_one_word_and_tables_as_words(page: Path) -> None:
    counted = prose.read(page)
    assert counted.lengths == (5, 7)
    assert counted.words == 5 + 12 + 6


def test_a_long_sentence_is_beyond_the_budget(page: Path) -> None:
    page.write_text(" ".join(["word"] * 41) + ".")
    assert any("a sentence of 41 words" in fault for fault in prose.beyond(prose.read(page)))


def test_a_telltale_word_is_found(page: Path) -> None:
    page.write_text("The sampler, whoever asked, is told nothing.")
    assert prose.read(page).telltale == ("whoever", "told")


def test_the_site_has_budgets_of_its_own() -> None:
    assert not list(prose.beyond_site(prose.TOTAL, prose.MEAN, prose.LONG_SHARE))
    assert len(list(prose.beyond_site(prose.TOTAL + 1, prose.MEAN + 1, prose.LONG_SHARE + 0.01))) == 3


def test_only_the_longest_sentence_of_a_generated_page_is_judged() -> None:
    report = prose.GENERATED[0]
    assert not list(prose.beyond(prose.Page(report, 900, (30,) * 30, "word " * prose.LONGEST, ("drawn",))))
    assert len(list(prose.beyond(prose.Page(report, 900, (30,) * 30, "word " * (prose.LONGEST + 1), ())))) == 1
