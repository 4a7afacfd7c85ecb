"""docs/commands.md, from the table of commands: ``python -m tools.commands_page``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.cli.commands import COMMANDS, GROUPS

PAGE = Path(__file__).parents[1] / "docs/commands.md"
HEAD = """\
# Commands

Every command of `mltcp`, with examples and exit codes. `mltcp COMMAND --help` describes its flags; `mltcp completion SHELL`
completes them. `make docs` writes this page."""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for group in GROUPS:
        yield f"\n## {group.capitalize()}"
        for name, command in COMMANDS.items():
            if command.group == group:
                examples = "\n".join(f"mltcp {name} {example}".rstrip() for example in command.examples)
                yield f"\n### {name}\n\n{command.sentence}\n\n```\n{examples}\n```\n\nExit codes: {command.exit_codes}."
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
