"""The README's table of lines that MLTCP adds: ``python tools/count_lines.py``; counted by `testbed.report.added_lines`."""

from __future__ import annotations

from testbed.report.added_lines import BASES, added, executed


def table() -> str:
    """The README's table."""
    rows = [f"| `{name}` | {base} | {added(name)} | {executed(name)} |" for name, base in BASES.items()]
    head = "| congestion control | base | lines added to the base | with the lines of the algorithm they execute |"
    return "\n".join([head, "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(table())
