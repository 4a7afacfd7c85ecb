"""What is proposed for a machine's clock, and that it can be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from testbed import spec
from testbed.campaign import proposal
from testbed.core.runs.plan import Plan
from testbed.core.text import command
from testbed.planning import plan
from tests.support.manifests import manifest

NEW, OLD = "Linux 6.18.2 #1 SMP x86_64", "Linux 6.1.0-18 #1 SMP x86_64"


def planned(**fields: Any) -> Plan:
    return next(
        one
        for one in plan.plans(plan.resolve(spec.read(None, {"jobs": 4, "buffer": "1ms", **fields})))
        if one.alone is None
    )


def noted(*waited_s: float) -> pd.DataFrame:
    return pd.DataFrame({"waited_s": waited_s})


@pytest.mark.parametrize(
    ("share", "was_invalid", "rate"),
    [
        (10, False, "500mbit"),
        (10, True, "200mbit"),
        (1.5, True, "100mbit"),
        (0.1, True, "10mbit"),
        (4.01, False, "500mbit"),
    ],
)
def test_the_rate_leaves_room(share: float, was_invalid: bool, rate: str) -> None:
    one = planned()
    flags = proposal.propose(one, share * one.needed_bps, noted(), NEW, was_invalid=was_invalid).flags
    assert flags[:2] == ["--rate", rate]


def test_buffer_and_rto_outlast_the_pauses() -> None:
    one = planned()
    calm = proposal.propose(one, None, noted(), NEW, was_invalid=False)
    assert calm.flags == ["--rate", "500mbit", "--buffer", "1ms", "--rto-min", "5ms"]
    paused = proposal.propose(one, None, noted(*[0.004] * 98, 0.03, 0.03), NEW, was_invalid=False)
    assert paused.flags[2:] == ["--buffer", "5ms", "--rto-min", "100ms"]
    terrible = proposal.propose(one, None, noted(0.5, 2.0), NEW, was_invalid=False)
    assert terrible.flags[2:] == ["--buffer", "20ms", "--rto-min", "200ms"]
    assert "--rto-min" not in proposal.propose(one, None, noted(), OLD, was_invalid=False).flags


def test_what_is_proposed_can_be_asked_for() -> None:
    slow = proposal.propose(planned(rate="2mbit", buffer="50ms"), 1e5, noted(), NEW, was_invalid=True)
    flags = dict(zip([flag[2:].replace("-", "_") for flag in slow.flags[::2]], slow.flags[1::2], strict=True))
    assert planned(**flags).link.rate_bps == 1_000_000


def lines(
    monkeypatch: pytest.MonkeyPatch, typed: str, verdict: str = "invalid", root: bool = True, **fields: Any
) -> list[str]:
    run = SimpleNamespace(
        verdict=SimpleNamespace(verdict=verdict), disturbances=None,
        manifest=manifest(planned(**fields), measured={"capacity_bps": None}, kernel=NEW),
    )  # fmt: skip
    monkeypatch.setattr(proposal, "load_run", lambda path: run)
    return proposal.lines(Path("results"), [planned(**fields)], ["mltcp", "run", *shlex.split(typed)], root=root)


def test_an_invalid_run_is_told_what_to_paste(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(monkeypatch, "--topo dumbbell --jobs 4 --on host --rate=500mbit --cc reno mltcp_reno")
    assert found == [
        f"try: {command('run', root=True)} --topo dumbbell --jobs 4 --on host --cc reno mltcp_reno "
        "--rate 200mbit --buffer 1ms --rto-min 5ms",
        "exact, on any machine: mltcp run --topo dumbbell --jobs 4 --rate=500mbit --cc reno mltcp_reno --on uml",
    ]


def test_bytes_become_fewer_with_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = {"compute": "500ms", "bytes": "28MB"}
    first, _ = lines(monkeypatch, "--compute 500ms --bytes 28MB --on host", **fields)
    assert first.endswith("--rate 200mbit --buffer 1ms --rto-min 5ms --bytes 11200kB")
    jobs = "--job synthetic,compute=1s,bytes=5MB --job=resnet50 --on host"
    first, _ = lines(monkeypatch, jobs)
    assert first.endswith("--rto-min 5ms --job synthetic,compute=1s,bytes=2000kB --job resnet50")


def test_bytes_of_a_file_become_fewer_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('bytes = "10MB"\n')
    assert lines(monkeypatch, f"{file} --on host")[0].endswith("--bytes 4000kB")
    file.write_text('job = ["synthetic,compute=1s,bytes=5MB"]\n')
    assert lines(monkeypatch, f"{file} --on host")[0].endswith("--job synthetic,compute=1s,bytes=2000kB")
    assert "5MB" not in lines(monkeypatch, f"{file} --job synthetic,compute=1s,bytes=1MB --on host")[0]
    for swept in ('[sweep]\nbytes = ["1MB", "2MB"]\n', "this is no TOML"):
        file.write_text(swept)
        assert [line.split()[0] for line in lines(monkeypatch, f"{file} --on host")] == ["exact,"]


def test_another_machine_needs_no_sudo_here(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = lines(monkeypatch, "--jobs 4 --on ssh:root@far", root=False)
    assert first.startswith("try: mltcp run --jobs 4 --on ssh:root@far --rate ")
    assert second.endswith("--jobs 4 --on uml")


def test_words_are_quoted_and_nothing_is_said_of_a_good_run(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = lines(monkeypatch, "--name 'a;b' --on host")
    assert "--name 'a;b'" in first
    assert lines(monkeypatch, "--jobs 4 --on host", verdict="suspect") == []
