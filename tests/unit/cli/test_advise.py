"""``mltcp advise``: what helps, in the form that programs read, and a reason for every answer; never how it is worded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from testbed.campaign import advice, driver
from testbed.campaign.advice import document, measuring, wording, workload
from testbed.campaign.findings import answer
from testbed.campaign.findings.demand import Demand
from testbed.cli import advise, main
from testbed.core.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_REQUEST, RequestError
from testbed.core.runs.findings import AtIdeal, FewFrames, NoCauseKnown, SmallShare
from testbed.core.units import Rate
from tests.support.browser import BROWSER, PHONE, looked_at

MOE = str(Path(__file__).parents[2] / "data" / "moe.json")
SHORT = ["--iterations", "20", "--seeds", "1"]
EQUAL = ["500ms/28MB", "500ms/28MB", "--rate", "500mbit"]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["advise", *words, "--json"]) == EXIT_OK
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def option(found: dict[str, Any], system: str) -> dict[str, Any]:
    by_system: dict[str, dict[str, Any]] = {one["system"]: one for one in found["options"]}
    return by_system[system]


def causes(option: dict[str, Any]) -> set[str]:
    return {reason["finding"] for reason in option["reasons"]}


def test_equal_jobs_gain(capsys: pytest.CaptureFixture[str]) -> None:
    """Two jobs that need 94 % of the link: sharing costs a third, and coordination saves it."""
    found = asked(capsys, *EQUAL, *SHORT)
    assert {"jobs", "options", "helps", "best", "reason", "confidence"} <= found.keys()
    assert found["helps"] is True and found["best"] in ("mltcp_reno", "cassini", "priority")
    assert [job["job"] for job in found["jobs"]] == [0, 1]
    assert all(1.2 < job["shared_s"] / job["alone_s"] < 1.5 for job in found["jobs"])
    for one in found["options"]:
        assert one["low"] <= one["gain_mean"] <= one["high"] and one["reason"]
    assert {one["kind"] for one in found["options"]} == {"baseline", "system", "placement", "network"}
    assert option(found, "mltcp_reno")["gain_mean"] > 1.15
    assert option(found, "1gbit")["outcome"] == "faster"
    assert all(set(job["with_s"]) == {one["system"] for one in found["options"][1:]} for job in found["jobs"])


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["500ms/500kB", "500ms/500kB", "--rate", "500mbit"], {"small share", "at ideal"}),
        (["500ms/28MB", "--jobs", "1", "--rate", "500mbit"], {"one job"}),
        (["500ms/28MB", "310ms/18MB", "--rate", "500mbit", "--system", "reno", "mltcp_reno"], {"periods"}),
    ],
    ids=["little to gain", "one job", "unlike periods"],
)  # fmt: skip
def test_nothing_helps_and_the_reason_says_why(
    words: list[str], cause: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, *words, *SHORT)
    assert (found["helps"], found["best"]) == (False, "reno")
    assert causes(option(found, "mltcp_reno")) & cause
    assert 0.95 < option(found, "mltcp_reno")["gain_mean"] < 1.05


def test_jobs_that_need_more_than_the_link_has(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "500ms/28MB", "300ms/28MB", "--rate", "500mbit", "--system", "reno", "cassini", *SHORT)
    cassini = option(found, "cassini")
    assert cassini["gain_mean"] < 0.95 and "offered load" in causes(cassini) and cassini["outcome"] != "faster"
    assert (cassini["outcome"] == "slower") == (cassini["high"] < 1) and found["helps"] is False


def test_a_faster_network_that_gains_nothing_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """At 40 Gbit/s computing hides nearly all of it."""
    found = asked(capsys, "resnet50", "--rate", "40gbit", "--system", "reno", *SHORT)
    assert option(found, "80gbit")["outcome"] == "no difference"
    assert option(found, "80gbit")["reason"] != answer.reason(NoCauseKnown())


@pytest.mark.slow
def test_too_few_frames_for_each_flow(capsys: pytest.CaptureFixture[str]) -> None:
    """32 flows share 40 frames of marking threshold, so that MLTCP cannot act. Emulated gains were 0.84 to 1.05 there: no sign is claimed."""
    words = [f"{MOE},workers=8"] * 2
    found = asked(
        capsys, *words, "--rate", "100gbit", "--system", "reno", "mltcp_reno", "--iterations", "16", "--seeds", "1"
    )
    mltcp = option(found, "mltcp_reno")
    assert "few frames" in causes(mltcp) and (mltcp["outcome"], mltcp["validated"]) == ("inconclusive", False)
    assert mltcp["low"] < 0.84 and mltcp["high"] > 1.05 and wording.SIGN_UNKNOWN in mltcp["reason"]
    assert (found["helps"], found["may_help"]) == (False, "mltcp_reno") and "Unknown: MLTCP-Reno" in found["reason"]


def test_too_few_iterations_decide_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(
        capsys, *EQUAL, "--iterations", "5", "--seeds", "1", "--system", "reno", "mltcp_reno", "--rate", "500mbit"
    )
    mltcp = option(found, "mltcp_reno")
    assert (mltcp["outcome"], mltcp["reason"]) == ("inconclusive", wording.TOO_SHORT) and found["helps"] is False


def test_a_sign_is_claimed_where_something_else_bounds_the_difference() -> None:
    few = FewFrames("s1-s2", "ecn", 40.0, 32)
    assert wording.sign_unknown([few])
    assert not any(wording.sign_unknown([few, one]) for one in (SmallShare(1.01), AtIdeal("reno", 1.0)))
    assert not wording.sign_unknown([NoCauseKnown()])


def test_many_rates_of_large_jobs_get_fewer_iterations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is the command's: the rates share it."""
    monkeypatch.setattr(measuring, "_work", lambda _jobs: 3_000)

    def sized(rates: int) -> measuring.Simulated:
        asked = [
            advice.Question(
                {"job": [f"{MOE},workers=8"] * 2, "mtu": 9000}, advice.USUAL_SYSTEMS, Rate(rate * 10**9), ()
            )
            for rate in range(10, 10 + rates)
        ]
        return advice.sized(asked, tmp_path)

    few, many = sized(1), sized(8)
    assert measuring.ITERATIONS >= few.fields["iterations"] > many.fields["iterations"] >= measuring.FEWEST_ITERATIONS
    assert many.fields["seeds"] == 1 and many.settings == 8 * few.settings and many.expected_s > few.expected_s


def test_a_long_answer_is_announced_and_each_rate_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advise, "LONG_S", 0.0)
    words = ["advise", "500ms/28MB", "--rates", "500mbit,1gbit", *SHORT, "--system", "reno"]
    assert main(words) == EXIT_OK
    told = capsys.readouterr().err
    assert "of processor time: 4 ranks" in told and "--iterations 12" in told
    assert "500 Mbit/s: " in told and "(2 of 2)" in told
    assert main([*words, "--quiet"]) == EXIT_OK
    assert not capsys.readouterr().err


def test_an_interruption_promises_no_finished_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver._Queue, "outcomes", interrupted)
    assert main(["advise", *EQUAL, *SHORT]) == EXIT_INTERRUPTED
    assert capsys.readouterr().err.strip() == "interrupted"


@pytest.mark.slow
def test_rates_give_different_answers(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "gpt2", "--rates", "50gbit,100gbit,400gbit", *SHORT)
    assert [one["rate"] for one in found["rates"]] == ["50gbit", "100gbit", "400gbit"]
    slow, middle, fast = found["rates"]
    assert {name: slow[name] for name in slow if name != "rates"} == {
        name: found[name] for name in slow if name != "rates"
    }
    assert slow["helps"] and not fast["helps"]
    assert option(slow, "mltcp_reno")["gain_mean"] > 1.1 > option(middle, "mltcp_reno")["gain_mean"]
    lost = [one["jobs"][0]["shared_s"] / one["jobs"][0]["alone_s"] for one in found["rates"]]
    assert lost[0] > 1.3 > lost[1] > 1.05 > lost[2]


@pytest.mark.parametrize("kind", ["system", "placement"])
def test_no_gain_outside_the_validated_range_is_no_known_fact(kind: document.Kind) -> None:
    row = Mock(speedup_mean=1.0, findings=(), ideal_s=None)

    def told(outside: str | None) -> str:
        return wording.reason(
            kind,
            "inconclusive",
            [NoCauseKnown()],
            row,
            row,
            Demand(),
            Demand(),
            slots_s=[],
            placed=True,
            outside=outside,
        )

    assert told(None) == answer.reason(NoCauseKnown())
    assert told("64 workers; noise") == "The simulator computes no gain; it is not validated for this: 64 workers."


def test_a_cluster_makes_placement_count(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, *EQUAL, *SHORT, "--cluster", "leafspine,2,1,4", "--system", "reno")
    assert (found["helps"], found["best"]) == (True, "packed")


def test_a_line_of_a_model_is_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    line = "gpt2 --dp 2 --device a100"
    found = asked(
        capsys, f"--model {line}", "--model", line, "--rate", "25gbit", "--system", "reno", "mltcp_reno", *SHORT
    )
    assert [(job["trace"], job["workers"]) for job in found["jobs"]] == [("gpt2", 2), ("gpt2", 2)]
    assert all(job["shared_s"] > job["alone_s"] for job in found["jobs"])


def test_an_option_that_jobs_cannot_have_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, *EQUAL, *SHORT, "--system", "reno", "bbr")
    assert [one["system"] for one in found["left_out"]] == ["bbr"] and found["left_out"][0]["why"]


@pytest.mark.parametrize(
    "words",
    [
        [], ["gpt3x"], ["gpt2", "--rate", "100"], ["gpt2", "--rates", "50gbit,x"], ["500ms/28"], ["gpt2", "gpt2", "--jobs", "2"],
        ["gpt2", "--jobs", "0"], ["gpt2", "--system", "reno", "reno"], ["gpt2", "--cluster", "nowhere"], ["./none.json"],
        ["gpt2,workers=0"], ["--model", "gpt5"], ["--model gpt2 --dp x"], ["gpt2", "--system", "rneo"], ["gpt2", "--system", "reno", "mltpc_reno"], ["gpt2", "--rates", ",".join(f"{n}gbit" for n in range(1, 20))],
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_requests(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *words]) == EXIT_REQUEST
    said = capsys.readouterr()
    assert said.err.count("error:") == 1 and "Traceback" not in said.err and not said.out


def test_jobs_as_words() -> None:
    assert workload.jobs(["gpt2"], None, Path()) == ["gpt2", "gpt2"]
    assert workload.jobs(["gpt2"], 3, Path()) == ["gpt2"] * 3
    assert workload.jobs(["gpt2", "./x/y.json,workers=4"], None, Path()) == ["gpt2", "./x/y.json,workers=4"]
    assert workload.jobs(["500ms/28MB,workers=4"], 1, Path()) == ["synthetic,compute=500ms,bytes=28MB,workers=4"]
    with pytest.raises(RequestError):
        workload.jobs(["500ms/28 apples"], 1, Path())


@pytest.mark.parametrize("columns", [60, 100])
def test_the_answer_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["advise", *EQUAL, *SHORT, "--system", "reno", "mltcp_reno"]) == EXIT_OK
    assert max(map(len, capsys.readouterr().out.splitlines())) <= columns


def test_the_page_escapes_names_and_fits_a_phone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "advice.html"
    hostile = json.loads(Path(MOE).read_text()) | {"name": "<script>x</script>"}
    (tmp_path / "trace.json").write_text(json.dumps(hostile))
    words = [f"{tmp_path / 'trace.json'},workers=2"] * 2
    found = asked(
        capsys, *words, *SHORT, "--system", "reno", "mltcp_reno", "--rates", "50gbit,100gbit", "--html", str(page)
    )
    written = page.read_text()
    assert "<script>" not in written and all(str(job["job"]) in written for job in found["jobs"])
    if BROWSER is not None:
        assert looked_at(written, tmp_path) == ([PHONE, PHONE], [])


def an_option(system: str, kind: document.Kind, gain: float, low: float) -> document.Option:
    return document.Option(
        system=system, kind=kind, gain_mean=gain, low=low, high=gain + 0.2, gain_last10=gain, outcome="faster" if gain > 1 else "slower",
        reason="", reasons=(), confidence="", validated=True,
    )  # fmt: skip


def test_the_headline_names_the_best_certain_option_and_a_better_placement() -> None:
    base = an_option("reno", "baseline", 1.0, 1.0)
    unsure, sure = an_option("cassini", "system", 1.2, 0.9), an_option("mltcp_reno", "system", 1.16, 1.05)
    unsure = msgspec.structs.replace(unsure, outcome="inconclusive")
    packed, slower = an_option("packed", "placement", 1.3, 1.1), an_option("cubic", "system", 0.9, 0.8)
    told = wording.headline([base, unsure, sure, packed], sure, unsure)
    assert told.startswith("Best: placement packed, 1.30×") and "--cluster" in told
    for part in (
        "; else MLTCP-Reno, 1.16× as fast as Reno (interval 1.05",
        "CASSINI may be faster still: 1.20×",
        "--emulate",
    ):
        assert part in told, part
    told = wording.headline([base, unsure, sure], sure, None)
    assert "CASSINI" not in told and "--cluster" not in told and "--emulate" not in told
    told = wording.headline([base, unsure], base, unsure)
    assert told.startswith("Unknown: CASSINI may be faster than Reno: 1.20×")
    assert wording.headline([base, slower, packed], base, None).startswith("Best: placement packed, 1.30×")
    assert wording.headline([base, slower], base, None).startswith("Nothing on this network")
    doubtful = msgspec.structs.replace(packed, outcome="inconclusive")
    assert wording.headline([base, slower, doubtful], base, None).startswith("No congestion control")


@pytest.mark.parametrize(("high", "unknown"), [(1.33, True), (1.04, False)])
def test_the_answer_is_unknown_if_an_interval_reaches_well_above_1(high: float, unknown: bool) -> None:
    """Whatever the computed gain is: 1.00× from 0.75 to 1.33 may be a gain."""
    base = an_option("reno", "baseline", 1.0, 1.0)
    doubtful = msgspec.structs.replace(an_option("mltcp_reno", "system", 1.0, 0.75), outcome="inconclusive", high=high)
    undecided = advice._undecided([base, doubtful], placed=False)
    assert (undecided is doubtful) == unknown
    assert wording.headline([base, doubtful], base, undecided).startswith("Unknown:" if unknown else "Nothing")
    slower = msgspec.structs.replace(doubtful, outcome="slower")
    assert advice._undecided([base, slower], placed=False) is None


@pytest.mark.parametrize(
    ("gain", "low", "high", "alike", "outcome"),
    [
        (1.2, 1.1, 1.3, True, "faster"), (1.2, 0.9, 1.5, True, "inconclusive"), (0.8, 0.7, 0.9, True, "slower"), (0.8, 0.6, 1.1, True, "inconclusive"),
        (1.01, 0.95, 1.08, True, "no difference"), (1.01, 0.8, 1.26, False, "inconclusive"), (1.01, 1.005, 1.015, False, "no difference"),
        (1.0, 0.99, 1.01, False, "no difference"), (1.0, 0.94, 1.1, False, "inconclusive"),
    ],
)  # fmt: skip
def test_the_word_agrees_with_the_interval(gain: float, low: float, high: float, alike: bool, outcome: str) -> None:
    assert advice.outcome_of(gain, low, high, alike=alike) == outcome


def test_an_emulated_gain_decides() -> None:
    unsure = msgspec.structs.replace(an_option("cassini", "system", 1.2, 0.9), outcome="inconclusive")
    emulated = document.Emulated(gain_mean=1.15, low=None, high=None, difference=0.04, verdict="valid", folder="x")
    assert advice._decided(unsure, emulated).outcome == "faster"
    worse = advice._decided(unsure, msgspec.structs.replace(emulated, gain_mean=0.9))
    assert worse.outcome == "slower" and "0.90×" in worse.reason
    assert advice._decided(unsure, msgspec.structs.replace(emulated, verdict="invalid")).outcome == "inconclusive"
    wide = msgspec.structs.replace(emulated, gain_mean=1.0, low=0.75, high=1.35)
    assert advice._decided(unsure, wide).outcome == "inconclusive"


def test_confidence_is_that_of_the_named_options() -> None:
    base = an_option("reno", "baseline", 1.0, 1.0)
    packed = msgspec.structs.replace(an_option("packed", "placement", 1.1, 1.04), confidence="validated")
    unsure = msgspec.structs.replace(
        an_option("cassini", "system", 1.1, 0.8), outcome="inconclusive", confidence="outside"
    )
    assert (
        wording.confidence_of([base, unsure, packed], base, unsure) == "placement packed: validated; CASSINI: outside"
    )
    assert wording.confidence_of([base, unsure, packed], base, None) == "placement packed: validated"
    assert wording.confidence_of([base, unsure], base, None) == "CASSINI: outside"


def test_a_document_is_read_back() -> None:
    times = document.JobTimes(job=0, trace="x", workers=2, alone_s=1.0, shared_s=1.5, with_s={})
    base = document.Option(
        system="reno", kind="baseline", gain_mean=1.0, low=1.0, high=1.0, gain_last10=1.0, outcome="no difference", reason="",
        reasons=(), confidence="", validated=True,
    )  # fmt: skip
    one = document.Advice(
        rate="1gbit", topo="dumbbell", iterations=1, seeds=1, jobs=(times,), options=(base,), helps=False, best="reno",
        reason="x", confidence="y",
    )  # fmt: skip
    assert document.joined([one]).rates == () and document.joined([one, one]).rates == (one, one)


def test_a_page_that_exists_is_overwritten_only_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "mine.html"
    page.write_text("mine")
    assert main(["advise", "gpt2", "--html", str(page)]) == EXIT_REQUEST
    assert "add --force" in " ".join(capsys.readouterr().err.split()) and page.read_text() == "mine"


def test_a_page_of_a_hostile_trace_has_neither_its_markup_nor_its_control_characters(tmp_path: Path) -> None:
    trace = {
        "version": 1, "name": "<b>x</b>", "model": "m", "source": {"kind": "synthetic"}, "native_rate": "10gbit",
        "assumptions": ["<img src=x onerror=alert(1)>\x1b[2J"],
        "operations": [
            {"id": "c", "kind": "compute", "duration": "20ms"}, {"id": "s", "kind": "all_reduce", "bytes": "1MB", "after": ["c"]},
        ],
    }  # fmt: skip
    (tmp_path / "x.json").write_text(json.dumps(trace))
    page = tmp_path / "x.html"
    assert main(["advise", str(tmp_path / "x.json"), "--html", str(page), "--system", "reno", *SHORT]) == EXIT_OK
    text = page.read_text()
    assert "<img" not in text and "<b>" not in text and "&lt;img" in text and "\x1b" not in text and "<svg" in text
