"""The sentences of abstracts with their verdicts as the table of docs/transports-measured.md: ``python tools/sentence_table.py`` prints it.

By what the report of docs/report keeps of each figure.
"""

from __future__ import annotations

from pathlib import Path

from testbed.report import abstracts, chapters, figures
from testbed.report.abstracts import Judged

FIGURES = Path(__file__).parents[1] / "docs" / "report" / "figures"


def table() -> str:
    found = [kept for figure in figures.every() if (kept := chapters.kept(figure.ID, FIGURES))]
    by = abstracts.judges(found)
    lines = ["| | the sentence, in our words | verdict | by |", "|---|---|---|---|"]
    for abstract in abstracts.ABSTRACTS:
        lines += [row(abstract.title, one) for one in abstracts.judged(abstract, by)]
    return "\n".join(lines)


def row(title: str, one: Judged) -> str:
    """One line: whose it is, what it says, what became of it, and by which figures (with what they cannot say)."""
    by = ", ".join(dict.fromkeys(f"`{found[0].id}`" for _, found in one.claims if found))
    told = " ".join(filter(None, (f"{by}." if by and one.sentence.but else by, one.sentence.but)))
    return f"| {title} | {one.sentence.says} | {one.verdict or 'nothing judges it'} | {told} |"


if __name__ == "__main__":
    print(table())
