"""RO-Crate metadata of the kept report: read by the `rocrate` package, complete, and as the tool writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import testbed
from tools import report_crate

rocrate = pytest.importorskip("rocrate.rocrate")


@pytest.fixture(scope="module")
def crate() -> Any:
    return rocrate.ROCrate(report_crate.REPORT)


def test_it_is_what_the_tool_writes() -> None:
    assert (report_crate.REPORT / report_crate.NAME).read_text() == report_crate.metadata()


def test_every_file_of_the_report_is_in_it(crate: Any) -> None:
    there = {path.name + "/" * path.is_dir() for path in report_crate.REPORT.iterdir()} - {report_crate.NAME}
    assert {entity.id for entity in crate.data_entities} == there


def test_it_has_what_a_root_needs(crate: Any) -> None:
    assert crate.name and crate.description and crate.datePublished
    assert crate.license["name"] == "BSD 3-Clause License"
    action = crate.root_dataset["mentions"]
    assert action["instrument"]["softwareVersion"] == testbed.__version__
    assert action["result"].id == "./"


def test_every_entity_that_is_referred_to_is_described() -> None:
    graph = json.loads((report_crate.REPORT / report_crate.NAME).read_text())["@graph"]
    described = {entity["@id"] for entity in graph}
    values = [value for entity in graph for value in entity.values()]
    listed = [one for value in values for one in (value if isinstance(value, list) else [value])]
    referred = {one["@id"] for one in listed if isinstance(one, dict)}
    assert referred - {"https://w3id.org/ro/crate/1.1"} <= described
