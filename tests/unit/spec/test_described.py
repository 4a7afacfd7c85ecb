"""Help and schema say what every field of an experiment means."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli import main
from testbed.spec import field_help

ROOT = Path(__file__).parents[3]


def test_every_field_is_described() -> None:
    for kind, texts in field_help.OF.items():
        assert set(texts) == set(kind.__struct_fields__), kind


def test_help_says_what_the_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    said = "".join(capsys.readouterr().out.split())
    properties = field_help.schema()["$defs"]["Spec"]["properties"]
    for name, text in field_help.SPEC.items():
        assert properties[name]["description"] == text
        assert name in ("link", "event") or "".join(text.split()) in said


def test_a_campaign_prints_nothing() -> None:
    for path in (ROOT / "testbed" / "campaign").rglob("*.py"):
        text = path.read_text()
        assert "print(" not in text and "rich" not in text.replace('"rich"', ""), path
