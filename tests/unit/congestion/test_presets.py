"""Parameters that belong together, by one word; what is said beside it counts more."""

from __future__ import annotations

import pytest

from testbed.congestion import catalogue
from testbed.core.errors import RequestError

NEUTRAL = {"slope": 0, "intercept": 1024}
MLTCP = [name for name in catalogue.names() if name.startswith("mltcp_")]


@pytest.mark.parametrize("name", MLTCP)
def test_the_papers_is_what_a_module_begins_with(name: str) -> None:
    assert catalogue.parse(f"{name}:preset=paper").constants == {}


def test_recommended_is_what_entitles_a_newcomer() -> None:
    assert catalogue.parse("mltcp_cubic:preset=recommended").constants == {
        "restart": 1,
        "host_limit": 1,
        "floor_cwnd": 10,
    }
    assert catalogue.parse("mltcp_dcqcn:preset=recommended").constants == {}


def test_the_authors_public_code() -> None:
    constants = catalogue.parse("mltcp_reno:preset=author,total_bytes=28MB").constants
    assert constants == {"slope": 4096, "intercept": 256, "gap_factor": 922, "restart": 3, "total_bytes": 28_000_000}
    with pytest.raises(RequestError, match="total_bytes="):
        catalogue.parse("mltcp_reno:preset=author")


@pytest.mark.parametrize("name", ["dcqcn", "mltcp_dcqcn"])
def test_an_adapters_constants_whatever_the_links_rate(name: str) -> None:
    told = catalogue.on_link(catalogue.parse(f"{name}:preset=adapter", "recommended"), 10**9).constants
    assert (told["line_rate"], told["r_ai"], told["r_hai"], told["byte_counter"]) == (1000, 5000, 50_000, 32_767)
    assert (told["g"], told["alpha_timer"], told["rate_timer"], told["fast_recovery"]) == (5, 1, 300, 1)


@pytest.mark.parametrize("spec", ["mltcp_cubic:slope=0,preset=author,total_bytes=1MB,intercept=1", "mltcp_dcqcn:preset=adapter,slope=0,intercept=1"])  # fmt: skip
def test_what_is_said_counts_more(spec: str) -> None:
    constants = catalogue.parse(spec).constants
    assert {key: constants[key] for key in NEUTRAL} == NEUTRAL


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("mltcp_dcqcn:preset=author,total_bytes=1MB", "'author'.* paper, adapter, recommended"),
        ("mltcp_reno:preset=paper,preset=author", "twice"),
        ("reno:preset=paper", "'preset=paper'"),
        ("mltcp_dcqcn:restart=ten", "'restart=ten'"),
    ],
)
def test_what_there_is_not_is_refused(spec: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        catalogue.parse(spec)


@pytest.mark.parametrize(
    ("spec", "preset", "restart"),
    [
        ("mltcp_reno", "recommended", 1), ("mltcp_reno:slope=2", "recommended", 1), ("mltcp_reno", "paper", None),
        ("mltcp_reno:preset=paper", "recommended", None), ("mltcp_reno:restart=off", "recommended", 0), ("reno", "recommended", None),
        ("mltcp_dcqcn", "recommended", None),
    ],
)  # fmt: skip
def test_what_names_no_preset_has_the_runs(spec: str, preset: str, restart: int | None) -> None:
    assert catalogue.on_link(catalogue.parse(spec, preset), 10**9).constants.get("restart") == restart


@pytest.mark.parametrize("text", ["mltcp_reno:slope=1,slope=2", "mltcp_reno:slope=1,slope=1"])
def test_a_parameter_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="twice"):
        catalogue.parse(text)


@pytest.mark.parametrize("name", ["mltcp_reno", "mltcp_cubic", "mltcp_dctcp", "mltcp_dcqcn"])
def test_a_placebo_is_what_is_recommended_with_a_constant_f(name: str) -> None:
    placebo, recommended = (catalogue.parse(name, preset) for preset in ("placebo", "recommended"))
    assert placebo.constants == {**recommended.constants, "slope": 1, "intercept": 1024}
    assert placebo.role == "treatment"
