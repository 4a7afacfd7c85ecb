"""Every congestion control of Linux that is listed runs in the user-mode kernel, and its run is valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import testbed
from testbed.cli import main
from testbed.congestion import catalogue, linux
from testbed.core.errors import EXIT_OK
from tests.support.runs import some

USUAL = ("vegas", "cdg", "highspeed")  # by delay; with switches among its parameters; named otherwise in Kconfig


def test_parameters_are_those_that_were_asked_for(tmp_path: Path) -> None:
    results = testbed.run(
        jobs=2, rate="100mbit", compute="20ms", bytes="1MB", iterations=6, system=["cubic:beta=0.3,hystart=off"],
        isolated_runs="none", on="uml", out=tmp_path,
    )  # fmt: skip
    (used,) = json.loads(next(tmp_path.glob("*/*/1/manifest.json")).read_text())["congestion_controls"]
    assert results.verdict == "valid" and used["kind"] == "kernel"
    assert (used["constants"]["beta"], used["constants"]["hystart"], used["constants"]["bic_scale"]) == (307, 0, 41)


OPTIONS = {
    "bic": ("bic:beta=0.5,smooth_part=10", {"beta": 512, "smooth_part": 10}),
    "cdg": ("cdg:window=4,use_tolerance=on", {"window": 4, "use_tolerance": 1}),
    "dctcp": ("dctcp:dctcp_shift_g=2,dctcp_alpha_on_init=512", {"dctcp_shift_g": 2, "dctcp_alpha_on_init": 512}),
    "htcp": ("htcp:use_rtt_scaling=off", {"use_rtt_scaling": 0}),
    "hybla": ("hybla:rtt0=50ms", {"rtt0": 50}),
    "nv": ("nv:nv_pad=5,nv_min_cwnd=4", {"nv_pad": 5, "nv_min_cwnd": 4}),
    "vegas": ("vegas:alpha=3,beta=6,gamma=2", {"alpha": 3, "beta": 6, "gamma": 2}),
}


def test_each_with_parameters_has_a_run_with_some() -> None:
    assert {*OPTIONS, "cubic"} == {family.name for family in linux.FAMILIES if family.parameters}


@pytest.mark.parametrize("name", some(OPTIONS, "vegas", "bic"))
def test_its_parameters_are_read_back(name: str, tmp_path: Path) -> None:
    asked, constants = OPTIONS[name]
    results = testbed.run(
        jobs=2, rate="100mbit", compute="20ms", bytes="1MB", iterations=6, system=[asked], isolated_runs="none", on="uml",
        out=tmp_path,
    )  # fmt: skip
    (used,) = json.loads(next(tmp_path.glob("*/*/1/manifest.json")).read_text())["congestion_controls"]
    assert results.verdict == "valid" and used["kind"] == "kernel"
    assert used["constants"] == {**used["constants"], **constants}


@pytest.mark.parametrize("name", some(catalogue.built_in(), *USUAL))
def test_it_runs_and_is_valid(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two jobs that share a link, slow enough to be quick to run, for so long that there is something to judge."""
    asked = [
        "--jobs",
        "2",
        "--rate",
        "100mbit",
        "--compute",
        "100ms",
        "--bytes",
        "1MB",
        "--iterations",
        "8",
        "--alone",
        "first",
    ]
    assert (
        main(["run", "--system", name, *asked, "--on", "uml", "--out", str(tmp_path), "--quiet", "--json"]) == EXIT_OK
    )
    shown = json.loads(capsys.readouterr().out)
    (result,) = shown["results"]
    assert (shown["verdict"], result["system"], result["iterations"]) == ("valid", name, 8)
    (used,) = json.loads(next(tmp_path.glob(f"*/{name}/1/manifest.json")).read_text())["congestion_controls"]
    assert (used["registered_as"], used["kind"]) == (name, "kernel")
    assert 0.99 * result["ideal_s"] < result["isolated_s"] and result["mean_s"] < 3 * result["ideal_s"]
