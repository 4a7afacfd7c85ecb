"""`--capture`: tshark reads the same numbers from packets as the tables have, and a run is the same with it and without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import testbed
from testbed.core.errors import EXIT_FAILED
from testbed.core.runs.load import load_run
from testbed.exports import perfetto
from testbed.planning import captures
from tests.support import trace_processor
from tests.support.captures import needs_tshark, packets
from tests.support.runs import ROOT

RUN: dict[str, Any] = {
    "jobs": 2, "rate": "100mbit", "compute": "50ms", "bytes": "1MB", "iterations": 4, "system": "mltcp_reno", "isolated_runs": "none",
    "on": "uml",
}  # fmt: skip
TIE_NS = 100


def run(out: Path, **fields: Any) -> Path:
    """The run directory of a valid run."""
    assert testbed.run(**{**RUN, **fields}, out=out).verdict == "valid"
    (manifest,) = out.rglob("manifest.json")
    return manifest.parent


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which a queue drops, captured at a host of each job and at that queue."""
    return run(tmp_path_factory.mktemp("drops"), ecn="off", buffer="2ms", capture=["l1", "l2", "s1-s2"])


@pytest.fixture(scope="module")
def marking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("marks"), capture=["s1-s2"])


@needs_tshark
@pytest.mark.parametrize(("job", "host"), [(0, "l1"), (1, "l2")])
def test_a_senders_packets_are_its_counters_at_every_sample(dropping: Path, job: int, host: str) -> None:
    samples = pd.read_csv(dropping / "flows.csv").query("job == @job")
    seen = packets(dropping / f"capture-{host}.pcapng")
    sent = seen[seen["before"] & seen["out"] & (seen["payload"] > 0)]
    ends = sent["seq"] + sent["payload"]
    again = sent["seq"] < ends.cummax().shift(fill_value=1)
    acks = seen[~seen["before"] & ~seen["out"]]
    assert samples["retrans_segments"].iloc[-1] > 10
    rows = zip(samples["t_s"], samples["bytes_acked"], samples["retrans_segments"], strict=True)
    for t_s, bytes_acked, retrans_segments in rows:
        until = round(t_s * 1e9)
        acked = acks["ack"][acks["ns"] <= until].max()  # one more than payload, as bytes_acked: the SYN
        assert bytes_acked == acked, t_s
        # A timer may expire at the instant of a sample, before it or after it.
        assert retrans_segments in {again[sent["ns"] <= until + ns].sum() for ns in (-TIE_NS, TIE_NS)}, t_s
    assert seen["length"].max() == 1514
    after = seen[~seen["before"] & seen["out"] & (seen["payload"] > 0)]
    left = sent["seq"].value_counts() - after["seq"].value_counts()
    assert (left.dropna() >= 0).all()  # what leaves the queue has entered it, segment by segment
    assert samples["retrans_segments"].iloc[-1] == again[sent["ns"] <= until].sum()
    # What was sent once or more, each byte counted once, is the volume of the iterations.
    unique, reached = 0, 1
    for seq, end in sorted(zip(sent["seq"], ends, strict=True)):
        unique += max(0, end - max(seq, reached))
        reached = max(reached, end)
    iterations = pd.read_csv(dropping / "iterations.csv").query("job == @job and worker == 0")
    assert unique == reached - 1 >= iterations["bytes"].sum() > 0


@needs_tshark
def test_a_queue_s_drops_are_packets_that_do_not_leave_it(dropping: Path) -> None:
    seen = packets(dropping / "capture-s1-s2.pcapng").query("out and payload > 0")
    links = pd.read_csv(dropping / "links.csv").query("link == 's1-s2'")
    last = links[links["backlog_bytes"] == 0].iloc[-1]
    until = seen[seen["ns"] <= last["t_s"] * 1e9]
    assert until["before"].sum() - (~until["before"]).sum() == last["drops"] > 10


@needs_tshark
def test_marks_are_the_queue_s_and_frames_are_those_of_the_link(marking: Path) -> None:
    seen = packets(marking / "capture-s1-s2.pcapng")
    marks = seen[seen["out"] & (seen["ecn"] == 3)]
    links = pd.read_csv(marking / "links.csv").query("link == 's1-s2'")
    empty = links[links["backlog_bytes"] == 0]
    assert empty["ecn_marks"].iloc[-1] > 10
    for t_s, ecn_marks in zip(empty["t_s"], empty["ecn_marks"], strict=True):
        until = marks[marks["ns"] <= t_s * 1e9]
        assert (~until["before"]).sum() - until["before"].sum() == ecn_marks, t_s
    assert seen["length"].max() == 1514
    assert (seen["kept"] == seen["length"].clip(upper=96)).all()
    assert seen["ns"].is_monotonic_increasing and (seen["ns"] % 1000 > 0).any()
    assert b"is at 1000000010.000000000 s" in (marking / "capture-s1-s2.pcapng").read_bytes()
    assert set(seen["name"]) == {"s1-s2 before queue", "s1-s2 after queue"}


@needs_tshark
def test_the_numbers_of_the_documentation(dropping: Path, marking: Path) -> None:
    table = re.findall(
        r"^\| ([\d.]+) s \| .*: ([\d,]+).* \| `(\w+)`: ([\d,]+)", (ROOT / "docs/how-to/capture.md").read_text(), re.M
    )
    samples = pd.read_csv(dropping / "flows.csv").query("job == 0").set_index("t_s")
    marked = pd.read_csv(marking / "links.csv").query("link == 's1-s2'").set_index("t_s")
    sent = packets(dropping / "capture-l1.pcapng").query("before and out and payload > 0")
    seen = packets(marking / "capture-s1-s2.pcapng").query("out and ecn == 3")
    assert [column for _, _, column, _ in table] == ["bytes_acked", "retrans_segments", "ecn_marks"]
    for time, packet_count, column, sampled in table:
        rows = sent[sent["ns"] <= float(time) * 1e9]
        ends = rows["seq"] + rows["payload"]
        after = seen[(seen["ns"] <= float(time) * 1e9) & ~seen["before"]]
        found = {
            "bytes_acked": ends.max() - 1,
            "retrans_segments": (rows["seq"] < ends.cummax().shift(fill_value=1)).sum(),
            "ecn_marks": len(after) - len(seen[(seen["ns"] <= float(time) * 1e9) & seen["before"]]),
        }
        assert found[column] == int(packet_count.replace(",", "")), column
        of = marked if column == "ecn_marks" else samples
        assert of[column][float(time)] == int(sampled.replace(",", "")), column


@pytest.mark.skipif(bool(trace_processor.missing()), reason=trace_processor.missing())
@pytest.mark.xdist_group("browser")
def test_the_answer_of_perfetto_in_the_documentation(marking: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/export.md").read_text()
    ((query, answer),) = re.findall(r"```sql\n(.*?)```.*?```text\n.*?\n(.*?)\n```", page, re.S)
    run = load_run(marking)
    with trace_processor.started(tmp_path) as processor:
        processor.load(perfetto.text(run, run.jobs).encode())
        assert processor.query(query) == [tuple(json.loads(f"[{answer}]"))]


def test_a_run_is_the_same_with_and_without(marking: Path, tmp_path: Path) -> None:
    """All tables, and the captures of a second run, to the byte; of some iterations there is a part."""
    without = run(tmp_path / "without")
    again = run(tmp_path / "again", capture=["s2-s1", "r1", "s1-s2"], capture_iterations="1-2", snaplen=64)
    for folder in (marking, again):
        for table in without.glob("*.csv"):
            assert (folder / table.name).read_bytes() == table.read_bytes(), table.name
    assert (without / "verdict.json").read_bytes() == (marking / "verdict.json").read_bytes()
    whole, part = ((folder / "capture-s1-s2.pcapng").stat().st_size for folder in (marking, again))
    assert 0.2 < part / whole < 0.8


@needs_tshark
def test_iterations_that_are_captured(tmp_path: Path) -> None:
    folder = run(tmp_path, capture=["l1"], capture_iterations="1-2", jobs=1)
    seen = packets(folder / "capture-l1.pcapng")
    iterations = pd.read_csv(folder / "iterations.csv").query("worker == 0").set_index("iteration")
    sent = seen[seen["before"] & seen["out"] & (seen["payload"] > 0)]
    assert sent["ns"].min() >= iterations["comm_start_s"][1] * 1e9
    assert sent["ns"].max() <= iterations["end_s"][2] * 1e9
    assert sent["payload"].sum() == iterations["bytes"][[1, 2]].sum()


def test_a_ring_that_overflows_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "LEAST_PACKETS", 64)
    monkeypatch.setattr(captures, "MARGIN", 0.01)
    with pytest.raises(testbed.errors.TestbedError, match=r"--capture s1-s2: the kernel dropped \d+ packets"):
        run(tmp_path, capture=["s1-s2"])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_a_full_disk_ends_the_run_with_one_paragraph(tmp_path: Path) -> None:
    words = [word for name, value in RUN.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "testbed", "run", *words, "--snaplen", "1514", "--capture", "s1-s2", "--out", str(tmp_path)]  # fmt: skip
    # A checkout below /tmp stays where it is.
    inside = 'mount --bind "$0" /mnt && mount -t tmpfs -o size=8m small /tmp && mkdir -p "$0" && mount --bind /mnt "$0" && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, str(ROOT), *command], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "could not be written" in line]
    assert done.returncode == EXIT_FAILED, done.stderr
    assert len(said) == 1 and "--capture s1-s2: packets could not be written: No space left on device." in said[0]
    assert not list(tmp_path.rglob("manifest.json"))
