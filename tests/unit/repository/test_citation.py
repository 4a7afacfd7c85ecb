"""What a citation says of the testbed: the same in every file as in the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import testbed

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_it_follows_its_schema() -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.citation-file-format"]
    done = subprocess.run([*command, str(ROOT / "CITATION.cff")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def citation() -> dict[str, Any]:
    """Plain values of CITATION.cff alone; its schema is another test's."""
    lines = re.findall(r'^(\w[\w-]*): "?([^"\n]+)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    found = dict(lines)
    return {"name": found["title"], "version": found["version"], "description": found["abstract"]}


def codemeta() -> dict[str, Any]:
    return dict(json.loads((ROOT / "codemeta.json").read_text()))


def zenodo() -> dict[str, Any]:
    found = json.loads((ROOT / ".zenodo.json").read_text())
    return {**found, "name": found["title"]}


@pytest.mark.parametrize("read", [citation, codemeta, zenodo])
def test_it_agrees_with_the_package(read: Any) -> None:
    said = read()
    assert said["version"] == testbed.__version__
    assert (said["name"], said["description"]) == (PROJECT["name"], PROJECT["description"])


def test_its_date_is_that_of_the_changelog() -> None:
    date = re.search(r"(?m)^date-released: (.+)$", (ROOT / "CITATION.cff").read_text())
    assert date and f"## [{testbed.__version__}] - {date[1]}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_licences_are_those_of_the_package() -> None:
    names = set(PROJECT["license"].split(" AND "))
    listed = re.search(r"^license:\n((?:  - .+\n)+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert listed and set(re.findall(r"- (\S+)", listed[1])) == names
    assert {Path(address).name for address in codemeta()["license"]} == names
    assert zenodo()["license"] in names


def test_authors_and_keywords_are_the_same_everywhere() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    (author,), (creator,) = codemeta()["author"], zenodo()["creators"]
    assert f"- name: {author['name']}\n" in text and creator["name"] == author["name"]
    assert codemeta()["keywords"] == zenodo()["keywords"]
    assert all(f"  - {word}\n" in text for word in codemeta()["keywords"])
